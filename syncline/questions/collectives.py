"""The question of ``syncline collectives``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import Question, option


class Collectives(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline collectives --workers 8 --bytes 619MiB --network 10gbe",
        "syncline collectives --collective all_reduce --network wan --plot cost.png",
        "syncline collectives --collective all_reduce --cluster two-sites-a100",
        "syncline collectives --starts 0,0,0,50ms",
    ),
):
    """Compare algorithms of collectives on a network: closed form, lockstep and event simulation.

    Returns:
        The result with a row per algorithm; `Result.json` also has ``crossovers`` and ``choices``.

    >>> import syncline as sl
    >>> result = sl.collectives(4, "1 MB", "10gbe", collectives="all_reduce", algorithms=["ring", "tree"])
    >>> [(row["algorithm"], row["fastest"]) for row in result.rows]
    [('ring', True), ('tree', False)]
    """

    workers: int | None = option(
        "Number of workers; by default the cluster's, else the number of starts, else 8.", in_order=True, metavar="P"
    )
    nbytes: str | float = option(
        "Size of the tensor, as in 619MiB; for a gather, the size of each worker's part.", "619 MiB", in_order=True,
        flag="--bytes", metavar="SIZE",
    )  # fmt: skip
    networks: Any = shared.networks(in_order=True)
    cluster: Any = shared.cluster()
    collectives: str | Sequence[str] | None = option(
        "Collective, as in all_reduce; repeatable; by default all.", flag="--collective", metavar="NAME",
        completion="collectives", repeatable=True,
    )  # fmt: skip
    algorithms: str | Sequence[str] | None = option(
        "Algorithm, or auto, gloo or nccl, which choose one for each call; repeatable; by default all.",
        flag="--algorithm", metavar="NAME", completion="algorithms", repeatable=True,
    )  # fmt: skip
    protocol: str = option(
        "When a message starts: eager (once the sender is ready) or rendezvous (once both sides are ready).", "eager",
        metavar="PROTOCOL", completion=("eager", "rendezvous"),
    )  # fmt: skip
    starts: Sequence[str | float] | None = option(
        "Time at which each worker enters the collective, as in 0,0,0,50ms.", metavar="TIMES", reader="text"
    )
    plot: Path | None = shared.plot("Draw the time against the size, into a .png, .pdf or .svg file.")
    columns: str | None = shared.columns()
    strict: bool = shared.strict()
    json: bool = shared.json()
