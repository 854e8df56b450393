"""Staleness studies: late trainings against plain ones, against closed forms, and the clocks of both pipelines."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from replication.studies.staleness import STUDY, LateMethod, StalenessSpec
from replication.studies.staleness import study as staleness
from replication.studies.staleness.study import work_of
from replication.studies.staleness.training import at_rate, late_training, train_late
from replication.theory.basis_rotation import delayed_sgd_limit
from replication.timed_models import PipelineClockSpec
from syncline.costmodel import Link
from syncline.costmodel.layouts.pipelines import pipeline_s
from syncline.errors import SpecError
from syncline.methods.parts.asynchronous import RemedySpec
from syncline.runs.run import run_study, steps_of
from syncline.runs.training.delayed_gradients import train_by_events
from syncline.runs.training.stage_updates import (
    StageWork,
    UpdateTimes,
    async_update_times,
    sync_update_times,
)
from syncline.runs.training.train_and_time import train_method
from syncline.specs import RunSpec, load_spec, validate

ADAM = {"kind": "ddp", "rule": "adam", "lr": 0.01}
GPT = {"kind": "text-gpt", "layers": 4, "width": 8, "heads": 2, "context": 8, "batch_size": 2, "tied": False,
       "validation_windows": 4}  # fmt: skip
BOWL = {"kind": "quadratic", "spectrum": [1.0, 4.0, 2.0]}


def small(**fields: Any) -> StalenessSpec:
    """A GPT of four blocks for a few steps, with all fields that are not given."""
    given = {"kind": "staleness", "name": "small", "problem": GPT, "stages": [1, 2, 4], "methods": [ADAM], "steps": 6,
             "eval_every": 3, "seeds": [0, 1]}  # fmt: skip
    spec = validate(StalenessSpec, given | fields)
    assert isinstance(spec, StalenessSpec)
    return spec


def bowl(**fields: Any) -> StalenessSpec:
    """A quadratic: milliseconds."""
    return small(**{"problem": BOWL, "stages": [1, 3], "seeds": [0]} | fields)


def records_of(spec: StalenessSpec) -> list[dict[str, Any]]:
    """Of all its trainings, in this process."""
    return STUDY.records(spec)


def lengths_of(spec: StalenessSpec) -> list[int]:
    return [piece.length for piece in staleness.staleness_pieces(spec)]


def rows_of(spec: StalenessSpec) -> list[dict[str, Any]]:
    return staleness.staleness_rows(spec, records_of(spec))


# Trainings.

REMEDIES = [None, {"kind": "discount", "anneal_steps": 4}, {"kind": "compensation", "strength": 0.5}, "look-ahead"]


@pytest.mark.parametrize("remedy", REMEDIES, ids=str)
@pytest.mark.parametrize("problem", [GPT, BOWL, {"kind": "spiral"}], ids=["text-gpt", "quadratic", "spiral"])
def test_without_delay_it_is_plain_training_bit_for_bit(problem, remedy):
    shared = {"problem": problem, "steps": 5, "seeds": [0, 1], "eval_every": 2, "schedule": {"warmup_steps": 2}}
    if problem is not GPT and isinstance(remedy, dict) and remedy["kind"] == "discount":
        shared["delay"] = "uniform"
    spec = small(**shared, stages=[1], methods=[{"method": ADAM, "remedy": remedy}])
    late = train_late(spec, spec.methods[0], 1)
    shared.pop("delay", None)
    plain = RunSpec.model_validate(
        {"kind": "run", "name": "plain", "workers": 1, "method": ADAM, "network": "wan", "compute": {"seconds": 1}}
        | shared
    )
    history = train_method(plain, plain.method).history
    assert np.array_equal(late.loss, history.loss)
    assert np.array_equal(late.eval_step, history.eval_step)
    assert np.array_equal(late.evaluation["loss"], history.evaluation["loss"])


def test_the_events_and_the_delay_line_train_alike():
    spec = small(steps=9)
    late = spec.methods[0]
    by_line = train_late(spec, late, 4)
    by_events = train_by_events(late_training(spec, late, 4), spec.seeds)
    assert np.allclose(by_events.loss, by_line.loss, atol=1e-4)
    assert np.array_equal(by_events.eval_step, by_line.eval_step)
    # Also between, when the stages are not equally far.
    assert np.allclose(by_events.evaluation["loss"], by_line.evaluation["loss"], atol=1e-4)
    plain = train_late(spec, late, 1)
    assert not np.allclose(by_line.loss, plain.loss, atol=1e-4)


@pytest.mark.parametrize("weights", ["current", "corrected"])
def test_weights_that_are_not_stashed_make_another_training(weights):
    spec = small(methods=[{"method": ADAM, "backward_weights": weights}, ADAM], steps=8, seeds=[0])
    other, stashed = (train_late(spec, late, 4).loss for late in spec.methods)
    assert np.isfinite(other).all()
    assert np.array_equal(other[:1], stashed[:1]) and not np.allclose(other, stashed, atol=1e-6)


@pytest.mark.parametrize("stages", [2, 6])
def test_descent_converges_below_the_limit_and_diverges_above_it(stages):
    """x' = x - a H x(t - tau) is stable for a H below 2 sin(pi / (2 (2 tau + 1)))."""
    limit = float(delayed_sgd_limit(stages - 1)) / max(BOWL["spectrum"])
    descent = {"kind": "ddp", "rule": {"kind": "sgdm", "momentum": 0}, "lr": 1.0}
    rates = [0.9 * limit, 1.1 * limit]
    spec = bowl(stages=[stages], delay="uniform", methods=[descent], steps=50 * stages, rates=rates, eval_every=0)
    records = records_of(spec)
    below, above = ([r["loss"] for r in records if r["lr"] == lr] for lr in rates)
    assert below[-1] < 1e-2 * below[0]
    assert above[-1] > 10 * above[0]
    (row,) = staleness.staleness_rows(spec, records)
    assert (row["lr"], row["loss"]) == (0.9 * limit, below[-1])


