"""What a command computes, as an object: rows, tables for people, data frames, a picture, its folder."""

from __future__ import annotations

import io
import os
import shutil
import weakref
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.errors import SpecError, SynclineError
from syncline.files import as_written
from syncline.planner.projection.columns import ColumnRows
from syncline.runs.folders.json_values import plain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import Group

    from syncline.api.places import Scratch
    from syncline.api.report_page import ReportPage

TEXT_WIDTH = 120
"""Characters of a line where a result is printed as text."""

SHOWN = ("loss", "step_time_s", "bytes_per_worker", "wall_clock_s", "speedup", "time_to_target_s")
"""Of the summary, where it is shown in place of tables."""

NOTEBOOK_DPI = 110
"""Of the picture in a notebook."""


class Result:
    """What `sl.compare` and its kin return: the object that the commands print.

    A result is its folder, where there is one: data frames are read from the files when they are asked for.

    Attributes:
        command: which of them made it: ``compare``, ``run``, ...
        spec: what was run; None where that cannot be told from a folder.
        told: what ``--json`` prints, before what is not finite becomes None.
        folder: where its files are; None of what leaves none. One that nobody named is removed with the result, or at
            the end of Python; `save` keeps it.
        read_from: the folder that `sl.load` read it from; None of a result that was just computed. What does not fit
            in the files of such a folder is a mistake in the input, told in one line.
    """

    def __init__(
        self,
        command: str,
        told: Mapping[str, Any],
        spec: Any = None,
        *,
        tables: Callable[[], Sequence[Group]] = tuple,
        figure: Callable[[], Figure] | None = None,
        folder: Path | None = None,
        asked: Callable[[], Mapping[str, Any]] = dict,
        scratch: Scratch | None = None,
    ) -> None:
        self.command, self.told, self.spec, self.folder = command, dict(told), spec, folder
        self._tables, self._figure, self._asked = tables, figure, asked
        self.read_from: Path | None = None
        if scratch is not None:
            weakref.finalize(self, scratch.remove)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of ``--json``; docs/records.md has their names and units."""
        return plain(self.told["rows"])

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return bool(self.told.get("interrupted", False))

    @property
    def failed(self) -> str | None:
        """The line that says which real process died or hung, if one did."""
        return self.told.get("failed")

    def json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        return plain(self.told)

    @property
    def tables(self) -> list[Group]:
        """The tables that the command prints; `rich` draws them."""
        with self._as_written():
            return list(self._tables())

    def _as_written(self) -> AbstractContextManager[None]:
        """Return what surrounds code that reads the files of a loaded result, or its rows."""
        return nullcontext() if self.read_from is None else as_written(self.read_from)

    @property
    def summary(self) -> pd.DataFrame:
        """Of a training a row per network, method and seed; else the rows. ``attrs["units"]`` has the units."""
        import pandas as pd

        if self._has("summary"):
            return self._frame("summary")
        rows = self.told["rows"]
        return rows.frame() if isinstance(rows, ColumnRows) else pd.DataFrame(self.rows)

    @property
    def curves(self) -> pd.DataFrame:
        """Of a training a row per network, method, seed and step; ``attrs["units"]`` has the units.

        ``loss`` is the evaluation's, with NaN between evaluations; ``train_loss`` that of each step's batch.

        Raises:
            SynclineError: there are none.
        """
        if not self._has("curves"):
            raise SynclineError(f"a result of {self.command!r} has no curves, or its folder is gone: {self.folder}")
        return self._frame("curves")

    def _has(self, name: str) -> bool:
        return self.folder is not None and (self.folder / f"{name}.parquet").is_file()

    def _frame(self, name: str) -> pd.DataFrame:
        from syncline.runs.folders.result_files import read_parquet

        assert self.folder is not None
        table = read_parquet(self.folder / f"{name}.parquet", {})
        frame = table.to_pandas()
        units = {field.name: (field.metadata or {}).get(b"unit") for field in table.schema}
        frame.attrs["units"] = {column: unit.decode() for column, unit in units.items() if unit}
        return frame

    def plot(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Draw it: of a training, loss against seconds, a panel per network.

        A line is the median over the seeds, the band their range; what diverged ends in a cross.

        Returns:
            Matplotlib's axes, one per panel; ``axes[0].figure`` is the figure, which pyplot shows.

        Raises:
            SynclineError: there is nothing to draw.
        """
        import matplotlib.pyplot as plt
        import numpy as np

        figure = self._drawn()
        plt.figure(FigureClass=lambda *_, **__: figure)  # type: ignore[arg-type]
        axes = np.empty(len(figure.axes), dtype=object)
        axes[:] = figure.axes
        return axes

    def _drawn(self) -> Figure:
        if self._figure is not None:
            with self._as_written():
                return self._figure()
        if self._has("curves"):
            from syncline.runs.curve_figure import figure_of_file

            assert self.folder is not None
            with self._as_written():
                return figure_of_file(self.folder)
        raise SynclineError(f"a result of {self.command!r} has no picture of its own")

    def _repr_html_(self) -> str:
        """For a notebook: the tables, or the summary where there are none, and the picture."""
        parts = [f"<pre>{escape(str(self))}</pre>"]
        if self._figure is not None or self._has("curves"):
            picture = io.BytesIO()
            self._drawn().savefig(picture, format="png", dpi=NOTEBOOK_DPI)
            parts.append(f'<img src="data:image/png;base64,{b64encode(picture.getvalue()).decode()}">')
        return "\n".join(parts)

    @checked
    def save(self, folder: str | Path) -> Path:
        """Keep it under a name, which `sl.load` reads again; a calibration is one file.

        Raises:
            SpecError: the name exists, or cannot be written.
        """
        target = Path(folder)
        if os.path.lexists(target):  # which takes a name that is too long for a file as what it is
            raise SpecError("save", str(target), "a name that does not exist yet")
        if self.folder is None:
            from syncline.runs.folders.folder import RunFolder, environment

            with RunFolder(target, exact=True) as written:
                written.json("run", environment() | {"command": self.command} | dict(self._asked()) | self.told)
            return target
        working = target.with_name(f".{target.name}.partial-{os.getpid()}")  # a half copy is not to be taken for whole
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(working, ignore_errors=True)
            if self.folder.is_file():
                shutil.copy2(self.folder, working)
            else:
                shutil.copytree(self.folder, working)
            working.rename(target)
        except OSError as error:
            shutil.rmtree(working, ignore_errors=True)
            with suppress(OSError):
                working.unlink(missing_ok=True)
            said = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
            raise SpecError("save", str(target), f"a place that can be written to ({said})") from None
        return target

    @checked
    def report(self, out: str | Path | None = None, *, title: str = "") -> ReportPage:
        """One page of it, which anybody can open; `sl.report` makes one of several results.

        Args:
            out: the file to write; a report that is there is replaced. None of none: a notebook shows it all the same.
            title: above it; its name unless given.

        Raises:
            SynclineError: another file is there, it cannot be written, or the folder is not as it was written.
        """
        from syncline.api.report_page import reported, write_page

        return write_page([reported(self)], out, title)

    def __repr__(self) -> str:
        name = f" {self.spec.name!r}" if hasattr(self.spec, "name") else ""
        ended = ", interrupted" if self.interrupted else ", failed" if self.failed else ""
        where = f", {self.folder}" if self.folder is not None else ""
        return f"<{self.command}{name}: {len(self.told['rows'])} rows{ended}{where}>"

    def __str__(self) -> str:
        """Return the tables as text; without tables medians of the summary over the seeds, or else the rows."""
        if not self.tables and self._has("summary"):
            medians = self.summary.groupby(["network", "method"], sort=False)[list(SHOWN)].median()
            return medians.to_string()
        if not self.tables and self.rows:
            return self.summary.to_string()
        from rich.console import Console

        written = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None, markup=False, highlight=False)
        for table in self.tables:
            written.print(table)
        return written.file.getvalue()  # type: ignore[attr-defined]
