"""Options of commands that project a clock; `syncline project`, `solve` and `advise` share them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from syncline.cli import completion
from syncline.cli.shell import FLAG

FORMATS = ("fp32", "bf16", "fp16")
OVERLAPS = ("none", "ddp", "async")

ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME,...",
        help="See 'syncline list models'; or a config.json, or module:make_model.",
        autocompletion=completion.models,
    ),
]
SequenceOption = Annotated[
    int | None,
    typer.Option("--sequence", metavar="T", help="Tokens in a training sequence; by default the model's."),
]
MachinesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hardware", metavar="NAME,...", help="See 'syncline list hardware'.", autocompletion=completion.hardware
    ),
]
OverlapOption = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        metavar="HOW",
        help="Of computing and communication: none, ddp or async.",
        autocompletion=completion.among(*OVERLAPS),
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="FORMAT",
        help="Of gradients: fp32, bf16 or fp16; by default what the hardware's peak is of.",
        autocompletion=completion.among(*FORMATS),
    ),
]
LayoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--layout",
        metavar="WAYS",
        help="What workers of a replica share: tensor=8,pipeline=4; or data, context, expert, chunks; repeatable.",
        autocompletion=completion.layouts,
    ),
]
PricesOption = Annotated[
    str | None,
    typer.Option("--prices", metavar="FILE", help="Money and energy, by a list of prices in YAML, or one's name."),
]
ExtrapolateOption = Annotated[
    bool,
    typer.Option("--extrapolate", metavar=FLAG, help="Tell losses beyond what fits have seen, marked as such."),
]
CsvOption = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows there.")]


def methods_option(which: str) -> Any:
    """Return the option ``--method``; ``which`` is its help, with the default."""
    return typer.Option("--method", metavar="NAME,...", help=which, autocompletion=completion.methods)


def tokens_option(more: str) -> Any:
    """Return the option ``--tokens``; ``more`` is added to its help."""
    return typer.Option("--tokens", metavar="D", help=f"Of the whole training, as 140B{more}.")
