"""Studies from elsewhere enter by the same door as the built-in ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from syncline.errors import SynclineError
from syncline.planner.tables.display import run_tables
from syncline.planner.tables.table import table
from syncline.runs.run import run, steps_of
from syncline.specs import STUDIES, Experiment, Piece, Study, load_spec, register_study, study_of
from syncline.specs.load import command_of_kind

MODULE = """
from functools import partial
from typing import Literal
from syncline.planner.tables.table import table
from syncline.specs import Experiment, Piece, Study

class SumsSpec(Experiment):
    kind: Literal["sums"]
    upto: int = 3

def piece(spec, part, report):
    report(spec.upto)
    return [{"part": part, "sum": sum(range(spec.upto + 1))}]

def pieces(spec):
    return [Piece(spec.upto, partial(piece, spec, part)) for part in (1, 2)]

def rows(spec, records):
    return sorted(records, key=lambda record: record["part"])

def tables(rows, spec):
    return [table(spec.name, "part sum", rows)]

STUDY = Study(SumsSpec, rows, tables, pieces)
NO_STUDY = 3
"""


class AnswerSpec(Experiment):
    """At once."""

    kind: Literal["answer"]
    to: int = 6


def answers(spec: AnswerSpec, records: list[Any]) -> list[dict[str, Any]]:
    return [{"answer": 7 * spec.to}]


def answer_tables(rows: list[dict[str, Any]], spec: AnswerSpec) -> list[Any]:
    return [table(spec.name, "answer", rows)]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STUDIES, "_registered", dict(STUDIES._registered))


@pytest.mark.usefixtures("fresh")
def test_a_registered_study_is_loaded_and_run(tmp_path: Path) -> None:
    study = Study(AnswerSpec, answers, answer_tables, lambda spec: [Piece(5, lambda report: [{"answer": 7 * spec.to}])])
    assert register_study(study) is study and study.kind == "answer" == STUDIES.names()[-1]
    (tmp_path / "spec.yaml").write_text("{kind: answer, name: mine}")
    spec = load_spec(tmp_path / "spec.yaml", {"to": 5})
    assert study_of(spec) is study and command_of_kind("answer") == "run" and steps_of(spec) == 5
    result = run(spec, tmp_path / "out")
    assert result["rows"] == [{"answer": 35}]
    assert load_spec(tmp_path / "out" / "spec.yaml") == spec
    (shown,) = run_tables(result["rows"], spec)
    assert shown.renderables[0].plain == "mine"  # type: ignore[union-attr]


@pytest.mark.usefixtures("fresh")
def test_without_pieces_it_is_for_project() -> None:
    register_study(Study(AnswerSpec, answers, answer_tables))
    assert command_of_kind("answer") == "project"


def test_a_kind_is_there_once() -> None:
    with pytest.raises(SynclineError, match="alignment"):
        register_study(STUDIES.get("alignment"))
        register_study(Study(STUDIES.get("alignment").spec, answers, answer_tables))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A package of somebody else's with two entry points, one of which is no study."""
    (tmp_path / "my_sums.py").write_text(MODULE)
    info = tmp_path / "my_sums-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sums\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[syncline.studies]\nsums = my_sums:STUDY\nother = my_sums:NO_STUDY\n")
    (tmp_path / "sums.yaml").write_text("{kind: sums, name: sums}")
    (tmp_path / "other.yaml").write_text("{kind: other, name: other}")
    return tmp_path


def syncline(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(here), str(Path(__file__).parents[3])])
    return subprocess.run(
        [sys.executable, "-m", "syncline.cli.application", *arguments],
        cwd=here, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_study_of_another_package_is_run_by_the_command(installed: Path) -> None:
    done = syncline(installed, "run", "sums.yaml", "--set", "upto=4", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == [{"part": 1, "sum": 10}, {"part": 2, "sum": 10}]
    assert (installed / "runs" / "sums" / "metrics.parquet").exists()


def test_what_is_no_study_is_said_in_a_line(installed: Path) -> None:
    done = syncline(installed, "run", "other.yaml")
    assert done.returncode == 2
    assert done.stderr == "error: kind: 'other' of the entry points syncline.studies is no Study of that kind: 3\n"
