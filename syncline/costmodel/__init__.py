"""The cost model: links, collectives, traffic, hardware and model shapes, in closed form.

NumPy and the standard library only, so that a projection answers at once. Everything broadcasts by NumPy's rules.
"""

from __future__ import annotations

from syncline.costmodel.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.batch_times import BatchTimes
from syncline.costmodel.collectives import (
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
from syncline.costmodel.gloo import gloo_message_s, gloo_s
from syncline.costmodel.gloo_costs import GLOO, GlooCosts, costs_on
from syncline.costmodel.gloo_fit import Measured, fit_costs
from syncline.costmodel.gloo_wire import Wire, gloo_wire
from syncline.costmodel.graph import Edge, Graph
from syncline.costmodel.hardware import HARDWARE, Hardware, compute_s, hardware, hardware_fields
from syncline.costmodel.hierarchy import node_size
from syncline.costmodel.layers import chosen_layers, first_and_last_layers
from syncline.costmodel.link import Link
from syncline.costmodel.memory import (
    Activations,
    Memory,
    Precision,
    activation_bytes,
    call_bytes,
    largest_call_bytes,
    model_memory,
    update_s,
)
from syncline.costmodel.models import MODELS, ModelShape, model
from syncline.costmodel.networks import NETWORKS, AnyNetwork, Preset, network, network_fields
from syncline.costmodel.overlap import Bucket, gradient_buckets
from syncline.costmodel.packing import sum_levels
from syncline.costmodel.policies import POLICIES, chosen_algorithm
from syncline.costmodel.sites import Sites
from syncline.costmodel.steptime import StepTime, mean_step, step_time_s
from syncline.costmodel.tensors import TensorShape, balanced_parts, dion_rank, is_worth_factors, largest_divisor
from syncline.costmodel.topology import Network, Topology, topology
from syncline.costmodel.traffic import (
    Call,
    CallPattern,
    Exchange,
    bytes_per_step,
    calls_at,
    calls_by_step,
    communication_factor,
    communication_s,
    joined,
    mean_bytes_per_step,
)
from syncline.costmodel.two_level import TwoLevel
from syncline.costmodel.votes import (
    VOTES,
    VotePart,
    vote_bits_per_parameter,
    vote_by_collectives_s,
    vote_crossover,
    vote_parts,
    vote_s,
)
from syncline.costmodel.wallclock import (
    curvadion_speedup,
    curvadion_step_s,
    half_life,
    half_life_period,
    half_life_total_s,
    mt_dao_all_reduce_s,
    unified_total_s,
)

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
