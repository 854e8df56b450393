"""Studies, which recompute claims of papers, and their registry by kind.

The papers' studies are in `replication`, beside the package; other packages and programs register their own. The reader
of specs looks up the class of a spec by its kind, and commands look up the functions of the study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.checkout import has_replication, import_replication
from syncline.errors import SynclineError
from syncline.fields import kind_of_model
from syncline.registry import Registry
from syncline.specs.experiment import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group


Record = dict[str, Any]
"""A row of a study's results: values by column."""

Report = Callable[[int], None]
"""A function that takes the progress of a piece so far."""

Figures = Iterable[tuple[str, "Figure"]]
"""Pairs of a file name and a figure."""


class Piece(NamedTuple):
    """A part of a study's work that runs in its own process, in parallel with other parts.

    Attributes:
        length: units of work that it reports: steps of training, or votes.
        call: function that does the work, calls the given `Report`, and returns the piece's records in any order. If
            the report raises ``KeyboardInterrupt`` (Ctrl-C), it returns the records of completed work.
    """

    length: int
    call: Callable[[Report], list[Record]]


def no_figures(spec: Any, records: list[Record], rows: list[Record]) -> Figures:
    """Return no figures, for a study without figures."""
    return ()


@dataclass(frozen=True)
class Study:
    """A study that recomputes a claim of a paper: the class of its specs, and its functions.

    A study with ``pieces`` computes for some time and writes a folder (``syncline run``). A study without ``pieces`` is
    in closed form and answers at once (``syncline project``).

    Args:
        spec: class of its specs; its ``kind`` names the study.
        rows: function from a spec and the records of all pieces to the rows, in the spec's order. A study without
            pieces has no records, and records may be missing after Ctrl-C.
        tables: function from the rows to tables for people; not called without rows.
        pieces: function from a spec to the pieces of work.
        figures: function from a spec, its records and its rows to file names and figures; for a study without pieces,
            the figure that ``--plot`` draws. Not called without rows.
        jobs: function from a spec to the number of parallel processes; None means one process per core. It refuses a
            spec that this machine cannot run.
    """

    spec: type[Experiment]
    rows: Callable[[Any, list[Record]], list[Record]]
    tables: Callable[[list[Record], Any], list[Group]]
    pieces: Callable[[Any], list[Piece]] | None = None
    figures: Callable[[Any, list[Record], list[Record]], Figures] = no_figures
    jobs: Callable[[Any], int | None] = field(default=lambda spec: None)

    @property
    def kind(self) -> str:
        """Return the kind that names the study in specs."""
        return kind_of_model(self.spec)

    @property
    def command(self) -> str:
        """Return the command that takes specs of the study."""
        return "run" if self.pieces else "project"

    def records(self, spec: Experiment, report: Report = lambda done: None) -> list[Record]:
        """Return the records of a study's pieces, computed one after another in this process; none without pieces."""
        records: list[Record] = []
        if self.pieces is not None:
            for piece in self.pieces(spec):
                records += piece.call(report)
        return records


STUDIES: Registry[Study] = Registry(
    "studies", "syncline.studies", import_replication("studies").STUDIES if has_replication() else {}
)
"""Registry of all studies, by kind."""


def register_study(study: Study) -> Study:
    """Register a study in this process; a package registers its own by an entry point of ``syncline.studies``."""
    STUDIES.register(study.kind, study)
    return study


def study_of_kind(kind: str) -> Study:
    """Return the study of this kind.

    Raises:
        SpecError: there is no study of this kind.
        SynclineError: an installed package registers something else under this kind.
    """
    study = STUDIES.get(kind, "kind")
    if not isinstance(study, Study) or study.kind != kind:
        raise SynclineError(f"kind: {kind!r} of the entry points {STUDIES.group} is no Study of that kind: {study!r}")
    return study


def study_of(spec: Experiment) -> Study:
    """Return the study to which a spec belongs, found by the spec's class."""
    return study_of_kind(kind_of_model(type(spec)))
