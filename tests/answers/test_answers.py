"""The answers of many commands are those that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.answers.answers import answers, commands, differences, read_answers, renamed, write_answers, write_files

CLOSE = 1e-4
"""By how much a number may differ on another processor, where single precision rounds otherwise."""


@pytest.mark.slow
def test_the_answers_are_those_that_are_kept(command: Callable, tmp_path: Path) -> None:
    """A change that is meant to change an answer keeps the new ones: ``python -m tests.answers keep``."""
    write_files(tmp_path)
    kept = read_answers()
    lines = [
        f"{line}{text}" for line, answer in answers(command) for text in differences(kept.get(line), answer, rel=CLOSE)
    ]
    assert not lines, "\n".join(lines[:50])


def test_each_command_is_there_once_and_has_an_answer() -> None:
    assert len(set(commands())) == len(commands()) >= 80
    assert set(read_answers()) == set(commands())


def test_differences_are_found(tmp_path: Path) -> None:
    before = {"rows": [{"loss": 1.0, "method": "one"}, {"loss": None}]}
    after = {"rows": [{"loss": 1.0 + 1e-9, "method": "two"}]}
    assert list(differences(before, before)) == []
    assert list(differences(before, after)) == [
        ".rows: 2 items before, 1 after",
        ".rows.0.loss: 1.0 before, 1.000000001 after",
        ".rows.0.method: 'one' before, 'two' after",
    ]
    assert list(differences({"a": 1.0}, {"b": 1.0 + 1e-9}, rel=1e-6)) == [".a: gone", ".b: new"]
    assert list(differences([1.0, True], [1.0 + 1e-9, 1], rel=1e-6)) == []
    assert renamed({"sends by": ["sends by step"]}, {"sends": "transmits"}) == {"transmits by": ["transmits by step"]}
    write_answers(tmp_path / "kept.xz", before)
    assert read_answers(tmp_path / "kept.xz") == before
