"""Values of long studies of Basis Rotation: those that the page of the run has, read by the functions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from replication.scoreboard import computed, rotation_studies
from replication.scoreboard.rows import MEASURED, PaperRow, stored
from replication.studies.staleness.study import Path
from tests.reference import ROOT
from tests.replication.scoreboard.test_rows import is_long

PAGE = (ROOT / "results" / "basis_rotation.md").read_text(encoding="utf-8")


def table(heading: str, number: int = 0) -> dict[str, list[float]]:
    """The first number of each cell of a table below a heading, by the first cell of its lines; a dash is infinite."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        name: [np.inf if cell == "-" else float(re.split("[ ,]", cell)[0]) for cell in rest] for name, *rest in cells
    }


def fig5_cell(column: str, method: str, stages: int, network: str) -> float:
    place = (1, 8, 16).index(stages)
    if column in ("loss", "steps_to_target"):
        return table("Eleven methods at 1, 8 and 16 stages", ("loss", "steps_to_target").index(column))[method][place]
    times = table("Against time")[method][3 * ("nvlink4", "10gbe", "wan").index(network) :]
    return {"steps": 300, "time_to_target_s": times[1], "sync_time_to_target_s": times[2]}[column]


def cell_of_the_page(spec: str, column: str, **where) -> float:
    if spec.endswith("fig5"):
        return fig5_cell(column, **where)
    if spec.endswith("fig10"):
        return table("How often bases are renewed, and where")[where["method"]][column == "steps_to_target"]
    name, comma, _ = where["method"].partition(", no stash")
    return table("Without weight stashing")[name][2 if comma else 0]


LONG = [name for name, line in stored("basis-rotation").items() if is_long(line)]


@pytest.mark.parametrize("name", LONG)
def test_stored_values_of_long_studies_are_those_of_their_page(monkeypatch, name):
    """The page says that rotation has the best baseline's final loss after 151 steps."""
    path = Path(0.001, np.array([0, 151, 300]), np.array([[5.5, 3.224, 2.923]]), (None,))
    monkeypatch.setattr(rotation_studies, "study_cell", cell_of_the_page)
    monkeypatch.setattr(rotation_studies, "records_of_study", lambda spec: (None, []))
    monkeypatch.setattr(rotation_studies, "paths", lambda spec, records: {("rotation 2nd bilateral", 16): path})
    kept = PaperRow("basis-rotation", "", name, "", ours=f"{MEASURED} {name}").value()
    assert computed("basis-rotation", stored("basis-rotation")[name]["by"]) == pytest.approx(kept, rel=0.015)
