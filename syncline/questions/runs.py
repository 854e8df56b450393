"""The question of ``syncline runs``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import Question


class Runs(Question, panel=shared.RESULTS, examples=("syncline runs", "syncline runs results --json")):
    """List the run folders: command, date, and whether each run is complete."""

    folder: Path = shared.folder(help="Folder of the run folders.", positional=True)
    json: bool = shared.json()
