"""The messages of gloo and of NCCL, round by round.

A rank may be *ahead*: it comes to a round when all its messages of the rounds up to this number before have arrived.

| gloo                     | rounds: which worker sends to which                                | ahead               |
|--------------------------|--------------------------------------------------------------------|---------------------|
| `gloo-ring` (all-reduce) | a segment from i to i - 1: first partial sums, then results        | 2; 1 at the halfway |
| `gloo-all-reduce`        | the same                                                           | the same            |
| `gloo-reduce`            | the partial sums of this ring, then a chunk from each worker to 0  | 2, then all         |
| `gloo-ring` (all-gather) | half a part from i to i + 1                                        | 2                   |
| `gloo-posted`            | i to i + 1 + k in round k; of a gather, each worker to the first   | all                 |
| `gloo-tree`              | i < 2^k to i + 2^k in round k                                      | 1                   |

| NCCL over sockets, P workers | rounds: which worker sends to which                              | ahead |
|------------------------------|------------------------------------------------------------------|-------|
| `nccl-ring`                  | a slice from i to i + 1: 2 (P - 1) pieces of S slices, each loop | S     |
| `nccl-chain`                 | piece t - i from worker i to i + 1 in round t                    | 1     |
|                              | a reduce: the same with workers P - 1 - i                        | 1     |
| `nccl-posted`                | i to i + 1 + k in round k; of a gather, each worker to the first | all   |

A worker of NCCL sends its message of a round when the worker's port and the receiver's port are free, and when the
worker has received all its messages of the rounds up to ``ahead`` before: in a ring the same slice of the piece before.
A sender does not ask the receiver: it writes a size and then the bytes to a socket (net_socket.cc). Bytes that a late
or slow worker has not read lie in its sockets' windows and its buffer of 8 steps. The simulation sets no limit to these
bytes: workers in step do not need a limit, and a ring gets at most 2 P slices of 2 MiB ahead of a late worker; 32
sockets' windows hold 96 MiB (`syncline.costmodel.network.tcp`).

Sources: as `syncline.costmodel.collectives.gloo` and `syncline.costmodel.collectives.nccl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.algorithms.exchanges import pairwise_rounds, ring_rounds
from syncline.costmodel.collectives.gloo import segments
from syncline.costmodel.collectives.table import nccl_on
from syncline.costmodel.network.paths import Topology, longest_latency_s
from syncline.costmodel.network.software_costs import NCCL_DEFAULT, NcclCosts


def gloo_rounds_ahead(kind: str, rounds: int, workers: int) -> list[int]:
    """Return, for each round, how many rounds a rank of gloo may be ahead of the messages it received."""
    if kind in ("all_reduce", "reduce_scatter"):
        ahead = [2] * rounds
        if rounds > 1:
            ahead[rounds // 2] = 1  # halfway, a rank needs all partial sums before it sends results
        return ahead
    if kind == "all_gather":
        return [2] * rounds
    if kind == "reduce":  # a ring, then messages from all to the root at once
        num_ring_rounds = max(rounds - (workers - 1), 0)
        num_last_rounds = rounds - num_ring_rounds  # each waits for the ring, but for no message of the others
        return [2] * num_ring_rounds + list(range(1, num_last_rounds + 1))
    if kind == "broadcast":
        return [1] * rounds  # a round needs the messages of the round before
    return list(range(1, rounds + 1))  # no round waits for another


RINGS_OF_GLOO = frozenset({"all_reduce", "reduce_scatter", "all_gather", "reduce"})
"""Collectives in which a rank of gloo waits for its own sends before it goes on: its rings."""

POSTING_FIRST = frozenset({"all_reduce", "reduce_scatter", "reduce"})
"""Collectives in which a rank of gloo posts the receives of a round before it sends in this round."""


def _all_reduce(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of gloo's ring all-reduce, in which each worker i sends a segment to worker i - 1.

    The first lap around the ring sends partial sums, the second lap results. Empty segments at the end of the tensor
    are not sent.
    """
    if not nbytes:
        return
    num_segments, segment_bytes = (float(value) for value in segments(workers, nbytes))
    worker, segments_per_chunk = np.arange(workers), int(num_segments) // workers  # a worker has a chunk of the tensor
    receiver = (worker - 1) % workers
    full_round = Round(worker, receiver, segment_bytes)  # one object for all rounds of full segments
    for first_chunk in (worker + 1, worker):  # worker i begins lap 1 with the chunk of worker i + 1, lap 2 with its own
        for number in range(segments_per_chunk * (workers - 1)):
            segment = (first_chunk * segments_per_chunk + number) % num_segments  # which each worker sends
            sizes = np.clip(nbytes - segment * segment_bytes, 0.0, segment_bytes)
            if np.all(sizes == segment_bytes):
                yield full_round
            else:
                sends = sizes > 0
                yield Round(worker[sends], receiver[sends], sizes[sends])


