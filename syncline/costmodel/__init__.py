"""The cost model: links, collectives, traffic, hardware and model shapes, in closed form.

NumPy and the standard library only, so that a projection answers at once. Everything broadcasts by NumPy's rules.
"""

from __future__ import annotations

from syncline.costmodel.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.collectives.cost import (
    ALGORITHMS,
    COLLECTIVES,
    HIERARCHICAL,
    OF_GLOO,
    SERVERS,
    NoClosedForm,
    algorithm_name,
    algorithms_on,
    all_to_all_s,
    best_algorithm,
    broadcast_s,
    closed_form_s,
    collective_s,
    gather_s,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_reduce_scatter_s,
    rounds_and_block,
    wire_bytes,
)
from syncline.costmodel.collectives.gloo.costs import GLOO, GlooCosts, costs_on
from syncline.costmodel.collectives.gloo.times import gloo_message_s, gloo_s
from syncline.costmodel.collectives.gloo.wire import Wire, gloo_wire
from syncline.costmodel.collectives.hierarchical import node_size
from syncline.costmodel.collectives.policies import POLICIES, chosen_algorithm
from syncline.costmodel.collectives.votes import (
    VOTES,
    VotePart,
    vote_bits_per_parameter,
    vote_by_collectives_s,
    vote_crossover,
    vote_parts,
    vote_s,
)
from syncline.costmodel.compute.batch_times import BatchTimes
from syncline.costmodel.compute.hardware import HARDWARE, Hardware, compute_s, hardware, hardware_fields
from syncline.costmodel.compute.layers import chosen_layers, first_and_last_layers
from syncline.costmodel.compute.memory import (
    Activations,
    Memory,
    Precision,
    activation_bytes,
    call_bytes,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.costmodel.compute.models import MODELS, ModelShape, model
from syncline.costmodel.compute.tensors import (
    TensorShape,
    balanced_parts,
    dion_rank,
    is_worth_factors,
    largest_divisor,
    matrix_sides,
)
from syncline.costmodel.fitting.gloo import Measured, fit_costs
from syncline.costmodel.network.described import NETWORKS, AnyNetwork, Preset, network, network_fields
from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import Network, Topology, topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import (
    CallPattern,
    Exchange,
    bytes_per_step,
    calls_at,
    calls_by_step,
    calls_of,
    communication_factor,
    communication_s,
    joined,
    mean_bytes_per_step,
)
from syncline.costmodel.traffic.overlap import Bucket, gradient_buckets
from syncline.costmodel.traffic.packing import sum_levels
from syncline.costmodel.traffic.papers import (
    curvadion_speedup,
    curvadion_step_s,
    half_life,
    half_life_period,
    half_life_total_s,
    mt_dao_all_reduce_s,
    unified_total_s,
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
    "OF_GLOO",
    "POLICIES",
    "SERVERS",
    "VOTES",
    "Activations",
    "AnyNetwork",
    "BatchTimes",
    "Bucket",
    "Call",
    "CallPattern",
    "Edge",
    "Exchange",
    "FloatOrArray",
    "GlooCosts",
    "Graph",
    "Hardware",
    "IntOrArray",
    "Link",
    "Measured",
    "Memory",
    "ModelShape",
    "Network",
    "NoClosedForm",
    "Precision",
    "Preset",
    "Sites",
    "StepTime",
    "TensorShape",
    "Topology",
    "TwoLevel",
    "VotePart",
    "Wire",
    "activation_bytes",
    "algorithm_name",
    "algorithms_on",
    "all_to_all_s",
    "balanced_parts",
    "best_algorithm",
    "broadcast_s",
    "bytes_per_step",
    "call_bytes",
    "calls_at",
    "calls_by_step",
    "calls_of",
    "chosen_algorithm",
    "chosen_layers",
    "closed_form_s",
    "collective_s",
    "communication_factor",
    "communication_s",
    "compute_s",
    "costs_on",
    "curvadion_speedup",
    "curvadion_step_s",
    "dion_rank",
    "first_and_last_layers",
    "fit_costs",
    "gather_s",
    "gloo_message_s",
    "gloo_s",
    "gloo_wire",
    "gradient_buckets",
    "half_life",
    "half_life_period",
    "half_life_total_s",
    "hardware",
    "hardware_fields",
    "is_worth_factors",
    "joined",
    "largest_call_bytes",
    "largest_divisor",
    "matrix_sides",
    "mean_bytes_per_step",
    "mean_step",
    "model",
    "model_memory",
    "mt_dao_all_reduce_s",
    "network",
    "network_fields",
    "node_size",
    "ring_all_gather_s",
    "ring_all_reduce_s",
    "ring_reduce_scatter_s",
    "rounds_and_block",
    "step_time_s",
    "sum_levels",
    "topology",
    "unified_total_s",
    "update_s",
    "vote_bits_per_parameter",
    "vote_by_collectives_s",
    "vote_crossover",
    "vote_parts",
    "vote_s",
    "wire_bytes",
]
