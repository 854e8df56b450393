from .cluster.clusters import (
    Cluster as Cluster,
    bundled_clusters as bundled_clusters,
    named_cluster as named_cluster,
    resolve_cluster_options as resolve_cluster_options,
    networks_and_workers as networks_and_workers,
)
from .cluster.hardware import hardware as hardware, hardware_fields as hardware_fields
from .cluster.descriptions import from_networkx as from_networkx
from .cluster.networks import network as network, network_fields as network_fields
from .compute import ComputeSpec as ComputeSpec
from .experiment import (
    CompareSpec as CompareSpec,
    Experiment as Experiment,
    RunSpec as RunSpec,
    ScheduleSpec as ScheduleSpec,
    SeedsField as SeedsField,
    Training as Training,
    check_distinct as check_distinct,
)
from .load import (
    KINDS as KINDS,
    Override as Override,
    bundled as bundled,
    class_of_kind as class_of_kind,
    kind_of as kind_of,
    load_spec as load_spec,
    validate as validate,
)
from .models import ModelField as ModelField, model as model, model_fields as model_fields
from .pipeline import PipelineSpec as PipelineSpec
from .problem import ProblemField as ProblemField
from .projection import ProjectSpec as ProjectSpec
from .study import (
    STUDIES as STUDIES,
    Figures as Figures,
    Piece as Piece,
    Record as Record,
    Report as Report,
    Study as Study,
    no_figures as no_figures,
    register_study as register_study,
    study_of as study_of,
)
from .validation import (
    VALIDATIONS as VALIDATIONS,
    ClustersSpec as ClustersSpec,
    StepTimesSpec as StepTimesSpec,
    ValidationSpec as ValidationSpec,
)
