"""The question of ``syncline loss``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, Question, option


class Loss(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline loss 1.3B --replicas 2,4,8",
        "syncline loss 7B --tokens 280B --method diloco --period 100 --extrapolate",
        "syncline loss --target-loss 2.4 --method diloco",
    ),
):
    """Predict the loss of a training from published fits, with bounds; outside their range only if it is asked for.

    Returns:
        The result with a row per training.

    >>> import syncline as sl
    >>> [(row["method"], round(row["loss"], 3)) for row in sl.loss(["ddp-adam", "diloco"], "1.3B", replicas=4).rows]
    [('ddp-adam', 2.454), ('diloco', 2.473)]
    """

    method: str | Iterable[str] = option(
        "Method: a name from 'syncline list fits', or several.", ("ddp-adam", "diloco"), in_order=True,
        shell_default="ddp-adam,diloco", metavar="NAME,...", reader="words",
    )  # fmt: skip
    parameters: Any = option(
        "Number of parameters of the model, as in 1.3B; without it, a target loss also finds the model.",
        in_order=True, metavar="[N,...]", positional=True, reader="words",
    )  # fmt: skip
    tokens: str | float | None = option(
        "Number of tokens of the whole training; by default 20 per parameter.", metavar="D"
    )
    replicas: float | Iterable[float] = option(
        "Number of replicas, for methods that have replicas.", 2, metavar="M,...", reader="values"
    )
    period: float | Iterable[float] | None = option(
        "Number of steps between exchanges; by default those that the fit has seen.", metavar="H,...", reader="values"
    )
    batch_tokens: str | float | None = option(
        "Number of tokens in a step of all replicas; by default the optimum of the fit.", metavar="B"
    )
    fit: str | None = option("Name of the only fit to use, or all.", metavar="NAME")
    target_loss: float | None = option("Loss to reach; the answer is the number of tokens, or the model.", metavar="L")
    extrapolate: bool = shared.extrapolate()
    every_fit: bool = option("Return a row for every fit that covers a method.", False, place=PYTHON)
    json: bool = shared.json()
