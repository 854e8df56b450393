"""Styles of the figures: one style file, and one colour, line and marker per method, the same in every figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import matplotlib

STYLE_FILE = Path(__file__).with_name("syncline.mplstyle")

Dashes = tuple[float, tuple[float, ...]] | Literal["solid", "none"]
"""A line style of matplotlib: solid, none, or (offset, (on, off, ...)) in units of the line width."""
Marker = str | tuple[int, Literal[1], int]
"""A marker of matplotlib: its letter, or (points, 1, turned by) of a star."""


@dataclass(frozen=True, slots=True)
class MethodStyle:
    """The line style of one method; two methods differ in their markers, and in grey print in lightness or dashes."""

    color: str
    linestyle: Dashes
    marker: Marker


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

DASHES: tuple[Dashes, ...] = (
    "solid", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (7, 1.5, 1, 1.5, 1, 1.5)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MethodFamily:
    """A family of methods that save communication in the same way: shades of one hue, markers of one kind.

    Attributes:
        prefixes: beginnings of the methods' names.
        first: names of the methods that always have the first shades and markers, in this order.
        shades: colours of the family's methods, in order.
        markers: markers of the family's methods, in order.
    """

    prefixes: tuple[str, ...]
    first: tuple[str, ...]
    shades: tuple[str, ...]
    markers: tuple[Marker, ...]


# Hues are those of Okabe and Ito, and a family's shades are far apart in lightness. The markers of the families are
# round, or have four or three corners, or are crosses or stars.
METHOD_FAMILIES: dict[str, MethodFamily] = {
    "data parallel": MethodFamily(
        ("ddp",), ("ddp-adam",), ("#000000", "#777777", "#444444", "#A0A0A0"), ("o", "h", "8", "H"),
    ),
    "periodic": MethodFamily(
        ("local", "diloco", "des-loc", "mt-dao", "streaming"), ("mt-dao", "diloco", "local-adam", "des-loc"),
        ("#0072B2", "#56B4E9", "#003A66", "#7088E0"), ("s", "D", "p", "d"),
    ),
    "compressed": MethodFamily(
        ("demo", "lion-cub", "powersgd", "one-bit", "zero-one", "sign-sgd", "distributed-lion", "top-k", "qsgd", "dion",
         "galore", "ldadam"),
        ("demo", "lion-cub", "powersgd", "one-bit-adam"),
        ("#D55E00", "#E69F00", "#8A3300", "#E03040"), ("^", "v", "<", ">"),
    ),
    "triggered": MethodFamily(
        ("curvadion", "rmmc", "selsync"), ("curvadion",),
        ("#009E73", "#00593F", "#58C9A5", "#7A9A2E"), ("P", "X", (4, 1, 0), (4, 1, 45)),
    ),
    "rotated": MethodFamily(
        ("basis-rotation", "rotation", "soap", "eshampoo"), ("basis-rotation", "soap"),
        ("#CC79A7", "#7B2D61", "#E3A9CB", "#A0489A"), ("*", (6, 1, 0), (3, 1, 0), (8, 1, 0)),
    ),
}  # fmt: skip


def family_of(label: str) -> str | None:
    """Return the name of the family of methods that has a prefix of a label; None without such a family."""
    family_by_prefix = {prefix: name for name, family in METHOD_FAMILIES.items() for prefix in family.prefixes}
    prefixes = [prefix for prefix in family_by_prefix if label.startswith(prefix)]
    return family_by_prefix[max(prefixes, key=len)] if prefixes else None  # the longest one that fits


def method_styles(labels: Iterable[str], families: Mapping[str, str] | None = None) -> dict[str, MethodStyle]:
    """Return the style of each method's line: one of its family's, or the next free style of the cycle.

    In its family a label has a fixed place, or the next free one in the given order. After four shades a family, and
    after seven styles the cycle, starts again with other dashes and markers.

    Args:
        labels: the methods of one figure; repeated labels count once.
        families: label -> name of a family, for labels whose prefix does not give it.

    Returns:
        label -> style, in the order given.
    """
    methods = list(dict.fromkeys(labels))
    family_by_label = {label: (families or {}).get(label) or family_of(label) for label in methods}
    family_styles: dict[str, MethodStyle] = {}
    for name, family in METHOD_FAMILIES.items():
        members = [label for label in methods if family_by_label[label] == name]
        taken_places = {family.first.index(label) for label in members if label in family.first}
        free_places = (place for place in count() if place not in taken_places)
        for label in members:
            place = family.first.index(label) if label in family.first else next(free_places)
            family_styles[label] = _family_style(family, place)
    # In its first lap the cycle leaves out the colours of the figure's families.
    family_colors = {style.color for style in family_styles.values()}
    places = (place for place in count() if place >= len(CYCLE) or CYCLE[place].color not in family_colors)
    free_styles = (style for style in map(_cycle_style, places) if style not in family_styles.values())
    return {label: family_styles.get(label) or next(free_styles) for label in methods}


def _family_style(family: MethodFamily, place: int) -> MethodStyle:
    """Return the style of the method with index ``place`` in its family; after its four shades a family starts again.

    Each family begins with other dashes: of two overlapping lines, the lower one shows through the upper one.
    """
    lap, index = divmod(place, len(family.shades))
    family_index = list(METHOD_FAMILIES.values()).index(family)
    # In a further lap the same shades have other dashes and markers; the next dashes are those of the next shade.
    dashes = DASHES[(family_index + index + 2 * lap) % len(DASHES)]
    return MethodStyle(family.shades[index], dashes, family.markers[(index + lap) % len(family.markers)])


def _cycle_style(place: int) -> MethodStyle:
    """Return the style with index ``place`` in the endless cycle of styles for methods without a family.

    Each lap combines the colours with the dashes and markers of other entries of `CYCLE`.
    """
    lap, index = divmod(place, len(CYCLE))
    shifted = CYCLE[(index + lap) % len(CYCLE)]
    return MethodStyle(CYCLE[index].color, shifted.linestyle, shifted.marker)


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply Matplotlib's defaults plus the style file in a ``with`` body, then restore the user's settings.

    The user's matplotlibrc has no effect inside, so that a figure is the same on every machine.
    """
    with matplotlib.rc_context(fname=STYLE_FILE):
        yield
