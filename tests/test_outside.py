"""A package of somebody else's, `tests/outside`, adds one thing of each kind, without a line of Syncline changed.

It is installed as far as ``importlib.metadata`` looks: its folder is on Python's path. All commands run in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OUTSIDE = Path(__file__).parent / "outside"

COMPARE = """
kind: compare
name: acme
problem: {kind: acme-bowl, steepness: 3.0, noise_std: 0.1}
workers: 4
steps: 16
eval_every: 4
methods: [{kind: ddp, rule: sgdm, lr: 0.05}, {kind: acme-seldom, lr: 0.05}, acme-seldom-8]
networks: [acme-lab, acme-bus]
compute: {seconds: 1 ms}
"""

LISTS = ("problems", "methods", "networks", "hardware", "models", "schedules", "studies")

COMMANDS: dict[str, list[str]] = {
    **{f"list {what}": ["list", what, "--json"] for what in LISTS},
    "table of methods": ["list", "methods", "--model", "acme-tiny"],
    "compare": ["compare", "acme.yaml", "--jobs", "1", "--out", "compared"],
    "project": [
        "project", "--model", "acme-tiny,acme-net", "--network", "acme-lab", "--hardware", "acme-card",
        "--method", "ddp-adam,acme-seldom-8", "--workers", "8", "--json",
    ],
    "collectives": ["collectives", "--network", "acme-bus", "--workers", "4", "--json"],
    "pipeline": [
        "pipeline", "--schedule", "gpipe,acme-one-by-one", "--network", "acme-lab", "--set", "model=acme-tiny",
        "--set", "tokens_per_microbatch=128", "--set", "hardware=acme-card", "--set", "forward=null",
        "--set", "backward=null", "--out", "played", "--json",
    ],
    "study": ["project", "dice.yaml", "--json"],
}  # fmt: skip

EACH = """
import json, sys
from typer.testing import CliRunner
from syncline.cli.application import app

