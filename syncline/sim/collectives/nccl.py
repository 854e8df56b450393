"""The messages of NCCL over sockets among P workers, round by round.

| algorithm     | rounds: which worker sends to which                                           | ahead       |
|---------------|-------------------------------------------------------------------------------|-------------|
| `nccl-ring`   | a slice from i to i + 1: 2 (P - 1) pieces of S slices, for each loop          | S           |
| `nccl-chain`  | piece t - i from worker i to i + 1 in round t                                 | 1           |
|               | a reduce: the same with workers P - 1 - i                                     | 1           |
| `nccl-posted` | i to i + 1 + k in round k; of a gather, each worker to the first              | all         |

A worker sends its message of a round when the worker's port and the receiver's port are free, and when the worker has
received all its messages of the rounds up to ``ahead`` before: in a ring the same slice of the piece before. A sender
does not ask the receiver: it writes a size and then the bytes to a socket (net_socket.cc). Bytes that a late or slow
worker has not read lie in its sockets' windows and its buffer of 8 steps. The simulation sets no limit to these bytes:
workers in step do not need a limit, and a ring gets at most 2 P slices of 2 MiB ahead of a late worker; 32 sockets'
windows hold 96 MiB (`syncline.costmodel.network.tcp`).

Source: as `syncline.costmodel.collectives.nccl.sockets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.algorithms.pairwise import pairwise_rounds
from syncline.costmodel.collectives.table import nccl_on
from syncline.costmodel.network.nccl_costs import DEFAULT, NcclCosts
from syncline.costmodel.network.paths import longest_latency_s
from syncline.costmodel.network.topology import Topology


def nccl_rounds(kind: str, workers: int, nbytes: float, costs: NcclCosts) -> Iterable[Round]:
    """Return the rounds in which NCCL runs a collective of ``nbytes`` bytes; ``costs`` has the sizes of its pieces."""
    if workers < 2 or not nbytes:
        return ()
    if kind == "broadcast":
        return _chain(workers, nbytes, costs.chain_piece_bytes)
    if kind == "reduce":  # the same chain, from the last worker to the first
        rounds = tuple(_chain(workers, nbytes, costs.chain_piece_bytes))
        mirrored = {
            id(round_): Round(workers - 1 - round_.senders, workers - 1 - round_.receivers, round_.nbytes)
            for round_ in rounds
        }  # an object for each object
        return (mirrored[id(round_)] for round_ in rounds)
    if kind == "gather":
        return (Round(np.array([worker]), np.array([0]), nbytes) for worker in range(1, workers))
    if kind == "all_to_all":
        return pairwise_rounds(workers, nbytes)
    block = nbytes if kind == "all_gather" else nbytes / workers
    return _ring(workers, block, 2 if kind == "all_reduce" else 1, costs)


def nccl_limits(topology: Topology, algorithm: str) -> tuple[int | None, float]:
    """Return how many rounds a worker may be ahead of the messages it received, and the seconds before its first round.

    A number of None means that a worker never waits.
    """
    costs = nccl_on(topology) or DEFAULT
    return costs.rounds_ahead(algorithm), float(costs.fixed_s(algorithm, longest_latency_s(topology)))


def _ring(workers: int, block: float, laps: int, costs: NcclCosts) -> Iterator[Round]:
    """Yield rounds in which blocks of ``block`` bytes go around the ring ``laps`` times, cut into loops and slices."""
    worker = np.arange(workers)
    receiver = (worker + 1) % workers
    num_full, last_piece_bytes = (float(count) for count in costs.ring_steps(block))
    for loops, piece_bytes in ((num_full, costs.ring_piece_bytes), (1, last_piece_bytes)):
        if piece_bytes > 0:
            parts = {part: Round(worker, receiver, float(piece_bytes * part)) for part in costs.slice_parts}
            slices = [parts[part] for part in costs.slice_parts]
            for _ in range(int(loops) * laps * (workers - 1)):
                yield from slices


def _chain(workers: int, nbytes: float, piece_bytes: float) -> Iterator[Round]:
    """Yield rounds in which pieces go down the chain of workers: piece t - i from worker i to i + 1 in round t.

    Rounds with the same senders and without the last piece, which may be smaller, are one object.
    """
    pieces = int(np.ceil(nbytes / piece_bytes))
    last_piece_bytes, worker = nbytes - (pieces - 1) * piece_bytes, np.arange(workers - 1)
    full_rounds: dict[int, Round] = {}
    for round_number in range(pieces + workers - 2):
        first, end = max(0, round_number - pieces + 1), min(round_number, workers - 2) + 1
        senders = worker[first:end]
        if round_number >= pieces - 1:  # the last piece is under way
            sizes = np.where(round_number - senders == pieces - 1, last_piece_bytes, piece_bytes)
            yield Round(senders, senders + 1, sizes)
            continue
        if end not in full_rounds:
            full_rounds[end] = Round(senders, senders + 1, piece_bytes)
        yield full_rounds[end]
