"""Printing of the papers' numbers, and of replications of their claims."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from syncline.checkout import import_replication
from syncline.cli.shell import emit, new_console, print_tables, say
from syncline.errors import SpecError
from syncline.interrupts import exit_code

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from syncline.questions.replicate import Replicate
    from syncline.questions.reproduce import Reproduce
    from syncline.runs.sweep.listener import Listener


def print_replicate(question: Replicate) -> None:
    """Print the verdicts of a replication, after the trainings that this call makes; or the bundled replications."""
    from syncline.api.papers import answer_replicate
    from syncline.runs.sweep.listener import listening

    console = new_console()
    if question.list:
        listed = import_replication("replications.results").known_replications()
        if question.json:
            emit(listed)
        else:
            print_tables(console, listed)
        return
    if question.name is None:
        raise SpecError("NAME", None, "a replication of 'syncline replicate --list', or a YAML file")

    def on_stage(stage: Any) -> AbstractContextManager[Listener]:
        say(f"{stage.name}: {stage.trainings:,} training{'s' * (stage.trainings != 1)}")
        return listening(console, say)

    result = answer_replicate(replace(question, on_stage=on_stage, on_expected=lambda left: say(str(left))))
    print_tables(console, result)
    console.print(f"results in {result.folder}/", soft_wrap=True)
    if question.json:
        emit(result)
    begin = "interrupted, " if result.interrupted else ""
    if result.told["left"]:
        say(f"{begin}left: {result.told['left']:,} trainings; the same again goes on where this ended")
    elif result.interrupted:
        say("interrupted")
    if result.interrupted:
        raise typer.Exit(exit_code())


def print_reproduce(question: Reproduce) -> None:
    """Print the papers' numbers next to ours, and draw their summaries."""
    from syncline.api.papers import answer_reproduce

    plot, paper = question.plot, question.paper
    figures = import_replication("summaries").save_summaries(plot, paper) if plot else []
    result = answer_reproduce(question)
    if question.json:
        emit(result)
    else:
        print_tables(new_console(), result)
        for file in figures:
            say(f"figure in {file}")
