"""What is here and what is not is told, whatever is not."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from syncline.runs import doctor
from syncline.version import __version__
from tests.test_docs import documented

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_extras_are_those_of_the_package():
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    named = {name: {one.split(">")[0] for one in packages} for name, packages in extras.items()}
    assert (
        named == {name: set(packages) for name, packages in doctor.EXTRAS.items()}
        and named.keys() == doctor.CONSEQUENCES.keys()
    )


def test_it_is_told_as_json_and_for_people(command):
    told, shown = command("doctor", "--json"), command("doctor")
    rows = json.loads(told.out)["rows"]
    assert (told.code, told.err, shown.code, shown.out) == (0, "", 0, "")
    assert all(set(row) == documented("doctor") for row in rows)
    named = {row["name"]: row for row in rows}
    assert named["syncline"]["found"].startswith(__version__) and named["this folder"]["ok"]
    assert all(f" {name} " in shown.err for name in named)


def test_whatever_fails_is_told_and_nothing_else_is_lost(monkeypatch, command):
    def broken():
        raise RuntimeError("a driver\nthat is older than this torch")

    monkeypatch.setenv("COLUMNS", "120")
    whole = {one["name"] for one in doctor.findings()}
    groups = {group: dict.fromkeys(checks, broken) for group, checks in doctor.CHECKS.items()}
    monkeypatch.setattr(doctor, "CHECKS", groups)
    found = doctor.findings()
    assert whole <= {one["name"] for one in found} and not any(one["ok"] for one in found)
    done = command("doctor")
    assert done.code == 0 and "is unknown (RuntimeError: a driver that is older than this torch)" in done.err


@pytest.mark.parametrize("extra", doctor.EXTRAS)
def test_without_an_extra_it_is_said_what_is_missed_and_how_to_get_it(extra, monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    (told,) = [one for one in doctor.findings() if one["name"] == extra]
    assert (told["found"], told["ok"], told["without"]) == (
        "none", False, f"{doctor.CONSEQUENCES[extra]}: pip install 'syncline[{extra}]'",
    )  # fmt: skip


def test_a_folder_that_cannot_be_written_is_told(monkeypatch):
    def refused(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)
    (told,) = [one for one in doctor.findings() if one["name"] == "this folder"]
    assert not told["ok"] and "Read-only file system" in told["without"] and "--out" in told["without"]
