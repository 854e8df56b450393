"""The question of ``syncline rm``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import Question, option


class Rm(
    Question, panel=shared.RESULTS, examples=("syncline rm --partial", "syncline rm compare-text compare-text-2 --yes")
):
    """Remove run folders and the remains of killed runs."""

    runs: Sequence[str] | None = shared.run_name(help="Run folders, or their names in runs/.", repeatable=True)
    partial: bool = option(
        "Remove all remains of killed processes in the folder, but not those of running processes.", False
    )
    folder: Path = shared.folder()
    yes: bool = option("Remove complete runs without confirmation.", False, flag="--yes -y")
