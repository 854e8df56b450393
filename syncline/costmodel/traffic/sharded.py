"""Sharded data parallelism in closed form: workers share optimizer states, gradients and parameters (ZeRO, FSDP).

Let n be the bytes of gradients and w the bytes of parameters in the format in which the model computes, with P workers
and B micro-batches:

| sharding    | shard of weights, gradients, states | sends in a step                                                |
|-------------|-------------------------------------|----------------------------------------------------------------|
| `none`      | 1, 1, 1                             | an all-reduce of n                                             |
| `optimizer` | 1, 1, 1/P                           | a reduce-scatter of n, an all-gather of w                      |
| `gradients` | 1, 1/P, 1/P                         | B times: a reduce-scatter of n; an all-gather of w             |
| `full`      | 1/P, 1/P, 1/P                       | B times: two all-gathers of w, a reduce-scatter of n           |

Parameters and gradients travel in units, as gradients do in buckets. A worker gathers parameters before the part of the
forward pass (with ``full`` also of the backward pass) that needs them, one unit ahead of its computing. It scatters
gradients as the backward pass makes them. With ``optimizer`` a worker adds up the gradients of its micro-batches and
sends in the last backward pass. With ``gradients`` no worker holds the gradients of all parameters, so each micro-batch
scatters its gradients.

Software without such gathers sends the weights of ``optimizer`` and ``gradients`` after the update, in units
(`update_gathers`), or in a broadcast from each worker, whose shard is whole tensors (`update_broadcasts`).

Sources: S. Rajbhandari et al., "ZeRO" (2020), sections 5 and 7 (stages 1, 2 and 3); Y. Zhao et al., "PyTorch FSDP"
(2023), section 3, and 3.3.2 and 3.4 on prefetching and its limit of two gathers; Megatron-LM's distributed optimizer
with overlapped gathers; DeepSpeed, ``stage_1_and_2.py`` (gathers after the update); PyTorch's
``ZeroRedundancyOptimizer`` and InternLM, ``hybrid_zero_optim.py`` (broadcasts).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Literal, get_args

from syncline.costmodel.traffic.exchanges import Exchange
from syncline.costmodel.traffic.overlap import FORWARD_SHARE, Bucket
from syncline.errors import SpecError, one_of

Sharding = Literal["none", "optimizer", "gradients", "full"]

SHARDINGS: tuple[str, ...] = get_args(Sharding)

WeightMessages = Literal["prefetched", "gathers", "broadcasts"]
"""How updated weights reach the workers: gathered layer by layer before their use, or after the update at once."""


def sharded_exchanges(
    gradient_bytes: float,
    parameter_bytes: float,
    workers: int,
    sharding: str,
    units: Sequence[Bucket],
    micro_batches: int = 1,
    *,
    overlapped: bool = True,
    weights: Sequence[Exchange] | None = None,
) -> list[Exchange]:
    """Return the exchanges of a worker in a step.

    Args:
        gradient_bytes: n, bytes of all gradients.
        parameter_bytes: w, bytes of all parameters.
        workers: P.
        sharding: ``optimizer``, ``gradients`` or ``full``.
        units: buckets of one micro-batch, each sent in one collective, see `gradient_buckets`.
        micro_batches: B, number of micro-batches, one after another in a step.
        overlapped: whether collectives overlap with computing; else all follow the computing.
        weights: exchanges after the update that replace the gathers of ``optimizer`` and ``gradients``.

    Raises:
        SpecError: another sharding, or no micro-batch.

    >>> half = [Bucket(0.5, 2 / 3), Bucket(0.5, 1.0)]
    >>> sent = sharded_exchanges(8.0, 8.0, 4, "full", half)
    >>> [(one.collective, one.payload_bytes, round(one.ready, 2), round(one.needed, 2)) for one in sent]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('all_gather', 1.0, 0.0, 0.0), ('all_gather', 1.0, 0.0, 0.17),
     ('all_gather', 1.0, 0.33, 0.33), ('all_gather', 1.0, 0.33, 0.67),
     ('reduce_scatter', 4.0, 0.67, 1.0), ('reduce_scatter', 4.0, 1.0, 1.0)]
    """
    if sharding not in SHARDINGS[1:]:
        raise SpecError("sharding", sharding, one_of(SHARDINGS[1:], sharding))
    if micro_batches < 1:
        raise SpecError("micro_batches", micro_batches, "at least 1")
    full, per_micro_batch = sharding == "full", sharding != "optimizer"
    exchanges: list[Exchange] = []
    part = 1.0 / micro_batches

    def send(collective: str, label: str, nbytes: float, begin: float, ready: float, needed: float) -> None:
        start, need = (begin + part * ready, begin + part * needed) if overlapped else (1.0, 1.0)
        # Sums of thirds may round above the end of the step.
        start, need = min(start, 1.0), min(need, 1.0)
        exchanges.append(Exchange(nbytes, 1, label, collective, joins=False, ready=start, needed=max(start, need)))

    for number in range(micro_batches):
        begin = number * part
        gathered = before = 0.0
        for unit in reversed(units) if full or (number == 0 and weights is None) else ():
            shard_bytes, needed = unit.share * parameter_bytes / workers, FORWARD_SHARE * gathered
            send("all_gather", "parameters, forward", shard_bytes, begin, before, needed)
            before, gathered = needed, gathered + unit.share
        before = needed = FORWARD_SHARE
        for unit in units if full else ():
            shard_bytes = unit.share * parameter_bytes / workers
            send("all_gather", "parameters, backward", shard_bytes, begin, before, needed)
            before, needed = needed, unit.ready
        for unit in units if per_micro_batch or number == micro_batches - 1 else ():
            send("reduce_scatter", "gradient", unit.share * gradient_bytes, begin, unit.ready, micro_batches - number)
    return exchanges if full or weights is None else [*exchanges, *weights]


def update_gathers(parameter_bytes: float, workers: int, units: Sequence[Bucket]) -> list[Exchange]:
    """Return the gathers of all units after the update; arguments as of `sharded_exchanges`."""
    sizes = (unit.share * parameter_bytes / workers for unit in reversed(units))
    return [Exchange(nbytes, 1, "parameters", "all_gather", joins=False) for nbytes in sizes]


def update_broadcasts(bytes_per_number: float, workers: int, elements: Sequence[int]) -> list[Exchange]:
    """Return a broadcast after the update from each worker that has tensors.

    The largest tensor that is left goes to the worker with the fewest numbers. So P workers send at most as many
    broadcasts as there are tensors.

    Args:
        bytes_per_number: bytes of a number.
        workers: P.
        elements: number of elements of each tensor.

    >>> [one.payload_bytes for one in update_broadcasts(2.0, 3, [5, 4, 3, 3])]
    [10.0, 8.0, 12.0]
    """
    shards = [[0, worker] for worker in range(workers)]
    for count in sorted(elements, reverse=True):
        heapq.heapreplace(shards, [shards[0][0] + count, shards[0][1]])
    sizes = [bytes_per_number * count for count, _ in sorted(shards, key=lambda shard: shard[1]) if count]
    return [Exchange(nbytes, 1, "parameters", "broadcast", joins=False) for nbytes in sizes]


def after_micro_batches(buckets: Sequence[Bucket], micro_batches: int) -> tuple[Bucket, ...]:
    """Return the buckets of a gradient that is summed over micro-batches and sent in the last backward pass."""
    return tuple(bucket._replace(ready=1 - (1 - bucket.ready) / micro_batches) for bucket in buckets)