def test_a_loss_that_overflows_has_diverged():
    descent = {"kind": "ddp", "rule": {"kind": "sgdm", "momentum": 0}, "lr": 0.4}
    plain, late = rows_of(bowl(stages=[1, 9], delay="uniform", methods=[descent], steps=300, eval_every=50))
    assert plain["diverged_at"] is None and plain["loss"] < 1e-6
    assert late["diverged_at"] > 1 and late["diverged_seeds"] == 1
    assert math.isinf(late["loss"]) and late["slowdown"] is None


# Rows.


def record(stages: int, lr: float, losses: list[float], method: str = "late", **more: Any) -> list[dict[str, Any]]:
    """A training's records, evaluated at every step of one seed."""
    shared = {"method": method, "stages": stages, "lr": lr, "seed": 0, "train_loss": None, "diverged_at": None}
    return [shared | {"interrupted": False, "step": t, "loss": loss} | more for t, loss in enumerate(losses)]


def study_of(*labels: str, **fields: Any) -> StalenessSpec:
    methods = [{"method": ADAM, "label": label} for label in labels]
    return bowl(methods=methods, steps=4, eval_every=1, stages=[1, 2], **fields)


def test_each_depth_takes_its_best_rate_and_slowdowns_are_told_to_one_target():
    """Plain: at rate .2 it has 2 after half of its steps; late: at rate .1 it is there at step 3."""
    spec = study_of("late", rates=[0.1, 0.2])
    records = record(1, 0.1, [5, 4, 3, 2, 1.5]) + record(1, 0.2, [5, 3, 2, 1, 0.5])
    records += record(2, 0.1, [5, 4, 3, 2, 1]) + record(2, 0.2, [5, 4, 3, 2, 2])
    plain, late = staleness.staleness_rows(spec, records)
    assert (plain["lr"], plain["loss"], plain["target_loss"], plain["steps_to_target"]) == (0.2, 0.5, 2, 2)
    assert (late["lr"], late["loss"], late["steps_to_target"], late["slowdown"]) == (0.1, 1, 3, 1.5)
    assert (plain["slowdown"], plain["effective_delay"], late["effective_delay"]) == (1, 0, math.sqrt(0.5))


