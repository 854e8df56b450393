"""The question of ``syncline same``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option


class Same(
    Question,
    panel=shared.RESULTS,
    examples=("syncline same runs/digits-ddp runs/digits-ddp-2", "syncline same digits-ddp other --tolerance 1e-6"),
):
    """Compare the results in two folders: bit-equal, equal within a tolerance, or different, with the difference."""

    a: str = shared.run_name(default=REQUIRED)
    b: str = shared.run_name(default=REQUIRED)
    tolerance: float = option("Largest |a - b| / max(|a|, |b|) that counts as equal.", 0.0, metavar="T")
    folder: Path = shared.folder()
    json: bool = shared.json()
