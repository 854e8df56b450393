"""The question of ``syncline show``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question


class Show(
    Question, panel=shared.RESULTS, examples=("syncline show compare-text", "syncline show runs/compare-text --json")
):
    """Print the tables of a finished run again. Nothing is run."""

    run: str = shared.run_name(default=REQUIRED)
    folder: Path = shared.folder()
    columns: str | None = shared.columns()
    json: bool = shared.json()
