"""The ways in which the replicas of a pipeline's stage average their gradient: collectives, one after another.

| averaging          | collectives                                     | as in                                 |
|--------------------|-------------------------------------------------|---------------------------------------|
| `library`          | an all-reduce, as the network's library runs it | DDP, Megatron-LM                      |
| `reduce+broadcast` | a reduce to the first replica, then a broadcast | a central server, DT-FM's central_ps  |
| `direct`           | an all-reduce by direct exchange                | sharded servers, DT-FM's sharded_ps   |
| another all-reduce | an all-reduce by this algorithm                 | `ring`, `tree`, `server-naive`, ...   |

A central server that is one of the replicas receives n bytes and sends n; of sharded servers each replica owns a part.

Source: github.com/DS3Lab/DT-FM (2022), data_parallel/dist_dp_central_ps.py (``reduce``, then ``broadcast`` of the
flattened gradient) and comm/nccl_backend.py, ``all_reduce_opt`` (grouped sends of each part to its owner, a sum, and
grouped sends of the sum).
"""

from __future__ import annotations

from syncline.costmodel.collectives.table import TABLE, TIMED_AS_A_WHOLE
from syncline.errors import SpecError, one_of

LIBRARY, CENTRAL = "library", "reduce+broadcast"

AVERAGINGS = (LIBRARY, CENTRAL, *(name for name in TABLE["all_reduce"] if name not in TIMED_AS_A_WHOLE))
"""The names of all averagings."""


def averaging_calls(averaging: str = LIBRARY) -> tuple[tuple[str, str | None], ...]:
    """Return the collectives of an averaging in order, each with its algorithm; None: the network's.

    Raises:
        SpecError: an unknown name.

    >>> averaging_calls("reduce+broadcast")
    (('reduce', None), ('broadcast', None))
    """
    if averaging == LIBRARY:
        return (("all_reduce", None),)
    if averaging == CENTRAL:
        return ("reduce", None), ("broadcast", None)
    if averaging not in AVERAGINGS:
        raise SpecError("averaging", averaging, one_of(AVERAGINGS, averaging))
    return (("all_reduce", averaging),)
