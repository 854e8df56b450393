"""What a step sends over each level: by hand of shapes, and as replicas of one worker count it."""

from __future__ import annotations

import pytest

import syncline as sl
from syncline.costmodel import MODELS
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.projections import Options, variants
from syncline.planner.projection.training_totals import level_bytes_per_step
from syncline.specs import ProjectSpec, load_spec, named_cluster

NETWORK = named_cluster("two-sites-a100").network
MODEL = MODELS["llama-7b"]
TOKENS = 8192


def over_levels(method: str, layout: str, **fields: object) -> list[float]:
    """Bytes of a step over nodes, sites, and between sites."""
    given = {"kind": "project", "name": "x", "model": "llama-7b", "tokens_per_worker": TOKENS, "workers": 64,
             "methods": [method], "networks": [NETWORK], "compute": {"hardware": "a100"}, "steps": 3200}  # fmt: skip
    (spec,) = variants(load_spec(given | fields, {}, ProjectSpec), Options(layouts=[layout]))
    told = level_bytes_per_step(ProjectionPlan([spec]), 0, NETWORK)  # type: ignore[list-item]
    assert told is not None
    return [float(one) for one in told]


def test_replicas_that_are_sites_send_the_model_once_each_way() -> None:
    # DiLoCo's 4 N every 32 steps, as a sum of two sites; inside, gradients in 2 bytes and what comes back.
    told = over_levels("diloco", "data=32")
    assert told[-1] == pytest.approx(2 * 4 * MODEL.parameters / 32, rel=1e-3)
    assert told[0] > told[1] > told[2]


def test_data_parallelism_sends_its_gradient_once_each_way() -> None:
    told = over_levels("ddp-adam", "data=64", memory={"sharding": "none"})
    assert told[-1] == pytest.approx(2 * 2 * MODEL.parameters, rel=1e-6)
    assert told[1] == pytest.approx(2 * 2 * 3 * 2 * MODEL.parameters, rel=1e-6)


def test_a_pipeline_across_sites_sends_activations_there_and_back() -> None:
    told = over_levels("ddp-adam", "tensor=8,data=4,pipeline=2")
    assert told[-1] == pytest.approx(2 * 64 * TOKENS * MODEL.width * 2)


def test_what_replicas_send_is_paid_for() -> None:
    fields = {"model": "llama-7b", "cluster": "two-sites-a100", "methods": ["diloco"], "tokens_per_worker": TOKENS,
              "steps": 3200, "layout": "data=32", "thresholds": False, "prices": {"egress_gb": 1.0}}  # fmt: skip
    (row,) = sl.project(**fields).rows
    exchanges = 3200 // 30
    assert row["egress_bytes"] == pytest.approx(exchanges * 2 * 4 * MODEL.parameters, rel=1e-3)
    assert row["cost"] == pytest.approx(row["egress_bytes"] / 1e9)
