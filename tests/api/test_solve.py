"""``syncline solve``: tables, JSON, CSV, refusals in one line."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import syncline as sl
from syncline.cli.application import app
from syncline.planner.solving.tables import VALUE_TEXTS, round_to_meet
from syncline.units import parse_bandwidth, parse_seconds

CLUSTER = ["--model", "llama-7b", "--cluster", "two-sites-a100"]
SITES = ["--layout", "data=32"]
"""A replica for each site, as one worker's memory holds none."""


def test_json_and_csv_are_the_functions_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    asked = ["solve", "latency", "--network", "wan", "--method", "diloco", "--step-time", "3s", "--csv", str(file)]
    run = CliRunner().invoke(app, [*asked, "--json"], catch_exceptions=False)
    told = json.loads(run.stdout)
    assert told["sought"] == "latency"
    assert told["rows"] == sl.solve("latency", networks="wan", methods="diloco", step_time=3).rows
    with file.open(encoding="utf-8") as lines:
        (row,) = csv.DictReader(lines)
    assert float(row["value"]) == told["rows"][0]["value"] and row["method"] == "diloco"


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["bandwidth", *CLUSTER, *SITES, "--method", "diloco", "--tokens", "140B", "--deadline", "30d"],
         ["Least bandwidth of both (wan-20ms): 140 B tokens within 30 d.", "from 900 Mbit/s",
          "545 Mbit/s to 2.9 Gbit/s", "(1 Gbit/s)"]),
        (["bandwidth", *CLUSTER, "--method", "diloco", "--tokens", "140B", "--deadline", "30d"],
         ["*: does not fit", "diloco, unknown: does not fit into the memory of a100"]),
        (["bandwidth", *CLUSTER, *SITES, "--method", "diloco", "--step-time", "2s"],
         ["from 25.1 Gbit/s", "10.7 Gbit/s to none"]),
        (["bandwidth", *CLUSTER, *SITES, "--method", "diloco", "--step-time", "1s"],
         ["diloco, never: computing alone takes 1.7 s", "none"]),
        (["bandwidth", "--network", "10gbe", "--method", "diloco", "--speedup", "2x"],
         ["at least 2 times as fast as ddp-adam", "up to "]),
        (["latency", *CLUSTER, *SITES, "--method", "diloco", "--exposed", "85%"],
         ["Longest latency of both", "up to "]),
        (["latency", *CLUSTER, *SITES, "--method", "diloco", "--exposed", "80%"],
         ["diloco, never: its bandwidth is too low even without latency: 80.8% of a step waiting"]),
        (["period", *CLUSTER, *SITES, "--method", "diloco,ddp-adam", "--tokens", "140B", "--deadline", "15d"],
         ["from 69 steps", "ddp-adam, never: it has no period", "by the clock alone"]),
        (["workers", *CLUSTER, "--method", "ddp-adam", "--tokens", "140B", "--deadline", "30d", "--set",
          "tokens_per_worker=32768"],
         ["Fewest workers on two-sites-a100", "16 to 32, from 384", "met in parts", "--batch-tokens keeps"]),
        (["network", "--among", "1gbe=5,10gbe=60", *CLUSTER, *SITES, "--method", "diloco", "--exposed", "50%"],
         ["Cheapest network in the place of both", "10gbe", "money"]),
        (["bandwidth", *CLUSTER, *SITES, "--method", "demo", "--target-loss", "2.3", "--deadline", "9d",
          "--extrapolate"],
         ["unknown", "demo, unknown: "]),
    ],
)  # fmt: skip
def test_tables_say_it_in_words(asked: list[str], shown: list[str]) -> None:
    run = CliRunner().invoke(app, ["solve", *asked], catch_exceptions=False, env={"COLUMNS": "160"})
    assert run.exit_code == 0
    told = " ".join(run.output.split())
    assert all(one in told for one in shown), run.output


def test_bad_input_is_one_line_and_exit_code_2() -> None:
    arguments = ["solve", "bandwidth", "--deadline", "30d"]
    code = f"import sys; from syncline.cli.application import main; sys.argv[1:] = {arguments}; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        "error: --deadline: got '30 d'; expected the training's tokens as well, or "
        "a target loss, from which its length follows\n"
    )


def test_it_needs_no_torch() -> None:
    code = "import sys, syncline as sl; sl.solve('bandwidth', methods='diloco', networks='wan', step_time='1s')"
    code += "; print(sorted({'torch', 'matplotlib', 'pandas', 'numba'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_specs_that_are_ready_are_asked_as_they_are() -> None:
    from syncline.specs import ProjectSpec, load_spec

    spec = load_spec("project-gpt-160m", {"methods": ["diloco"], "networks": ["wan"]}, ProjectSpec)
    (row,) = sl.solve("bandwidth", [spec], step_time="1s").rows
    assert row["value"] == sl.solve("bandwidth", spec, step_time="1s").rows[0]["value"]


@given(st.floats(1e-9, 1e15), st.sampled_from(["bandwidth", "latency"]), st.booleans())
def test_printed_values_meet_the_target(value: float, sought: str, up: bool) -> None:
    """They are rounded up where the target is met from a value on, and down where it is met up to one."""
    text = VALUE_TEXTS[sought](round_to_meet(sought, value, up))
    parse = parse_bandwidth if sought == "bandwidth" else parse_seconds
    printed = parse(text)
    assert printed >= value * (1 - 1e-4) if up else printed <= value * (1 + 1e-4)
    assert printed == pytest.approx(value, rel=0.0101)
