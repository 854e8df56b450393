"""What is wrong with a figure as a page: texts that overlap or leave it, legends over data, axes without names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from unittest import mock

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK_PX = 1.5
"""At 100 dots per inch: how far boxes may be in each other. They hold room for accents that no letter takes."""


def defects(fig: Figure) -> list[str]:
    """One line for each thing a reader would trip over; none of a good figure.

    The figure is laid out and drawn, and what is drawn is asked where it is: no picture is looked at.
    """
    texts = drawn_texts(fig)
    boxes = [Text.get_window_extent(text) for text in texts]
    names = [text.get_text().replace("\n", " / ") for text in texts]
    found = [f"off the page: {name!r}" for name, box in zip(names, boxes, strict=True) if _outside(box, fig.bbox)]
    for (one, a), (other, b) in combinations(zip(names, boxes, strict=True), 2):
        if _overlap(a, b):
            found.append(f"texts overlap: {one!r} and {other!r}")
    for legend in (artist for artist in fig.findobj(Legend) if artist.get_visible()):
        box = legend.get_window_extent()
        found += [f"legend off the page: {_entries(legend)}"] if _outside(box, fig.bbox) else []
        found += [f"legend over data: {_entries(legend)} over {what}" for ax in _shown(fig) for what in _under(ax, box)]
    for ax in _shown(fig):
        found += [f"no name: {which} axis of {_title(ax)}" for which in _nameless(fig, ax, texts)]
        found += [f"band beyond the axes: {_title(ax)}"] if _leaves(ax) else []
        for text, box in zip(texts, boxes, strict=True):
            if text in ax.texts and not _has_ground(text) and _crossed(ax, box):
                found.append(f"text over a line: {text.get_text()!r} in {_title(ax)}")
    return found


def drawn_texts(fig: Figure) -> list[Text]:
    """Those that come to be drawn, of which matplotlib makes more: labels of ticks beyond the axes are not."""
    found: list[Text] = []
    draw = Text.draw

    def noted(text: Text, renderer: object, *args: object, **kwargs: object) -> None:
        if text.get_visible() and text.get_text().strip():
            found.append(text)
        draw(text, renderer, *args, **kwargs)

    with mock.patch.object(Text, "draw", noted):
        fig.draw_without_rendering()
    return list(dict.fromkeys(found))


def _has_ground(text: Text) -> bool:
    """Whether it has a ground of its own, which keeps it legible on anything."""
    return text.get_bbox_patch() is not None or bool(text.get_path_effects())


def _overlap(a: Bbox, b: Bbox) -> bool:
    return (
        min(a.x1, b.x1) - max(a.x0, b.x0) > SLACK_PX and min(a.y1, b.y1) - max(a.y0, b.y0) > SLACK_PX
    )  # fmt: skip


def _outside(box: Bbox, page: Bbox) -> bool:
    return bool(
        box.x0 < page.x0 - SLACK_PX or box.y0 < page.y0 - SLACK_PX
        or box.x1 > page.x1 + SLACK_PX or box.y1 > page.y1 + SLACK_PX
    )  # fmt: skip


def _shown(fig: Figure) -> list[Axes]:
    return [ax for ax in fig.axes if ax.get_visible() and ax.axison]


def _title(ax: Axes) -> str:
    return repr(
        next((ax.get_title(loc=loc) for loc in ("left", "center", "right") if ax.get_title(loc=loc)), "a panel")
    )


def _entries(legend: Legend) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]


def _points(ax: Axes) -> Iterator[tuple[str, np.ndarray]]:
    """Name and points, in pixels, of what is data: lines every pixel or so, centres of dots, corners of bars."""
    for line in ax.lines:
        if line.get_visible() and line.get_transform().contains_branch(ax.transData):
            xy = line.get_transform().transform(line.get_xydata())
            joined = line.get_linestyle() not in ("None", "none", "")
            yield str(line.get_label()), _filled(xy) if joined else xy
    for collection in ax.collections:
        if isinstance(collection, PathCollection):
            yield "dots", collection.get_offset_transform().transform(collection.get_offsets())
        elif isinstance(collection, LineCollection):
            for segment in collection.get_segments():
                if len(segment):
                    yield "bars", _filled(collection.get_transform().transform(segment))
    for patch in ax.patches:
        if isinstance(patch, Rectangle):
            yield "rectangles", patch.get_transform().transform(patch.get_path().interpolated(8).vertices)


def _filled(xy: np.ndarray) -> np.ndarray:
    xy = xy[np.isfinite(xy).all(axis=1)]
    if len(xy) < 2:
        return xy
    lengths = np.minimum(np.hypot(*np.diff(xy, axis=0).T), 5000)
    parts = [np.linspace(a, b, int(length) + 2) for a, b, length in zip(xy[:-1], xy[1:], lengths, strict=True)]
    return np.concatenate(parts)


def _inside(points: np.ndarray, box: Bbox) -> np.ndarray:
    x, y = np.asarray(points, dtype=float).reshape(-1, 2).T
    return (x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)


def _under(ax: Axes, box: Bbox) -> list[str]:
    return [name for name, xy in _points(ax) if (_inside(xy, box) & _inside(xy, ax.bbox)).any()]


def _crossed(ax: Axes, box: Bbox) -> bool:
    """Whether a line of data goes through the middle of a text."""
    height = box.height
    core = Bbox.from_extents(box.x0 + 1, box.y0 + 0.3 * height, box.x1 - 1, box.y1 - 0.3 * height)
    return any(bool(_inside(xy, core).any()) for name, xy in _points(ax) if not name.startswith("_"))


def _nameless(fig: Figure, ax: Axes, texts: list[Text]) -> list[str]:
    """Axes with labelled ticks and no name, neither beside them nor beside one that shares them, nor for all panels."""
    found = []
    for which, axis, siblings in (
        ("x", ax.xaxis, ax.get_shared_x_axes()),
        ("y", ax.yaxis, ax.get_shared_y_axes()),
    ):
        labels = {id(text) for tick in axis.get_major_ticks() for text in (tick.label1, tick.label2)}
        if not any(id(text) in labels for text in texts):
            continue
        name = fig.get_supxlabel() if which == "x" else fig.get_supylabel()
        near = [getattr(one, f"get_{which}label")() for one in (ax, *siblings.get_siblings(ax)) if one.get_visible()]
        if not any(text.strip() for text in [name, *near]):
            found.append(which)
    return found


def _leaves(ax: Axes) -> bool:
    """Whether a band or a bar of a spread ends beyond the axes."""
    low, high = sorted(ax.get_ylim())
    room = 1e-6 * (high - low)
    for collection in ax.collections:
        if not collection.get_transform().contains_branch(ax.transData):
            continue
        if isinstance(collection, PolyCollection | LineCollection):
            for path in collection.get_paths():
                y = path.vertices[:, 1]
                y = y[np.isfinite(y)]
                if y.size and (y.min() < low - room or y.max() > high + room):
                    return True
    return False
