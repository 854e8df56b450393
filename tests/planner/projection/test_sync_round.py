"""A round of a method is the mean step that a projection tells, times its steps."""

from __future__ import annotations

import itertools

import pytest

from syncline.methods import METHODS
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.project import project
from syncline.planner.projection.sync_round import MOST_STEPS, simulate_round
from syncline.specs import ProjectSpec, load_spec


def spec(networks, **more):
    fields = {"kind": "project", "name": "round", "model": "gpt-160m", "tokens_per_worker": 4096, "workers": 8,
              "steps": 10**8, "methods": [*METHODS], "networks": networks, "compute": {"hardware": "a100"}}  # fmt: skip
    return load_spec(fields | more, (), ProjectSpec)


@pytest.mark.parametrize(
    "asked",
    [
        {"networks": ["wan"]},
        {"networks": [{"levels": [{"units": 4, "link": "nvlink3"}, {"units": 2, "link": "wan"}]}], "layout": "data=4"},
        {"networks": ["10gbe"], "overlap": "none"},
        {"networks": ["10gbe"], "overlap": "async", "methods": ["ddp-adam", "diloco", "streaming-diloco", "demo"]},
    ],
)  # fmt: skip
def test_a_round_takes_as_long_as_its_steps(asked):
    of = spec(**asked)
    plan, rows = ProjectionPlan([of]), project(of)
    for number, row in enumerate(rows):
        one = simulate_round(plan, number, of.networks[0])
        waits = sum(span.end_s - span.start_s for span in one.spans if span.kind == "wait")
        busy = sum(span.end_s - span.start_s for span in one.spans if span.kind == "compute")
        assert busy + waits == pytest.approx(one.seconds), row["method"]
        # A round that is cut has not its share of what is rare; the first rounds of a training are no others' like.
        near = 1e-2 if one.steps == MOST_STEPS else 1e-4
        assert one.seconds / one.steps == pytest.approx(row["step_time_s"], rel=near), row["method"]


def test_spans_of_a_stream_do_not_overlap():
    of = spec(["wan"], methods=["ddp-adam", "streaming-diloco", "demo"])
    plan = ProjectionPlan([of])
    for number in range(3):
        one = simulate_round(plan, number, of.networks[0])
        for streams in (("network",), ("compute", "wait")):
            spans = sorted((s.start_s, s.end_s) for s in one.spans if s.kind in streams)
            assert all(end <= begin + 1e-12 for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_worker_by_itself_computes():
    of = spec(["wan"], workers=1, methods=["ddp-adam"])
    one = simulate_round(ProjectionPlan([of]), 0, of.networks[0])
    assert (one.steps, [span.kind for span in one.spans]) == (1, ["compute"])