def test_the_target_is_one_that_every_method_reaches_without_delay():
    spec = study_of("slow", "fast", "lost")
    records = record(1, 0.01, [5, 4, 3, 2.5, 2], "slow") + record(1, 0.01, [5, 3, 1, 1, 1], "fast")
    records += record(1, 0.01, [5, 6, 7, 8, 9], "lost")
    slow, fast, lost = staleness.staleness_rows(spec, records)
    assert slow["target_loss"] == fast["target_loss"] == 3
    assert (slow["steps_to_target"], fast["steps_to_target"]) == (2, 1)
    assert math.isinf(lost["steps_to_target"])
    (given, *_) = staleness.staleness_rows(study_of("slow", target_loss=2.0), records)
    assert (given["target_loss"], given["steps_to_target"]) == (2, 4)


def test_rates_that_are_tuned_are_chosen_on_seeds_of_their_own():
    """At four stages seed 1 prefers the lower of these rates, and seed 4 the higher one."""
    spec = small(rates=[0.03, 0.06], stages=[4], seeds=[1])
    tuned = small(rates=[0.03, 0.06], stages=[4], seeds=[1], tuning_seeds=[4])
    (own,), (other,), (chosen,) = rows_of(small(stages=[4], seeds=[1], rates=[0.06])), rows_of(spec), rows_of(tuned)
    assert (other["lr"], chosen["lr"]) == (0.03, 0.06) and chosen == own
    records = records_of(tuned)
    assert {(r["lr"], r["seed"], r["step"]) for r in records} == {
        *((lr, 4, step) for lr in (0.03, 0.06) for step in (0, 6)),
        *((0.06, 1, step) for step in (0, 3, 6)),
    }
    assert lengths_of(tuned) == [3 * 6] and lengths_of(spec) == [2 * 6]


def test_an_interrupted_tuning_is_no_row():
    spec = small(rates=[0.01, 0.02], stages=[2], tuning_seeds=[4])

    def report(done: int) -> None:
        if done >= 13:  # in the training that counts
            raise KeyboardInterrupt

    kept = staleness.late_records(spec, spec.methods, 2, report)
    assert {(r["seed"], r["interrupted"]) for r in kept} == {(4, False), (0, True), (1, True)}
    assert staleness.staleness_rows(spec, kept) == []


def test_factors_are_of_each_methods_own_rate_and_keep_the_other_rate_in_proportion():
    muon = {"kind": "ddp", "rule": "muon", "lr": 0.02, "other_lr": 0.004}
    spec = small(methods=[ADAM, muon, {"method": ADAM, "label": "own", "rates": [0.3]}], rate_factors=[0.5, 2])
    assert [spec.rates_of(late) for late in spec.methods] == [(0.005, 0.02), (0.01, 0.04), (0.3,)]
    half = at_rate(spec.methods[1].method, 0.01)
    assert (half.lr, half.other_lr) == (0.01, 0.002)
    assert at_rate(spec.methods[0].method, 0.02).other_lr is None


def test_a_seed_that_was_lost_counts_as_the_worst():
    spec = study_of("late", seeds=[0, 1, 2])
    records = [
        one | {"seed": seed, "diverged_at": 3 if seed == 1 else None}
        for seed, last in ((0, 1.0), (1, math.nan), (2, 2.0))
        for one in record(1, 0.01, [5, 4, 3, 2, last])
    ]
    (row,) = staleness.staleness_rows(spec, records)
    assert (row["loss"], row["loss_min"], row["loss_max"]) == (2, 1, 2)
    assert (row["diverged_at"], row["diverged_seeds"], row["seeds"]) == (3, 1, 3)


