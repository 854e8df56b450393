"""The schedules that are built in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.errors import SpecError
from syncline.sim.pipelines.orders import Numbering, Orders, Schedule, ScheduleKind, alternating, usual_limits


def gpipe(stages: int, microbatches: int) -> Schedule:
    """Return the schedule of all forwards, then all backwards, in the same order of micro-batches.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3.
    """
    tasks = Numbering(microbatches)
    order = np.concatenate([tasks.all("forward"), tasks.all("backward")])
    return Schedule("gpipe", Orders(np.broadcast_to(order, (stages, len(order))), tasks), microbatches)


def one_f_one_b(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Return the schedule 1F1B: some forwards, then a forward and a backward in turn, then the remaining backwards.

    A stage with the limit n begins with n - 1 forwards, so at most n micro-batches are in flight. The limit of stage k
    of K is K - k, unless ``max_in_flight`` has the limit of each stage.

    Source: D. Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training" (2021), PipeDream-Flush.

    >>> [f"{task.kind[0]}{task.microbatch}" for task in one_f_one_b(2, 3).orders[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    tasks = Numbering(microbatches)
    forwards, backwards = tasks.all("forward"), tasks.all("backward")
    limits = usual_limits(stages) if max_in_flight is None else max_in_flight
    orders = [alternating(forwards, backwards, limit - 1) for limit in limits]
    return Schedule("1f1b", Orders(np.stack(orders), tasks), microbatches)


def async_one_f_one_b(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Return 1F1B without a flush: each stage updates its weights after each backward, and goes on at once.

    Source: D. Narayanan et al., "PipeDream" (2019), section 3.2.
    """
    return one_f_one_b(stages, microbatches, max_in_flight)._replace(name="async-1f1b", updates="every")


def interleaved(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Return 1F1B over K v virtual stages: K stages with v chunks, which groups of K micro-batches pass together.

    Stage k is 2 (K - 1 - k) + (v - 1) K forwards ahead of its backwards.

    Raises:
        SpecError: a number of micro-batches that K does not divide.

    Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
    (2021), section 2.2.2.
    """
    if microbatches % stages:
        raise SpecError("microbatches", microbatches, f"a multiple of the {stages} stages, as interleaving needs")
    tasks = Numbering(microbatches, chunks)
    # Groups of K micro-batches pass all chunks before the next group comes: rows of (groups, K) per chunk.
    forward_groups = [tasks.all("forward", chunk).reshape(-1, stages) for chunk in range(chunks)]
    backward_groups = [tasks.all("backward", chunk).reshape(-1, stages) for chunk in reversed(range(chunks))]
    forwards, backwards = (np.stack(groups, axis=1).ravel() for groups in (forward_groups, backward_groups))
    orders = []
    for stage in range(stages):
        ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        orders.append(alternating(forwards, backwards, len(forwards) if microbatches == stages else ahead))
    return Schedule("interleaved", Orders(np.stack(orders), tasks), microbatches, chunks)


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """Return 1F1B with a split backward: the weight gradients of stage k run k backwards later, in the bubble.

    No stage has more micro-batches in flight than the first stage of 1F1B.

    Source: P. Qi, X. Wan, G. Huang, M. Lin, "Zero Bubble Pipeline Parallelism" (2023), section 2.2 (ZB-H1).
    """
    tasks, orders = Numbering(microbatches), []
    weights, first_backward = tasks.all("weight"), tasks.all("backward")[0]
    for stage, order in enumerate(Orders.from_lists(one_f_one_b(stages, microbatches).orders, tasks).numbers):
        backwards = np.flatnonzero(order >= first_backward + stage)  # each followed by an earlier one's weight gradient
        order_with_weights = np.insert(order, backwards + 1, weights[: len(backwards)])
        orders.append(np.concatenate([order_with_weights, weights[len(backwards) :]]))
    return Schedule("zb-h1", Orders(np.stack(orders), tasks), microbatches, splits_backward=True)


def greedy(stages: int, microbatches: int, max_in_flight: Sequence[int] | None = None) -> Schedule:
    """Return the schedule in which each stage runs a backward if its input is there, else a forward within its limit.

    At most K - k micro-batches are in flight at stage k of K, unless ``max_in_flight`` has other limits. Each backward
    is followed by an update, as in `async_one_f_one_b`; if stages are even and links take no time, the order is equal.
    """
    limits = tuple(usual_limits(stages) if max_in_flight is None else max_in_flight)
    return Schedule("greedy", [], microbatches, updates="every", limits=limits)


KINDS = {
    "gpipe": ScheduleKind(gpipe),
    "1f1b": ScheduleKind(one_f_one_b, takes_limits=True),
    "interleaved": ScheduleKind(interleaved, takes_chunks=True),
    "zb-h1": ScheduleKind(zb_h1),
    "async-1f1b": ScheduleKind(async_one_f_one_b, takes_limits=True),
    "greedy": ScheduleKind(greedy, takes_limits=True, fixed_order=False),
}
"""The built-in schedules by their names in a spec."""
