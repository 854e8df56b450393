"""Specs: what to run, as frozen data. Reading and projecting them needs no torch."""

from syncline.methods import METHODS, MethodBase, MethodSpec
from syncline.specs.alignment import AlignmentSpec
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.cluster.networks import from_networkx, network, network_fields
from syncline.specs.experiment import CompareSpec, ComputeSpec, ProjectSpec, RunSpec, Training
from syncline.specs.load import KINDS, AnySpec, bundled, kind_of, load_spec, validate
from syncline.specs.pipeline import PipelineSpec
from syncline.specs.staleness import LateMethod, RemedySpec, StalenessSpec
from syncline.specs.studies import QuantisersSpec, StudySpec, VoteTiesSpec
from syncline.specs.swings import SwingsSpec
from syncline.specs.tables import (
    CurvaDionTableSpec,
    SpeedTableSpec,
    TableSpec,
    TrafficTableSpec,
    VolumeTableSpec,
    VoteFigureSpec,
    VoteTableSpec,
    WallClockFigureSpec,
)
from syncline.specs.validation import VALIDATIONS, StepTimesSpec, ValidationSpec

__all__ = [
    "KINDS",
    "METHODS",
    "VALIDATIONS",
    "AlignmentSpec",
    "AnySpec",
    "CompareSpec",
    "ComputeSpec",
    "CurvaDionTableSpec",
    "LateMethod",
    "MethodBase",
    "MethodSpec",
    "PipelineSpec",
    "ProjectSpec",
    "QuantisersSpec",
    "RemedySpec",
    "RunSpec",
    "SpeedTableSpec",
    "StalenessSpec",
    "StepTimesSpec",
    "StudySpec",
    "SwingsSpec",
    "TableSpec",
    "TrafficTableSpec",
    "Training",
    "ValidationSpec",
    "VolumeTableSpec",
    "VoteFigureSpec",
    "VoteTableSpec",
    "VoteTiesSpec",
    "WallClockFigureSpec",
    "bundled",
    "from_networkx",
    "hardware",
    "hardware_fields",
    "kind_of",
    "load_spec",
    "network",
    "network_fields",
    "validate",
]