def test_ctrl_c_keeps_what_there_is():
    spec = small(rates=[0.01, 0.02], stages=[2])

    def stop_at(step: int):
        def report(done: int) -> None:
            if done >= step:
                raise KeyboardInterrupt

        return report

    whole = staleness.late_records(spec, spec.methods, 2, lambda done: None)
    kept = staleness.late_records(spec, spec.methods, 2, stop_at(10))  # in the second rate's training
    assert kept[:6] == whole[:6] and {r["interrupted"] for r in kept[6:]} == {True}
    assert max(r["step"] for r in kept[6:]) == 4
    assert [row["lr"] for row in staleness.staleness_rows(spec, kept)] == [0.01]
    by_events = LateMethod.model_validate({"method": ADAM, "backward_weights": "current"})
    kept = staleness.late_records(spec, [by_events], 2, stop_at(2))  # steps of both seeds: in the first one
    assert {(r["seed"], r["step"]) for r in kept} == {(0, 0), (0, 3)} and all(r["interrupted"] for r in kept)
    assert staleness.staleness_rows(spec, kept) == []


# Clocks.

AT_ONCE = Link(0.0, 1e18)
EVEN = StageWork((2.0,) * 4, 8.0, (0.0,) * 4)


def test_on_a_free_network_both_clocks_are_their_closed_forms():
    assert async_update_times(EVEN, AT_ONCE).update_s == pytest.approx(2 + 4)
    assert async_update_times(EVEN, AT_ONCE).seconds_until([0, 1, 2]).tolist() == pytest.approx([0, 24, 30])
    expected = pipeline_s("1f1b", 4, 8, 2.0 / 8, 4.0 / 8)
    assert sync_update_times(EVEN, AT_ONCE, 8) == UpdateTimes(pytest.approx(expected), pytest.approx(expected))


def test_the_slowest_stage_sets_the_asynchronous_pace():
    uneven = StageWork((1.0, 3.0, 1.0), 8.0, (0.0,) * 3)
    assert async_update_times(uneven, AT_ONCE).update_s == pytest.approx(9)


def test_what_a_method_adds_is_in_both_clocks():
    costly = StageWork(EVEN.forward_s, EVEN.activation_bytes, (0.5,) * 4)
    assert async_update_times(costly, AT_ONCE).update_s == pytest.approx(6.5)
    before = sync_update_times(EVEN, AT_ONCE, 8).update_s
    assert sync_update_times(costly, AT_ONCE, 8).update_s == pytest.approx(before + 0.5)


def test_latency_stops_the_synchronous_pipeline_alone_while_it_is_hidden():
    """A round trip of the first stage: 4 stages forth and back, 3 hops each way; its limit of 4 in flight hides it."""
    near, far = Link(0.0, 1e18), Link(0.1, 1e18)
    assert async_update_times(EVEN, far).update_s == pytest.approx(
        async_update_times(EVEN, near).update_s + 6 * 0.1 / 4, rel=1e-6
    )
    assert sync_update_times(EVEN, far, 8).update_s > sync_update_times(EVEN, near, 8).update_s + 6 * 0.1 - 1e-9


def test_the_clock_is_of_the_problem_or_of_a_real_model():
    own = small(clock={"networks": ["wan"]})
    work = work_of(own, own.methods[0].method, 4)
    tokens, width, vocabulary, context = 2 * 8, 8, 256, 8
    block, head = 6 * 12 * width**2 + 12 * width * context, 6 * vocabulary * width
    rate = 0.5 * 96e9  # of a cpu-core
    assert work.forward_s[0] == pytest.approx(block * tokens / 3 / rate)
    assert work.forward_s[-1] == pytest.approx((block + head) * tokens / 3 / rate)
    assert work.activation_bytes == 4 * tokens * width
    real = small(clock={"networks": ["wan"], "model": "gpt-160m", "tokens_per_batch": 1024, "hardware": "a100"})
    assert work_of(real, real.methods[0].method, 4).activation_bytes == 2 * 1024 * 768


