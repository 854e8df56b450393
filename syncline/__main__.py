"""Entry point of the command line, which listens for signals before slow imports."""

from __future__ import annotations

import gc

from syncline import interrupts
from syncline.files import open_standard_streams


def main() -> None:
    """Run the command line ``syncline``."""
    open_standard_streams()
    gc.set_threshold(100_000)  # imports make many objects and no garbage
    try:
        with interrupts.listen_for_signals():
            from syncline.cli.application import main as run

            run()
    finally:
        gc.freeze()  # else Python searches all objects for garbage at its end, in a fifth of the time of `project`


if __name__ == "__main__":
    main()
