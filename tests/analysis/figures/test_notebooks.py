"""The notebooks' figures as pages; slow, as a notebook computes for a minute or two and the suite runs each already."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from tests.analysis.figures.legible import defects

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebooks_figures_are_legible(notebook, monkeypatch, tmp_path):
    made: list[Figure] = []
    begin = Figure.__init__

    def noted(figure: Figure, *args: object, **kwargs: object) -> None:
        begin(figure, *args, **kwargs)
        made.append(figure)

    monkeypatch.setattr(Figure, "__init__", noted)
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(notebook.read_text(encoding="utf-8"), str(notebook), "exec"), {"__name__": "notebook"})
    drawn = [figure for figure in made if type(figure) is Figure and figure.axes]
    assert drawn
    assert [found for figure in drawn for found in defects(figure)] == []
