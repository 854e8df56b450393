"""The validations of a question, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.errors import SpecError
from syncline.questions.validate import Validate
from syncline.specs import VALIDATIONS, CompareSpec, Override, RunSpec, kind_of, load_spec

if TYPE_CHECKING:
    from rich.console import Group


def validations(question: Validate, say: Callable[[str], None]) -> Iterator[tuple[dict[str, Any], list[Group]]]:
    """Yield the result and the tables of each published validation, then those of all trainings together.

    Args:
        question: the question.
        say: function that prints a line of progress, or a warning.

    Raises:
        SpecError: a spec is wrong, or ``out`` names one folder for several validations.
    """
    loaded = []
    for name in question.specs:
        changes: dict[str, Any] = {"measurements": list(question.measurements or ()) or None}
        if kind_of(name) not in ("run", "compare"):
            changes["data"] = question.data and str(question.data)
        if kind_of(name) == "clusters":
            changes["network"] = question.cluster and str(question.cluster)
        options = [Override.option(f"--{field}", field, value) for field, value in changes.items() if value is not None]
        loaded.append(load_spec(name, [*(question.fields or ()), *options], *VALIDATIONS, RunSpec, CompareSpec))
    trainings = [spec for spec in loaded if isinstance(spec, RunSpec | CompareSpec)]
    published = [spec for spec in loaded if isinstance(spec, VALIDATIONS)]
    exact = question.out is not None
    if exact and len(published) + bool(trainings) > 1:
        expected = "one spec, as this names the folder of one; without it each has its own"
        raise SpecError("--out", str(question.out), expected)
    # Torch is imported once the specs are read.
    from syncline.measure.validation.processes import validate_local
    from syncline.measure.validation.step_times import validate_published
    from syncline.measure.validation.tables import validate_tables, validation_tables

    for spec in published:
        result = validate_published(spec, Path(question.out or f"runs/{spec.name}"), exact=exact)
        yield result, validate_tables(result, spec)
    if trainings:
        for training in trainings:
            for line in training.warnings():
                say(f"warning: {line}")
        target = Path(question.out or f"runs/{'-'.join(spec.name for spec in trainings)}")
        result = validate_local(
            trainings, question.workers, question.cluster, question.repeats, target, exact=exact, on_progress=say
        )
        yield result, validation_tables(result)
