"""The tests that compare bits, or small differences of trainings, under the kernels of other CPUs and more threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

MKL, TORCH, THREADS = "MKL_CBWR", "ATEN_CPU_CAPABILITY", "SYNCLINE_TEST_THREADS"
"""Which kernels MKL takes for products, and torch for the rest; threads, which ``conftest.py`` gives torch."""

KERNELS = {
    "avx2": {MKL: "AVX2", TORCH: "avx2"},
    "two threads": {THREADS: "2"},
    "oldest, two threads": {MKL: "COMPATIBLE", TORCH: "default", THREADS: "2"},
}
"""A CPU that has newer kernels takes them in all other tests."""

ORDER = ("DEFAULT", "NO AVX", "AVX2", "AVX512")
"""What torch says of a CPU, from the oldest."""

WHAT = (
    "tests/problems/test_replay.py",
    "tests/problems/test_teacher_student.py",
    "tests/problems/test_per_worker.py",
    "tests/comm/test_signs.py",
    "tests/comm/test_bits.py",
    "tests/comm/test_worlds.py",
    "tests/optim/test_compiled.py",
    "tests/optim/test_formulas.py",
    "tests/optim/test_votes.py",
    "tests/methods/test_table.py",
)
"""Replays, one row per method, the worlds of communicators, wire formats and votes, formulas of methods: 150 CPU s."""

LEFT_OUT = "not test_ledger_equals_the_cost_model_on_shapes"  # computes no value
LEFT_OUT_OF_OLD_KERNELS = f"{LEFT_OUT} and not test_large_blocks_are_transformed_by_the_loop"
"""The compiled loop adds in the order of the CPU's own kernels, and MKL's kernels for older CPUs in another."""
LIMIT_S = 3600.0
"""Of one variant: twenty times what it takes, so that a test that hangs fails."""


def has(kernels: dict[str, str]) -> bool:
    """Whether this CPU has the instructions that are asked for."""
    asked = "AVX2" if kernels.get(MKL) == "AVX2" else "DEFAULT"
    return ORDER.index(torch.backends.cpu.get_cpu_capability()) >= ORDER.index(asked)


DRAWS = """
import hashlib, torch
from syncline.problems.random_draws import gaussian, integers, torch_generator
from syncline.seeds import generator as of_numpy
torch_source, numpy_source = torch_generator(0, "draws"), of_numpy(0, "draws")
drawn = [gaussian(1.0)(torch_source, (1000, 3)), integers(99)(torch_source, (1000,))]
drawn += [torch.rand(1000, generator=torch_source), torch.randperm(1000, generator=torch_source)]
parts = [part.numpy() for part in drawn] + [numpy_source.standard_normal(1000), numpy_source.random(1000)]
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


def test_draws_have_the_same_bits_under_all_kernels() -> None:
    """As they are made in double precision, or of integers: single-precision normal numbers have not."""
    hashes = {
        subprocess.check_output([sys.executable, "-c", DRAWS], cwd=ROOT, env=os.environ | kernels)
        for kernels in KERNELS.values()
        if has(kernels)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize("name", KERNELS)
def test_other_kernels_pass_the_same_tests(name: str) -> None:
    kernels = KERNELS[name]
    if not has(kernels):
        pytest.skip(f"this CPU has no kernels for {name}")
    environment = os.environ | {"OMP_NUM_THREADS": kernels.get(THREADS, "1")} | kernels
    chosen = LEFT_OUT_OF_OLD_KERNELS if MKL in kernels else LEFT_OUT
    options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *WHAT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"with {kernels}:\n{done.stdout[-20_000:]}{done.stderr[-2_000:]}"
