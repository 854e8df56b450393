"""What Tab offers, as bash, zsh and fish ask for it."""

from __future__ import annotations

import pytest

from syncline.cli import commands
from syncline.cli.commands import COMMANDS
from syncline.costmodel import NETWORKS
from syncline.questions import catalogue as list_question
from syncline.questions import question_of
from syncline.questions.declare import SHELL, appearance_of
from syncline.runs.catalogue import CATALOGUES
from syncline.specs import bundled
from syncline.specs.load import command_of_kind, kind_of


def test_all_lists_are_offered():
    assert sorted(list_question.CATALOGUES) == sorted(CATALOGUES)


@pytest.mark.parametrize("command_", ["compare", "run", "project", "pipeline", "validate"])
def test_specs_are_offered_to_the_command_that_takes_them(command_):
    offered = commands.completer(f"specs_of:{command_}")("")
    assert offered == [name for name in bundled() if command_of_kind(kind_of(name)) == command_] != []


def test_of_a_list_the_last_name_is_completed():
    assert commands.completer("networks")("") == list(NETWORKS) and commands.completer("networks")("10g,10gb") == [
        "10g,10gbe"
    ]
    assert "ddp-adam,des-loc" in commands.completer("methods")("ddp-adam,des")


COMPLETIONS = {
    appearance_of(member).completion for command in COMMANDS for member in question_of(command).declared(SHELL)
} - {()}
"""The completions that the questions name."""


def test_every_offer_can_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert commands.completer("runs")("") == []
    (tmp_path / "runs" / "one").mkdir(parents=True)
    assert commands.completer("runs")("runs/o") == ["runs/one"]
    for name in COMPLETIONS:
        assert commands.completer(name)("")


ASKED = {
    "bash": {"COMP_WORDS": "syncline pipeline --schedule 1", "COMP_CWORD": "3", "_SYNCLINE_COMPLETE": "complete_bash"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "syncline pipeline --schedule 1", "_SYNCLINE_COMPLETE": "complete_zsh"},
    "fish": {"_TYPER_COMPLETE_ARGS": "syncline pipeline --schedule 1", "_SYNCLINE_COMPLETE": "complete_fish",
             "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}  # fmt: skip


@pytest.mark.parametrize("shell", ASKED)
def test_a_shell_is_answered(shell, command, monkeypatch):
    for name, value in ASKED[shell].items():
        monkeypatch.setenv(name, value)
    done = command()
    assert done.code == 0 and "1f1b" in done.out and "gpipe" not in done.out
