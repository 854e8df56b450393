"""Options about failures for commands that account for them, and the failures that the options give."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from syncline.cli import completion
from syncline.cli.shell import value_of

WHICH = "See 'syncline list failures'; or a worker's mean time between them, as 50000h; or fields, or a YAML file."

FailuresOption = Annotated[
    str | None,
    typer.Option("--failures", metavar="WHICH", help=WHICH, autocompletion=completion.failures),
]
RecoveryOption = Annotated[
    str | None,
    typer.Option(
        "--recovery",
        metavar="HOW",
        help="restart (all, from a checkpoint) or reform (the others go on); by default as each method can.",
    ),
]
RestartOption = Annotated[
    str | None, typer.Option("--restart", metavar="TIME", help="To start processes again, after a failure.")
]
RepairOption = Annotated[
    str | None, typer.Option("--repair", metavar="TIME", help="Until a failed machine is back; 5.7 h by default.")
]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="TIME", help="What writing a checkpoint takes.")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--bandwidth", metavar="RATE", help="In its place: at which all together write checkpoints, as 100GB/s."
    ),
]


def failing_fields(failures: str | None, checkpoint: dict[str, Any] | None = None, **fields: Any) -> Any:
    """Return the failures that the options give; None without ``failures``.

    Args:
        failures: the text of ``--failures``; None if it is not given.
        checkpoint: fields of the checkpoint by name; None for one that is not given.
        **fields: fields of the failures by name; None for one that is not given.

    Raises:
        SpecError: the failures are unknown, or options about failures come without ``--failures``.
    """
    from syncline.errors import SpecError
    from syncline.specs.failures import parse_failures

    fields = {name: value for name, value in fields.items() if value is not None}
    saved = {name: value for name, value in (checkpoint or {}).items() if value is not None}
    if failures is None:
        for name, value in {**fields, **{AS_OPTION.get(name, name): value for name, value in saved.items()}}.items():
            raise SpecError(f"--{name}", value, "--failures beside it, which says what fails")
        return None
    described = parse_failures(value_of("--failures", failures), "--failures").model_dump(
        mode="json", exclude_unset=True
    )
    described |= fields
    if saved:
        described["checkpoint"] = described.get("checkpoint", {}) | saved
    return described


AS_OPTION = {"seconds": "checkpoint"}
"""Fields of a checkpoint whose options have other names."""
