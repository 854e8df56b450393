"""Specs of experiments as frozen data. Reading and projecting a spec does not import torch."""

from syncline.methods import METHODS, MethodBase, MethodSpec
from syncline.registry import lazy_function
from syncline.specs.cluster.clusters import (
    Cluster,
    bundled_clusters,
    named_cluster,
    resolve_cluster_options,
    with_matrices,
)
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.cluster.networks import from_networkx, network, network_fields
from syncline.specs.compute import ComputeSpec
from syncline.specs.experiment import (
    CompareSpec,
    Experiment,
    RunSpec,
    ScheduleSpec,
    SeedsField,
    Training,
    check_distinct,
)
from syncline.specs.load import KINDS, Override, bundled, class_of_kind, kind_of, load_spec, validate
from syncline.specs.models import ModelField, model, model_fields
from syncline.specs.pipeline import PipelineSpec
from syncline.specs.problem import ProblemField
from syncline.specs.projection import ProjectSpec
from syncline.specs.study import (
    STUDIES,
    VALIDATIONS,
    ClustersSpec,
    Figures,
    Piece,
    Record,
    Report,
    StepTimesSpec,
    Study,
    ValidationSpec,
    no_figures,
    register_study,
    study_of,
)

__all__ = [
    "KINDS", "METHODS", "STUDIES", "VALIDATIONS", "Cluster", "ClustersSpec", "CompareSpec", "ComputeSpec",
    "Experiment", "Figures", "MethodBase", "MethodSpec", "ModelField", "Override", "Piece", "PipelineSpec",
    "ProblemField", "ProjectSpec", "Record", "Report", "RunSpec", "ScheduleSpec", "SeedsField", "StepTimesSpec",
    "Study", "Training", "ValidationSpec", "bundled", "bundled_clusters", "check_distinct", "class_of_kind",
    "from_networkx", "hardware", "hardware_fields", "kind_of", "lazy_function", "load_spec", "model",
    "model_fields", "named_cluster", "network", "network_fields", "no_figures", "register_study",
    "resolve_cluster_options", "study_of", "validate", "with_matrices",
]  # fmt: skip
