"""``syncline sweep`` and ``syncline best`` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_docs import documented

SMALL = ("sweep", "rosenbrock-local-adam", "--set", "workers=2", "--set", "steps=6", "--set", "method.period=2",
         "--seeds", "2", "--jobs", "1", "--out", "out")  # fmt: skip
RATES = ("--grid", "method.lr=0.01,0.02")


def test_a_sweep_as_lines_a_table_and_json(command):
    done = command(*SMALL, *RATES, "--json")
    result = json.loads(done.out)
    assert done.code == 0
    assert result.keys() == {"rows", "folder", "runs", "repeated", "effort", "interrupted"}
    assert [(row["method.lr"], row["seed"]) for row in result["rows"]] == [(0.01, 0), (0.01, 1), (0.02, 0), (0.02, 1)]
    lines = done.err.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["1/4", "2/4", "3/4", "4/4"]
    assert lines[0].startswith("1/4 method.lr=0.01, seed 0: loss ") and lines[0].endswith(" left")
    assert lines[4] == "rosenbrock-local-adam: 2 configurations by loss"
    again = command(*SMALL, *RATES)
    assert again.out == "" and again.err.splitlines()[0] == "4 of 4 runs were finished before"
    ranking = json.loads(command("best", "out", "--json").out)
    assert [row["rank"] for row in ranking["rows"]] == [1, 2] and ranking["finished"] == ranking["runs"] == 4
    shown = command("best", "out", "--by", "distance", "--top", "1")
    assert shown.out == "" and "2 configurations by distance, the best 1" in shown.err


def test_rows_and_rankings_have_the_documented_fields(command):
    rows = json.loads(command(*SMALL, *RATES, "--json").out)["rows"]
    own = set().union(*rows) - documented("run") - {"method.lr"}
    assert own == documented("sweep")
    best = set().union(*json.loads(command("best", "out", "--json").out)["rows"])
    assert best == documented("best") | {"method.lr", "method", "network", "workers"}
    by = set().union(*json.loads(command("best", "out", "--by", "distance", "--json").out)["rows"])
    assert by - best == {"distance", "distance_min", "distance_max"}


def test_the_effort_of_each_method_is_told(command):
    short = (*SMALL[:6], "--seeds", "1", "--jobs", "1", "--out", "out", "--set", "method.lr=0.1")
    done = command(*short, "--grid", "method=[ddp-adam, {kind: ddp, rule: sgdm}]")
    assert done.code == 0 and "tuning effort: equal, 1 configuration of each of 2 methods" in done.err


REFUSED = [
    ((*SMALL, "--grid", "method.lr=0.1,-1"), "error: --grid method.lr: got -1; expected greater than 0\n"),
    ((*SMALL, "--seeds", "0"), "error: --seeds: got 0; expected their number, as in 5, or a list, as in [3, 4]\n"),
    (("sweep", "digits-faults", "--grid", "workers=x", "--out", "out"), "error: --grid workers: got 'x'; expected"),
    (("best", "nowhere"), "error: folder: got 'nowhere'; expected a sweep's folder"),
]


@pytest.mark.parametrize(
    "changed",
    [{"runs": [1]}, {"runs": [{}]}, {"name": None, "runs": [{"run": 1}]}, {"rows": [{"run": []}]}, {"rows": 1}],
    ids=str,
)
def test_a_sweep_that_somebody_has_changed_is_a_mistake(changed, command):
    fields = {"name": "it", "runs": [], "rows": []}
    Path("it").mkdir()
    Path("it/sweep.json").write_text(json.dumps(fields))
    assert command("best", "it").code == 0
    Path("it/sweep.json").write_text(json.dumps(fields | changed))
    done = command("best", "it")
    assert done.code == 2 and done.err.startswith("error: folder") and done.err.count("\n") == 1


@pytest.mark.parametrize(("arguments", "line"), REFUSED, ids=lambda value: " ".join(value)[-40:])
def test_mistakes_are_one_line_and_leave_nothing(arguments, line, command, tmp_path):
    done = command(*arguments)
    assert done.code == 2 and done.out == "" and done.err.startswith(line) and done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
