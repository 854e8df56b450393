"""Studies, which recompute claims of papers, their registry by kind, and the specs of validations.

The papers' studies are in `replication`, beside the package; other packages and programs register their own. The reader
of specs looks up the class of a spec by its kind, and commands look up the functions of the study. A validation
compares predictions with measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainSerializer, model_validator

from syncline.checkout import has_replication, import_replication
from syncline.costmodel.layouts.transformer_time import STEP_TIMES, StepConstants
from syncline.errors import SynclineError, named
from syncline.fields import INSTANCE, Spec, kind_of_model, parsed, refusal
from syncline.registry import Registry
from syncline.specs.clock import BandwidthField
from syncline.specs.cluster.clusters import HardwareField, NetworkField
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
        length: total of its progress, in steps or votes.
        call: function of a `Report`; it returns the records of the piece, in any order. After Ctrl-C
            (``KeyboardInterrupt`` from the report) it returns no records, or those of completed work.
    """

    length: int
    call: Callable[[Report], list[Record]]


def no_figures(spec: Any, records: list[Record], rows: list[Record]) -> Figures:
    """Return no figures, for a study without figures."""
    return ()


@dataclass(frozen=True)
class Study:
    """A study, which recomputes a claim of a paper: the class of its specs, and functions of a spec.

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
        """Return the records of all pieces, computed sequentially in this process; ``run_study`` writes a folder."""
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
    """Return the study of this kind, or raise a `SynclineError` if a package's entry point of this name is no study."""
    study = STUDIES.get(kind, "kind")
    if not isinstance(study, Study) or study.kind != kind:
        raise SynclineError(f"kind: {kind!r} of the entry points {STUDIES.group} is no Study of that kind: {study!r}")
    return study


def study_of(spec: Experiment) -> Study:
    """Return the study to which a spec belongs, found by the spec's class."""
    return study_of_kind(kind_of_model(type(spec)))


def _parse_constants(value: Any, path: str) -> StepConstants:
    """Return the published constants of step times with a name; return constants unchanged."""
    return value if isinstance(value, StepConstants) else named(value, STEP_TIMES, path)


ConstantsField = Annotated[StepConstants, INSTANCE, parsed(_parse_constants), PlainSerializer(lambda c: c.name)]
"""The name of published constants of step times."""


class NodeSpec(Spec):
    """The nodes of a cluster: ``devices`` in each, and the total ``nic_bandwidth`` of a node's network cards."""

    devices: int = Field(ge=1)
    nic_bandwidth: BandwidthField


class StepTimesSpec(Experiment):
    """A validation of `syncline.costmodel.layouts.transformer_time` on measured step times of GPTs on GPUs.

    One of ``folds`` parts of the single-node points calibrates the constants, which then predict the rest. A hash of
    its configuration assigns a point to a part, so that neither order nor choice matters. With ``constants`` there is
    no calibration, and the same points are predicted with them. ``repeats`` random parts of the same size show how
    much the result depends on chance. Two inputs are not fitted: the all-reduces measured on ``hardware``, which time
    sums of more bytes than the calibration had, and ``node``, for messages between nodes.
    """

    kind: Literal["step-times"]
    data: str = Field(min_length=1)
    single_node: str = Field(min_length=1)
    multi_node: str | None = None
    hardware: HardwareField
    node: NodeSpec | None = None
    constants: ConstantsField | None = None
    folds: int = Field(default=5, ge=2, le=100)
    fold: int = Field(default=0, ge=0)
    repeats: int = Field(default=20, ge=0, le=1000)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_fold_and_hardware(self) -> StepTimesSpec:
        """Refuse a number of the calibrating part that is out of range, and hardware of unknown memory."""
        if self.fold >= self.folds:
            raise refusal("fold", self.fold, f"a number from 0 to {self.folds - 1}")
        if self.hardware.memory_bytes is None:
            raise refusal("hardware", self.hardware.name, "hardware with known memory, to decide what fits into it")
        return self


class ClustersSpec(Experiment):
    """A validation of the shipped constants on measurements from other clusters.

    ``measurements`` are tables of these clusters or of trainings, or logs (`syncline.measure.logs`), whose
    collectives are predicted on ``network``. Without ``measurements`` the validation takes those of the package, and
    adds the errors of constants that are fitted without one group of measurements at a time (cross-validation);
    ``cross_validation: false`` skips these fits.
    """

    kind: Literal["clusters"]
    measurements: tuple[str, ...] = ()
    network: NetworkField | None = None
    cross_validation: bool = True


ValidationSpec = StepTimesSpec | ClustersSpec
"""The specs that ``syncline validate`` takes, besides folders of trainings."""

VALIDATIONS: tuple[type[StepTimesSpec] | type[ClustersSpec], ...] = (StepTimesSpec, ClustersSpec)
"""The classes of the specs of validations."""
