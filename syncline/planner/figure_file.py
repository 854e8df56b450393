"""Figures of answers in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TYPES = (".pdf", ".svg", ".png")
"""Endings of the names of files that a figure is drawn into."""


def draw_into(file: Path, figure: Callable[[], Figure]) -> Path:
    """Draw a figure into a file, and return its path; the figure is made once the name is known to be good.

    Raises:
        SpecError: an unknown type of file, or a place that cannot be written to.
    """
    from syncline.analysis import save  # only here: matplotlib is slow to load

    if file.suffix.lower() not in TYPES:
        raise SpecError("--plot", str(file), "a name that ends in .pdf, .svg or .png")
    drawn = figure()
    try:
        return save(drawn, file)
    except OSError as error:
        raise SpecError("--plot", str(file), f"a place that can be written to ({error.strerror})") from None
