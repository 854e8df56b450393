"""The search one by one: which point comes next, equal effort, early ends, and pieces that change nothing."""

from __future__ import annotations

import math

import pyarrow.parquet as pq
import pytest

from replication.replications.one_by_one import Tried, default_knobs, neighbours, next_knobs, stop_losses
from replication.replications.persistent import LINES
from replication.replications.replicate import TRAININGS, replicate
from replication.replications.spec import OneByOne, SearchedMethod
from syncline.errors import SpecError, SynclineError
from syncline.runs.sweep.jobs import Allowance
from tests.replication.replications.small import tiny

ADAM = SearchedMethod.model_validate(
    {
        "method": {"kind": "ddp", "label": "adam", "rule": {"kind": "adam"}, "lr": 0.002},
        "tune": {"lr": "5e-4..8e-3", "rule.beta1": "1-0.2..1-0.02"},
    }
)
QHADAM = SearchedMethod.model_validate(
    {
        "method": {
            "kind": "ddp",
            "label": "qhadam",
            "rule": {"kind": "qhadam", "beta1": 0.99, "nu1": 0.9},
            "lr": 0.004,
        },
        "tune": {"lr": "5e-4..8e-3", "rule.nu1": "1-0.4..1-0.02", "rule.beta1": "1-0.2..1-0.02"},
        "contains": {"method": "adam", "knobs": {"lr": "lr", "rule.nu1": 1.0, "rule.beta1": "rule.beta1"}},
    }
)
RULE = OneByOne(contained_at=(2, 8), stop_at=(2,), stop_margin=0.1)
CHANGES = {"search.one_by_one": {"stop_at": [4], "stop_margin": 0.01}, "search.trials": 6, "rerun.choose": "median"}


def searched(loss, trials):
    """The points of a search of Adam on a loss in closed form."""
    tried = []
    for _ in range(trials):
        knobs = next_knobs(ADAM, RULE, tried, [])
        tried.append(Tried(knobs, loss(knobs), {}))
    return tried


def test_the_search_finds_a_best_point_beyond_its_range():
    tried = searched(
        lambda knobs: math.log(knobs["lr"] / 0.1) ** 2 + math.log((1 - knobs["rule.beta1"]) / 0.4) ** 2, 32
    )
    assert tried[0].knobs == {"lr": 0.002, "rule.beta1": 0.9} and tried[1].knobs["lr"] == 0.004
    best = min(tried, key=lambda trial: trial.loss)
    assert 0.085 < best.knobs["lr"] < 0.12 and 0.3 < 1 - best.knobs["rule.beta1"] < 0.5
    points = [tuple(trial.knobs.values()) for trial in tried]
    assert len(set(points)) == 32


def test_a_hyperparameter_whose_range_has_whole_ends_stays_whole_and_above_0():
    discount = {"kind": "discount", "anneal_steps": 113}
    method = SearchedMethod.model_validate(
        {"method": {**ADAM.method, "remedy": discount}, "tune": {"lr": "5e-4..8e-3", "remedy.anneal_steps": "20..680"}}
    )
    points = list(neighbours(method, {"lr": 0.002, "remedy.anneal_steps": 1.0}))
    assert {point["remedy.anneal_steps"] for point in points} == {1, 2}


def test_a_search_whose_first_point_stays_the_best_goes_on_around_the_next():
    points = [tuple(trial.knobs.values()) for trial in searched(lambda knobs: abs(math.log(knobs["lr"] / 0.002)), 60)]
    assert len(set(points)) == 60


def test_a_trial_takes_the_best_point_of_the_contained_method():
    adam = [Tried({"lr": 0.001, "rule.beta1": 0.95}, 1.0, {}), Tried({"lr": 0.008, "rule.beta1": 0.9}, 2.0, {})]
    first = Tried(default_knobs(QHADAM), 1.5, {})
    second = next_knobs(QHADAM, RULE, [first], adam)
    assert second == {"lr": 0.001, "rule.nu1": 1.0, "rule.beta1": 0.95}
    after = [first, Tried(second, 1.2, {})]
    assert next_knobs(QHADAM, RULE, after, adam)["lr"] == 0.002  # 2 times the best, which is the contained one
    beside = [point["rule.nu1"] for point in neighbours(QHADAM, second)]
    assert 0.98 in beside and 0.6 in beside  # no factor leads away from a distance of 0 to 1


def test_a_hopeless_trial_is_above_the_median_and_the_margin():
    trials = [Tried({}, loss, {2: loss}) for loss in (1.0, 1.02, 1.3, math.inf)]
    assert stop_losses(RULE, trials[:3]) == {} and stop_losses(RULE, trials) == {2: 1.1}
    assert stop_losses(RULE, [*trials, *(Tried({}, 1.5, {2: 1.5}),) * 4]) == {2: 1.5}


def test_a_value_that_the_spec_leaves_open_is_refused():
    method = {"kind": "mt-dao", "label": "mt-dao", "lr": 0.1}
    with pytest.raises(SpecError, match=r"^methods: mt-dao: beta2: got None"):
        default_knobs(SearchedMethod.model_validate({"method": method, "tune": {"beta2": "1-0.1..1-0.01"}}))


