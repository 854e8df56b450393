"""Commands in a child of this process, which has imported already what a command imports for seconds."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from pathlib import Path
from typing import NamedTuple

from syncline.cli.application import main


class Forked(multiprocessing.get_context("fork").Process):
    """A command that starts no processes, in a folder that is also on Python's path.

    It has the methods of ``subprocess.Popen`` that the tests use. What it prints is in files beside the folder.
    """

    def __init__(self, arguments: list[str], folder: Path) -> None:
        super().__init__()
        self.arguments, self.folder = arguments, folder

    def run(self) -> None:
        os.setsid()
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        importlib.invalidate_caches()
        sys.stdout, sys.stderr = (self._file(name).open("w", encoding="utf-8") for name in ("out", "err"))
        sys.argv = ["syncline", *self.arguments]
        main()

    def _file(self, name: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{name}")

    def poll(self) -> int | None:
        return self.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.join(timeout)
        return self._file("out").read_text(encoding="utf-8"), self._file("err").read_text(encoding="utf-8")

    @property
    def returncode(self) -> int | None:
        return self.exitcode


class Ended(NamedTuple):
    """Exit code, standard output and standard error of a command that has ended."""

    returncode: int | None
    stdout: str
    stderr: str


def run_forked(folder: Path, *arguments: str) -> Ended:
    """Run a command in a child and wait for it."""
    child = Forked([*arguments], folder)
    child.start()
    printed = child.communicate()
    return Ended(child.returncode, *printed)
