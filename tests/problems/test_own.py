"""A problem of one's own enters a spec by ``module:name``, and by its file."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

from syncline.problems import PROBLEMS
from syncline.specs import RunSpec, load_spec

VALLEY = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from syncline.problems.landscapes import Landscape
from syncline.problems.landscapes import Quadratic


@dataclass(frozen=True, kw_only=True)
class Valley:
    '''A parabola.'''

    name: ClassVar[str] = "valley"
    steepness: float = 1.0

    def build(self, rows, *, dtype=torch.float32, device="cpu"):
        return Quadratic(spectrum=(1.0, self.steepness)).build(rows, dtype=dtype, device=device)
"""
SETTINGS = ["--set", "steps=3", "--set", "compute.seconds=0.001", "--json"]


@pytest.fixture
def valley(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_valley.py").write_text(VALLEY)
    yield
    sys.modules.pop("my_valley", None)


@pytest.mark.parametrize("kind", ["my_valley:Valley", "my_valley.py:Valley"])
def test_a_problem_of_ones_own_runs_and_its_spec_runs_again(valley, command, tmp_path, kind):
    problem = f"problem={{kind: {json.dumps(kind)}, steepness: 3.0}}"
    first = command("run", "rosenbrock-mt-dao", "--set", problem, *SETTINGS, "--out", "first")
    assert first.code == 0, first.err
    written = yaml.safe_load((tmp_path / "first" / "spec.yaml").read_text())
    assert written["problem"] == {"kind": "my_valley:Valley", "steepness": 3.0}
    again = command("run", "first/spec.yaml", "--json", "--out", "again")
    assert again.code == 0, again.err
    losses = [[row["loss"] for row in json.loads(done.out)["rows"]] for done in (first, again)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        ("{kind: my_valley:Hill}", "problem.kind: got 'my_valley:Hill'; expected a name of my_valley: one of "),
        (
            "{kind: my_valley:torch}",
            "problem.kind: got 'my_valley:torch'; expected a dataclass with a name",
        ),
        ("{kind: valey}", "problem.kind: got 'valey'; expected one of '"),
        (
            "{kind: my_valley:Valley, depth: 3}",
            "problem.depth: got 3; expected no such field here, but one of ",
        ),
    ],
)
def test_what_is_wrong_with_a_problem_of_ones_own_is_one_line(valley, command, problem, line):
    done = command("run", "rosenbrock-mt-dao", "--set", f"problem={problem}", *SETTINGS)
    assert done.code == 2 and done.err.splitlines()[-1].startswith(f"error: {line}"), done.err


def test_a_registered_problem_keeps_its_name(valley, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PROBLEMS, "_registered", dict(PROBLEMS._registered))
    PROBLEMS.register("valley", PROBLEMS["my_valley:Valley"])
    spec = load_spec("rosenbrock-mt-dao", ["problem=valley"], RunSpec)
    assert spec.model_dump(mode="json")["problem"] == {"kind": "valley", "steepness": 1.0}