def test_rows_have_the_time_of_both_pipelines():
    spec = study_of("late", clock={"networks": ["wan", "10gbe"], "model": "gpt-160m", "tokens_per_batch": 1024})
    records = record(1, 0.01, [5, 3, 2, 1, 0.5]) + record(2, 0.01, [5, 4, 3, 2, 1])
    rows = staleness.staleness_rows(spec, records)
    assert [(row["stages"], row["network"]) for row in rows] == [(1, "wan"), (1, "10gbe"), (2, "wan"), (2, "10gbe")]
    for row in rows:
        work = work_of(spec, spec.methods[0].method, row["stages"])
        network = next(one for one in spec.clock.networks if one.name == row["network"])
        late, sync = async_update_times(work, network), sync_update_times(work, network, 8)
        assert (row["update_s"], row["sync_update_s"]) == (late.update_s, sync.update_s)
        assert row["time_to_target_s"] == pytest.approx(float(late.seconds_until(row["steps_to_target"])))
        assert row["sync_time_to_target_s"] == pytest.approx(2 * sync.update_s)
        assert row["speedup"] == pytest.approx(row["sync_time_to_target_s"] / row["time_to_target_s"])


# Folders.


def test_without_delay_what_differs_in_a_remedy_is_trained_once():
    methods = [{"label": str(remedy), "method": ADAM, "remedy": remedy} for remedy in REMEDIES]
    spec = small(methods=[*methods, ADAM | {"lr": 0.02}], stages=[1, 2])
    assert lengths_of(spec) == [6] * (2 + 5)
    plain = {row["method"]: row["loss"] for row in rows_of(spec) if row["stages"] == 1}
    assert len(plain) == 5 and len(set(plain.values())) == 2


def test_a_study_leaves_a_folder_with_records_rows_and_figures(tmp_path):
    methods = [ADAM, {"method": ADAM, "backward_weights": "current", "rates": [0.01, 0.02]}]
    spec, told = small(methods=methods, stages=[1, 2], clock={"networks": ["nvlink4", "wan"]}), []
    result = run_study(spec, tmp_path / "out", jobs=1, on_progress=told.append)
    figures = sorted(path.stem for path in (tmp_path / "out" / "figures").iterdir())
    assert figures == ["loss_against_clock", "loss_against_steps", "loss_over_stages", "methods_against_clock"]
    assert load_spec(tmp_path / "out" / "spec.yaml", (), StalenessSpec) == spec
    assert json.loads((tmp_path / "out" / "run.json").read_text())["rows"] == json.loads(json.dumps(result["rows"]))
    table = pq.read_table(tmp_path / "out" / "metrics.parquet").to_pylist()
    assert len(table) == (1 + 2) * 2 * 2 * 3  # rates, depths, seeds, evaluations
    assert told[-1] == steps_of(spec) == (1 + 2) * 2 * 6
    assert result["rows"] == rows_of(spec) and len(result["rows"]) == 2 * 2 * 2


BUNDLED = {
    "staleness-text": ["steps=2", "problem.width=4", "problem.batch_size=1", "problem.validation_windows=1",
                       "seeds=[0]", "schedule={}", "stages=[1, 8]", "eval_every=1"],
    "staleness-quadratic": ["steps=20", "stages=[1, 3]", "rates=[0.01, 0.1]"],
}  # fmt: skip


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_studies_run(name):
    spec = load_spec(name, BUNDLED[name], StalenessSpec)
    networks = len(spec.clock.networks) if spec.clock else 1
    assert len(rows_of(spec)) == len(spec.methods) * len(spec.stages) * networks
    assert load_spec(name, (), StalenessSpec).warnings() == []


# Specs.

