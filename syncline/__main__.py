"""The command line: it listens for signals before it imports anything that takes time."""

from __future__ import annotations

from syncline import interrupts


def main() -> None:
    """Run ``syncline``."""
    with interrupts.listen_for_signals():
        from syncline import cli

        cli.main()


if __name__ == "__main__":
    main()
