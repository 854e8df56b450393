"""Printing of measurements on real processes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from syncline.cli.shell import emit, in_folder, new_console, print_tables, say, show_files, show_result, warn
from syncline.errors import SpecError, SynclineError

if TYPE_CHECKING:
    from syncline.questions.calibrate import Calibrate
    from syncline.questions.launch import Launch
    from syncline.questions.validate import Validate


def print_launch(question: Launch) -> None:
    """Print a run on real processes, and write it into a folder."""
    from syncline.api.processes import answer_launch, prepared_launch
    from syncline.measure.launching.tables import launched_steps
    from syncline.runs.processes.progress import progress

    spec, options = prepared_launch(question)
    console = new_console()
    with progress(console, [spec.name], launched_steps(spec)) as update:
        started = in_folder(question, spec.name, on_progress=lambda done: update([done]))
        result = answer_launch(started, (spec, options))
    show_result(console, result, question.json)
    if result.failed:
        say(f"error: {result.failed}; what was measured until then is in the folder above")
        raise typer.Exit(1)


def print_calibrate(question: Calibrate) -> None:
    """Print the calibration of this machine, and write the cluster file."""
    from syncline.api.processes import answer_calibrate, prepared_calibration
    from syncline.runs.processes.progress import progress

    plan, numbers = prepared_calibration(question)
    command, console = shlex.join(["syncline", *sys.argv[1:]]), new_console()
    with progress(console, ["calibrate"], len(numbers) * len(plan.parts), "parts") as update:
        try:
            result = answer_calibrate(
                question, (plan, numbers), out=Path("cluster.yaml"), command=command,
                on_progress=lambda done: update([done]),
            )  # fmt: skip
        except SpecError:
            raise
        except SynclineError as error:  # a process died or hung
            say(f"error: {error}")
            raise typer.Exit(1) from None
    print_tables(console, result)
    console.print(f"\nresults in {result.folder}", soft_wrap=True)
    console.print(f"use it: syncline project --network {shlex.quote(str(result.folder))}", soft_wrap=True)
    if question.json:
        emit(result)


def print_validate(question: Validate) -> None:
    """Print the errors of predictions, and write each validation into a folder."""
    from syncline.specs import VALIDATIONS, CompareSpec, Override, RunSpec, kind_of, load_spec

    loaded = []
    for name in question.specs:
        is_training = kind_of(name) in ("run", "compare")
        data = None if question.data is None or is_training else str(question.data)
        options = {"--data": ("data", data), "--measurements": ("measurements", question.measurements or None)}
        changes = [Override.option(option, *change) for option, change in options.items() if change[1] is not None]
        loaded.append(load_spec(name, [*(question.fields or ()), *changes], *VALIDATIONS, RunSpec, CompareSpec))
    trainings = [spec for spec in loaded if isinstance(spec, RunSpec | CompareSpec)]
    published = [spec for spec in loaded if isinstance(spec, VALIDATIONS)]
    if question.out is not None and len(published) + bool(trainings) > 1:
        raise SpecError(
            "--out", str(question.out), "one spec, as this names the folder of one; without it each has its own"
        )
    from syncline.measure.validation.step_times import validate_published
    from syncline.measure.validation.tables import validate_tables, validation_tables

    console, results = new_console(), []
    for spec in published:
        result = validate_published(spec, Path(question.out or f"runs/{spec.name}"), exact=question.out is not None)
        for table in validate_tables(result, spec):
            console.print(table)
        show_files(console, result["folder"])
        results.append(result)
    for training in trainings:
        warn(training.warnings())
    if trainings:
        from syncline.measure.validation.processes import validate_local

        target = Path(question.out or f"runs/{'-'.join(spec.name for spec in trainings)}")
        result = validate_local(
            trainings,
            question.workers,
            question.cluster,
            question.repeats,
            target,
            exact=question.out is not None,
            on_progress=say,
        )
        for table in validation_tables(result):
            console.print(table)
        show_files(console, result["folder"])
        results.append(result)
    if question.json:
        together = {
            "validations": results,
            "rows": [{"spec": answer.get("spec")} | row for answer in results for row in answer["rows"]],
        }
        emit(results[0] if len(results) == 1 else together)
