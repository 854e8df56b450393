"""Gradients of every worker's own copy of a module: one row after the other, or all in one batched pass."""

from __future__ import annotations

import pytest

from benchmarks.conftest import Compare
from syncline.problems import Digits, Problem, Rows, TextGPT

CASES: dict[str, tuple[Problem, int]] = {
    "text-gpt, 4 workers": (TextGPT(), 4),
    "digits, 256 workers": (Digits(), 256),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(against: Compare, case: str) -> None:
    problem, workers = CASES[case]
    rows = Rows.whole_group(workers)
    vmap, loop = (problem.build(rows, execution=how) for how in ("vmap", "loop"))  # type: ignore[call-arg]
    against(f"{case}: vmap", lambda: vmap.step_gradients(0), "loop", lambda: loop.step_gradients(0), unit="ms per step")
