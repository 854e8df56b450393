"""The question of ``syncline replicate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, REQUIRED, SHELL, Question, option


class Replicate(
    Question,
    panel=shared.TRAIN,
    examples=(
        "syncline replicate --list",
        "syncline replicate mt-dao --for 10min --jobs 1",
        "syncline replicate mt-dao --scale gpu --for 8min",
    ),
):
    """Test the claims of a paper at equal tuning effort: a search for each method, final trainings, verdicts.

    The final trainings have fresh seeds. A second call with the same arguments continues from the last finished
    training. The replications are in a checkout of the repository.

    Returns:
        The result with a row per comparison and the state of its claim; `Result.record` has ``stages``, ``effort``,
        ``chosen`` and ``left``.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted, before any training; or the
            package is installed without a checkout of the repository.

    >>> import syncline as sl
    >>> sl.replicate("mt-dao", most=0)
    Traceback (most recent call last):
    syncline.errors.SpecError: most: got 0; expected at least 1 training
    """

    name: str | Path = option(
        "Bundled replication, or a YAML file.", REQUIRED, in_order=True, shell_default=None, metavar="NAME",
        positional=True, reader="text", completion="replications",
    )  # fmt: skip
    scale: str | None = option(
        "Scale of the replication: cpu, or another of its scales, as larger or gpu.", metavar="NAME"
    )
    seeds: int | Sequence[int] | None = option(
        "Seeds of the final trainings: their number, as in 5, or a list, as in [3, 4].", metavar="N", reader="yaml"
    )
    most: int | None = option(
        "Largest number of trainings in this call; the same command continues later.", metavar="N"
    )
    time: float | str | None = option(
        "Time during which this call starts trainings, as in 10min; the same command continues later.", flag="--for",
        metavar="TIME",
    )  # fmt: skip
    jobs: int | None = shared.jobs()
    out: str | Path | None = option("Folder of the replication; by default results/replication/NAME.", metavar="FOLDER")
    on_stage: Callable[[Any], Any] | None = option(
        "Function from a stage to a context manager of the listener that is informed of its trainings.", place=PYTHON
    )
    on_expected: Callable[[Any], None] | None = option(
        "Function called before the first training with the number of trainings left and their expected time.",
        place=PYTHON,
    )
    list: bool = option("List the bundled replications.", False, place=SHELL)
    json: bool = shared.json()
