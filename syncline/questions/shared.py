"""Fields that several questions have: ``cluster: Any = shared.cluster()``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from syncline.questions.declare import SHELL, Question, option

cluster = partial(
    option,
    "A name of 'syncline list clusters', or a YAML file: network, hardware and number of workers at once.",
    metavar="NAME",
    completion="clusters",
)
hardware = partial(
    option,
    "What computes, in place of a cluster's: a name of 'syncline list hardware', or fields.",
    metavar="NAME",
    completion="hardware",
)
sequence = partial(option, "Tokens in a training sequence; by default the model's.", metavar="T")
prices = partial(
    option, "A list of prices, for money and energy: a YAML file, or the name of a bundled list.", metavar="FILE"
)
extrapolate = partial(option, "Predict losses also outside the range of the published fits, marked as such.", False)
methods = partial(option, flag="--method", metavar="NAME,...", completion="methods", repeatable=True)

json = partial(option, "Print one JSON object with 'rows' to standard output.", False, place=SHELL)
csv = partial(option, "Write the rows to this file.", metavar="FILE", place=SHELL)

FAILURES = (
    "A name of 'syncline list failures', a worker's mean time between failures as 50000h, a YAML file, or fields."
)
failures = partial(option, FAILURES, metavar="WHICH", completion="failures", reader="yaml")
restart = partial(option, "Time to start the processes again after a failure.", metavar="TIME")
checkpoint = partial(option, "Time to write a checkpoint; or fields of the checkpoints.", metavar="TIME")
bandwidth = partial(
    option,
    "Rate at which all workers together write a checkpoint, in place of its time, as 100GB/s.",
    metavar="RATE",
)


@dataclass(frozen=True)
class FailingMachines(Question):
    """A question that can account for failures of the machines."""

    failures: Any = failures()
    recovery: str | None = option(
        "The reaction to a failure: restart (all, from a checkpoint) or reform (the others go on); by default as each "
        "method can.",
        metavar="HOW",
    )
    restart: str | float | None = restart()
    checkpoint: Any = checkpoint()
    bandwidth: str | float | None = bandwidth()
