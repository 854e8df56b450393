"""Grids: how they are written, what they refuse, and which field is blamed."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial

import pytest
import torch

from syncline.errors import SpecError
from syncline.problems.torch_problem import TorchProblem
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.runs.sweep.identity import run_names, training_name
from syncline.specs import Override
from syncline.specs.grid import Grid
from tests.runs.sweep.small import FIELDS


def made(*texts, overrides=(), fields=FIELDS, seeds=None):
    grids = [Grid.parse(text) for text in texts]
    base = SweptSpec.from_spec(fields, [Override.parse(one) for one in overrides], grids)
    return configurations(base, [*base.grids, *grids], seeds)


def test_grids_multiply_and_the_last_one_is_the_fastest():
    found = made("workers=2,4", "network=[10gbe, '50us,25Gbit/s']", "method.lr=1e-3", seeds=(5, 6))
    assert [one.values for one in found] == [
        {"workers": workers, "network": network, "method.lr": 1e-3}
        for workers in (2, 4)
        for network in ("10gbe", "50us,25Gbit/s")
    ]
    for one in found:
        assert (one.spec.workers, one.spec.network.name) == (one.values["workers"], one.values["network"])
        assert one.spec.method.lr == 1e-3 and one.spec.seeds == (5, 6)


def test_fields_of_a_method_are_set_in_the_method_that_is_chosen_whatever_the_order():
    for texts in (("method.lr=0.5", "method=ddp-adam,mt-dao"), ("method=ddp-adam,mt-dao", "method.lr=0.5")):
        found = made(*texts, overrides=["method.weight_decay=0.1", "steps=7"])
        assert [(one.spec.method.kind, one.spec.method.lr, one.spec.method.weight_decay) for one in found] == [
            ("ddp", 0.5, 0.1), ("mt-dao", 0.5, 0.1),
        ]  # fmt: skip
        assert {one.spec.steps for one in found} == {7}


REFUSED = [
    (["method.lr"], "--grid: got 'method.lr'; expected field.path=value,value"),
    (["method.lr=["], r"--grid method.lr: got '\['; expected values separated by commas"),
    (["method.lr="], r"--grid method.lr: got \[\]; expected at least one value"),
    (["method.lr=0.1,-1"], "--grid method.lr: got -1; expected greater than 0"),
    (["method.lrr=1"], "--grid method.lrr: got 1; expected no such field here"),
    (["method=ddp-adam,adamm"], "--grid method: got 'adamm'; expected one of"),
    (["method=[{kind: local, lr: 1, period: 0}]"], "--grid method.period: got 0; expected at least 1"),
    (["network=10gbe,10gb"], "--grid network: got '10gb'; expected one of"),
    (["seeds=1,2"], "--grid seeds: got 'seeds'; expected no seeds, which --seeds gives"),
    (["description=a,b"], "--grid description: got 'description'; expected a field that changes something"),
    (["steps=5", "steps=6"], "--grid steps: got 'steps'; expected each field once"),
    (["method=ddp-sgdm,diloco", "diloco:method.lr=1,2", "method.lr=3,4"],
     "--grid method.lr: got 'method.lr'; expected each field once"),
    (["steps.x=5"], "--grid steps.x: got 5; expected a path of fields"),
    (["method=[{kind: local, lr: 1, period: 2}, {kind: local, lr: 2, period: 2}]"], "--grid method: got"),
    (["schedule.warmup_steps=0,7"], "--grid schedule.warmup_steps: got 7; expected at most 6"),
    (["compute.start_offsets=[[0, 1, 2]]", "workers=3,4"], r"start_offsets: got \(0.0, 1.0, 2.0\); expected one time"),
    (["compute.slow_workers=[[{worker: 2, factor: 2}]]", "steps=5,6"], None),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "line"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_is_refused_by_the_grid_s_name(texts, line):
    if line is None:
        assert len(made(*texts)) == 2
        return
    with pytest.raises(SpecError, match=line):
        made(*texts)


def test_a_field_that_no_grid_names_is_told_with_the_configuration():
    with pytest.raises(
        SpecError, match=r"compute.start_offsets: got .*expected one time per worker \(4\) \(with workers=4\)"
    ):
        made("workers=3,4", overrides=["compute.start_offsets=[0, 1, 2]"])


def test_what_is_set_below_a_grid_s_field_is_to_blame_itself():
    line = r"method.period: got 2; expected no such field here, .* \(with method=ddp-adam\)"
    with pytest.raises(SpecError, match=f"^{line}"):
        made("method=local-adam,ddp-adam", overrides=["method.period=2"])


def test_a_value_beside_a_grid_over_its_field_is_refused():
    with pytest.raises(
        SpecError, match="--set steps: got '7'; expected no value, as the grid over steps has its values"
    ):
        made("steps=5,6", overrides=["steps=7"])


def test_other_kinds_of_specs_are_refused():
    with pytest.raises(SpecError, match="kind: got 'project'; expected one of 'compare', 'run'; a spec of kind"):
        SweptSpec.from_spec("project-gpt-160m", [], [])


def test_a_run_s_name_is_that_of_its_numbers():
    def names(*overrides, code="1", **fields):
        (one,) = made(overrides=overrides, fields=FIELDS | fields)
        return set(run_names(one.spec, code).values())

    same = names()
    assert len(same) == 2  # seeds
    assert names("name=other", "description=text") == same == names("steps=6") == names(seeds=[1, 0])
    assert names("compute.seconds=1e-3") == same
    for change in (("steps=7",), ("method.lr=0.02",), ("network=10gbe",), ("threads=2",), ("compute.jitter=0.1",)):
        assert not names(*change) & same
    assert not names(code="2") & same


def test_an_edit_of_a_file_of_one_s_own_is_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "mine.txt"
    problem = {"kind": "text-gpt", "path": "mine.txt", "width": 8, "heads": 2, "layers": 1, "context": 4}
    found = []
    for words in ("to be or not to be, " * 20, "to be and not to be, " * 20):
        text.write_text(words)
        (one,) = made(fields=FIELDS | {"problem": problem, "seeds": [0]})
        found += run_names(one.spec, "1").values()
    assert len(set(found)) == 2


OWN = """
from dataclasses import dataclass
from syncline.problems import Quadratic

