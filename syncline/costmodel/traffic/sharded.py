"""Data parallelism whose optimizer states, or all that a model keeps, are shared out over the workers, in closed form.

With n bytes of gradients and w bytes of parameters as the model computes with them, P workers and B micro-batches:

| sharding    | keeps of weights, gradients, states | sends in a step                                                |
|-------------|-------------------------------------|----------------------------------------------------------------|
| `none`      | 1, 1, 1                             | an all-reduce of n                                             |
| `optimizer` | 1, 1, 1/P                           | a reduce-scatter of n, an all-gather of w                      |
| `gradients` | 1, 1/P, 1/P                         | B times: a reduce-scatter of n; an all-gather of w             |
| `full`      | 1/P, 1/P, 1/P                       | B times: two all-gathers of w, a reduce-scatter of n           |

All travel in units, as gradients do in buckets: parameters are gathered ahead of the part of the forward pass (with
``full`` of the backward pass, too) that cannot begin without them, gradients are scattered as the backward pass makes
them. With ``optimizer`` gradients of micro-batches are added up where they are, and the last one's backward pass sends;
with ``gradients`` nobody has room for those of all parameters, and each micro-batch's are scattered.

Sources: S. Rajbhandari et al., "ZeRO" (2020), sections 5 and 7 (stages 1, 2 and 3); Y. Zhao et al., "PyTorch FSDP"
(2023), section 3; Megatron-LM's distributed optimizer with overlapped gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from syncline.costmodel.traffic.exchanges import Exchange
from syncline.costmodel.traffic.overlap import FORWARD_SHARE, Bucket
from syncline.errors import SpecError, one_of

Sharding = Literal["none", "optimizer", "gradients", "full"]

SHARDINGS: tuple[str, ...] = get_args(Sharding)


def sharded_exchanges(
    gradient_bytes: float,
    parameter_bytes: float,
    workers: int,
    sharding: str,
    units: Sequence[Bucket],
    micro_batches: int = 1,
    *,
    beside: bool = True,
    forward_share: float = FORWARD_SHARE,
) -> list[Exchange]:
    """What a worker sends in a step.

    Args:
        gradient_bytes: n.
        parameter_bytes: w.
        workers: P.
        sharding: ``optimizer``, ``gradients`` or ``full``.
        units: what travels together, of one micro-batch, see `gradient_buckets`.
        micro_batches: B, one after another in a step.
        beside: whether it travels beside computing; else all of it after that.
        forward_share: part of a micro-batch's computing before its backward pass.

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
    full, every = sharding == "full", sharding != "optimizer"
    sent: list[Exchange] = []
    part = 1.0 / micro_batches

    def send(collective: str, label: str, nbytes: float, begin: float, ready: float, needed: float) -> None:
        at, until = (begin + part * ready, begin + part * needed) if beside else (1.0, 1.0)
        # Sums of thirds: no later than what they stand for.
        at, until = min(at, 1.0), min(until, 1.0)
        sent.append(Exchange(nbytes, 1, label, collective, joins=False, ready=at, needed=max(at, until)))

    for number in range(micro_batches):
        begin = number * part
        before = 0.0
        for unit in reversed(units) if full or number == 0 else ():
            own = unit.share * parameter_bytes / workers
            send("all_gather", "parameters, forward", own, begin, 0.0, forward_share * before)
            before += unit.share
        made = forward_share
        for unit in units if full else ():
            own = unit.share * parameter_bytes / workers
            send("all_gather", "parameters, backward", own, begin, forward_share, made)
            made = unit.ready
        for unit in units if every or number == micro_batches - 1 else ():
            send("reduce_scatter", "gradient", unit.share * gradient_bytes, begin, unit.ready, micro_batches - number)
    return sent


def after_micro_batches(buckets: Sequence[Bucket], micro_batches: int) -> tuple[Bucket, ...]:
    """The buckets of a gradient whose first micro-batches are added up in silence: ready in the last one's backward."""
    return tuple(bucket._replace(ready=1 - (1 - bucket.ready) / micro_batches) for bucket in buckets)
