"""The answers of many commands are those that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.answers.answers import answers, commands, differences, read_answers, renamed, write_answers, write_files

TRAINED = dict.fromkeys(("loss", "loss_min", "loss_max", "train_loss", "target_loss", "trigger_mean"), 2e-3)
TRAINED["accuracy"] = 0.03
"""Tolerances of results of trainings in single precision, which amplify the rounding of a processor."""


def on_any_processor(field: str) -> float:
    """Return the relative difference that a field may have on another processor.

    An accuracy may differ by one sample of 359, which is 2.4 % of .114.
    """
    return TRAINED.get(field, 1e-6)


@pytest.mark.slow
def test_the_answers_are_those_that_are_kept(command: Callable, tmp_path: Path) -> None:
    """A change that is meant to change an answer keeps the new ones: ``python -m tests.answers keep``."""
    write_files(tmp_path)
    kept = read_answers()
    lines = []
    for line, answer in answers(command):
        lines += [f"{line}{text}" for text in differences(kept.get(line), answer, on_any_processor)]
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
    assert list(differences({"a": 1.0}, {"b": 1.0 + 1e-9}, on_any_processor)) == [".a: gone", ".b: new"]
    assert list(differences([1.0, True], [1.0 + 1e-9, 1], on_any_processor)) == []
    before, after = (dict.fromkeys(("accuracy", "loss", "seconds"), value) for value in (1.0, 1.01))
    assert list(differences(before, after, on_any_processor)) == [
        ".loss: 1.0 before, 1.01 after", ".seconds: 1.0 before, 1.01 after"
    ]  # fmt: skip
    assert list(differences({"loss": 1.0}, {"loss": 1.001}, on_any_processor)) == []
    assert list(differences([0.0], [1e-14])) == [".0: 0.0 before, 1e-14 after"]
    assert list(differences([0.0], [1e-14], on_any_processor)) == []
    assert renamed({"sends by": ["sends by step"]}, {"sends": "transmits"}) == {"transmits by": ["transmits by step"]}
    write_answers(tmp_path / "kept.xz", before)
    assert read_answers(tmp_path / "kept.xz") == before
