"""What a long training needs of the memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

STEPS = 1_000_000
MOST_BYTES = 1 << 30

# Linux hands ``ru_maxrss`` of the process that starts another on to it, and this one has loaded every test; VmHWM is
# the child's own.
TRAIN = """
import re, resource, sys
from pathlib import Path
from syncline.cli.application import main
sys.argv = ["syncline", *sys.argv[1:]]
try:
    main()
finally:
    status = Path("/proc/self/status")
    if status.exists():
        print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024)
    else:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_a_million_steps_need_less_than_a_gibibyte(tmp_path):
    """With all tables and figures, on the one valley whose steps are cheapest; minutes."""
    sets = [f"steps={STEPS}", "workers=8", "seeds=[0]", "compute.seconds=1ms"]
    command = ["run", "rosenbrock-mt-dao", *(part for one in sets for part in ("--set", one)), "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, *command], cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "run.json").is_file()
    assert pq.ParquetFile(tmp_path / "out" / "metrics.parquet").metadata.num_rows == STEPS + 1
    assert int(done.stdout.splitlines()[-1]) < MOST_BYTES