def _reduce(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield the rounds of gloo's reduce: segments from each worker i to i - 1, then each worker's chunk to worker 0."""
    if workers < 2 or not nbytes:  # gloo sends nothing
        return
    num_segments, segment_bytes = (float(value) for value in segments(workers, nbytes))
    worker = np.arange(workers)
    ring_round = Round(worker, (worker - 1) % workers, segment_bytes)
    for _ in range(int(num_segments) - 2):  # gloo's loop ends two segments before the last
        yield ring_round
    yield from _gather(workers, nbytes / workers)


def _broadcast(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds of a binomial tree: in round k, each worker i below 2^k sends to i + 2^k."""
    for k in range((workers - 1).bit_length()):
        senders = np.arange(min(2**k, workers - 2**k))
        yield Round(senders, senders + 2**k, nbytes)


def _gather(workers: int, nbytes: float) -> Iterator[Round]:
    """Yield rounds in which each worker but the first sends ``nbytes`` bytes to the first."""
    for worker in range(1, workers):
        yield Round(np.array([worker]), np.array([0]), nbytes)


GLOO_ROUNDS: dict[str, Callable[[int, float], Iterable[Round]]] = {
    "all_reduce": _all_reduce, "reduce_scatter": _all_reduce,
    "all_gather": lambda workers, nbytes: ring_rounds(workers, nbytes / 2, laps=2) if nbytes else (),
    "all_to_all": pairwise_rounds,
    "broadcast": _broadcast, "gather": _gather, "reduce": _reduce,
}  # fmt: skip
"""Functions of the workers and bytes of each collective that return the rounds in which gloo runs it."""


def nccl_rounds(kind: str, workers: int, nbytes: float, costs: NcclCosts) -> Iterable[Round]:
    """Return the rounds in which NCCL runs a collective of ``nbytes`` bytes; ``costs`` has the sizes of its pieces."""
    if workers < 2 or not nbytes:  # NCCL sends nothing
        return ()
    if kind == "broadcast":
        return _chain(workers, nbytes, costs.chain_piece_bytes)
    if kind == "reduce":  # the same chain, from the last worker to the first
        rounds, last = tuple(_chain(workers, nbytes, costs.chain_piece_bytes)), workers - 1
        # By id, so that a repeated round stays one object.
        mirrored = {id(round_): Round(last - round_[0], last - round_[1], round_.nbytes) for round_ in rounds}
        return [mirrored[id(round_)] for round_ in rounds]
    if kind == "gather":
        return _gather(workers, nbytes)
    if kind == "all_to_all":
        return pairwise_rounds(workers, nbytes)
    block_bytes = nbytes if kind == "all_gather" else nbytes / workers  # in an all-gather a worker begins with a block
    return _ring(workers, block_bytes, laps=2 if kind == "all_reduce" else 1, costs=costs)


def nccl_limits(topology: Topology, algorithm: str) -> tuple[int | None, float]:
    """Return how many rounds a worker may be ahead of the messages it received, and the seconds before its first round.

    The number is None if a worker never waits. The seconds are those that NCCL's software takes for a call.
    """
    costs = nccl_on(topology) or NCCL_DEFAULT
    return costs.rounds_ahead(algorithm), float(costs.fixed_s(algorithm, longest_latency_s(topology)))


def _ring(workers: int, block_bytes: float, laps: int, costs: NcclCosts) -> Iterator[Round]:
    """Yield the rounds of NCCL's ring, in which each worker's block goes around the ring ``laps`` times.

    A block is cut into pieces, and each piece into slices. The pieces go around the ring one after another.
    """
    worker = np.arange(workers)
    receiver = (worker + 1) % workers
    num_full_pieces, last_piece_bytes = (float(value) for value in costs.ring_pieces(block_bytes))
    for num_pieces, piece_bytes in ((num_full_pieces, costs.ring_piece_bytes), (1, last_piece_bytes)):
        if piece_bytes > 0:
            # A round for each slice of a piece; rounds of equal slices are one object.
            round_of_part = {part: Round(worker, receiver, float(piece_bytes * part)) for part in costs.slice_parts}
            slices = [round_of_part[part] for part in costs.slice_parts]
            for _ in range(int(num_pieces) * laps * (workers - 1)):  # a lap passes a piece P - 1 times
                yield from slices


def _chain(workers: int, nbytes: float, piece_bytes: float) -> Iterator[Round]:
    """Yield rounds in which pieces go down the chain of workers: piece t - i from worker i to i + 1 in round t.

    Rounds with the same senders and without the last piece, which may be smaller, are one object.
    """
    num_pieces = int(np.ceil(nbytes / piece_bytes))
    last_piece = num_pieces - 1
    last_piece_bytes = nbytes - last_piece * piece_bytes
    full_rounds: dict[int, Round] = {}  # by number of senders
    for round_number in range(num_pieces + workers - 2):
        # In round t worker i sends piece t - i, if this piece exists; the last worker sends none.
        senders = np.arange(max(0, round_number - last_piece), min(round_number, workers - 2) + 1)
        if round_number >= last_piece:  # the last piece is under way
            sizes = np.where(round_number - senders == last_piece, last_piece_bytes, piece_bytes)
            yield Round(senders, senders + 1, sizes)
            continue
        if len(senders) not in full_rounds:
            full_rounds[len(senders)] = Round(senders, senders + 1, piece_bytes)
        yield full_rounds[len(senders)]
