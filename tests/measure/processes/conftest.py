"""One server that all processes of these tests are forked from, and that has loaded all that they begin with."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from pathlib import Path

from syncline.measure.processes.watchdog import PRELOAD

LOADED = (
    *PRELOAD[1:],
    "syncline.measure.launching.process",
    "syncline.measure.launching.pipeline",
    "syncline.measure.launching.torchrun",
    "tests.methods.worlds",
    "typer",
    *(f"tests.measure.processes.{path.stem}" for path in sorted(Path(__file__).parent.glob("test_*.py"))),
)


def pytest_collection_finish() -> None:
    # A server keeps what it was started with; it loads while the first tests run.
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(LOADED))
    forkserver.ensure_running()
