"""The question of ``syncline best``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option


class Best(Question, panel=shared.TRAIN, examples=("syncline best rates", "syncline best rates --by wall_clock_s")):
    """Rank the configurations of a sweep by the median over their seeds; also show the minimum and the maximum."""

    folder: Path = option(
        "Folder of a sweep; the sweep may still be running or may have been killed.", REQUIRED, metavar="FOLDER",
        positional=True,
    )  # fmt: skip
    by: str = option("Column to rank by; smaller is better.", "loss", metavar="FIELD")
    top: int = option("Number of configurations to show.", 20, metavar="N", minimum=1)
    equal_effort: bool = option(
        "Rank the same number of configurations of each method: that of the least tuned method.", False
    )
    columns: str | None = shared.columns()
    json: bool = shared.json()
