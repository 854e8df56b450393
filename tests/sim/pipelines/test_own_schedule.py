"""A schedule of one's own enters a spec by ``module:name`` and by its file."""

from __future__ import annotations

import copy
import json
import pickle
import sys

import pytest

from syncline.sim.pipelines.schedules import CalledSchedule, schedule_kind

OWN = """
from syncline.sim.pipelines.schedules import PipelineTask, Schedule


def one_at_a_time(stages, microbatches):
    turns = [PipelineTask(kind, i) for i in range(microbatches) for kind in ("forward", "backward")]
    return Schedule("one-at-a-time", [turns] * stages, microbatches)


def waves(size=2, wrong=False):
    def build(stages, microbatches):
        if wrong:
            raise KeyError(size)
        return one_at_a_time(stages, microbatches)

    return build


def nothing(stages, microbatches):
    return None


LIMIT = 3
"""
SETTINGS = ["--set", "stages=3", "--set", "microbatches=4", "--set", "networks=[]", "--json"]


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_schedules.py").write_text(OWN)
    yield
    sys.modules.pop("my_schedules", None)


def test_a_schedule_that_a_call_makes_is_written_and_played_again(own, command, tmp_path):
    given = "{kind: python, target: 'my_schedules:waves', size: 3}"
    done = command("pipeline", "--schedule", f"gpipe,{given},my_schedules:one_at_a_time", *SETTINGS, "--out", "one")
    assert done.code == 0, done.err
    rows = {row["schedule"]: row["makespan_s"] for row in json.loads(done.out)["rows"]}
    assert rows["my_schedules:waves(size=3)"] == rows["my_schedules:one_at_a_time"] > rows["gpipe"]
    again = command("pipeline", "one/spec.yaml", "--json", "--out", "two")
    assert json.loads(again.out)["rows"] == json.loads(done.out)["rows"]


def test_a_schedule_that_a_call_makes_survives_a_copy(own, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = CalledSchedule({"kind": "python", "target": "my_schedules:waves"})
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == "my_schedules:waves"
    assert schedule_kind(copy.copy(made)).build(2, 3).microbatches == 3


@pytest.mark.parametrize("name", ["my_schedules:one_at_a_time", "my_schedules.py:one_at_a_time"])
def test_a_schedule_of_ones_own_is_clocked_beside_the_others(own, command, name):
    done = command("pipeline", "pipeline-schedules", "--set", f"schedules=[gpipe, '{name}']", *SETTINGS)
    assert done.code == 0, done.err
    rows = {row["schedule"]: row for row in json.loads(done.out)["rows"]}
    # One micro-batch after another passes all stages both ways: M K (F + B), where GPipe takes (M + K - 1)(F + B).
    assert rows[name]["makespan_s"] / rows["gpipe"]["makespan_s"] == pytest.approx(4 * 3 / (4 + 3 - 1))
    assert rows[name]["utilisation"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("my_schedules:two_at_a_time", "schedules.0: got 'my_schedules:two_at_a_time'; expected a name of "),
        ("my_schedules:LIMIT", "schedules.0: got 'my_schedules:LIMIT'; expected a function of stages"),
        ("my_schedules:nothing", "schedule: got 'my_schedules:nothing'; expected a function that returns"),
        (
            "{kind: python, target: 'my_schedules:waves', sise: 3}",
            "schedules.0.sise: got 3; expected no such argument of",
        ),
        ("{kind: python, target: 'my_schedules:nothing', stages: 1, microbatches: 1}", "schedules.0.target: got 'my_"),
        (
            "{kind: python, target: 'my_schedules:waves', wrong: true}",
            "schedule: got 'my_schedules:waves(wrong=True)'; e",
        ),
        ("{kind: gpipe}", "schedules.0.kind: got 'gpipe'; expected a schedule's name, or {kind: python"),
        ("gpip", "schedules.0: got 'gpip'; expected one of '1f1b', "),
    ],
)
def test_what_is_wrong_with_it_is_one_line(own, command, name, line):
    done = command(
        "pipeline",
        "pipeline-schedules",
        "--set",
        f"schedules=[{name if name.startswith('{') else repr(name)}]",
        *SETTINGS,
    )
    assert done.code == 2 and done.err.splitlines()[-1].startswith(f"error: {line}"), done.err
