"""How soon a projection answers: a whole process, beside one that only imports NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.conftest import Compare

SYNCLINE = Path(sys.executable).with_name("syncline")


def test_project(against: Compare) -> None:
    def project() -> None:
        subprocess.run([SYNCLINE, "project", "--json"], check=True, capture_output=True)

    def numpy() -> None:
        subprocess.run([sys.executable, "-c", "import numpy"], check=True, capture_output=True)

    against("syncline project", project, "python -c 'import numpy'", numpy, rounds=11)
