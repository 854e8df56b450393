"""Sharded data parallelism in closed form: workers share optimizer states, gradients and parameters (ZeRO, FSDP).

Let n be the bytes of all gradients and w the bytes of all parameters, with P workers and B micro-batches in a step:

| sharding    | a worker's part of weights, gradients, states | collectives of a step                        |
|-------------|-----------------------------------------------|----------------------------------------------|
| `none`      | 1, 1, 1                                       | an all-reduce of n                           |
| `optimizer` | 1, 1, 1/P                                     | a reduce-scatter of n, an all-gather of w    |
| `gradients` | 1, 1/P, 1/P                                   | B reduce-scatters of n, an all-gather of w   |
| `full`      | 1/P, 1/P, 1/P                                 | 2 B all-gathers of w, B reduce-scatters of n |

Parameters and gradients travel in units, as gradients do in buckets. A worker gathers the parameters of a unit before
the part of the forward pass (with ``full`` also of the backward pass) that needs them, one unit ahead of its computing.
It scatters gradients as the backward pass computes them. With ``optimizer`` a worker adds up the gradients of its
micro-batches and scatters the sum in the last backward pass. With ``gradients`` no worker holds the gradients of all
parameters, so each micro-batch scatters its gradients.

Some software does not gather weights before the forward pass. It sends the weights of ``optimizer`` and ``gradients``
after the update, in units (`update_gathers`), or in a broadcast from each worker (`update_broadcasts`).

Sources: S. Rajbhandari et al., "ZeRO" (2020), sections 5 and 7 (stages 1, 2 and 3); Y. Zhao et al., "PyTorch FSDP"
(2023), section 3, and 3.3.2 and 3.4 on prefetching and its limit of two gathers; Megatron-LM's distributed optimizer
with overlapped gathers; DeepSpeed, ``stage_1_and_2.py`` (gathers after the update); PyTorch's
``ZeroRedundancyOptimizer`` and InternLM, ``hybrid_zero_optim.py`` (broadcasts).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, get_args

from syncline.costmodel.numerics.arrays import IntOrArray, require
from syncline.costmodel.traffic.exchanges import Exchange
from syncline.costmodel.traffic.overlap import FORWARD_SHARE, Bucket
from syncline.errors import require_one_of

Sharding = Literal["none", "optimizer", "gradients", "full"]

SHARDINGS: tuple[str, ...] = get_args(Sharding)

WeightMessages = Literal["prefetched", "gathers", "broadcasts"]
"""How updated weights reach workers: gathered before each layer's use, or gathered or broadcast after the update."""


