"""The cost model: links, collectives, traffic, hardware and model shapes, in closed form.

The package needs only NumPy and the standard library, so that a projection starts fast. All functions broadcast by
NumPy's rules.
"""

from __future__ import annotations

from syncline.costmodel.collectives.cost import (
    NoClosedForm,
    best_algorithm,
    closed_form_s,
    collective_s,
    gather_s,
    ring_all_reduce_s,
    rounds_and_block,
    wire_bytes,
)
from syncline.costmodel.collectives.gloo import gloo_message_s, gloo_s
from syncline.costmodel.collectives.hierarchical import inner_sizes, level_sizes, node_size
from syncline.costmodel.collectives.nccl import nccl_sockets_s
from syncline.costmodel.collectives.policies import POLICIES, chosen_algorithm
from syncline.costmodel.collectives.table import (
    ALGORITHMS,
    COLLECTIVES,
    HIERARCHICAL,
    OF_DIRECT,
    OF_GLOO,
    OF_NCCL,
    OF_PLACES,
    SERVERS,
    algorithms_on,
)
from syncline.costmodel.compute.hardware import HARDWARE, BatchTimes, Hardware, compute_s
from syncline.costmodel.compute.model_shape import Model, ModelShape, ModuleShape
from syncline.costmodel.compute.models import MODELS
from syncline.costmodel.compute.tensors import (
    TensorShape,
    dion_rank,
    is_worth_factors,
    largest_divisor,
    matrix_sides,
    model_fragments,
)
from syncline.costmodel.layouts.memory import (
    Activations,
    Memory,
    Precision,
    activation_bytes,
    call_bytes,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.paths import Network, Topology
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.software_costs import GLOO, GlooCosts, HivemindCosts, NcclCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import (
    Exchange,
    bytes_per_step,
    calls_at,
    calls_by_step,
    calls_of,
    communication_factor,
    communication_s,
    half_life,
    half_life_period,
    mean_bytes_per_step,
)
from syncline.costmodel.traffic.step_time import StepTime, mean_step, step_time_s

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "GLOO",
    "HARDWARE",
    "HIERARCHICAL",
    "MODELS",
    "NETWORKS",
    "OF_DIRECT",
    "OF_GLOO",
    "OF_NCCL",
    "OF_PLACES",
    "POLICIES",
    "SERVERS",
    "Activations",
    "BatchTimes",
    "Call",
    "Edge",
    "Exchange",
    "GlooCosts",
    "Graph",
    "Hardware",
    "HivemindCosts",
    "Level",
    "Link",
    "Matrix",
    "Memory",
    "Model",
    "ModelShape",
    "ModuleShape",
    "MultiLevel",
    "NcclCosts",
    "Network",
    "NoClosedForm",
    "Precision",
    "Sites",
    "StepTime",
    "Tcp",
    "TensorShape",
    "Topology",
    "TwoLevel",
    "activation_bytes",
    "algorithms_on",
    "best_algorithm",
    "bytes_per_step",
    "call_bytes",
    "calls_at",
    "calls_by_step",
    "calls_of",
    "chosen_algorithm",
    "closed_form_s",
    "collective_s",
    "communication_factor",
    "communication_s",
    "compute_s",
    "dion_rank",
    "gather_s",
    "gloo_message_s",
    "gloo_s",
    "half_life",
    "half_life_period",
    "inner_sizes",
    "is_worth_factors",
    "largest_call_bytes",
    "largest_divisor",
    "level_sizes",
    "matrix_sides",
    "mean_bytes_per_step",
    "mean_step",
    "model_fragments",
    "model_memory",
    "nccl_sockets_s",
    "node_size",
    "ring_all_reduce_s",
    "rounds_and_block",
    "step_time_s",
    "topology",
    "update_s",
    "wire_bytes",
]