@dataclass(frozen=True)
class Bowl(Quadratic):
    {body}

def bowl(depth):
    return Bowl(spectrum=(1.0, depth))
"""


@pytest.mark.parametrize(
    "problem",
    [{"kind": "my_bowl:Bowl", "spectrum": [1, 2]}, {"kind": "python", "target": "my_bowl.py:bowl", "depth": 2.0}],
    ids=["class", "function"],
)  # fmt: skip
def test_an_edit_of_a_module_of_one_s_own_is_another_run(problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for body in ("name = 'bowl'", "name = 'bowl'  # edited", "name = 'bowl'"):
        (tmp_path / "my_bowl.py").write_text(OWN.format(body=body))
        (one,) = made(fields=FIELDS | {"problem": problem, "seeds": [0]})
        found += run_names(one.spec, "1").values()
        sys.modules.pop("my_bowl")
    assert len(set(found)) == 2 and found[0] == found[2]


def test_objects_that_no_file_can_hold_are_told_apart_by_what_is_in_them():
    def problem(scale):
        data = (torch.arange(12.0).reshape(6, 2) * scale, torch.zeros(6, 1))
        return TorchProblem(lambda: torch.nn.Linear(2, 1), data, torch.nn.functional.mse_loss, batch_size=2, name="own")

    def optimizer(body):
        space = {"__name__": "__main__"}
        exec(f"import torch\nclass Mine(torch.optim.SGD):\n    {body}", space)
        return {"kind": "ddp", "rule": space["Mine"], "lr": 0.1}

    names = []
    for body in ("pass", "pass", "def zero_grad(self): pass"):
        (one,) = made(fields=FIELDS | {"method": optimizer(body), "seeds": [0]})
        names += run_names(one.spec, "1").values()
    assert names[0] == names[1] != names[2]
    own = optimizer("def step(self, closure=None): return super().step(closure)")
    (one,) = made(fields=FIELDS | {"method": own, "seeds": [0]})
    (new,) = run_names(one.spec, "1").values()
    own["rule"]([torch.nn.Parameter(torch.ones(1))], lr=0.1)  # torch puts its own step around the class's
    (one,) = made(fields=FIELDS | {"method": own, "seeds": [0]})
    assert run_names(one.spec, "1") == {0: new}
    names = []
    for scale in (1.0, 1.0, 2.0):
        (one,) = made(fields=FIELDS | {"problem": problem(scale), "seeds": [0]})
        names += run_names(one.spec, "1").values()
    assert names[0] == names[1] != names[2]
    with pytest.raises(SpecError, match="problem: got 'own'; expected a value that can be sent to another process"):
        held = dataclasses.replace(problem(1.0), evaluate=partial(max, key=(_ for _ in ())))
        (one,) = made(fields=FIELDS | {"problem": held})
        run_names(one.spec, "1")


def test_only_the_clock_s_fields_share_a_training():
    def training(*overrides):
        (one,) = made(overrides=overrides)
        return training_name(one.spec)

    clock = [
        "network=10gbe",
        "compute.seconds=2",
        "overlap=async",
        "protocol=rendezvous",
        "algorithm=ring",
        "bucket_size=1MB",
    ]
    assert {training(one) for one in [*clock, "timeline_steps=3", "seeds=[7]"]} == {training()}
    others = ["workers=2", "steps=5", "eval_every=3", "threads=2", "schedule.warmup_steps=1", "method.lr=0.5",
              "problem.noise_std=0.2", "faults.absences=[{worker: 0, first_step: 1, end_step: 2}]"]  # fmt: skip
    assert len({training(), *(training(one) for one in others)}) == len(others) + 1
