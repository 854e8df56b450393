"""What a long training needs of the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

STEPS = 1_000_000
MOST_BYTES = 1 << 30
TRAINED = STEPS // 4
"""Steps that the test trains; memory beyond that of a short run is in proportion to the steps."""

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


def bytes_of(steps: int, folder: Path) -> int:
    """Train with all tables and figures, on the one valley whose steps are cheapest; return the largest memory."""
    sets = [f"steps={steps}", "workers=8", "seeds=[0]", "compute.seconds=1ms"]
    command = ["run", "rosenbrock-mt-dao", *(part for one in sets for part in ("--set", one)), "--out", f"out{steps}"]
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, *command], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / f"out{steps}" / "run.json").is_file()
    assert pq.ParquetFile(folder / f"out{steps}" / "metrics.parquet").metadata.num_rows == steps + 1
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_million_steps_need_less_than_a_gibibyte(tmp_path):
    short_bytes = bytes_of(1000, tmp_path)
    grown_bytes = bytes_of(TRAINED, tmp_path) - short_bytes
    assert grown_bytes > 0 and short_bytes + grown_bytes * STEPS / TRAINED < MOST_BYTES
