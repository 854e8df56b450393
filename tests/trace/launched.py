"""Scripts under ``syncline trace`` and under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPTS = Path(__file__).with_name("scripts")
SEVERAL = SCRIPTS / "several.py"
SYNCLINE = ("-c", "from syncline.cli.application import main; main()")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def traced(workers: int, *script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(*SYNCLINE, "trace", "--workers", str(workers), "--network", "10gbe", "--json", "--", *script, cwd=cwd)


def told(text: str) -> list[str]:
    """What scripts print to be compared."""
    return sorted(line for line in text.splitlines() if line.startswith("told:"))


def told_by_both(workers: int, scripts: Sequence[str], twins: Sequence[str], cwd: Path) -> tuple[list[str], list[str]]:
    """What scripts say here, and what their twins say under torchrun."""
    here = traced(workers, str(SEVERAL), *scripts, cwd=cwd)
    assert here.returncode == 0, here.stderr[-3000:]
    there = run(*TORCHRUN, str(workers), str(SEVERAL), "apart", *twins, cwd=cwd)
    assert there.returncode == 0, there.stderr[-3000:]
    return told(here.stderr), told(there.stdout)
