"""The messages of NCCL over sockets, round by round.

| algorithm     | rounds                                                                        | ahead       |
|---------------|-------------------------------------------------------------------------------|-------------|
| `nccl-ring`   | a slice each, to the worker after: 2 (P - 1) pieces of S slices, loop by loop | S           |
| `nccl-chain`  | piece t - i from worker i to i + 1 in round t                                 | 1           |
|               | a reduce: the same with workers P - 1 - i                                     | 1           |
| `nccl-posted` | i to i + 1 + k in round k; of a gather, each worker to the first              | all         |

A worker sends its message of a round when its port and its receiver's are free and all messages have arrived that it
was to receive up to ``ahead`` rounds before: in a ring the same slice of the piece before. No receiver is asked: a
socket is sent a size and then the bytes (net_socket.cc). Bytes that a late or slow worker has not read lie in its
sockets' windows and its buffer of 8 steps. These are no bound here: workers in step do not need them, and a ring gets
at most 2 P slices of 2 MiB ahead of a late worker; 32 sockets' windows hold 96 MiB (`syncline.costmodel.network.tcp`).

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
    """Return the rounds of a collective, in pieces whose sizes these costs give."""
    if workers < 2 or not nbytes:
        return ()
    if kind == "broadcast":
        return _chain(workers, nbytes, costs.chain_piece_bytes)
    if kind == "reduce":  # the same chain, from the last worker to the first
        chain, built = _chain(workers, nbytes, costs.chain_piece_bytes), dict[int, tuple[Round, Round]]()
        return (built.setdefault(id(hop), (hop, _to_first(hop, workers)))[1] for hop in chain)
    if kind == "gather":
        return (Round(np.array([worker]), np.array([0]), nbytes) for worker in range(1, workers))
    if kind == "all_to_all":
        return pairwise_rounds(workers, nbytes)
    block = nbytes if kind == "all_gather" else nbytes / workers
    return _ring(workers, block, 2 if kind == "all_reduce" else 1, costs)


def nccl_limits(topology: Topology, algorithm: str) -> tuple[int | None, float]:
    """Return how many rounds a worker may be ahead of its messages, and the seconds before its first round.

    A number of None means that a worker never waits.
    """
    costs = nccl_on(topology) or DEFAULT
    return costs.rounds_ahead(algorithm), float(costs.fixed_s(algorithm, longest_latency_s(topology)))


def _ring(workers: int, block: float, laps: int, costs: NcclCosts) -> Iterator[Round]:
    worker = np.arange(workers)
    after = (worker + 1) % workers
    num_full, rest = (float(count) for count in costs.ring_steps(block))
    for times, piece in ((num_full, costs.ring_piece_bytes), (1, rest)):
        if piece > 0:
            parts = {part: Round(worker, after, float(piece * part)) for part in costs.slice_parts}
            slices = [parts[part] for part in costs.slice_parts]
            for _ in range(int(times) * laps * (workers - 1)):
                yield from slices


def _to_first(round_: Round, workers: int) -> Round:
    """Return a round with the workers numbered from the last to the first."""
    return Round(workers - 1 - round_.senders, workers - 1 - round_.receivers, round_.nbytes)


def _chain(workers: int, nbytes: float, piece: float) -> Iterator[Round]:
    pieces = int(np.ceil(nbytes / piece))
    last, hop = nbytes - (pieces - 1) * piece, np.arange(workers - 1)
    full: dict[tuple[int, int], Round] = {}
    for round_number in range(pieces + workers - 2):
        first, end = max(0, round_number - pieces + 1), min(round_number, workers - 2) + 1  # the senders of this round
        key = first, end
        if first or round_number - first == pieces - 1:  # the last piece is under way
            sizes = np.where(round_number - hop[first:end] == pieces - 1, last, piece)
            yield Round(hop[first:end], hop[first:end] + 1, sizes)
            continue
        if key not in full:
            full[key] = Round(hop[first:end], hop[first:end] + 1, piece)
        yield full[key]
