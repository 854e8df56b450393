"""How soon the help, a projection and an advice answer: whole processes, beside one that only imports NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.conftest import Compare

SYNCLINE = Path(sys.executable).with_name("syncline")


ADVISE = "advise --model llama-3-8b --network two-sites --hardware h100 --workers"


def numpy() -> None:
    subprocess.run([sys.executable, "-c", "import numpy"], check=True, capture_output=True)


def syncline(*arguments: str) -> None:
    subprocess.run([SYNCLINE, *arguments], check=True, capture_output=True)


def test_help(against: Compare) -> None:
    against("syncline --help", lambda: syncline("--help"), "python -c 'import numpy'", numpy, rounds=11)


def test_project(against: Compare) -> None:
    against("syncline project", lambda: syncline("project", "--json"), "python -c 'import numpy'", numpy, rounds=11)


def test_advise(against: Compare) -> None:
    """Compare the README's question with an import of NumPy."""
    advise = [*ADVISE.split(), "16"]
    against("syncline advise", lambda: syncline(*advise), "python -c 'import numpy'", numpy, rounds=5)


def test_advise_does_not_grow_with_workers(against: Compare) -> None:
    """Compare 100,000 workers with 64."""
    few, many = ([*ADVISE.split(), count] for count in ("64", "100000"))
    against("100,000 workers", lambda: syncline(*many), "64 workers", lambda: syncline(*few), rounds=5)
