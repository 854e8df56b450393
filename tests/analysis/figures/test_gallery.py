"""Every figure as a page: no text over another or off the page, no legend over data, a name at every axis."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from syncline import analysis
from syncline.analysis.axes import new_figure
from tests.analysis.figures.gallery import GALLERY
from tests.analysis.figures.legible import defects


def test_every_figure_of_the_package_is_in_the_gallery():
    modules = [
        importlib.import_module(f"{analysis.__name__}.{found.name}")
        for found in pkgutil.iter_modules(analysis.__path__)
    ]
    drawing = {
        name
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        and inspect.signature(function).return_annotation in ("Figure", Figure)
    }  # fmt: skip
    drawn = Path(__file__).with_name("gallery.py").read_text(encoding="utf-8")
    assert {name for name in drawing - {"new_figure"} if name not in drawn} == set()
    assert len(drawing) >= 12


def spoiled_page() -> Figure:
    """A page with defects of every kind."""
    fig = new_figure(2, 2)
    fig.set_layout_engine("none")
    ax = fig.add_axes((0.2, 0.2, 0.7, 0.7))
    ax.plot([0, 1], [0, 1], label="line")
    ax.fill_between([0, 1], [0, 0], [9, 9])
    ax.set_ylim(0, 1)
    fig.text(0.5, 0.95, "one")
    fig.text(0.52, 0.95, "two")
    fig.text(0.9, 0.05, "a text that leaves")
    ax.text(0.4, 0.45, "crossed")
    ax.set_xlabel("named")
    ax.legend(loc="center")
    return fig


def test_each_kind_of_defect_is_found():
    found = " ".join(defects(spoiled_page()))
    for told in (
        "texts overlap: 'one' and 'two'", "off the page: 'a text that leaves'", "legend over data: ['line'] over line",
        "no name: y axis", "band beyond the axes", "text over a line: 'crossed'",
    ):  # fmt: skip
        assert told in found
    assert "no name: x axis" not in found


FULLEST = ("eleven", "long names")
"""Data that fill a page."""

FULL = {name.partition(": ")[0] for name in GALLERY if name.endswith(FULLEST)}
FIRST = {name.partition(": ")[0]: name for name in reversed(GALLERY)}
"""The first data of each figure. The data that fill a figure's page are looked at in every run, and where a figure has
none, its first data; the others are marked slow."""

CASES = [
    name
    if name.endswith(FULLEST) or (name in FIRST.values() and name.partition(": ")[0] not in FULL)
    else pytest.param(name, marks=pytest.mark.slow)
    for name in GALLERY
]


@pytest.mark.parametrize("name", CASES)
def test_a_figure_is_legible(name):
    assert defects(GALLERY[name]()) == []
