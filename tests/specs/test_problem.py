"""Problems in specs that a function makes, and objects of Python that no file can hold."""

from __future__ import annotations

import json
import sys

import pytest
import torch
import yaml
from torch import nn

from syncline.errors import SpecError
from syncline.fields import validate
from syncline.problems import TorchProblem
from syncline.specs import RunSpec, load_spec
from tests.problems.torch_problem.models import TiedFrozen, sentences, token_loss

MODULE = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from syncline.problems import TorchProblem


def problem(width=4, seed=0):
    x = torch.randn(24, 3, generator=torch.Generator().manual_seed(seed))
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    make = lambda: torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    return TorchProblem(make, data, torch.nn.functional.mse_loss, name="sums")


def three():
    return 3
"""
FIELDS = {
    "kind": "run", "name": "mine", "workers": 2, "steps": 3, "method": "ddp-adam", "network": "10gbe",
    "problem": {"kind": "python", "target": "my_sums:problem", "width": 5},
}  # fmt: skip


@pytest.fixture
def sums(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_sums.py").write_text(MODULE)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(FIELDS))
    yield
    sys.modules.pop("my_sums", None)


def test_a_problem_that_a_function_makes_runs_and_its_spec_runs_again(sums, command, tmp_path):
    first = command("run", "mine.yaml", "--json", "--out", "first")
    assert first.code == 0, first.err
    assert "warning: problem.train_set is a DataLoader: its batch_size 4 holds, not 32" in first.err
    written = yaml.safe_load((tmp_path / "first" / "spec.yaml").read_text())
    assert written["problem"] == FIELDS["problem"]
    again = command("run", "first/spec.yaml", "--set", "problem.seed=0", "--json", "--out", "again")
    assert again.code == 0, again.err
    assert json.loads(first.out)["rows"] == json.loads(again.out)["rows"]
    facts = json.loads((tmp_path / "first" / "run.json").read_text())["problem"]
    assert facts["name"] == "sums" and facts["parameters"] == 4 * 5 + 6 and facts["how"] == "loop"


def test_a_measured_step_stands_in_the_folder_as_seconds(sums, command, tmp_path):
    done = command("run", "mine.yaml", "--set", "compute=measure", "--json", "--out", "out")
    assert done.code == 0, done.err
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    written = yaml.safe_load((tmp_path / "out" / "spec.yaml").read_text())["compute"]
    assert 0 < record["measured_step_s"] == written["seconds"] < 10 and not written["measure"]
    assert record["rows"][0]["compute_s"] == pytest.approx(record["measured_step_s"])
    assert "for a worker's step, measured here" in done.err
    again = command("run", "out/spec.yaml", "--json", "--out", "again")
    first, second = (json.loads(one.out)["rows"] for one in (done, again))
    assert [row["basis"].partition(";")[0] for row in (*first, *second)] == [
        "computing: steps whose computing was timed", "computing: as given",
    ]  # fmt: skip
    bounds = {name for name in first[0] if "_low_" in name or "_high_" in name} | {"basis"}
    assert [{n: row[n] for n in set(row) - bounds} for row in first] == [
        {n: row[n] for n in set(row) - bounds} for row in second
    ]


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        ({"kind": "python"}, "problem.target: got None; expected module:function of a function"),
        (
            {"kind": "python", "target": "my_sums:five"},
            "problem.target: got 'my_sums:five'; expected a name of",
        ),
        ({"kind": "python", "target": "my_sums:three"}, "expected a function that returns a problem; it returns int"),
        (
            {"kind": "python", "target": "my_sums:problem", "depth": 2},
            "problem.depth: got 2; expected no such",
        ),
        ({"kind": "my_sums:problem"}, "for a function that returns one, kind: python and target: my_sums:problem"),
    ],
)
def test_what_is_wrong_with_a_function_is_one_line(sums, monkeypatch, tmp_path, problem, line):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        validate(RunSpec, FIELDS | {"problem": problem})
    assert line in str(caught.value)


def test_an_object_is_taken_as_it_is_and_leaves_its_name(command, tmp_path):
    problem = TorchProblem(TiedFrozen, sentences(), token_loss, name="poems")
    spec = validate(RunSpec, FIELDS | {"problem": problem})
    assert spec.problem is problem
    written = spec.model_dump(mode="json")
    assert written["problem"] == {"kind": "python", "target": None, "name": "poems"}
    again = validate(RunSpec, written)  # results can be read, but not made again
    assert again.model_dump(mode="json") == written
    (tmp_path / "poems.yaml").write_text(yaml.safe_dump(written))
    for name in ("run", "launch"):
        done = command(name, "poems.yaml")
        assert done.code == 2 and len(done.err.splitlines()) == 1 and "'poems'" in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("compute", "line"),
    [
        ("mesure", "compute: got 'mesure'; expected a time, as in 5 ms, or measure, or fields"),
        ({"measure": True, "seconds": 1}, "compute.measure: got True; expected no seconds with it"),
        ({"measure": True, "hardware": "a100"}, "compute.measure: got True; expected no hardware with it"),
    ],
)
def test_measure_stands_alone(compute, line):
    with pytest.raises(SpecError) as caught:
        validate(RunSpec, FIELDS | {"problem": "digits", "compute": compute})
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("compute", ["10 ms", 0.01, {"seconds": "10 ms"}])
def test_a_time_is_seconds(compute):
    assert validate(RunSpec, FIELDS | {"problem": "digits", "compute": compute}).compute.seconds == 0.01


@pytest.mark.parametrize(
    ("compute", "line"),
    [
        ("10 parsecs", "compute.seconds: got '10 parsecs'; expected a time with its unit"),
        (-1, "compute.seconds: got -1"),
        (True, "compute: got True"),
        ([1], "compute: got [1]"),
    ],
)
def test_what_is_no_time_is_refused(compute, line):
    with pytest.raises(SpecError) as caught:
        validate(RunSpec, FIELDS | {"problem": "digits", "compute": compute})
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize(("compute", "field", "value"), [("10 ms", "seconds", 0.01), ("measure", "measure", True)])
def test_fields_beside_a_word(compute, field, value):
    fields = FIELDS | {"problem": "digits", "compute": compute}
    spec = load_spec(fields, ["compute.jitter=0.1"], RunSpec)
    assert (getattr(spec.compute, field), spec.compute.jitter) == (value, 0.1)


def test_where_seconds_come_from_is_told(sums, command):
    counted = command("run", "mine.yaml", "--set", "compute.hardware=a100")
    assert "Compute: the problem's operations on a100." in " ".join(counted.err.split())
    given = command("run", "mine.yaml", "--set", "compute.seconds=0.01")
    assert given.code == 0 and "Compute" not in given.err


def test_memory_counts_what_is_trained():
    from syncline.runs.training.limits import tensors_of_problem

    shapes = {tensor.name: tensor.shape for tensor in tensors_of_problem(TorchProblem(TiedFrozen, sentences()))}
    assert shapes == {"table.weight": (11, 6), "norm.weight": (6,), "norm.bias": (6,)}

    def by_values():
        return nn.Linear(int(torch.ones(3).sum().item()), 2)  # there are none on the meta device

    assert tensors_of_problem(TorchProblem(by_values, sentences())) is None
