"""What all tests share: axis annotations checked at run time, one thread, the same examples everywhere."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import jaxtyping
import pytest
from _pytest.doctest import DoctestModule

from syncline.interrupts import SIGNALS
from tests import annotations
from tests.skips import pytest_sessionfinish  # noqa: F401

gc.disable()  # until all tests are collected: a million objects that stay
annotations.install("syncline.comm", "syncline.optim")  # before anything of these rooms is imported

import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

# A sum's bits depend on the number of threads, and the machines that run the tests differ in cores; test_kernels.py
# asks for others.
torch.set_num_threads(int(os.environ.get("SYNCLINE_TEST_THREADS", "1")))

# What a shell starts in the background is born deaf to Ctrl-C, and its children with it: tests that send it would wait.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared, noisy machines: a slow example is no failure, and a failure must be the same on every machine.
settings.register_profile("syncline", deadline=None, derandomize=True, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "syncline"))


def pytest_collection_finish() -> None:
    gc.freeze()  # what is collected stays: the collector need not go through it again and again
    # With the default of 700, to go through what tests import and cache took 20 CPU seconds of each worker.
    gc.set_threshold(10_000)
    gc.enable()


class Doctests:
    """A plugin that looks for doctests only in files with a prompt: to find none takes as long as to find some.

    A package may show functions whose help is written elsewhere.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path):
        collectors = yield
        if file_path.name == "__init__.py" or file_path.suffix != ".py" or ">>>" in file_path.read_text("utf-8"):
            return collectors
        return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Doctests())  # for files outside of this folder, too


collect_ignore = ["outside"]  # a package of somebody else's: on Python's path only where a test puts it there


@pytest.fixture(autouse=True)
def _annotations_are_checked_in_each_test():
    annotations.PASSED.clear()


@pytest.fixture
def unchecked():
    """Calls as a user's run makes them, without the tests' type checks in front of our own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Done(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """``command("project", "--json")``: the command line in this process, in an empty folder.

    It prints no lines of progress, which come after 10 seconds: on a busy machine that is what a small training takes.
    """
    from syncline.cli.application import main  # after the import hook

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("syncline.runs.processes.progress.FIRST_LINE_S", 1e6)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["syncline", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
