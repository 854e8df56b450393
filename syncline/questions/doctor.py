"""The question of ``syncline doctor``."""

from __future__ import annotations

from syncline.questions import shared
from syncline.questions.declare import Question


class Doctor(Question, panel=shared.CATALOGUE, examples=("syncline doctor", "syncline doctor --json")):
    """Show the versions, devices, cores and extras of this installation, and what is unavailable without them."""

    json: bool = shared.json()
