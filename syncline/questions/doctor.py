"""The question of ``syncline doctor``."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.questions import shared
from syncline.questions.declare import Question


@dataclass(frozen=True, repr=False, eq=False)
class Doctor(
    Question, command="doctor", panel=shared.CATALOGUE, examples=("syncline doctor", "syncline doctor --json")
):
    """Show the versions, devices, cores and extras of this installation, and what is unavailable without them."""

    json: bool = shared.json()
