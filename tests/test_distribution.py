"""What a release is made of: versions that can be installed, a citation, licences of what others made."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from syncline import version
from tests.wheel import lowest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_lowest_versions_are_not_above_those_that_are_installed_here():
    pinned = dict(
        re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    pinned = {name.lower().replace("_", "-"): number for name, number in pinned.items()}
    for one in lowest():
        name, number = one.lower().replace("_", "-").split("==")
        assert [*map(int, number.split("."))] <= [*map(int, pinned[name].split("."))], one


def test_the_citation_says_what_the_package_says():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert " AND ".join(citation["license"]) == PROJECT["project"]["license"]
    assert citation["abstract"].rstrip(".") == PROJECT["project"]["description"]


def test_the_notice_names_files_that_are_there_and_every_table_of_data():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    named = [ROOT / line for line in notice.splitlines() if line.startswith("syncline/")]
    assert all(path.exists() for path in named)
    tables = {*(ROOT / "syncline").rglob("*.csv"), *(ROOT / "syncline").rglob("*.npz")}
    assert not {path for path in tables if not any(path.is_relative_to(one) for one in named)}


def test_a_build_tells_the_commit_that_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert re.fullmatch(r"[0-9a-f]{40}\+?|None", str(version.git_commit()))
    (tmp_path / "commit.txt").write_text(f"{'a1' * 20}+\n")
    monkeypatch.setattr(version, "BUILT_FROM", tmp_path / "commit.txt")
    assert version.version_line() == f"{version.__version__}, commit a1a1a1a1a1a1+"


def test_an_unknown_commit_is_not_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(version, "git_commit", lambda: None)
    assert version.version_line() == version.__version__
