"""An upper bound on the messages of a collective, which bounds the cost of simulating it message by message."""

from __future__ import annotations

from syncline.costmodel.collectives.algorithms import FLAT
from syncline.costmodel.collectives.cost import rounds_and_block
from syncline.costmodel.collectives.gloo.wire import gloo_messages
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, level_sizes
from syncline.costmodel.collectives.nccl.sockets import nccl_messages
from syncline.costmodel.collectives.table import (
    ALGORITHMS,
    OF_GLOO,
    OF_NCCL,
    OF_PLACES,
    TIMED_AS_A_WHOLE,
    is_direct,
    nccl_on,
)
from syncline.costmodel.network.topology import Network, Topology


def most_messages(kind: str, algorithm: str, workers: int, network: Network | Topology, nbytes: float = 0.0) -> int:
    """Return an upper bound on the number of messages of a collective.

    An algorithm with few messages, such as a tree, has at most 4 per worker on average. In any other flat algorithm
    every worker counts as a sender in each round. A hierarchical algorithm uses the network's levels. The size
    ``nbytes`` matters for gloo and NCCL, which cut it into pieces. The arguments are those of `collective_s`.
    """
    if algorithm in HIERARCHIES[kind]:
        sizes = level_sizes(network, workers) or (workers, 1)
        level_algorithm = HIERARCHIES[kind][algorithm].between
        if kind != "all_reduce":
            return sum(workers // size * most_messages(kind, level_algorithm, size, network) for size in sizes)
        *inner_sizes, outermost_size = sizes
        group_messages = most_messages(kind, level_algorithm, outermost_size, network)
        return 2 * workers * sum(inner_sizes) + workers // outermost_size * group_messages
    if algorithm in OF_GLOO[kind]:
        return int(workers * gloo_messages(kind, workers, nbytes)[0])
    if algorithm in OF_NCCL[kind]:
        return nccl_messages(kind, workers, nbytes, nccl_on(network))
    if is_direct(kind, algorithm) or algorithm in OF_PLACES[kind]:  # at most as many as in a ring
        algorithm = ALGORITHMS[kind][0]
    if algorithm in TIMED_AS_A_WHOLE or FLAT[kind][algorithm].few_messages:
        return 4 * workers
    return int(rounds_and_block(kind, workers, 0.0, algorithm)[0]) * workers
