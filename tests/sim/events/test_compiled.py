"""What is compiled is compiled once: another process loads it."""

from __future__ import annotations

import subprocess
import sys

LOADS = "from syncline.sim.events import compiled, simulation; print(len(compiled._core))"


def test_another_process_loads_what_one_has_compiled() -> None:
    """Functions that none but compiled code calls are left alone where that is kept: they take ten seconds."""
    told = [subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True) for _ in range(2)]
    assert int(told[-1].stdout) > 40, told[-1].stderr
