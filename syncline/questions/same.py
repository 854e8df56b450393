"""The question of ``syncline same``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option


@dataclass(frozen=True, repr=False, eq=False)
class Same(
    Question,
    command="same",
    panel=shared.RESULTS,
    examples=("syncline same runs/digits-ddp runs/digits-ddp-2", "syncline same digits-ddp other --tolerance 1e-6"),
):
    """Compare the results in two folders: bit-equal, equal within a tolerance, or different, with the difference."""

    a: str = shared.run_name(default=REQUIRED)
    b: str = shared.run_name(default=REQUIRED)
    tolerance: float = option("Largest |a - b| / max(|a|, |b|) that counts as equal.", 0.0, metavar="T")
    folder: Path = shared.folder()
    json: bool = shared.json()
