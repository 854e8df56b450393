"""A replication of a pipeline's stages: what is late beside what is on time, timed as another model's pipeline."""

from __future__ import annotations

import math

import numpy as np
import pytest

from replication.replications.networks import TO_ALL, firsts
from replication.replications.replicate import replicate
from replication.replications.spec import ReplicationSpec, load_replication
from replication.timed_models import stage_work
from syncline.analysis import time_to_target_s
from syncline.costmodel import HARDWARE, MODELS
from syncline.errors import SpecError
from syncline.methods import method_of
from syncline.runs.training.stage_updates import updates_of
from syncline.specs import network
from tests.replication.replications.small import tiny_file

PROBLEM = {"kind": "text-gpt", "layers": 4, "width": 8, "heads": 2, "context": 8, "batch_size": 2, "tied": False,
           "validation_windows": 4}  # fmt: skip
OFFICES = {"sites": [2, 2], "lan": "10gbe", "uplink": "wan", "name": "two-offices"}
ADAM = {"kind": "ddp", "rule": {"kind": "adam"}, "lr": 0.02}
CHANGES = {
    "training": {"problem": PROBLEM, "workers": 1, "steps": 6, "eval_every": 2, "pipeline": {"stages": 4}},
    "methods": [
        {"method": ADAM | {"label": "discounted", "remedy": {"kind": "discount", "anneal_steps": 3}},
         "tune": {"remedy.anneal_steps": "2..5"}},
        {"method": {"kind": "basis-rotation", "label": "rotation", "lr": 0.02}, "tune": {"lr": "1e-2..3e-2"}},
    ],
    "search": {"trials": 2, "seeds": [101], "set": {"problem.held_out": "first-half"}},
    "rerun": None,
    "finals": {"seeds": 2, "set": {"problem.held_out": "second-half"}},
    "extras": [
        {"name": "on-time", "methods": ["rotation"], "seeds": 2, "set": {"pipeline.schedule": "1f1b"}},
        {"name": "K2", "methods": ["rotation"], "seeds": 1, "set": {"pipeline.stages": 2}},
        {"name": "current", "methods": ["rotation"], "seeds": 1, "set": {"pipeline.backward_weights": "current"}},
    ],
    "claims": [{"claim": "late is worse", "settled_by": "more seeds",
                "comparisons": [{"lower": "rotation @ on-time", "higher": "rotation"}]}],
    "networks": ["nvlink4", OFFICES],
    "pipeline_clock": {"model": "gpt-350m", "tokens_per_batch": 8192, "hardware": "a100"},
}  # fmt: skip


def pipelines(folder, changes=None) -> ReplicationSpec:
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    given = CHANGES | {"training.problem.path": str(text)} | (changes or {})
    return load_replication(tiny_file(folder, given))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines")
    return replicate(pipelines(folder), folder / "out", jobs=1)


def test_every_kind_of_stages_is_searched_and_judged(whole):
    assert whole.num_remaining == 0 and whole.effort == {"discounted": 2, "rotation": 2}
    assert isinstance(whole.chosen["discounted"]["knobs"]["remedy.anneal_steps"], int)
    last = {cell: losses[0] for cell, losses in whole.losses().items()}
    assert len(set(last.values())) == len(last) == 5  # each is another training
    (row,) = whole.verdicts
    assert row["state"] == "unknown" and row["seeds"] == 2


def test_times_are_those_of_the_pipeline_that_is_timed(whole):
    rows = {(row["setting"], row["method"], row["network"]): row for row in whole.networks}
    method = method_of(dict(whole.spec.methods[1].method) | whole.chosen["rotation"]["knobs"])
    work = stage_work(method, MODELS["gpt-350m"], 8192, HARDWARE["a100"], 4)
    aim = rows["finals", "rotation", "nvlink4"]["to_all_loss"]
    for where in ("nvlink4", OFFICES):
        over = network(where)
        for setting, microbatches in (("finals", None), ("on-time", 8)):
            row = rows[setting, "rotation", over.name]
            ends_s = updates_of(work, over, microbatches).seconds_until(np.arange(1, 7))
            assert row["step_time_s"] == pytest.approx(ends_s[-1] / 6) and row["bytes_per_worker"] > 1e7
            stage = whole.kept["finals" if setting == "finals" else "extra on-time"]
            losses = {}
            for one in stage.rows:
                if one["method"] == "rotation":
                    losses.setdefault(one["step"], []).append(one["loss"])
            steps = sorted(losses)
            clock_s = np.concatenate([[0.0], ends_s])[steps]
            expected = time_to_target_s(clock_s, [float(np.median(losses[step])) for step in steps], aim)
            assert row[TO_ALL] == (pytest.approx(expected) if math.isfinite(expected) else None)
    assert rows["K2", "rotation", "nvlink4"]["step_time_s"] > 0
    assert ("K2", "rotation", "two-offices") not in rows or rows["K2", "rotation", "two-offices"]["step_time_s"] is None


def test_who_is_first_of_all_settings_is_told_too(whole):
    page = (whole.folder / "README.md").read_text()
    assert "text-gpt, layers 4, width 8, context 8, 4 stages, 6 steps" in page
    assert "a pipeline of gpt-350m with 8,192 tokens a batch on a100, whose losses" in " ".join(page.split())
    finals, of_all = (firsts(whole.networks, TO_ALL, extras=extras) for extras in (False, True))
    assert all(row[TO_ALL] <= finals[name][TO_ALL] for name, row in of_all.items() if name in finals)
    assert ("Of all settings" in page) == (of_all != finals)


def test_the_problems_own_pipeline_is_timed_where_no_other_is_named(whole, tmp_path):
    spec = pipelines(tmp_path, {"pipeline_clock": None, "networks": ["wan"]})
    (own, *_) = replicate(spec, tmp_path / "out", jobs=1).networks
    assert own["bytes_per_worker"] == 2 * 3 * (4 * 2 * 8 * 8) / 4 and own["network"] == "wan"


def test_a_model_that_is_timed_needs_stages(tmp_path):
    given = CHANGES["training"] | {"pipeline": None, "problem": PROBLEM}
    with pytest.raises(SpecError, match=r"^pipeline_clock: got .*; expected none, as training has no pipeline"):
        pipelines(tmp_path, {"training": given})
