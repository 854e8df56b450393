"""Runs of a pipeline's stages: the trainings of a staleness study, and both pipelines' clocks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from replication.studies.staleness import StalenessSpec
from replication.studies.staleness.training import train_late
from syncline.costmodel import Link
from syncline.costmodel.layouts.pipelines import pipeline_s
from syncline.errors import SpecError
from syncline.methods import DDP
from syncline.planner.bounds import Factors
from syncline.runs.compare import compare
from syncline.runs.run import run
from syncline.runs.training.stage_updates import updates_of
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.runs.training.trained import Trained
from syncline.specs import CompareSpec, PipelineSpec, ProjectSpec, RunSpec, validate

ADAM = {"kind": "ddp", "rule": "adam", "lr": 0.01}
GPT = {"kind": "text-gpt", "layers": 4, "width": 8, "heads": 2, "context": 8, "batch_size": 2, "tied": False,
       "validation_windows": 4}  # fmt: skip
SHARED: dict[str, Any] = {"problem": GPT, "steps": 6, "eval_every": 3, "seeds": [0, 1], "schedule": {"warmup_steps": 2}}
FREE = Link(0.0, 1e15, "free")


def spec_of(pipeline: dict[str, Any] | None, **fields: Any) -> RunSpec:
    late = {} if pipeline is None else {"pipeline": pipeline}
    given = {"kind": "run", "name": "stages", "workers": 1, "method": ADAM, "network": "wan"}
    return validate(RunSpec, SHARED | given | late | fields)


def trained(pipeline: dict[str, Any] | None, **fields: Any) -> Trained:
    spec = spec_of(pipeline, **fields)
    return train_method(spec, spec.method)


def same(one: Any, other: Any) -> None:
    assert np.array_equal(one.loss, other.loss) and np.array_equal(one.eval_step, other.eval_step)
    assert np.array_equal(one.evaluation["loss"], other.evaluation["loss"])


REMEDIES = [None, {"kind": "discount", "anneal_steps": 4}, {"kind": "compensation", "strength": 0.5}, "look-ahead"]


@pytest.mark.parametrize("remedy", REMEDIES, ids=str)
def test_a_run_trains_as_the_study_does(remedy):
    fields = {"kind": "staleness", "name": "study", "stages": [4], "methods": [{"method": ADAM, "remedy": remedy}]}
    study = validate(StalenessSpec, SHARED | fields)
    same(trained({"stages": 4}, method=ADAM | {"remedy": remedy}).history, train_late(study, study.methods[0], 4))


@pytest.mark.parametrize("weights", ["current", "corrected"])
def test_so_it_does_without_a_stash(weights):
    fields = {
        "kind": "staleness",
        "name": "study",
        "stages": [4],
        "methods": [{"method": ADAM, "backward_weights": weights}],
    }
    study = validate(StalenessSpec, SHARED | fields)
    own = trained({"stages": 4, "backward_weights": weights})
    same(own.history, train_late(study, study.methods[0], 4))
    assert own.facts["corpus"] and not np.array_equal(own.history.loss, trained({"stages": 4}).history.loss)


@pytest.mark.parametrize("pipeline", [{"stages": 1}, {"stages": 4, "schedule": "1f1b"}], ids=str)
def test_what_is_not_late_is_plain_training(pipeline):
    same(trained(pipeline).history, trained(None).history)


def test_seeds_that_take_turns_have_one_clock():
    turns = {"compressor": {"kind": "top-k", "fraction": 0.5}}
    one = trained({"stages": 2}, method=ADAM | turns, dtype="float64")
    assert one.history.loss.shape == (6, 2) and one.stages is not None and one.stages.steps == 6


def test_the_clock_is_that_of_both_kinds_of_pipeline():
    """A batch of 3 s in one stage, without a network: the head makes the last one the slowest."""
    spec = spec_of({"stages": 1}, compute={"seconds": 3.0}, network="wan")
    (alone,) = {time_method(spec, train_method(spec, spec.method), link).step_time_s for link in (FREE,)}
    assert alone == pytest.approx(3.0)
    for schedule, microbatches in (("async-1f1b", None), ("1f1b", 4)):
        spec = spec_of({"stages": 4, "schedule": schedule, "microbatches": 4}, compute={"seconds": 3.0})
        one = train_method(spec, spec.method)
        clocks = {link.name: time_method(spec, one, link) for link in (FREE, spec.network)}
        forward_s = one.stages.work.forward_s
        assert sum(forward_s) == pytest.approx(1.0) and max(forward_s) == forward_s[-1]
        free, wan = clocks["free"], clocks["wan"]
        times = updates_of(one.stages.work, FREE, microbatches)
        assert (
            free.step_end_s == pytest.approx(times.seconds_until(np.arange(1, 7)))
            and free.wall_s == free.step_end_s[-1]
        )
        assert wan.step_time_s > free.step_time_s and free.compute_s == pytest.approx(3 / 4)
        assert free.compute_s + free.communication_s == pytest.approx(free.step_time_s)
        assert wan.bytes_per_worker == 2 * 3 * (4 * 2 * 8 * 8) / 4  # activations and gradients, between 4 stages
        if microbatches is None:
            assert times.update_s == pytest.approx(3 * forward_s[-1])  # the slowest sets the pace
        else:
            even = pipeline_s("1f1b", 4, 4, 1 / 16, 2 / 16)
            assert even < free.step_time_s < pipeline_s("1f1b", 4, 4, forward_s[-1] / 4, 2 * forward_s[-1] / 4)
        twice = one.stages.time(FREE, Factors(2.0, 1.0))
        assert twice.step_time_s == pytest.approx(2 * free.step_time_s)
        assert set(np.unique(free.timeline.worker)) == {0, 1, 2, 3}


def test_numbers_of_16_bits_are_half_as_many_bytes_and_rotation_takes_time():
    half, whole = (trained({"stages": 2}, precision=one).stages.work for one in ("bf16", "fp32"))
    assert whole.activation_bytes == 2 * half.activation_bytes and half.update_s == (0.0, 0.0)
    rotated = trained({"stages": 2}, method={"kind": "basis-rotation", "lr": 0.01}).stages.work
    assert min(rotated.update_s) > 0 and rotated.forward_s == whole.forward_s


def test_runs_and_comparisons_of_stages_have_folders(tmp_path):
    spec = spec_of({"stages": 2})
    told = run(spec, tmp_path / "run")
    row = json.loads((tmp_path / "run" / "run.json").read_text())["rows"][0]
    assert row["step_time_s"] == told["rows"][0]["step_time_s"] > 0.025  # two of 25 ms one way, shared by two batches
    assert row["step_time_low_s"] < row["step_time_s"] < row["step_time_high_s"]
    fields = spec.model_dump(exclude={"kind", "method", "network"}) | {"kind": "compare", "networks": ["wan", "10gbe"]}
    discounted = ADAM | {"label": "discounted", "remedy": {"kind": "discount", "anneal_steps": 4}}
    both = compare(validate(CompareSpec, fields | {"methods": [ADAM, discounted]}), tmp_path / "compare", jobs=1)
    assert [row["method"] for row in both["rows"]] == ["ddp-adam", "discounted"] * 2
    assert both["rows"][0]["loss"] == pytest.approx(np.median([one["loss"] for one in told["rows"]]))


SERVED = {"asynchronous": {"buffer_size": 1}}
REFUSED = [
    ({"workers": 2}, {"stages": 2}, "workers: got 2; expected 1 with pipeline"),
    ({}, {"stages": 8}, "pipeline.stages: got 8; expected at most 4, as many as the problem has blocks"),
    ({"problem": GPT | {"tied": True}}, {"stages": 2}, "problem.tied: got True; expected false in a pipeline"),
    ({"problem": "digits"}, {"stages": 2}, "pipeline.stages: got 2; expected a problem of blocks"),
    ({"faults": {"stragglers": {"exponential_scale": 0.1}}}, {"stages": 2}, "faults: got "),
    ({"speeds": [0.5]}, {"stages": 2}, "speeds: got (0.5,); expected none with pipeline"),
    ({"compute": {"seconds": 1, "jitter": 0.1}}, {"stages": 2}, "compute.jitter: got 0.1; expected none with"),
    ({"dtype": "float64"}, {"stages": 2, "backward_weights": "current"}, "dtype: got 'float64'; expected float32 wh"),
    ({}, {"stages": 2, "schedule": "1f1b", "backward_weights": "current"},
     "pipeline.backward_weights: got 'current'; expected stashed"),
    ({"method": ADAM | SERVED}, {"stages": 2}, "method.asynchronous: got 'async-ddp-adam'; expected none with"),
    ({"method": ADAM | {"remedy": "look-ahead"}}, {"stages": 2, "backward_weights": "current"},
     "method.remedy: got 'look-ahead'; expected none, or a discount, where backward_weights are current"),
    ({"method": ADAM | {"remedy": "look-ahead"}}, None, "method.remedy: got 'look-ahead'; expected none without"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "pipeline", "said"), REFUSED, ids=[said.split(";")[0] for *_, said in REFUSED])
def test_a_mistake_is_one_line_with_its_path(fields, pipeline, said):
    with pytest.raises(SpecError) as refused:
        spec_of(pipeline, **fields)
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)


def test_a_remedy_is_refused_where_nothing_is_late():
    late = ADAM | {"remedy": "look-ahead"}
    study = SHARED | {"kind": "staleness", "name": "study", "stages": [2], "methods": [{"method": late}]}
    with pytest.raises(SpecError, match=r"^methods.0.method.remedy: got 'look-ahead'; expected none in the method"):
        validate(StalenessSpec, study)
    project = {"kind": "project", "name": "p", "model": "gpt-160m", "tokens_per_worker": 8, "workers": 2}
    with pytest.raises(SpecError, match=r"^methods.0.remedy: got 'look-ahead'; expected none, as no gradient"):
        validate(ProjectSpec, project | {"methods": [late], "networks": ["wan"]})
    played = {"kind": "pipeline", "name": "p", "schedules": ["1f1b"], "stages": 2, "microbatches": 2, "forward": 1}
    with pytest.raises(SpecError, match=r"^training.method.remedy: got 'look-ahead'; expected none: stages"):
        validate(PipelineSpec, played | {"backward": 2, "training": {"problem": GPT, "method": late}})
    with pytest.raises(SpecError, match=r"^remedy: got 'look-ahead'; expected none: only trainings of a pipeline"):
        DDP([], 0.1, remedy="look-ahead")


def test_late_gradients_follow_the_shape_of_the_cooldown() -> None:
    losses = {}
    for shape in ("1-sqrt", "cosine"):
        losses[shape] = trained({"stages": 2}, schedule={"cooldown_steps": 4, "shape": shape}).history.loss
    assert np.array_equal(losses["1-sqrt"][:3], losses["cosine"][:3])  # before the rates differ
    assert not np.array_equal(losses["1-sqrt"], losses["cosine"])
