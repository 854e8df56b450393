"""The question of ``syncline chakra``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared, trace
from syncline.questions.declare import REQUIRED, Question, option

ACTIONS = ("export", "import")
"""Directions of the conversion."""


class Chakra(
    Question,
    panel=shared.SCRIPT,
    examples=(
        "syncline chakra export runs/trace-train --hardware h100 --out for-astra-sim",
        "syncline chakra import from-others --out runs/from-others",
        "syncline whatif runs/from-others --hardware measured --network 10gbe",
    ),
):
    """Convert a recorded trace to Chakra execution traces for ASTRA-sim, one file per rank; or back.

    An export has FLOPs, bytes and the microseconds on the hardware, and the dependencies that the host imposes.
    """

    action: str = option(
        "Direction of the conversion: export or import.", REQUIRED, metavar="export|import", positional=True,
        completion=ACTIONS,
    )  # fmt: skip
    source: Path = option(
        "Folder of the record to export, or of the traces NAME.0.et, NAME.1.et, ...", REQUIRED, metavar="FOLDER",
        positional=True,
    )  # fmt: skip
    hardware: str | None = trace.hardware()
    host: str | None = trace.host()
    out: str | Path | None = shared.out()
    json: bool = shared.json()
