"""One price of a plan: whoever asks, and however the plan is written, the same seconds."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import syncline as sl
from syncline.costmodel import MODELS as SHAPES
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.traffic.exchanges import calls_at
from syncline.measure.recording.record import RankRecord, Started, Stepped, Waited
from syncline.measure.replaying.replay import replay
from syncline.methods import method_of
from syncline.planner.advice.plan_costs import PROJECTION_COLUMNS, price_plans
from syncline.planner.advice.plans import TrainingPlan
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.explore.answers import ranking_of
from syncline.planner.explore.settings import PageSettings
from syncline.planner.projection.plan import ProjectionPlan
from syncline.specs import ProjectSpec, hardware, load_spec, model, network

NEAR = 1e-9
"""Largest relative difference of two answers to one question."""

NEAR_STORED = 3e-3
"""The same for the played messages of NCCL on ``p3.2xlarge``, where more than a slice of a piece is stored before it is
forwarded: the closed form adds up steps of which played ones overlap a little."""

NETWORKS = {
    "10gbe": (2, 5, 8, 60, 512), "wan": (3, 16), "ib-hdr": (8, 64), "p3.2xlarge": (4, 32),
    "dgx-a100": (4, 8, 64, 512), "dgx-h100": (16, 128), "p4d.24xlarge": (8, 32), "dgx-h100-superpod": (64, 512),
    "two-sites": (8, 16), "two-homes": (4,),
}  # fmt: skip
"""Numbers of workers to draw on each network: one node and several, powers of two and others."""

MODELS = ("gpt-160m", "olmo-1b", "gpt2-xl", "llama-7b")

CHOICES: dict[str, tuple[Any, ...]] = {
    "model": MODELS,
    "method": ("ddp-adam", "ddp-sgdm"),
    "overlap": ("ddp", "none", "async"),
    "precision": ("fp32", "bf16", None),
    "algorithm": (None, None, "auto", "nccl", "ring"),
    "hardware": ("a100", "h100", "v100"),
    "sharding": ("auto", "none", "optimizer", "gradients", "full"),
    "activations": ("selective", "recomputed", None),
    "sequences": (1, 4, 16),
}

ANSWERS = (
    "step_time_s", "step_time_low_s", "step_time_high_s", "compute_s", "communication_s", "exposed_communication_s",
    "inside_s", "optimizer_s", "trigger_s", "encode_s", "utilisation", "memory_bytes", "wire_bytes", "micro_batches",
)  # fmt: skip
WORDS = ("sharding", "algorithm", "timed_by", "not_timed", "basis", "fits")

MEANT = {"layout", "replicas", "bytes_per_worker"}
"""Columns that differ by their meaning: ``bytes_per_worker`` counts what replicas send to each other, and a replica of
all workers is alone."""


PLACES = tuple((name, workers) for name, counts in NETWORKS.items() for workers in counts)

BLOCK, BLOCKS = 2 * len(PLACES), 4
"""Plans of a block, in which each field takes each of its values as often as any other; blocks after the first are
marked slow."""


@cache
def drawn_plans() -> list[dict[str, Any]]:
    """Return the plans as options of ``project``: in each block the values of each field are shuffled by themselves."""
    random = np.random.default_rng(39)
    plans = []
    for _ in range(BLOCKS):
        fields = CHOICES | {"place": PLACES}
        orders = {name: random.permutation(np.arange(BLOCK) % len(values)) for name, values in fields.items()}
        for number in range(BLOCK):
            plan: dict[str, Any] = {name: fields[name][order[number]] for name, order in orders.items()}
            on, workers = plan.pop("place")
            plans.append(plan | {"network": on, "workers": workers})
    return plans


every_plan = pytest.mark.parametrize(
    "number", [n if n < BLOCK else pytest.param(n, marks=pytest.mark.slow) for n in range(BLOCK * BLOCKS)]
)


def tokens_of(plan: dict[str, Any]) -> int:
    """Return the tokens of a worker in a step."""
    return int(plan["sequences"] * SHAPES[plan["model"]].sequence)


def fields_of(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan's spec that no option of ``project`` names."""
    memory = {"sharding": plan["sharding"], "activations": plan["activations"]}
    fields: dict[str, Any] = {"tokens_per_worker": tokens_of(plan), "memory": memory, "steps": 10}
    return fields | {name: plan[name] for name in ("overlap", "precision", "algorithm") if plan[name] is not None}


