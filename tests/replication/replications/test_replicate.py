"""A replication in pieces is the replication in one go, whatever ended each piece."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from replication.replications import bundled_replications
from replication.replications.replicate import replicate
from replication.replications.spec import CPU, ReplicationSpec, load_replication, scales_of
from syncline.errors import SpecError, SynclineError
from syncline.files import parse_yaml
from syncline.runs.processes.progress import Listener
from syncline.runs.sweep.jobs import Allowance
from syncline.specs.load import load_spec, with_overrides
from tests.replication.replications.small import TRAININGS, tiny, tiny_file
from tests.runs.sweep.small import counted_trainings

TABLES = ("search.parquet", "rerun.parquet", "finals.parquet", "extra-K4.parquet")


def tables(folder: Path) -> list[list[dict[str, object]]]:
    return [pq.read_table(folder / name).to_pylist() for name in TABLES]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All in one go."""
    folder = tmp_path_factory.mktemp("whole")
    with counted_trainings() as begun:
        result = replicate(tiny(folder), folder / "out", jobs=1, command="syncline replicate tiny.yaml")
    assert len(begun) == TRAININGS == sum(result.planned.values()) and result.num_remaining == 0
    return result


@pytest.fixture
def no_pictures(monkeypatch):
    """Figures are made and not drawn, which takes a third of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: Path(path).touch())


def test_the_stages_are_those_of_the_spec(whole):
    search, again, finals, extra = tables(whole.folder)
    assert [len(search), len(again)] == [6, 4] and {row["seed"] for row in search} == {101}
    first = [row for row in search if row["trial"] == 1]
    assert [row["knobs"] for row in first] == ['{"lr": 0.1}'] * 2  # as the spec says
    best = {(row["method"], row["trial"]) for row in again}
    for method in ("together", "apart"):
        ranked = sorted((row for row in search if row["method"] == method), key=lambda row: row["loss"])
        assert {(method, row["trial"]) for row in ranked[:2]} == {one for one in best if one[0] == method}
        means = {row["trial"]: row["loss"] for row in again if row["method"] == method}
        means = {trial: loss + search_loss(search, method, trial) for trial, loss in means.items()}
        assert whole.chosen[method]["trial"] == min(means, key=means.__getitem__)
    assert {(row["method"], row["seed"]) for row in finals} == {(m, s) for m in whole.chosen for s in range(5)}
    assert {4, 8} <= {row["step"] for row in finals}
    assert {(row["method"], row["seed"]) for row in extra} == {("apart", 0), ("apart", 1)}
    assert whole.effort == {"together": 3, "apart": 3}


def search_loss(rows, method, trial):
    (loss,) = (row["loss"] for row in rows if (row["method"], row["trial"]) == (method, trial))
    return loss


def test_the_finals_are_runs_of_what_was_chosen(whole):
    """Against a run of its own."""
    from syncline.runs.training.train_and_time import train_method
    from syncline.specs import RunSpec

    spec = whole.spec
    method = {**spec.methods[1].method, **whole.chosen["apart"]["knobs"]}
    run = load_spec({"kind": "run", "name": "it", **spec.training, "method": method, "network": "10gbe", "seeds": [3]},
                    (), RunSpec)  # fmt: skip
    last = train_method(run, run.method, None).history.evaluation["loss"][-1, 0]
    assert whole.losses()["apart", ""][3] == pytest.approx(last, rel=1e-6)


def test_verdicts_and_the_page_say_how_sure_they_are(whole):
    page = (whole.folder / "README.md").read_text()
    assert [row["seeds"] for row in whole.verdicts] == [5, 2]
    assert whole.verdicts[1]["state"] == "unknown"  # two seeds are too few
    made = "syncline replicate tiny.yaml", "quadratic, 2 workers, 8 steps", "Equal: 3 trials of each of 2 methods"
    assert "| finals | together |" in page and "| 5 | 8 B | " in page  # two parameters in fp32, in every step
    assert "| K4 | apart |" in page and "| 2 | 4 B | " in page  # and two momenta, every fourth
    for word in (*made, "| **unknown** |", "more seeds", '`K4` is "method.period": 4'):
        assert word in page
    assert (whole.folder / "losses.png").stat().st_size > 5000 and "not whole" not in page


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_in_pieces_it_is_the_same(jobs, whole, tmp_path, no_pictures):
    spec, pieces = tiny(tmp_path), 0
    with counted_trainings() as begun:
        while True:
            result = replicate(spec, tmp_path / "out", jobs=jobs, allowance=Allowance(max_trainings=9))
            pieces += 1
            assert result.num_remaining == max(0, TRAININGS - 9 * pieces)
            if not result.num_remaining:
                break
            assert not result.interrupted and not [row for row in result.verdicts if result.num_remaining > 2]
    assert pieces == 3 and (jobs > 1 or len(begun) == TRAININGS)
    assert tables(tmp_path / "out") == tables(whole.folder) and result.verdicts == whole.verdicts


class Killer(Listener):
    """Kills the process after eight trainings."""

    left = 8

    def finished(self, label, row):
        Killer.left -= 1
        if not Killer.left:
            os.kill(os.getpid(), signal.SIGKILL)


def test_after_a_kill_it_goes_on_and_trains_nothing_twice(whole, tmp_path, no_pictures):
    path, out = tiny_file(tmp_path), tmp_path / "out"
    child = os.fork()
    if child == 0:
        replicate(load_replication(path), out, jobs=1, on_stage=lambda _: nullcontext(Killer()))
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with counted_trainings() as begun:
        result = replicate(load_replication(path), out, jobs=1)
    assert len(begun) == TRAININGS - 8 and result.verdicts == whole.verdicts
    assert tables(out) == tables(whole.folder)


def test_what_is_whole_needs_no_training_and_no_other_code_changes_it(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("syncline.runs.sweep.sweep.code_version", lambda: "another")
    with counted_trainings() as begun:
        again = replicate(whole.spec, whole.folder, jobs=1, command="syncline replicate tiny.yaml")
    assert begun == [] and again.verdicts == whole.verdicts and again.num_remaining == 0


def test_without_a_second_search_the_first_one_chooses(whole, tmp_path, no_pictures):
    """The same search by the same trials, so that it is trained again by nobody."""
    shutil.copytree(whole.folder, tmp_path / "out")
    (tmp_path / "out" / "rerun.parquet").unlink()
    spec = tiny(
        tmp_path, {"rerun": None, "finals.seeds": 1, "extras": [], "claims": whole.spec.model_dump()["claims"][:1]}
    )
    (tmp_path / "out" / "finals.parquet").unlink()
    result = replicate(spec, tmp_path / "out", jobs=1)
    assert sum(result.planned.values()) == 8 and "rerun" not in result.planned
    for label, chosen in result.chosen.items():
        own = [row for row in result.kept["search"].rows if row["method"] == label]
        assert chosen["trial"] == min(own, key=lambda row: row["loss"])["trial"]
    assert "The lowest loss was chosen." in " ".join((result.folder / "README.md").read_text().split())


def test_tables_of_another_spec_are_refused(whole, tmp_path):
    with pytest.raises(SpecError, match=r"^--out: .* without results of another spec: search.parquet is of one$"):
        replicate(tiny(tmp_path, {"search.trials": 2}), whole.folder, jobs=1)


def test_a_replication_that_cannot_be_trained_leaves_nothing(tmp_path):
    out = tmp_path / "out"
    for changes, line in [
        ({"training.workers": 0}, "workers: got 0"),
        ({"methods.0.tune": {"lrr": "0.1..1.0"}}, "did you mean 'lr'"),
        ({"methods.0.tune": {"lr": "0.1-1.0"}}, "field.path=low..high"),
        ({"extras.0.set": {"method.periods": 4}}, "did you mean 'period'"),
    ]:
        with pytest.raises(SpecError, match=line):
            replicate(tiny(tmp_path, changes), out, jobs=1)
    assert not out.exists()


def test_trials_that_cannot_be_trained_are_no_equal_effort(tmp_path):
    changes = {"training.problem": {"kind": "quadratic", "spectrum": [1.0], "noise_std": 0.0}}
    spec = tiny(tmp_path, changes | {"rerun.top_trials": 1})
    made = replicate(spec, tmp_path / "out", jobs=1, allowance=Allowance(max_trainings=6))
    assert made.effort == {"together": 3, "apart": 3}
    from replication.replications.choosing import check_effort

    with pytest.raises(SynclineError, match=r"^search: together 3, apart 2 trials of 3 can be trained"):
        check_effort(spec, [row for row in made.kept["search"].rows if (row["method"], row["trial"]) != ("apart", 2)])


SMALL = {
    "training.problem.layers": 1, "training.problem.width": 8, "training.problem.heads": 2,
    "training.problem.context": 8, "training.problem.batch_size": 2, "training.problem.validation_windows": 4,
    "training.steps": 4, "training.eval_every": 2, "training.schedule": {}, "training.device": "cpu",
    "training.execution": "eager",
    "training.workers": 2, "training.compute": {"seconds": 0.001}, "search.trials": 1, "finals.seeds": 1,
}  # fmt: skip


FORMS = [(name, scale) for name, path in bundled_replications().items() for scale in (*scales_of(path), CPU)]


LONGEST = (CPU, "gpu")
"""The forms with the most trials: a dozen CPU seconds each, at any size of the training."""


@pytest.mark.parametrize(
    ("name", "scale"), [pytest.param(*one, marks=[pytest.mark.slow] if one[1] in LONGEST else []) for one in FORMS]
)
def test_bundled_replications_run_at_tiny_size(name, scale, tmp_path, no_pictures):
    """In pieces of a lease: search and choice, then the finals; extras of several workers are as they are."""
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    spec = load_replication(name, scale)
    changes = SMALL | {"training.problem.path": str(text)} | ({"rerun.top_trials": 1} if spec.rerun else {})
    if spec.training["problem"]["kind"] != "text-gpt":
        changes = {field: value for field, value in changes.items() if not field.startswith("training.problem")}
    changes |= {f"extras.{i}.seeds": 1 for i in range(len(spec.extras))}
    if spec.training.get("pipeline"):
        few = {"pipeline.stages": 2, "problem.layers": 2}
        changes |= {"training.workers": 1, "training.pipeline.stages": 2, "training.problem.layers": 2}
        changes |= {f"extras.{i}.set": {**one.set, **few} for i, one in enumerate(spec.extras)}
        changes |= {"networks": ["wan"]}
    if spec.training.get("speeds"):
        two = {"speeds": [1.0, 0.5], "compute.start_offsets": [0.0, 0.001]}
        changes |= {"training.speeds": two["speeds"]}
        for i, one in enumerate(spec.extras):
            changes |= {f"extras.{i}.set": {name: two.get(name, value) for name, value in one.set.items()}}
    if spec.search.one_by_one:
        for field in ("switch_step", "freeze_step"):
            changes |= {f"methods.{i}.method.{field}": 2 for i, one in enumerate(spec.methods) if field in one.method}
    if "steps" in spec.search.set:
        changes |= {"search.set.steps": 2, "search.set.schedule": {}}
    changes |= {f"extras.{i}.set.steps": 8 for i, one in enumerate(spec.extras) if "steps" in one.set}
    changes |= {f"extras.{i}.set.schedule": {} for i, one in enumerate(spec.extras) if "schedule" in one.set}
    for i, one in enumerate(spec.methods):
        if "num_averages" in one.method:
            changes |= {f"methods.{i}.method.num_averages": 2, f"methods.{i}.method.steps": 4}
    fields = with_overrides(spec.model_dump(mode="json"), changes)
    small = ReplicationSpec.model_validate(fields)
    piece = replicate(small, tmp_path / "out", jobs=1, allowance=Allowance(max_trainings=len(small.methods)))
    assert piece.num_remaining == sum(small.num_trainings_by_stage().values()) - len(small.methods)
    result = replicate(small, tmp_path / "out", jobs=1)
    assert result.num_remaining == 0 and {row["claim"] for row in result.verdicts} == {
        one.claim for one in small.claims
    }
    assert {row["state"] for row in result.verdicts} == {"unknown"}  # one seed


CPU_S = 38.0
"""Of a training of 400 steps with four workers, as the first search of `mt-dao` took it."""


def planned_cpu_s(spec: ReplicationSpec) -> float:
    """Trainings are as long as they have steps; 45 CPU seconds each would be 120 of them."""
    longer = {f"extra {one.name}": one.set.get("steps", 400) / 400 for one in spec.extras}
    return CPU_S * sum(number * longer.get(name, 1.0) for name, number in spec.num_trainings_by_stage().items())


@pytest.mark.parametrize("name", [name for name in bundled_replications() if name != "protocol-2"])
def test_bundled_replications_stay_within_what_was_planned(name):
    spec = load_replication(name)
    assert planned_cpu_s(spec) <= 120 * 45
    assert sum(spec.num_trainings_by_stage().values()) <= 130
    assert sum(load_replication(name, "larger").num_trainings_by_stage().values()) <= 24
    assert spec == load_replication(name, CPU) and "gpu" in scales_of(bundled_replications()[name])
    assert parse_yaml(bundled_replications()[name].read_text())["name"] == name == spec.name


def test_a_folder_is_read_again_as_it_was_told_and_is_a_page(whole, monkeypatch):
    import syncline as sl

    monkeypatch.chdir(whole.folder.parent)  # where its command finds its spec
    again = sl.load(whole.folder)
    told = whole.json()
    assert again.rows == told["rows"] and {
        name: again.record[name] for name in ("effort", "chosen", "stages", "left")
    } == {name: told[name] for name in ("effort", "chosen", "stages", "left")}
    html = again.report().html
    assert (
        "syncline replicate tiny.yaml" in html
        and "Of 2 comparisons " in html
        and "Of the finals, on fresh seeds." in html
    )
    monkeypatch.chdir("/")
    with pytest.raises(SpecError):
        sl.load(whole.folder)
