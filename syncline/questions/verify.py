"""The question of ``syncline verify``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question


class Verify(
    Question, panel=shared.RESULTS, examples=("syncline verify compare-text", "syncline verify runs/compare-text")
):
    """Compare a result folder with the hashes in its manifest: missing, changed and added files.

    The exit code is 1 if a file differs, and 2 if the folder has no manifest.
    """

    run: str = shared.run_name(help="Result folder, or the name of a run in runs/.", default=REQUIRED)
    folder: Path = shared.folder()