def row_of(plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the row of ``project`` of a plan."""
    fields = fields_of(plan)
    (row,) = sl.project(
        model=plan["model"], methods=[plan["method"]], networks=[plan["network"]], workers=[plan["workers"]],
        hardware=[plan["hardware"]], thresholds=False, **fields, **more,
    ).rows  # fmt: skip
    return row


def near(value: Any) -> Any:
    """Return what an equal value of a column compares with: numbers nearly, all else unchanged."""
    return pytest.approx(value, rel=NEAR, nan_ok=True) if isinstance(value, float | int) else value


@every_plan
def test_a_plan_without_a_layout_is_data_parallel_among_all(number: int) -> None:
    plan = drawn_plans()[number]
    row, laid_out = row_of(plan), row_of(plan, layout={"data": plan["workers"]})
    assert set(row) == set(laid_out)
    for name in [*ANSWERS, *WORDS, *sorted(set(row) - MEANT)]:
        assert row[name] == near(laid_out[name]), name


def drawn_for(number: int, **fixed: Any) -> dict[str, Any]:
    """Return the numbered plan with the values that another question fixes, and the activations that it tries."""
    return drawn_plans()[number] | {"precision": None, "activations": "auto"} | fixed


@every_plan
def test_advice_has_the_price_of_the_same_plan(number: int) -> None:
    """Of advice, whose gradients overlap or do not, and travel in the format of the hardware's peak."""
    plan = drawn_for(number)
    if plan["overlap"] == "async":
        plan["overlap"] = "ddp"
    row, shape = row_of(plan), model(plan["model"])
    batch = tokens_of(plan) * plan["workers"]
    on, machine = network(plan["network"]), hardware(plan["hardware"])
    question = AdviceQuestion(shape, on, machine, plan["workers"], batch, 20.0 * shape.parameters)
    for layout in (Layout(), Layout(data=plan["workers"])):
        method = method_of(plan["method"])
        advised = TrainingPlan(method, layout, plan["overlap"], plan["algorithm"], plan["sharding"])
        (priced,) = price_plans(question, [advised])
        for name in sorted(set(PROJECTION_COLUMNS) - MEANT):
            assert row[name] == near(priced[name]), (name, layout)


@every_plan
def test_the_page_has_the_price_of_the_same_plan(number: int) -> None:
    """Of the page's baseline on one site, whose gradients overlap and whose algorithms and sharding are the default."""
    plan = drawn_for(number, method="ddp-adam", overlap="ddp", algorithm=None, sharding="auto")
    settings = PageSettings(
        model=plan["model"], hardware=plan["hardware"], sites=1, workers=plan["workers"], inside=plan["network"],
        batch=tokens_of(plan), replica="worker", methods=(),
    )  # fmt: skip
    row, baseline = row_of(plan), ranking_of(settings).baseline
    for name in (*ANSWERS, *WORDS):
        assert row[name] == near(baseline[name]), name


@cache
def replayed_s(kind: str, nbytes: float, workers: int, on: str, algorithm: str | None) -> float:
    """Return the seconds of a collective in the replay of a record in which the ranks do nothing else."""
    started = Started(0, kind, kind, nbytes, tuple(range(workers)), ("all", 0), "train.py:1")  # type: ignore[arg-type]
    ranks = [RankRecord([started, Waited(0), Stepped()]) for _ in range(workers)]
    return float(replay(ranks, network(on), hardware("a100"), algorithm).step_end_s[-1])


@every_plan
def test_a_replay_has_the_price_of_the_same_plan(number: int) -> None:
    """Of ``trace --shapes``, whose records have the calls of a step.

    Each call is replayed by itself: in a row, ranks that are done with a call begin the next before others are done,
    where up to 32 ranks play every message. Computing is not compared: a record counts the operations of a script.
    """
    plan = drawn_for(number, overlap="none")
    row = row_of(plan)
    names = {"kind": "project", "name": "replayed", "model": plan["model"], "workers": plan["workers"]}
    fields = names | {
        "methods": [plan["method"]], "networks": [plan["network"]], "compute": {"hardware": plan["hardware"]}
    }  # fmt: skip
    spec = load_spec(fields | fields_of(plan), (), ProjectSpec)
    assert isinstance(spec, ProjectSpec)
    (traffic,) = ProjectionPlan([spec]).method_plans[0].traffic
    calls = Counter((call.collective, call.payload_bytes) for call in calls_at(traffic.exchanges, 0))
    replayed = sum(
        times * replayed_s(*call, plan["workers"], plan["network"], spec.algorithm) for call, times in calls.items()
    )
    if row["fits"] is False:
        assert row["communication_s"] is None
    else:
        rel = NEAR_STORED if plan["network"] == "p3.2xlarge" else NEAR
        assert row["communication_s"] == pytest.approx(replayed, rel=rel)