if __name__ == "__main__":
    done = {}
    for name, arguments in json.loads(sys.argv[1]).items():
        ran = CliRunner().invoke(app, arguments)
        done[name] = [ran.exit_code, ran.stdout, ran.stderr + str(ran.exception or "")]
    print(json.dumps(done))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run."""
    here = tmp_path_factory.mktemp("outside")
    (here / "acme.yaml").write_text(COMPARE)
    (here / "dice.yaml").write_text("{kind: acme-dice, name: dice, sides: [4, 8]}")
    (here / "each.py").write_text(EACH)
    return here


def told_by(folder: Path, commands: dict[str, list[str]]) -> dict[str, list[Any]]:
    """Exit code, standard output and standard error of each command."""
    paths = os.pathsep.join([str(OUTSIDE), str(Path(__file__).parents[1])])
    ran = subprocess.run(
        [sys.executable, "each.py", json.dumps(commands)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "100"},
        cwd=folder,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, list[Any]] = json.loads(ran.stdout)
    return told


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, list[Any]]:
    """All commands."""
    return told_by(folder, COMMANDS)


def rows_of(done: dict[str, list[Any]], name: str) -> list[dict[str, Any]]:
    code, out, err = done[name]
    assert code == 0, err
    rows: list[dict[str, Any]] = json.loads(out)["rows"]
    return rows


NAMES = {
    "problems": ["acme-bowl"],
    "methods": ["acme-seldom-8"],
    "networks": ["acme-lab", "acme-bus"],
    "hardware": ["acme-card"],
    "models": ["acme-tiny", "acme-net"],
    "schedules": ["acme-one-by-one"],
    "studies": ["acme-dice"],
}


@pytest.mark.parametrize("what", LISTS)
def test_lists_have_it_and_say_whose_it_is(what: str, done: dict[str, list[Any]]) -> None:
    rows = {row["name"]: row for row in rows_of(done, f"list {what}")}
    assert [name for name in rows if name.startswith("acme")] == NAMES[what]
    sources = {"methods": ["Acme's handbook"], "hardware": ["Acme's data sheet"]}.get(what, ["acme 1.2"] * 2)
    assert [rows[name]["source"] for name in NAMES[what]] == sources[: len(NAMES[what])]


def test_what_is_listed_is_what_it_is(done: dict[str, list[Any]]) -> None:
    rows = {row["name"]: row for what in LISTS for row in rows_of(done, f"list {what}")}
    assert rows["acme-lab"]["bandwidth_bytes_per_s"] == 3.125e9
    assert rows["acme-bus"]["links"] == "a bus of 10 Gbit/s" and rows["acme-bus"]["fields"] == "acme-bus"
    assert rows["acme-tiny"]["layers"] == 4 and rows["acme-net"]["layers"] is None
    weights = 16 * 27 + 16 * 144 + 10 * 1024
    assert rows["acme-net"]["parameters"] == weights + 16 + 16 + 10
    products = 64 * (16 * 27 + 16 * 144) + 10 * 1024
    assert rows["acme-net"]["flops_per_token"] == 2 * (3 * products - 64 * 16 * 27)  # images need no gradient
    assert rows["acme-bowl"]["fields"]["steepness"] == 2.0
    assert rows["acme-dice"]["command"] == "project"


def test_it_is_compared(done: dict[str, list[Any]], folder: Path) -> None:
    code, _, shown = done["compare"]
    assert code == 0, shown
    told = json.loads((folder / "compared" / "run.json").read_text())["rows"]
    rows = {(row["method"], row["network"]): row for row in told}
    assert list(rows) == [
        (method, net) for net in ("acme-lab", "acme-bus") for method in ("ddp-sgdm", "acme-seldom", "acme-seldom-8")
    ]
    lab = {method: row for (method, net), row in rows.items() if net == "acme-lab"}
    assert [row["bytes_per_worker"] for row in lab.values()] == [8.0, 2.0, 1.0]
    assert all(row["loss"] < 0.5 * 3.0 * 25 for row in rows.values())  # where it starts
    written = (folder / "compared" / "spec.yaml").read_text()
    assert "kind: acme-bowl" in written and "acme-bus" in written


@pytest.mark.slow
def test_it_is_compared_by_two_processes(done: dict[str, list[Any]], folder: Path) -> None:
    told_by(folder, {"compare": ["compare", "compared/spec.yaml", "--jobs", "2", "--out", "by-two"]})
    one, two = (json.loads((folder / out / "run.json").read_text())["rows"] for out in ("compared", "by-two"))
    assert one == two


def test_it_is_in_the_tables(done: dict[str, list[Any]]) -> None:
    _, _, shown = done["compare"]
    assert "acme-lab: 40 us one way, 25 Gbit/s, 4 workers" in shown and "acme-bus: a bus of 10 Gbit/s" in shown
    assert shown.count("\n acme-seldom ") >= 2 and shown.count("\n acme-seldom-8 ") >= 2
    code, _, shown = done["table of methods"]
    assert code == 0 and "acme-seldom-8" in shown and "for acme-tiny in fp32" in " ".join(shown.split())


def test_it_is_projected(done: dict[str, list[Any]]) -> None:
    rows = rows_of(done, "project")
    assert [(row["model"], row["method"], row["hardware"]) for row in rows] == [
        (model, method, "acme-card") for model in ("acme-tiny", "acme-net") for method in ("ddp-adam", "acme-seldom-8")
    ]
    assert all(row["network"] == "acme-lab" and row["fits"] for row in rows)


def test_collectives_are_played_on_its_network(done: dict[str, list[Any]]) -> None:
    assert {row["network"] for row in rows_of(done, "collectives")} == {"acme-bus"}


def test_its_schedule_is_played(done: dict[str, list[Any]]) -> None:
    gpipe, own = (row["makespan_s"] for row in rows_of(done, "pipeline"))
    assert own > gpipe


def test_its_study_is_answered(done: dict[str, list[Any]]) -> None:
    assert rows_of(done, "study") == [{"sides": 4, "chance": 0.25}, {"sides": 8, "chance": 0.125}]
