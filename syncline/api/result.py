"""Results of questions as objects: rows, tables, data frames, a figure, and the folder with their files."""

from __future__ import annotations

import io
import os
import shutil
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.errors import SpecError, SynclineError
from syncline.files import refuse_changed_files, temporary_folder
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.transfer import Transfer, tables_after
from syncline.registry import lazy_function
from syncline.runs.folders.result_files import json_value

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import Group

    from syncline.runs.report.page import ReportPage

SUMMARY_COLUMNS = ("loss", "step_time_s", "bytes_per_worker", "wall_clock_s", "speedup", "time_to_target_s")
"""Columns of the summary that the text of a result shows if the result has no tables."""

NOTEBOOK_DPI = 110
"""Resolution of the picture in a notebook, in dots per inch."""


def deferred(function: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """Return a function that imports ``module:name`` and calls it, so that tables that are not read load no library."""
    return partial(lazy_function(function), *arguments, **options)


class Result:
    """The result of `sl.compare` and the other functions; the commands print it.

    Data frames of a result that has a folder are read from its files when they are used.

    Attributes:
        command: name of the command that made the result: ``compare``, ``run``, ...
        spec: the spec that was run; None if the folder does not contain it.
        record: the object that ``--json`` prints, before infinite values and NaN become None.
        folder: the folder of the result's files, or None. A temporary folder is removed with the result, or at the end
            of Python; `save` keeps a copy.
        read_from: the folder that `sl.load` read; None for a result that was just computed. An error of a loaded result
            is one line that says that the folder was changed.
    """

    def __init__(
        self,
        command: str,
        record: Mapping[str, Any],
        spec: Any = None,
        *,
        tables: Callable[[], Sequence[Group]] = tuple,
        figure: Callable[[], Figure] | None = None,
        folder: Path | None = None,
        question: Callable[[], Mapping[str, Any]] = dict,
        scratch: Path | None = None,
        transfers: Sequence[Transfer] = (),
    ) -> None:
        """Store the result and the functions that draw it.

        Args:
            command: name of the command.
            record: the object that ``--json`` prints.
            spec: the spec that was run.
            tables: function that returns the tables; they are made when they are first read.
            figure: function that draws the figure; None: draw the training in the folder, if there is one.
            folder: folder of the result's files; None: the result has none, and `save` writes the record.
            question: function that returns the question as fields, which `save` writes if there is no folder.
            scratch: temporary folder, which is removed once nothing refers to the result.
            transfers: parts that rest on measurements of other machines; the first lines of the tables name them.
        """
        self.command, self.record, self.spec, self.folder = command, dict(record), spec, folder
        self._tables = partial(tables_after, transfers, tables) if transfers else tables
        self._figure, self._question = figure, question
        self.read_from: Path | None = None
        if scratch is not None:
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``--json``; docs/records.md has their names and units."""
        return json_value(self.record["rows"])

    @property
    def interrupted(self) -> bool:
        """Return whether the user ended the run with Ctrl-C before all was done."""
        return bool(self.record.get("interrupted", False))

    @property
    def failed(self) -> str | None:
        """Return the line that names a launch's process that died or hung; None if no process did."""
        return self.record.get("failed")

    def json(self) -> dict[str, Any]:
        """Return the result's content as the object that ``--json`` prints."""
        return json_value(self.record)

    @property
    def tables(self) -> list[Group]:
        """Return the tables that the command prints; `rich` draws them."""
        with self._blame_changed_folder():
            return list(self._tables())

    def _blame_changed_folder(self) -> AbstractContextManager[None]:
        """Return a context in which errors say that the folder was changed, if the result was loaded from one."""
        return nullcontext() if self.read_from is None else refuse_changed_files(self.read_from)

    @property
    def summary(self) -> pd.DataFrame:
        """Return a row per network, method and seed of a training, or else the rows.

        ``attrs["units"]`` has the units of the columns.
        """
        import pandas as pd

        file = self._table_file("summary")
        if file is not None:
            return _read_frame(file)
        rows = self.record["rows"]
        return rows.frame() if isinstance(rows, ColumnRows) else pd.DataFrame(self.rows)

    @property
    def curves(self) -> pd.DataFrame:
        """Return a row per network, method, seed and step of a training; ``attrs["units"]`` has the units.

        ``loss`` is the loss of the evaluation, with NaN between evaluations; ``train_loss`` is the loss of each step's
        batch.

        Raises:
            SynclineError: the result has no curves.
        """
        file = self._table_file("curves")
        if file is None:
            raise SynclineError(f"a result of {self.command!r} has no curves, or its folder is gone: {self.folder}")
        return _read_frame(file)

    def _table_file(self, name: str) -> Path | None:
        """Return the path of the file ``NAME.parquet`` in the result's folder, or None if there is no such file."""
        file = None if self.folder is None else self.folder / f"{name}.parquet"
        return file if file is not None and file.is_file() else None

    def plot(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Draw the result's figure; for a training, loss against seconds with a panel per network.

        A line is the median over the seeds, the band is their range; a diverged line ends in a cross.

        Returns:
            Matplotlib's axes, one per panel; ``axes[0].figure`` is the figure, which pyplot shows.

        Raises:
            SynclineError: the result has no picture.
        """
        import matplotlib.pyplot as plt
        import numpy as np

        figure = self._draw_figure()
        # pyplot shows only figures that it has made, so it "makes" the existing one.
        plt.figure(FigureClass=lambda *_, **__: figure)  # type: ignore[arg-type]
        axes = np.empty(len(figure.axes), dtype=object)
        axes[:] = figure.axes
        return axes

    def save_plot(self, file: Path) -> Path:
        """Draw the result's figure into a file, and return its path.

        Raises:
            SpecError: the file does not end in .pdf, .svg or .png, it cannot be written, or there is nothing to draw.
        """
        from syncline.analysis import save

        if file.suffix.lower() not in (".pdf", ".svg", ".png"):
            raise SpecError("--plot", str(file), "a name that ends in .pdf, .svg or .png")
        try:
            return save(self._draw_figure(), file)
        except OSError as error:
            raise SpecError("--plot", str(file), f"a place that can be written to ({error.strerror})") from None

    def _draw_figure(self) -> Figure:
        """Draw the result's figure, and return it."""
        with self._blame_changed_folder():
            if self._figure is not None:
                return self._figure()
            file = self._table_file("curves")
            if file is not None:
                from syncline.runs.training.results import figure_of_file

                return figure_of_file(file.parent)
        raise SynclineError(f"a result of {self.command!r} has no picture of its own")

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the result's text, and its figure if there is one."""
        html = f"<pre>{escape(str(self))}</pre>"
        if self._figure is not None or self._table_file("curves") is not None:
            picture = io.BytesIO()
            self._draw_figure().savefig(picture, format="png", dpi=NOTEBOOK_DPI)
            html += f'\n<img src="data:image/png;base64,{b64encode(picture.getvalue()).decode()}">'
        return html

    @checked
    def save(self, folder: str | Path) -> Path:
        """Save the result in a new folder, which `sl.load` reads; a calibration is saved as one file.

        Args:
            folder: the folder to create.

        Returns:
            The folder.

        Raises:
            SpecError: the name exists already, or the folder cannot be written.
        """
        target = Path(folder)
        if os.path.lexists(target):  # true for a broken link, too
            raise SpecError("save", str(target), "a name that does not exist yet")
        if self.folder is None:
            from syncline.runs.folders.folder import RunFolder, environment

            record = environment() | {"command": self.command} | dict(self._question()) | self.record
            with RunFolder(target, exact=True) as folder_files:
                folder_files.json("run", record)
            return target
        copy: Any = shutil.copy2 if self.folder.is_file() else shutil.copytree
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary_folder(target.parent) as scratch:  # the final name is for a complete copy
                copy(self.folder, scratch / target.name).rename(target)
        except OSError as error:
            reason = error.strerror
            if isinstance(error, shutil.Error):
                _source, _target, reason = error.args[0][0]  # the first file that could not be copied
            raise SpecError("save", str(target), f"a place that can be written to ({reason})") from None
        return target

    @checked
    def report(self, out: str | Path | None = None, *, title: str = "") -> ReportPage:
        """Make one self-contained page of the result; `sl.report` makes one page of several results.

        Args:
            out: the file to write; an older report there is replaced. By default no file is written; a notebook still
                shows the page.
            title: title of the page; by default the result's name.

        Returns:
            The page.

        Raises:
            SynclineError: the file exists and is no report, it cannot be written, or the result's files have changed.
        """
        from syncline.runs.report.page import write_page
        from syncline.runs.report.reported import reported

        return write_page([reported(self)], out, title)

    def __repr__(self) -> str:
        name = f" {self.spec.name!r}" if hasattr(self.spec, "name") else ""
        state = ", interrupted" if self.interrupted else ", failed" if self.failed else ""
        folder = f", {self.folder}" if self.folder is not None else ""
        return f"<{self.command}{name}: {len(self.record['rows'])} rows{state}{folder}>"

    def __str__(self) -> str:
        """Return the tables as text; without tables, medians over the seeds from the summary, or else the rows."""
        if not self.tables and self._table_file("summary") is not None:
            medians = self.summary.groupby(["network", "method"], sort=False)[list(SUMMARY_COLUMNS)].median()
            return medians.to_string()
        if not self.tables and self.rows:
            return self.summary.to_string()
        from syncline.planner.tables.table import as_text

        return as_text(*self.tables)


def _read_frame(file: Path) -> pd.DataFrame:
    """Return a Parquet file as a data frame, with the units of its columns in ``attrs["units"]``."""
    from syncline.runs.folders.result_files import read_parquet

    table = read_parquet(file, {})
    frame = table.to_pandas()
    units = {field.name: (field.metadata or {}).get(b"unit") for field in table.schema}
    frame.attrs["units"] = {column: unit.decode() for column, unit in units.items() if unit}
    return frame
