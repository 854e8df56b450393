"""The spec of a pipeline: what follows from a model, what each field moves, what is refused and warned about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from syncline.costmodel import HARDWARE, MODELS, compute_s
from syncline.errors import SpecError
from syncline.runs.pipeline import pipeline
from syncline.specs import PipelineSpec, load_spec, validate

BASE: dict[str, Any] = {
    "kind": "pipeline", "name": "p", "schedules": ["1f1b"], "stages": 3, "microbatches": 6, "forward": 1, "backward": 2,
}  # fmt: skip
MODEL: dict[str, Any] = {
    "kind": "pipeline", "name": "p", "schedules": ["1f1b"], "stages": 3, "microbatches": 6, "model": "gpt-160m",
    "tokens_per_microbatch": 1024, "hardware": "h100",
}  # fmt: skip
WAN = {"networks": ["wan"]}
PLACES: dict[str, Any] = {
    "name": "places", "kind": "matrix", "places": {"us": 3, "eu": 3},
    "inside": {"latency": "1 ms", "bandwidth": "5 Gbit/s"},
    "lines": [{"from": "us", "to": "eu", "latency": "50 ms", "bandwidth": "200 Mbit/s"}],
}  # fmt: skip
MESSAGES = {"activation_bytes": "8 MB", "gradient_bytes": "1 GB"}


def spec_of(base: dict[str, Any] = BASE, **fields: Any) -> PipelineSpec:
    made = validate(PipelineSpec, base | fields)
    assert isinstance(made, PipelineSpec)
    return made


# Sensitivity: each field moves the rows, or is warned about.


@dataclass(frozen=True)
class Moved:
    """A change of a field that moves a result, and of which spec."""

    value: Any
    base: dict[str, Any]


@dataclass(frozen=True)
class Inert:
    """A field that no result depends on, with the reason."""

    reason: str


FIELDS: dict[str, Moved | Inert] = {
    "kind": Inert("says what spec it is"),
    "name": Inert("of the folder"),
    "description": Inert("for people"),
    "source": Inert("for people"),
    "schedules": Moved(["gpipe"], BASE),
    "stages": Moved(2, BASE),
    "microbatches": Moved(9, BASE),
    "chunks": Moved(3, BASE | {"schedules": ["interleaved"]}),
    "max_in_flight": Moved(1, BASE),
    "forward": Moved(1.5, BASE),
    "backward": Moved([2, 2, 4], BASE),
    "backward_weight": Moved(0.5, BASE | {"schedules": ["zb-h1"]}),
    "model": Moved("gpt-350m", MODEL),
    "tokens_per_microbatch": Moved(2048, MODEL),
    "hardware": Moved("a100", MODEL),
    "precision": Moved("fp32", MODEL),
    "activation_bytes": Moved("8 MB", BASE | WAN),
    "networks": Moved(["10gbe"], MODEL | WAN),
    "replicas": Moved(2, MODEL | WAN),
    "gradient_bytes": Moved("1 GB", MODEL | WAN | {"replicas": 2}),
    "averaging": Moved("reduce+broadcast", MODEL | WAN | {"replicas": 2}),
    "flushes": Moved(2, BASE | {"schedules": ["gpipe"]}),
    "update": Moved([0.5, 0.25, 0.75], BASE),
    "placement": Moved("replicas-inside", BASE | {"networks": [PLACES], "replicas": 2} | MESSAGES),
    "jitter": Moved(0.3, BASE),
    "seed": Moved(1, BASE | {"jitter": 0.3}),
    "training": Inert("of real stages, see tests/measure/processes/test_launch_pipeline.py"),
}


def test_every_field_is_accounted_for():
    assert set(FIELDS) == set(PipelineSpec.model_fields)


@pytest.mark.parametrize("field", [field for field, entry in FIELDS.items() if isinstance(entry, Moved)])
def test_each_field_moves_something(field, tmp_path):
    entry = FIELDS[field]
    assert isinstance(entry, Moved)
    base = entry.base
    before, after = (
        pipeline(spec_of(fields), tmp_path / name, figures=False)["rows"]
        for name, fields in (("before", base), ("after", base | {field: entry.value}))
    )
    named = {"schedules": "schedule", "networks": "network"}.get(field, field)
    measured = [[{k: v for k, v in row.items() if k != named} for row in rows] for rows in (before, after)]
    assert measured[0] != measured[1]
    assert not spec_of(base | {field: entry.value}).warnings()


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"backward_weight": 0.5}, "backward_weight has no effect"),
        ({"seed": 3}, "seed has no effect without jitter"),
        ({"precision": "fp32"}, "precision has no effect without a model"),
        ({"activation_bytes": "8 MB"}, "activation_bytes has no effect without networks"),
        ({"gradient_bytes": "8 MB"}, "gradient_bytes has no effect without replicas"),
        ({"averaging": "direct"}, "averaging has no effect without replicas"),
        ({"placement": "search"}, "placement has no effect without a network on which places differ"),
        ({"replicas": 2}, "replicas have no effect without networks and gradient_bytes"),
        ({"replicas": 2, "networks": ["wan"]}, "replicas have no effect"),
    ],
)
def test_what_has_no_effect_is_warned_about(fields, warned):
    (line,) = spec_of(**fields).warnings()
    assert line.startswith(warned)


# What follows from a model.


def test_times_follow_from_the_model_s_work_and_the_last_stage_has_the_head():
    model, h100 = MODELS["gpt-160m"], HARDWARE["h100"]
    forward, backward, weight = spec_of(MODEL).stage_seconds("1f1b")
    assert forward[0] == forward[1] < forward[2]
    assert sum(forward) + sum(backward) == pytest.approx(compute_s(model.flops_per_token * 1024, h100))
    assert backward == [2 * seconds for seconds in forward] and weight == [0, 0, 0]
    head_s = compute_s(2 * model.vocabulary * model.width * 1024, h100)
    assert forward[2] - forward[0] == pytest.approx(head_s)


def test_a_split_backward_is_divided_and_not_longer():
    forward, inputs, weight = spec_of(schedules=["zb-h1"], backward_weight="500 ms").stage_seconds("zb-h1")
    assert (forward, inputs, weight) == ([1, 1, 1], [1.5, 1.5, 1.5], [0.5, 0.5, 0.5])
    assert spec_of(schedules=["zb-h1"]).stage_seconds("zb-h1")[1:] == ([1, 1, 1], [1, 1, 1])


def test_bytes_follow_from_the_model():
    spec = spec_of(MODEL)
    assert spec.message_bytes() == 2 * 1024 * 768
    assert sum(spec.allreduce_bytes()) == 4 * MODELS["gpt-160m"].parameters
    assert spec_of(MODEL, precision="fp32").message_bytes() == 4 * 1024 * 768
    assert spec_of(MODEL, activation_bytes="1 kB").message_bytes() == 1000
    assert spec_of().weights_bytes() is None and spec_of().stored_activation_bytes() is None


def test_nothing_is_sent_without_networks():
    assert spec_of(MODEL).pipeline("1f1b").activation_bytes == 0
    assert spec_of(MODEL, networks=["wan"]).pipeline("1f1b").activation_bytes == 2 * 1024 * 768


def test_jitter_is_drawn_from_its_seed_and_keeps_the_mean():
    many = {"stages": 8, "microbatches": 2000, "jitter": 0.3}
    one, same, other = (np.asarray(spec_of(**many, seed=seed).durations("1f1b").forward_s) for seed in (0, 0, 1))
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    assert one.mean() == pytest.approx(1.0, abs=0.01) and np.log(one).std() == pytest.approx(0.3, abs=0.01)
    # All schedules of a spec play the same times.
    assert np.array_equal(one, np.asarray(spec_of(**many, schedules=["gpipe"]).durations("gpipe").forward_s))
    assert np.array_equal(np.asarray(spec_of().durations("1f1b").backward_s), np.full((3, 6), 2.0))


# What is refused.


@pytest.mark.parametrize(
    ("base", "fields", "path", "expected"),
    [
        (BASE, {"backward": None}, "backward", "or a model, tokens_per_microbatch and hardware instead"),
        (BASE, {"tokens_per_microbatch": 4}, "tokens_per_microbatch", "a model as well"),
        (BASE, {"hardware": "h100"}, "hardware", "a model as well"),
        (
            MODEL,
            {"tokens_per_microbatch": None},
            "tokens_per_microbatch",
            "follows from model, tokens_per_microbatch and hardware",
        ),
        (MODEL, {"backward_weight": 1}, "backward_weight", "none with a model"),
        (MODEL, {"stages": 13}, "stages", "at most 12: gpt-160m has 12 blocks"),
        (MODEL, {"schedules": ["interleaved"], "stages": 7, "microbatches": 7}, "stages", "at most 6: gpt-160m has"),
        (BASE, {"schedules": []}, "schedules", "at least 1"),
        (BASE, {"schedules": ["1f1b", "1f1b"]}, "schedules", "different names"),
        (BASE, {"networks": ["wan", "wan"]}, "networks", "different names"),
        (BASE, {"schedules": ["interleaved"], "chunks": 1}, "chunks", "at least 2"),
        (BASE, {"max_in_flight": [1, 2, 1]}, "max_in_flight", "at most 1 at stage 2"),
        (BASE, {"gradient_bytes": [1, 2]}, "gradient_bytes", "one for each of the 3 stages"),
        (BASE, {"update": [1, 2]}, "update", "one for each of the 3 stages"),
        (BASE, {"averaging": "rings"}, "averaging", "reduce+broadcast"),
        (BASE, {"flushes": 2, "schedules": ["greedy"]}, "flushes", "1 with greedy, which updates"),
        (BASE, {"flushes": 2, "schedules": ["async-1f1b"]}, "flushes", "1 with async-1f1b, which updates"),
        (BASE, {"flushes": 100_000}, "microbatches", "at most 3: 1,048,576 forward passes in all are accepted"),
        (BASE, {"placement": "everywhere"}, "placement", "stages-inside"),
        (BASE, {"placement": []}, "placement", "the place of each rank"),
        (BASE | {"networks": [PLACES]}, {"placement": ["us", "eu"]}, "placement", "each of the 3 ranks"),
        (BASE | {"networks": [PLACES]}, {"placement": ["us", "eu", "asia"]}, "placement", "one of 'eu', 'us'"),
        (BASE | {"networks": [PLACES]}, {"placement": [0, 1, 1]}, "placement", "different positions"),
        (BASE | {"networks": [PLACES]}, {"placement": [0, 1, 9]}, "placement", "at most 6"),
        (BASE | {"networks": [PLACES], "replicas": 2}, {"placement": ["us"] * 6}, "placement", "at most 3 ranks in us"),
        (BASE | WAN, {"placement": ["us", "eu", "us"]}, "placement", "only a matrix has places with names"),
        (BASE, {"networks": [{"sites": [1, 1], "lan": "10gbe", "uplink": "wan"}]}, "workers", "2"),
    ],
)
def test_what_cannot_be(base, fields, path, expected):
    with pytest.raises(SpecError) as refused:
        spec_of(base, **fields)
    assert refused.value.path.startswith(path) and expected in refused.value.expected


def test_the_bundled_specs_are_what_their_names_say():
    assert len(load_spec("pipeline-schedules", (), PipelineSpec).schedules) == 6
    gpt = load_spec("pipeline-gpt-350m", (), PipelineSpec)
    assert gpt.model == MODELS["gpt-350m"] and len(gpt.networks) == 3 and not gpt.warnings()
