"""Bounds of simulated steps: those of machines and networks that are as much slower."""

from __future__ import annotations

import numpy as np
import pytest

import syncline as sl
from syncline.costmodel.bases import TIMED_STEPS, any_library_basis, communication_uncertainty
from syncline.costmodel.network.network_links import slow_down
from syncline.costmodel.numerics.uncertainty import uncertainties
from syncline.specs import network

ANY = any_library_basis(None)
LINE = {"name": "line", "latency": "1 ms", "bandwidth": "50 Mbit/s"}
GIVEN = {"problem": "quadratic", "workers": 4, "steps": 40, "seeds": 1, "compute": 2e-3}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    methods = ["ddp-adam", "local-adam"]
    return sl.compare(methods=methods, networks=[LINE, "wan"], **GIVEN).rows


def test_times_are_between_their_bounds(rows: list[dict]) -> None:
    for row in rows:
        assert row["step_time_low_s"] < row["step_time_s"] < row["step_time_high_s"]
        for side in ("low", "high"):
            assert row[f"wall_clock_{side}_s"] == pytest.approx(row["steps"] * row[f"step_time_{side}_s"])
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert {row["speedup_low"] for row in rows if row["speedup"] == 1} == {1.0}


def test_given_seconds_leave_the_network_alone(rows: list[dict]) -> None:
    c = communication_uncertainty(network(LINE), None)
    assert c.basis == ANY and c.reasons
    (row, *_) = rows
    again = [
        sl.run(method=row["method"], network=slow_down(network(LINE), factor), **GIVEN).rows[0]["step_time_s"]
        for factor in (c.low, c.high)
    ]
    assert [row["step_time_low_s"], row["step_time_high_s"]] == pytest.approx(again)
    assert row["basis"] == f"computing: as given; communication: {ANY}"


def test_a_run_has_the_same_bounds(rows: list[dict]) -> None:
    (row, *_) = rows
    alone = sl.run(method=row["method"], network=LINE, **GIVEN).rows[0]
    for name in ("step_time_low_s", "step_time_high_s", "wall_clock_low_s", "wall_clock_high_s", "basis"):
        assert alone[name] == row[name]


def test_a_measured_step_is_as_sure_as_those_that_were_validated() -> None:
    given = GIVEN | {"compute": "measure"}
    row = sl.run(method="ddp-adam", network=LINE, **given).rows[0]
    assert row["basis"].startswith(f"computing: {TIMED_STEPS};")
    both = [np.log(uncertainties()[name].high) for name in (TIMED_STEPS, ANY)]
    assert np.log(row["step_time_high_s"] / row["step_time_s"]) <= np.hypot(*both)
