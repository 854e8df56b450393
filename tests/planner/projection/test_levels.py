"""A cluster of several levels in one file, projected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syncline.cli.application import app
from syncline.costmodel import best_algorithm, collective_s
from syncline.planner.projection.project import project
from syncline.specs import load_spec, network

EXAMPLE = Path(__file__).parents[3] / "examples" / "two_sites.yaml"


def test_two_sites_of_64_gpus_are_one_file() -> None:
    given = ["project", "--network", str(EXAMPLE), "--workers", "64", "--method", "ddp-adam,diloco", "--json",
             "--overlap", "none", "--precision", "fp32"]  # fmt: skip
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    on, nbytes = network(EXAMPLE), 4 * 162_201_600
    name = best_algorithm("all_reduce", 64, nbytes, on)
    assert {row["algorithm"] for row in rows} == {name} and "hierarchical" in name
    assert rows[0]["communication_s"] == pytest.approx(collective_s("all_reduce", 64, nbytes, on, name), rel=1e-12)
    assert rows[1]["communication_s"] == pytest.approx(rows[0]["communication_s"] * 332 / 9984)


def test_open_levels_of_many_numbers_of_workers_are_those_of_each() -> None:
    on = {"name": "pods", "levels": ["dgx-h100"]}
    levels, nodes = (
        [project(load_spec("project-gpt-160m", [f"networks=[{json.dumps(one)}]", f"workers={workers}",
                                                "methods=[ddp-adam, diloco, mt-dao]"])) for workers in (8, 64, 512)]
        for one in (on, "dgx-h100")
    )  # fmt: skip
    assert [[row | {"network": "dgx-h100"} for row in rows] for rows in levels] == nodes
