"""Bounds of projected times: what scaled machines and links say, at the limits and in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS, Link
from syncline.costmodel.bases import communication_uncertainty
from syncline.planner.bounds import Factors, combined_bounds
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.project import project
from syncline.specs import ProjectSpec, load_spec, validate

SPEC = load_spec("project-gpt-160m")
METHODS = ("ddp-adam", "diloco", "demo", "streaming-diloco")


def spec(**changed: object) -> ProjectSpec:
    return validate(ProjectSpec, dict(SPEC) | {"methods": METHODS} | changed)


@pytest.mark.parametrize("overlap", ["none", "ddp", "async"])
@pytest.mark.parametrize("number", range(len(METHODS)))
@pytest.mark.parametrize("factor", [0.7, 1.9])
def test_factors_are_those_of_a_slower_machine_and_a_slower_link(overlap: str, number: int, factor: float) -> None:
    one = spec(overlap=overlap, compute={"seconds": 0.2, "encode_bandwidth": "1 GB/s"})
    slower = spec(overlap=overlap, compute={"seconds": 0.2 * factor, "encode_bandwidth": 1e9 / factor})
    line = Link(5e-3, 1e8)
    longer = Link(5e-3 * factor, 1e8 / factor)
    plan, slow = ProjectionPlan([one]), ProjectionPlan([slower])
    told = plan.step(number, line, factors=Factors(communication=factor)).step_time_s
    assert told == pytest.approx(plan.step(number, longer).step_time_s)
    told = plan.step(number, line, factors=Factors(computing=np.array([factor]))).step_time_s
    assert told == pytest.approx(slow.step(number, line).step_time_s)
    both = plan.step(number, line, factors=Factors(np.array([factor]), factor)).step_time_s
    assert both == pytest.approx(factor * plan.step(number, line).step_time_s)


@pytest.mark.parametrize("overlap", ["none", "ddp"])
def test_rows_have_what_both_causes_do_one_at_a_time(overlap: str) -> None:
    one = spec(overlap=overlap, networks=["10gbe", {"name": "mine", "latency": "1 ms", "bandwidth": "1 Gbit/s"}])
    plan = ProjectionPlan([one])
    rows = iter(project(one))
    k = one.compute.uncertainty(one.model)
    for network in one.networks:
        c = communication_uncertainty(network, None)
        for number in range(len(METHODS)):
            row = next(rows)
            step_s = row["step_time_s"]
            by_k, by_c = (
                [float(plan.step(number, network, factors=f).step_time_s[0]) for f in factors]
                for factors in (
                    [Factors(np.array([k.low])), Factors(np.array([k.high]))],
                    [Factors(1.0, c.low), Factors(1.0, c.high)],
                )
            )
            low, high = (np.exp(np.hypot(np.log(by_k[end] / step_s), np.log(by_c[end] / step_s))) for end in (0, 1))
            assert row["step_time_low_s"] == pytest.approx(step_s / low)
            assert row["step_time_high_s"] == pytest.approx(step_s * high)
            assert row["wall_clock_high_s"] == pytest.approx(row["step_time_high_s"] * one.steps)
            assert row["basis"] == f"computing: {k.basis}; communication: {c.basis}"


def test_the_baseline_is_as_fast_as_itself_for_certain() -> None:
    for row in project(spec()):
        if row["method"] == "ddp-adam":
            assert (row["speedup_low"], row["speedup_high"]) == (1.0, 1.0)
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert 0 < row["step_time_low_s"] <= row["step_time_s"] <= row["step_time_high_s"]


def test_a_training_without_a_network_is_as_sure_as_its_computing() -> None:
    one = spec(workers=1, compute={"seconds": 0.1})
    for row in project(one):
        assert row["step_time_low_s"] == row["step_time_s"] == row["step_time_high_s"] == 0.1


def test_where_nobody_says_what_computes_it_is_as_sure_as_what_is_taken() -> None:
    told, said = (project(spec(compute=compute))[0] for compute in ({}, {"hardware": "cpu-core"}))
    assert (told["step_time_s"], told["basis"]) == (said["step_time_s"], said["basis"])


def test_thresholds_are_bounded_by_those_of_slower_and_faster_links() -> None:
    """Where nothing but bytes is sent, a bound is the threshold times what communication is off against computing."""
    one = spec(
        methods=["ddp-adam", "mt-dao"],
        compute={"seconds": 0.2},
        networks=[{"name": "mine", "latency": 0, "bandwidth": "1 Gbit/s"}],
    )
    row = project(one)[1]
    c = communication_uncertainty(one.networks[0], None)
    rate = row["faster_by_5_percent_bandwidth_bytes_per_s"]
    assert row["faster_by_5_percent_low_bandwidth_bytes_per_s"] == pytest.approx(c.low * rate, rel=1e-5)
    assert row["faster_by_5_percent_high_bandwidth_bytes_per_s"] == pytest.approx(c.high * rate, rel=1e-5)


def test_networks_of_several_links_have_bounds_too() -> None:
    (row, *_) = project(spec(networks=["dgx-h100"], workers=16))
    assert row["step_time_low_s"] < row["step_time_s"] < row["step_time_high_s"]
    assert communication_uncertainty(NETWORKS["dgx-h100"].network, "auto").basis in row["basis"]


def test_a_renamed_preset_has_the_same_bounds() -> None:
    rows = [project(spec(networks=[network]))[0] for network in ("10gbe", replace(NETWORKS["10gbe"].network, name="x"))]
    for name in ("step_time_s", "step_time_low_s", "step_time_high_s", "basis"):
        assert rows[0][name] == rows[1][name]


@given(st.lists(st.floats(0.1, 10), min_size=5, max_size=5))
def test_bounds_hold_the_value(of: list[float]) -> None:
    value, *around = (np.array([one]) for one in of)
    low, high = combined_bounds(value, around)
    assert 0 <= low <= value <= high
