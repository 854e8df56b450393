"""What a study is, and which ones there are.

Studies stand above this room, in `syncline.studies` and in other packages, and enter through its registry: reading a
spec finds the class of its kind there, and commands find what to do with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.errors import SynclineError
from syncline.fields import kind_of_model
from syncline.registry import Registry, imported
from syncline.specs.experiment import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

Record = dict[str, Any]
Report = Callable[[int], None]
Figures = Iterable[tuple[str, "Figure"]]


class Piece(NamedTuple):
    """A part of a study's work, done beside the others in a process of its own.

    Attributes:
        length: what it counts to: steps, votes.
        call: given where to report how far it is, returns its records, which say nothing of their order. After Ctrl-C
            (``KeyboardInterrupt`` out of its report) there are none, or those of what was finished.
    """

    length: int
    call: Callable[[Report], list[Record]]


def no_figures(spec: Any, records: list[Record], rows: list[Record]) -> Figures:
    """Of a study without."""
    return ()


@dataclass(frozen=True)
class Study:
    """A claim of a paper, computed anew: the class of its specs, and small functions of one.

    With ``pieces`` it computes for a while and leaves a folder (``syncline run``); without, it answers at once
    (``syncline project``), in closed form.

    Args:
        spec: the class of its specs; its ``kind`` names the study.
        rows: from a spec and the records of all pieces, the rows, in the spec's order. There are no records of a study
            that answers at once, and there may be few after Ctrl-C.
        tables: the rows for people; not called without any.
        pieces: the work, from a spec.
        figures: of a spec, its records and its rows, file names and figures; of a study that answers at once the one
            that ``--plot`` draws. Not called without rows.
        jobs: processes side by side, from a spec; one per core if none. Refuses a spec that this machine cannot run.
    """

    spec: type[Experiment]
    rows: Callable[[Any, list[Record]], list[Record]]
    tables: Callable[[list[Record], Any], list[Group]]
    pieces: Callable[[Any], list[Piece]] | None = None
    figures: Callable[[Any, list[Record], list[Record]], Figures] = no_figures
    jobs: Callable[[Any], int | None] = field(default=lambda spec: None)

    @property
    def kind(self) -> str:
        """What a spec calls it."""
        return kind_of_model(self.spec)

    @property
    def command(self) -> str:
        """Which command is for it."""
        return "run" if self.pieces else "project"

    def records(self, spec: Experiment, report: Report = lambda done: None) -> list[Record]:
        """Those of all pieces, made in this process one after another; a folder is written by ``run_study``."""
        return [record for piece in (self.pieces(spec) if self.pieces else ()) for record in piece.call(report)]


_PAPERS = "syncline.studies.papers"

STUDIES: Registry[Study] = Registry(
    "studies",
    "syncline.studies",
    {
        "alignment": "syncline.studies.alignment:STUDY",
        "quantisers": "syncline.studies.quantisers:STUDY",
        "staleness": "syncline.studies.staleness:STUDY",
        "swings": "syncline.studies.swings:STUDY",
        "vote-ties": "syncline.studies.vote_ties:STUDY",
        "curvadion-table": f"{_PAPERS}.curvadion:STUDY",
        "traffic-table": f"{_PAPERS}.volumes:TRAFFIC",
        "volume-table": f"{_PAPERS}.volumes:VOLUMES",
        "vote-table": f"{_PAPERS}.votes:TABLE",
        "vote-figure": f"{_PAPERS}.votes:FIGURE",
        "speed-table": f"{_PAPERS}.speed:STUDY",
        "wall-clock-figure": f"{_PAPERS}.wall_clock:STUDY",
    },
)
"""All studies, by kind."""


def register_study(study: Study) -> Study:
    """Add a study to those of this process. A package adds its own by an entry point of ``syncline.studies``.

    Raises:
        SpecError: there is one of this kind.
    """
    STUDIES.register(study.kind, study)
    return study


def study_of_kind(kind: str) -> Study:
    """The study of this kind.

    Raises:
        SynclineError: there is none, or what a package offers by this name is none.
    """
    study = STUDIES.get(kind, "kind")
    if not isinstance(study, Study) or study.kind != kind:
        raise SynclineError(f"kind: {kind!r} of the entry points {STUDIES.group} is no Study of that kind: {study!r}")
    return study


def study_of(spec: Experiment) -> Study:
    """The study that a spec is of."""
    return study_of_kind(kind_of_model(type(spec)))


def deferred(reference: str) -> Callable[..., Any]:
    """The function at ``module:name``, which is imported when it is called."""

    def call(*arguments: Any) -> Any:
        return imported(reference, installed=True)(*arguments)

    return call