REFUSED = [
    ({"stages": [8]}, "stages: got 8; expected at most 4, as many as the problem has blocks (layers)"),
    ({"stages": [2, 2]}, "stages: got (2, 2); expected values that differ"),
    ({"problem": GPT | {"tied": True}}, "problem.tied: got True; expected false in a pipeline"),
    ({"problem": "digits"}, "delay: got 'per-stage'; expected uniform, as digits has no blocks"),
    ({"methods": [ADAM, ADAM]}, "methods: got ['ddp-adam', 'ddp-adam']; expected different names"),
    ({"methods": [{"method": ADAM, "remedy": "discount"}]}, "methods.0.remedy.anneal_steps: got None; expected a "),
    ({"methods": [{"method": ADAM, "remedy": {"kind": "look-ahead", "strength": 1}}]},
     "methods.0.remedy.strength: got 1.0; expected none for look-ahead"),
    ({"methods": [{"method": ADAM, "remedy": "look-ahead", "backward_weights": "current"}]},
     "methods.0.remedy: got 'look-ahead'; expected none, or a discount"),
    ({"methods": [{"method": ADAM, "backward_weights": "current"}], "delay": "uniform"},
     "methods.0.backward_weights: got 'current'; expected stashed, unless"),
    ({"problem": BOWL, "methods": [{"method": ADAM, "remedy": {"kind": "discount", "anneal_steps": 3}}], "stages": [2]},
     "methods.0.remedy: got 'discount'; expected another, or delay: uniform"),
    ({"problem": BOWL, "clock": {"networks": ["wan"]}, "stages": [2]}, "clock.model: got None; expected a model whose"),
    ({"clock": {"networks": ["wan"], "tokens_per_batch": 9}}, "clock.tokens_per_batch: got 9; expected a model"),
    ({"clock": {"networks": ["wan"], "model": "gpt-160m"}}, "clock.tokens_per_batch: got None; expected the number"),
    ({"clock": {"networks": []}}, "clock.networks: got []; expected at least 1"),
    ({"workers": 2}, "workers: got 2; expected no such field here"),
    ({"rates": [0.1], "rate_factors": [2]}, "rate_factors: got (2.0,); expected none with rates"),
    ({"rate_factors": [1, 1]}, "rate_factors: got (1.0, 1.0); expected values that differ"),
    ({"rates": [0.1, 0.2], "tuning_seeds": [9, 1]}, "tuning_seeds: got (9, 1); expected seeds that are not among"),
    ({"rates": [0.1], "tuning_seeds": [9]}, "tuning_seeds: got (9,); expected none without rates to choose from"),
    ({"device": "tpu"}, "device: got 'tpu'; expected 'cpu' or 'cuda'"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "said"), REFUSED, ids=[said.split(";")[0] for _, said in REFUSED])
def test_a_mistake_is_one_line_with_its_path(fields, said):
    with pytest.raises(SpecError) as refused:
        small(**fields)
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)


def test_more_stages_than_coordinates_are_refused_when_they_are_known():
    with pytest.raises(SpecError, match="stages: got 4; expected at most 3, as many as there are coordinates"):
        rows_of(bowl(stages=[4]))


@pytest.mark.parametrize(("fields", "said"), [
    ({"stages": [2]}, "stages without 1"),
    ({"eval_every": 0}, "eval_every 0"),
    ({"delay": "uniform", "clock": {"networks": ["wan"]}}, "delay uniform"),
])  # fmt: skip
def test_what_is_surely_not_meant_is_warned_about(fields, said):
    (warning,) = small(**fields).warnings()
    assert warning.startswith(said)


@dataclass(frozen=True)
class Moves:
    """Another value of a field, what else is set before and after, and the columns of the rows that it moves."""

    to: dict[str, Any]
    columns: tuple[str, ...]
    beside: dict[str, Any] | None = None


def method(**fields: Any) -> dict[str, Any]:
    return {"methods": [{"method": ADAM} | fields]}


CLOCK = {"networks": ["wan"]}
REAL = CLOCK | {"model": "gpt-160m", "tokens_per_batch": 1024}
DISCOUNT, COMPENSATION = {"kind": "discount", "anneal_steps": 4}, {"kind": "compensation", "strength": 1e3}
FOR_PEOPLE, SAME_BITS = "for people", "of torch's sums: the last bits may or may not differ"

