"""The commands: parse, call, print. What they do is in ``syncline.experiments``."""

from __future__ import annotations

import os
import signal
import sys

from syncline.commands.shell import INTERRUPTED, app, say
from syncline.errors import SynclineError

# Each module adds its commands to the application, in the order of the help.
# isort: off
from syncline.commands import trainings, processes, clocks, catalogue  # noqa: F401
# isort: on

__all__ = ["app", "main"]


def main() -> None:
    """The entry point: a mistake in the input is one line on standard error and exit code 2."""
    # Until a training listens there is nothing to save, and an exception would surface from within half an import.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        app()
    except SynclineError as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
