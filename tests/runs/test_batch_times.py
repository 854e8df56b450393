"""Compute time by batch size, as trainings see it."""

from __future__ import annotations

import pytest

from syncline.errors import SpecError
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.specs import RunSpec

DIGITS = {"kind": "digits", "hidden": 4, "batch_size": 12}
TABLE = {8: "10 ms", 16: "30 ms"}


def trained(problem, compute):
    spec = RunSpec.model_validate(
        {"kind": "run", "name": "table", "problem": problem, "workers": 2, "steps": 2, "method": "ddp-adam",
         "network": "wan", "compute": compute}
    )  # fmt: skip
    return time_method(spec, train_method(spec, spec.method), spec.network).compute_s


def test_the_batch_is_the_problem_s(tmp_path) -> None:
    assert trained(DIGITS, {"batch_times": TABLE}) == pytest.approx(0.020, rel=1e-12)
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(range(256)) * 4)
    gpt = {"kind": "text-gpt", "layers": 1, "width": 8, "heads": 2, "context": 6, "batch_size": 2,
           "validation_windows": 1, "path": str(text)}  # fmt: skip
    assert trained(gpt, {"batch_times": TABLE, "batch_unit": "tokens"}) == pytest.approx(0.020, rel=1e-12)
    assert trained(DIGITS | {"batch_size": 18}, {"batch_times": TABLE, "extrapolate": True}) == pytest.approx(
        0.035, rel=1e-12
    )


@pytest.mark.parametrize(
    ("problem", "compute", "said"),
    [
        (
            DIGITS | {"batch_size": 17},
            {"batch_times": TABLE},
            "compute.batch_times: got '8 to 16'; .* worker's 17, or extrapolate",
        ),
        (DIGITS, {"batch_times": TABLE, "batch_unit": "tokens"}, "as digits has no batch of tokens"),
        ({"kind": "rosenbrock"}, {"batch_times": TABLE}, "as rosenbrock has no batch of samples"),
    ],
)
def test_a_batch_that_the_table_does_not_have_is_refused_before_the_training(problem, compute, said) -> None:
    with pytest.raises(SpecError, match=said):
        trained(problem, compute)