FIELDS: dict[str, Moves | str] = {
    "StalenessSpec.kind": "which spec it is",
    "StalenessSpec.name": FOR_PEOPLE,
    "StalenessSpec.description": FOR_PEOPLE,
    "StalenessSpec.source": FOR_PEOPLE,
    "StalenessSpec.threads": SAME_BITS,
    "StalenessSpec.device": "where it is computed; tests have no other",
    "StalenessSpec.problem": Moves({"problem": BOWL, "stages": [1, 3]}, ("loss",)),
    "StalenessSpec.stages": Moves({"stages": [1, 2]}, ("loss", "stages", "effective_delay"), {"stages": [1, 4]}),
    "StalenessSpec.methods": Moves({"methods": [ADAM | {"lr": 0.02}]}, ("loss", "lr")),
    "StalenessSpec.steps": Moves({"steps": 5}, ("loss", "steps")),
    "StalenessSpec.seeds": Moves({"seeds": [2]}, ("loss",), {"seeds": [1]}),
    "StalenessSpec.eval_every": Moves({"eval_every": 1}, ("steps_to_target",), {"target_loss": 5.54}),
    "StalenessSpec.schedule": Moves({"schedule": {"warmup_steps": 3}}, ("loss",)),
    "StalenessSpec.delay": Moves({"delay": "uniform"}, ("loss", "effective_delay")),
    "StalenessSpec.rates": Moves({"rates": [0.02]}, ("loss", "lr")),
    "StalenessSpec.rate_factors": Moves({"rate_factors": [2]}, ("loss", "lr")),
    "StalenessSpec.tuning_seeds": Moves({"tuning_seeds": [4]}, ("loss", "lr"), {"rates": [0.03, 0.06]}),
    "StalenessSpec.target_loss": Moves({"target_loss": 5.53}, ("target_loss", "steps_to_target")),
    "StalenessSpec.clock": Moves({"clock": CLOCK}, ("network", "update_s")),
    "LateMethod.method": Moves(method(method=ADAM | {"lr": 0.02}), ("loss", "lr")),
    "LateMethod.remedy": Moves(method(remedy="look-ahead"), ("loss", "remedy")),
    "LateMethod.backward_weights": Moves(method(backward_weights="current"), ("loss", "backward_weights")),
    "LateMethod.rates": Moves(method(rates=[0.02]), ("loss", "lr")),
    "LateMethod.label": Moves(method(label="other"), ("method",)),
    "RemedySpec.kind": Moves(method(remedy="look-ahead"), ("loss", "remedy")),
    "RemedySpec.anneal_steps": Moves(method(remedy=DISCOUNT | {"anneal_steps": 9}), ("loss",), method(remedy=DISCOUNT)),
    "RemedySpec.strength": Moves(
        method(remedy=COMPENSATION | {"strength": 1e2}), ("loss",), method(remedy=COMPENSATION)
    ),
    "PipelineClockSpec.networks": Moves({"clock": {"networks": ["10gbe"]}}, ("network", "update_s"), {"clock": CLOCK}),
    "PipelineClockSpec.microbatches": Moves(
        {"clock": CLOCK | {"microbatches": 2}}, ("sync_update_s",), {"clock": CLOCK}
    ),
    "PipelineClockSpec.hardware": Moves({"clock": CLOCK | {"hardware": "a100"}}, ("update_s",), {"clock": CLOCK}),
    "PipelineClockSpec.model": Moves({"clock": REAL}, ("update_s", "sync_update_s"), {"clock": CLOCK}),
    "PipelineClockSpec.tokens_per_batch": Moves(
        {"clock": REAL | {"tokens_per_batch": 2048}}, ("update_s",), {"clock": REAL}
    ),
}
"""Of each field of the spec and its parts: what it moves, or why it moves nothing."""

MODELS: tuple[type[BaseModel], ...] = (StalenessSpec, LateMethod, RemedySpec, PipelineClockSpec)


@cache
def rows_as_text(fields: str) -> list[dict[str, Any]]:
    return rows_of(small(**json.loads(fields)))


def test_every_field_is_accounted_for():
    assert set(FIELDS) == {f"{model.__name__}.{field}" for model in MODELS for field in model.model_fields}


@pytest.mark.parametrize("field", [name for name, entry in FIELDS.items() if isinstance(entry, Moves)])
def test_each_field_moves_what_it_should(field):
    what = FIELDS[field]
    assert isinstance(what, Moves)
    setting = {"stages": [1, 4], "seeds": [1], "target_loss": 5.54} | (what.beside or {})
    before, after = (rows_as_text(json.dumps(setting | given)) for given in ({}, what.to))
    for column in what.columns:
        assert [row[column] for row in before] != [row[column] for row in after], column