def tables(folder):
    return [pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("search", "rerun", "finals", "extra-K4")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one-by-one")
    return replicate(tiny(folder, CHANGES), folder / "out", jobs=1, command="syncline replicate tiny.yaml")


def test_stages_are_whole_and_stopped_trials_are_not_chosen(whole):
    search, again, finals, extra = tables(whole.folder)
    assert whole.num_remaining == 0 and whole.effort == {"together": 6, "apart": 6}
    assert {row["trial"] for row in search} == set(range(1, 7)) and {row["seed"] for row in again} == {102}
    stopped = {(row["method"], row["trial"]) for row in search if row["stopped_at"] is not None}
    assert all(math.isinf(row["loss"]) for row in search if row["stopped_at"] is not None)
    assert not {(method, chosen["trial"]) for method, chosen in whole.chosen.items()} & stopped
    assert {row["step"] for row in finals} == {0, 4, 8} and len(extra) == 6
    assert all(row["bytes_per_worker"] > 0 and row["step_time_s"] > 0 for row in finals)


def test_pieces_and_processes_change_no_number(whole, tmp_path):
    spec = tiny(tmp_path, CHANGES)
    calls = 0
    while (result := replicate(spec, tmp_path / "out", jobs=1, allowance=Allowance(max_trainings=5))).num_remaining:
        calls += 1
        assert calls < 20
    assert tables(result.folder) == tables(whole.folder) and calls >= 3


def test_seeds_side_by_side_are_the_seeds_alone(whole, tmp_path):
    """A final's five seeds are rows of the same tensors."""
    from syncline.runs.training.train_and_time import train_method
    from syncline.specs import RunSpec
    from syncline.specs.load import load_spec

    method = {**whole.spec.methods[1].method, **whole.chosen["apart"]["knobs"]}
    fields = {"kind": "run", "name": "it", **whole.spec.training, "method": method, "network": "10gbe", "seeds": [3]}
    alone = train_method(run := load_spec(fields, (), RunSpec), run.method).history.last_evaluation()["loss"][0]
    (last,) = (r["loss"] for r in tables(whole.folder)[2] if (r["method"], r["seed"], r["step"]) == ("apart", 3, 8))
    assert last == pytest.approx(float(alone), rel=1e-6)


def test_a_search_out_of_time_has_equally_many_trials_of_each(tmp_path):
    spec = tiny(tmp_path, CHANGES)
    replicate(spec, tmp_path / "out", jobs=1, allowance=Allowance(max_trainings=5))
    assert len((tmp_path / "out" / TRAININGS / LINES).read_text().splitlines()) == 6  # and the facts
    result = replicate(spec, tmp_path / "out", jobs=1, search_s=0.0)
    assert result.effort == {"together": 2, "apart": 2} and result.num_remaining == 0


def test_trials_side_by_side_are_the_same_in_pieces(tmp_path):
    """Two trials are proposed from the same ones before them, however many train at a time."""
    both = CHANGES | {"search.one_by_one.side_by_side": 2, "search.trials": 5}
    spec = tiny(tmp_path, both)
    result = replicate(spec, tmp_path / "out", jobs=1)
    knobs = [row["knobs"] for row in tables(result.folder)[0] if row["method"] == "apart"]
    assert [knobs[1], knobs[2]] == ['{"lr": 0.2}', '{"lr": 0.05}'] and len(set(knobs)) == 5
    replicate(spec, tmp_path / "again", jobs=1, allowance=Allowance(max_trainings=4))
    assert tables(replicate(spec, tmp_path / "again", jobs=2).folder) == tables(result.folder)
    (tmp_path / "again" / TRAININGS / LINES).unlink()
    assert replicate(spec, tmp_path / "again", jobs=1).num_remaining == 0  # the tables are enough
    assert not (tmp_path / "again" / TRAININGS / LINES).exists()


def test_a_training_that_raises_is_tried_once_more(whole, tmp_path, monkeypatch):
    """What is finished stays; a second error of the same training ends the command with a line."""
    from replication.replications import persistent

    once, calls = persistent.train_job, []

    def raising(job):
        calls.append(job)
        if len(calls) in failures:
            raise MemoryError("no memory left")
        return once(job)

    monkeypatch.setattr(persistent, "train_job", raising)
    failures = {3}
    result = replicate(tiny(tmp_path, CHANGES), tmp_path / "out", jobs=1)
    assert tables(result.folder) == tables(whole.folder) and calls[2] == calls[3]
    (note,) = result.notes
    assert note.startswith("taken back, then 1 at a time: search, together, seeds [101]: ") and "no memory left" in note
    calls.clear()
    failures |= {4}
    with pytest.raises(SynclineError, match=r"^a training failed twice: search, together"):
        replicate(tiny(tmp_path, CHANGES), tmp_path / "again", jobs=1)
    assert len((tmp_path / "again" / TRAININGS / LINES).read_text().splitlines()) == 3  # the facts and two trials
