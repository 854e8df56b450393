"""What a command computes, as an object: rows, tables for people, data frames, a picture, its folder."""

from __future__ import annotations

import io
import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.errors import SpecError, SynclineError
from syncline.experiments.plain import plain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import Group

    from syncline.api.places import Scratch

TEXT_WIDTH = 120
"""Characters of a line where a result is printed as text."""


class Result:
    """What `sl.compare` and its kin return: the object that the commands print.

    A result is its folder, where there is one: data frames are read from the files when they are asked for.

    Attributes:
        command: which of them made it: ``compare``, ``run``, ...
        spec: what was run; None where that cannot be told from a folder.
        told: what ``--json`` prints, before what is not finite becomes None.
        folder: where its files are; None of what leaves none. One that nobody named is removed with the result, or at
            the end of Python; `save` keeps it.
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
        scratch: Scratch | None = None,
    ) -> None:
        self.command, self.told, self.spec, self.folder = command, dict(told), spec, folder
        self._tables, self._figure = tables, figure
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
        return list(self._tables())

    @property
    def summary(self) -> pd.DataFrame:
        """The rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def plot(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Draw it: of a training, loss against seconds, a panel per network.

        A line is the median over the seeds, the band their range.

        Returns:
            Matplotlib's axes, one per panel; ``axes[0].figure`` is the figure.

        Raises:
            SynclineError: there is nothing to draw.
        """
        import numpy as np

        if self._figure is None:
            raise SynclineError(f"a result of {self.command!r} has no picture of its own")
        figure = self._figure()
        axes = np.empty(len(figure.axes), dtype=object)
        axes[:] = figure.axes
        return axes

    def save(self, folder: str | Path) -> Path:
        """Keep its files under a name; `sl.load` reads them again.

        Raises:
            SpecError: the name exists, or there are no files.
        """
        target = Path(folder)
        if self.folder is None:
            raise SpecError("save", str(target), f"a result with files, which one of {self.command!r} has not")
        if target.exists():
            raise SpecError("save", str(target), "a folder that does not exist yet")
        try:
            shutil.copytree(self.folder, target)
        except OSError as error:
            raise SpecError("save", str(target), f"a place that can be written to ({error.strerror})") from None
        return target

    def __repr__(self) -> str:
        name = f" {self.spec.name!r}" if hasattr(self.spec, "name") else ""
        ended = ", interrupted" if self.interrupted else ", failed" if self.failed else ""
        where = f", {self.folder}" if self.folder is not None else ""
        return f"<{self.command}{name}: {len(self.told['rows'])} rows{ended}{where}>"

    def __str__(self) -> str:
        """The tables as text."""
        from rich.console import Console

        written = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None, markup=False, highlight=False)
        for table in self.tables:
            written.print(table)
        return written.file.getvalue()  # type: ignore[attr-defined]
