"""Printing of trainings in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.cli.shell import in_folder, new_console, show_result

if TYPE_CHECKING:
    from syncline.questions.compare import Compare
    from syncline.questions.run import Run


def print_compare(question: Compare) -> None:
    """Print the comparison of several methods, and write it into a folder."""
    if question.jobs != 1:
        from syncline.runs.processes.forked import start_server

        start_server()  # the server imports modules while this process does
    from syncline.api.trainings import answer_compare, comparison_spec

    spec = comparison_spec(question)
    from syncline.runs.processes.progress import progress
    from syncline.runs.rehearsal import check_columns

    check_columns(spec, question.columns)
    console = new_console()
    with progress(console, [method.name for method in spec.methods], spec.steps) as update:
        result = answer_compare(in_folder(question, spec.name, on_progress=update), spec)
    show_result(console, result, question.json, question.columns)


def print_run(question: Run) -> None:
    """Print a training in detail, or a study, and write it into a folder."""
    from syncline.api.trainings import answer_run, training_spec

    spec = training_spec(question)
    from syncline.planner.tables.display import subject
    from syncline.runs.processes.progress import progress
    from syncline.runs.rehearsal import check_columns
    from syncline.runs.run import steps_of

    check_columns(spec, question.columns)
    console = new_console()
    with progress(console, [subject(spec)], steps_of(spec)) as update:
        result = answer_run(in_folder(question, spec.name, on_progress=lambda done: update([done])), spec)
    show_result(console, result, question.json, question.columns)
