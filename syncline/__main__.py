"""The command line: it listens for signals before it imports anything that takes time."""

from __future__ import annotations

from syncline import interrupts
from syncline.files import open_standard_streams


def main() -> None:
    """Run ``syncline``."""
    open_standard_streams()
    with interrupts.listen_for_signals():
        from syncline.cli import main as cli

        cli.main()


if __name__ == "__main__":
    main()