def sharded_exchanges(
    gradient_bytes: float,
    parameter_bytes: float,
    workers: IntOrArray,
    sharding: str,
    units: Sequence[Bucket],
    micro_batches: int = 1,
    *,
    overlapped: bool = True,
    update_exchanges: Sequence[Exchange] | None = None,
) -> list[Exchange]:
    """Return the collectives of a worker in each step of sharded data parallelism.

    Args:
        gradient_bytes: n, bytes of all gradients.
        parameter_bytes: w, bytes of all parameters.
        workers: P; an array gives arrays of bytes.
        sharding: ``optimizer``, ``gradients`` or ``full``.
        units: buckets of the gradient of one micro-batch, see `gradient_buckets`; one collective carries a unit.
        micro_batches: B, number of micro-batches, one after another in a step.
        overlapped: whether collectives overlap with computing; otherwise all follow the computing.
        update_exchanges: exchanges after the update that replace the gathers, except with ``full``, which ignores them.

    >>> half = [Bucket(0.5, 2 / 3), Bucket(0.5, 1.0)]
    >>> exchanges = sharded_exchanges(8.0, 8.0, 4, "full", half)
    >>> [(e.collective, e.payload_bytes, round(e.ready, 2), round(e.needed, 2)) for e in exchanges]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('all_gather', 1.0, 0.0, 0.0), ('all_gather', 1.0, 0.0, 0.17),
     ('all_gather', 1.0, 0.33, 0.33), ('all_gather', 1.0, 0.33, 0.67),
     ('reduce_scatter', 4.0, 0.67, 1.0), ('reduce_scatter', 4.0, 1.0, 1.0)]
    """
    require_one_of("sharding", sharding, SHARDINGS[1:])
    require(micro_batches >= 1, "micro_batches", micro_batches, "at least 1")
    # The exchanges of one micro-batch. Here `ready` and `needed` are fractions of its computing. Each unit is gathered
    # while the unit before it computes; the forward pass computes units from the last bucket to the first.
    forward: list[tuple[Exchange, float, float]] = []
    computed_share = ready = 0.0
    for unit in reversed(units):
        needed = FORWARD_SHARE * computed_share
        gather = _exchange("all_gather", "parameters, forward", unit.share * parameter_bytes / workers)
        forward.append((gather, ready, needed))
        ready = needed  # the next unit is gathered while this one computes
        computed_share += unit.share
    backward: list[tuple[Exchange, float, float]] = []
    # The gather of the backward pass's first unit starts, and is awaited, when the forward pass ends.
    ready = needed = FORWARD_SHARE
    for unit in units:
        gather = _exchange("all_gather", "parameters, backward", unit.share * parameter_bytes / workers)
        backward.append((gather, ready, needed))
        ready, needed = needed, unit.ready  # the next unit is needed when this one has computed
    scatters = [(_exchange("reduce_scatter", "gradient", unit.share * gradient_bytes), unit.ready) for unit in units]

    exchanges: list[Exchange] = []

    def add(exchange: Exchange, ready: float, needed: float) -> None:
        """Add an exchange between two points of the step's computing, each a fraction from 0 to 1."""
        if overlapped:  # a sum of fractions may round above 1, the end of the computing
            ready, needed = min(ready, 1.0), min(needed, 1.0)
        else:
            ready = needed = 1.0
        exchanges.append(exchange.at(ready, max(ready, needed)))

    length = 1.0 / micro_batches  # a micro-batch's fraction of the step's computing
    for number in range(micro_batches):
        begin = number * length
        # With `full` no worker keeps gathered units, so that each micro-batch gathers them again.
        gathers = forward if sharding == "full" or (number == 0 and update_exchanges is None) else []
        for exchange, ready, needed in [*gathers, *(backward if sharding == "full" else [])]:
            add(exchange, begin + length * ready, begin + length * needed)
        # With `optimizer` a worker sums the gradients of its micro-batches, and scatters the sum in the last one.
        if sharding != "optimizer" or number == micro_batches - 1:
            for exchange, ready in scatters:
                add(exchange, begin + length * ready, 1.0)
    if sharding != "full" and update_exchanges is not None:
        exchanges += update_exchanges
    return exchanges


def _exchange(collective: str, label: str, nbytes: Any) -> Exchange:
    """Return the exchange of a unit after the computing of a step."""
    return Exchange(nbytes, label=label, collective=collective, shares_call=False)


def update_gathers(parameter_bytes: float, workers: IntOrArray, units: Sequence[Bucket]) -> list[Exchange]:
    """Return the all-gathers of the updated weights of all units, in the order of the next forward pass.

    The arguments are those of `sharded_exchanges`.
    """
    return [_exchange("all_gather", "parameters", unit.share * parameter_bytes / workers) for unit in reversed(units)]


def update_broadcasts(bytes_per_number: float, workers: int, elements: Sequence[int]) -> list[Exchange]:
    """Return the broadcasts after the update, one from each worker that updates tensors.

    Tensors are assigned as a whole: in the order of falling size, each to the worker with the fewest elements so far.

    Args:
        bytes_per_number: bytes of a weight.
        workers: P.

    >>> [exchange.payload_bytes for exchange in update_broadcasts(2.0, 3, [5, 4, 3, 3])]
    [10.0, 8.0, 12.0]
    """
    loads = [(0, worker) for worker in range(workers)]  # a heap: elements so far and worker, the fewest first
    for tensor_elements in sorted(elements, reverse=True):
        worker_elements, worker = loads[0]
        heapq.heapreplace(loads, (worker_elements + tensor_elements, worker))
    sent = _exchange("broadcast", "parameters", 0.0)
    counts = [worker_elements for worker_elements, _ in sorted(loads, key=itemgetter(1)) if worker_elements]
    return [replace(sent, payload_bytes=bytes_per_number * count) for count in counts]


@lru_cache(maxsize=1024)
def after_micro_batches(buckets: tuple[Bucket, ...], micro_batches: int) -> tuple[Bucket, ...]:
    """Return the buckets of a gradient that is summed over micro-batches and sent in the last one's backward pass.

    A bucket's ``ready`` becomes a fraction of the computing of all micro-batches.
    """
    return tuple(bucket._replace(ready=1 - (1 - bucket.ready) / micro_batches) for bucket in buckets)
