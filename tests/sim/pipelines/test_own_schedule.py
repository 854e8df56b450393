"""A schedule of one's own enters a spec by ``module:name`` and by its file."""

from __future__ import annotations

import json
import sys

import pytest

OWN = """
from syncline.sim.pipelines.schedules import PipelineTask, Schedule


def one_at_a_time(stages, microbatches):
    turns = [PipelineTask(kind, i) for i in range(microbatches) for kind in ("forward", "backward")]
    return Schedule("one-at-a-time", [turns] * stages, microbatches)


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
        ("gpip", "schedules.0: got 'gpip'; expected one of '1f1b', "),
    ],
)
def test_what_is_wrong_with_it_is_one_line(own, command, name, line):
    done = command("pipeline", "pipeline-schedules", "--set", f"schedules=['{name}']", *SETTINGS)
    assert done.code == 2 and done.err.splitlines()[-1].startswith(f"error: {line}"), done.err
