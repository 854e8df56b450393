"""The cost model: links, collectives, traffic, hardware and model shapes, in closed form.

NumPy and the standard library only, so that a projection answers at once. Everything broadcasts by NumPy's rules.
"""

from __future__ import annotations

from syncline.costmodel.arrays import FloatOrArray, IntOrArray
from syncline.costmodel.collectives import (
    ALGORITHMS,
    COLLECTIVES,
    algorithm_name,
    all_to_all_s,
    best_algorithm,
    broadcast_s,
    collective_s,
    gather_s,
    ring_all_gather_s,
    ring_all_reduce_s,
    ring_reduce_scatter_s,
    rounds_and_block,
    wire_bytes,
)
from syncline.costmodel.hardware import HARDWARE, Hardware, compute_s, hardware
from syncline.costmodel.layers import chosen_layers, first_and_last_layers
from syncline.costmodel.link import Link
from syncline.costmodel.models import MODELS, ModelShape, model
from syncline.costmodel.networks import NETWORKS, Preset, network
from syncline.costmodel.packing import sum_levels
from syncline.costmodel.steptime import StepTime, mean_step, step_time_s
from syncline.costmodel.tensors import TensorShape, balanced_parts, dion_rank, is_worth_factors, largest_divisor
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
from syncline.costmodel.votes import VOTES, vote_bits_per_parameter, vote_crossover, vote_s
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
    "HARDWARE",
    "MODELS",
    "NETWORKS",
    "VOTES",
    "Call",
    "CallPattern",
    "Exchange",
    "FloatOrArray",
    "Hardware",
    "IntOrArray",
    "Link",
    "ModelShape",
    "Preset",
    "StepTime",
    "TensorShape",
    "algorithm_name",
    "all_to_all_s",
    "balanced_parts",
    "best_algorithm",
    "broadcast_s",
    "bytes_per_step",
    "calls_at",
    "calls_by_step",
    "chosen_layers",
    "collective_s",
    "communication_factor",
    "communication_s",
    "compute_s",
    "curvadion_speedup",
    "curvadion_step_s",
    "dion_rank",
    "first_and_last_layers",
    "gather_s",
    "half_life",
    "half_life_period",
    "half_life_total_s",
    "hardware",
    "is_worth_factors",
    "joined",
    "largest_divisor",
    "mean_bytes_per_step",
    "mean_step",
    "model",
    "mt_dao_all_reduce_s",
    "network",
    "ring_all_gather_s",
    "ring_all_reduce_s",
    "ring_reduce_scatter_s",
    "rounds_and_block",
    "step_time_s",
    "sum_levels",
    "unified_total_s",
    "vote_bits_per_parameter",
    "vote_crossover",
    "vote_s",
    "wire_bytes",
]
