"""Sweeps: many configurations, each with several seeds; a finished run is not repeated."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import changes_of, warn_lines
from syncline.errors import names_options
from syncline.questions.sweep import Sweep
from syncline.runs.sweep.folder import Swept, read_sweep
from syncline.runs.sweep.listener import Listener
from syncline.runs.sweep.ranking import ranked, ranking_table

if TYPE_CHECKING:
    import pandas as pd


def answer_sweep(question: Sweep, listener: Listener | None = None) -> SweepResult:
    """Return the sweep of a question; by default Python warns of what a listener would print."""
    names = ("problem", "method", "network", "workers", "steps", "compute")
    from syncline.runs.sweep import sweep as experiment

    # The command chooses runs/NAME-sweep by itself.
    folder = nullcontext((None, None)) if names_options.get() and question.out is None else place(question.out, "sweep")
    with folder as (path, scratch):
        swept = experiment.sweep(
            {"kind": "run", "name": "sweep"} if question.spec is None else question.spec,
            question.grid or {},
            seeds=question.seeds,
            overrides=changes_of(question, {name: name for name in names}),
            out=path,
            jobs=question.jobs,
            dask=question.dask,
            search=question.search,
            tune=question.tune or {},
            trials=question.trials,
            equal_effort=question.equal_effort,
            listener=_Warner() if listener is None else listener,
        )
    return SweepResult(swept, scratch)


class SweepResult(Result):
    """The result of `sl.sweep`: a `sl.Result` that can rank its configurations."""

    def __init__(self, swept: Swept, scratch: Scratch | None = None) -> None:
        super().__init__(
            "sweep", swept.json(), tables=partial(_tables, swept), folder=Path(swept.folder), scratch=scratch
        )

    @checked
    def best(self, by: str = "loss") -> pd.DataFrame:
        """Return one row per configuration, the best first: median, lowest and highest value over the seeds.

        Args:
            by: name of the number to rank by; less is better.

        Raises:
            SpecError: the rows have no such number.
        """
        import pandas as pd

        return pd.DataFrame(ranked(self.rows, by))


def read_sweep_result(folder: Path) -> SweepResult:
    """Return the result of the finished runs in a sweep's folder, also if the sweep still runs or was killed.

    Raises:
        SpecError: the folder is not a sweep's.
    """
    return SweepResult(read_sweep(folder))


class _Warner(Listener):
    """A listener that turns a sweep's warnings into Python's warnings."""

    def warns(self, lines: Sequence[str]) -> None:
        warn_lines(list(lines))


def _tables(swept: Swept) -> list[Any]:
    return [ranking_table(ranked(swept.rows), "loss", swept.paths, name=swept.name)] if swept.rows else []
