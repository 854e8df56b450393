"""How figures look: one style file, and one way of drawing for each method, the same in every figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib

STYLE_FILE = Path(__file__).with_name("syncline.mplstyle")

Dashes = tuple[float, tuple[float, ...]] | Literal["solid"]
"""A line style of matplotlib: solid, or (offset, (on, off, ...)) in units of the line width."""


@dataclass(frozen=True, slots=True)
class MethodStyle:
    """How one method is drawn: in grey print, lightness or dashes tell it from another, and the marker always does."""

    color: str
    linestyle: Dashes
    marker: str


# Okabe-Ito colours, ordered so that neighbours differ in lightness too; yellow is left out, too pale on white.
CYCLE: tuple[MethodStyle, ...] = (
    MethodStyle("#000000", "solid", "o"),
    MethodStyle("#D55E00", (0, (4, 1.5)), "s"),
    MethodStyle("#0072B2", (0, (5, 1.5, 1, 1.5)), "^"),
    MethodStyle("#009E73", "solid", "D"),
    MethodStyle("#CC79A7", (0, (1, 1.2)), "v"),
    MethodStyle("#E69F00", (0, (7, 1.5, 1, 1.5, 1, 1.5)), "P"),
    MethodStyle("#56B4E9", (0, (2, 1.2)), "X"),
)

# The methods that most figures compare keep their place in the cycle, whoever else is in the figure.
PLACES: dict[str, int] = {
    "ddp-adam": 0,
    "local-adam": 1,
    "diloco": 2,
    "mt-dao": 3,
    "demo": 4,
    "curvadion": 5,
    "lion-cub": 6,
}


def method_styles(labels: Iterable[str]) -> dict[str, MethodStyle]:
    """The style of each label: its own place if it has one, otherwise the next free one, in the order given.

    Beyond the seven colours the cycle starts again with the dashes and markers shifted against the colours, so that
    49 labels get 49 different styles.

    Args:
        labels: the methods of one figure; repeated labels count once.

    Returns:
        label -> style, in the order given.
    """
    wanted = list(dict.fromkeys(labels))
    taken = {PLACES[label] for label in wanted if label in PLACES}
    free = (place for place in range(len(taken) + len(wanted)) if place not in taken)
    return {label: _style_at(PLACES[label] if label in PLACES else next(free)) for label in wanted}


def _style_at(place: int) -> MethodStyle:
    lap, index = divmod(place, len(CYCLE))
    line = CYCLE[(index + lap) % len(CYCLE)]
    return MethodStyle(CYCLE[index].color, line.linestyle, line.marker)


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib's defaults plus the style file, for the body of a ``with``; the user's own settings return after it.

    The user's matplotlibrc has no say inside, so that a figure is the same on every machine.
    """
    with matplotlib.rc_context(fname=STYLE_FILE):
        yield
