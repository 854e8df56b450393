"""Closed-form costs of a majority vote over N parameters: Lion Cub's Table 1. All arguments broadcast.

| vote       | latencies          | bits that pass a link                  |
|------------|--------------------|----------------------------------------|
| naive      | 2 (P - 1)          | 2 P N b                                |
| efficient  | 2 log2 P           | 3 (P - 1) / P N b                      |
| direct     | 2 log2 P           | 2 (P - 1) / P N (log2 P + 1)           |
| one-bit    | P - 1 + log2 P     | (1 + (P - 1) / P) N                    |

``naive`` and ``efficient`` are parameter servers that move words of b bits, ``direct`` an all-reduce of sums of 0/1
votes, ``one-bit`` an all-to-all and an all-gather of signs.

These are the paper's rows; its last row writes R for P. The next table shows the costs of our collectives for the same
votes,

| vote       | collectives                        | latencies      | bits                                       |
|------------|------------------------------------|----------------|--------------------------------------------|
| naive      | all-reduce `server-naive`          | 2              | 2 (P - 1) N b                              |
| efficient  | all-reduce `server-efficient`      | 3 log2 P       | (P - 1) (1 + 2 / P) N b                    |
| direct     | all-reduce `rabenseifner`          | 2 log2 P       | 2 (P - 1) / P N (log2 P + 1)               |
| one-bit    | all-to-all `pairwise`, all-gather  | P - 1 + log2 P | 2 (P - 1) / P N                            |
|            | `recursive-doubling`               |                |                                            |

for P a power of two. With the rendezvous rule a naive server has the printed 2 (P - 1) latencies. The tables differ
for three reasons. Our server does not send to itself. An efficient server receives N b bits from each other worker,
(P - 1) N b in all, while the paper's row counts (P - 1) / P N b; its scatter and its all-gather have log2 P latencies
each. A P-th of an all-to-all stays on its worker. The sums of the direct vote take ceil(log2 (P + 1)) bits.

Source: Lion Cub, Table 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import tree_depth
from syncline.costmodel.collectives.cost import Rule, collective_s
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError, one_of

_LATENCIES: dict[str, Callable[[IntOrArray], FloatOrArray]] = {
    "naive": lambda workers: 2.0 * (workers - 1), "efficient": lambda workers: 2 * np.log2(workers),
    "direct": lambda workers: 2 * np.log2(workers), "one-bit": lambda workers: workers - 1.0 + np.log2(workers),
}  # fmt: skip
_BITS: dict[str, Callable[[IntOrArray, IntOrArray], FloatOrArray]] = {
    "naive": lambda workers, word_bits: 2.0 * workers * word_bits,
    "efficient": lambda workers, word_bits: 3 * (workers - 1) / workers * word_bits,
    "direct": lambda workers, _: 2 * (workers - 1) / workers * (np.log2(workers) + 1),
    "one-bit": lambda workers, _: 1 + (workers - 1) / workers,
}

VOTES = tuple(_BITS)
"""The names of the votes, one for each row of the table."""


def _check_vote(vote: str, workers: IntOrArray) -> None:
    """Raise SpecError for an unknown vote or less than one worker."""
    if vote not in _BITS:
        raise SpecError("vote", vote, one_of(_BITS, vote))
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")


def vote_bits_per_parameter(vote: str, workers: IntOrArray, word_bits: IntOrArray = 32) -> FloatOrArray:
    """Return the bits per parameter on a worker's (or the server's) link in a vote, by the paper's table.

    The arguments and errors are those of `vote_s`.

    >>> [float(vote_bits_per_parameter(vote, 8)) for vote in VOTES]
    [512.0, 84.0, 7.0, 1.875]
    """
    _check_vote(vote, workers)
    return _BITS[vote](workers, word_bits)


def vote_s(
    vote: str, workers: IntOrArray, parameters: IntOrArray, link: Link, word_bits: IntOrArray = 32
) -> FloatOrArray:
    """Return the seconds of a vote by the paper's table: ``latencies alpha + bits N / (8 B)``.

    Args:
        vote: one of ``VOTES``.
        workers: number of workers P, at least 1.
        parameters: N, the number of parameters that the workers vote on.
        link: the link of each worker, with latency alpha and B bytes per second.
        word_bits: b, the width of a word of the parameter servers.

    Raises:
        SpecError: an unknown vote, or no worker.
    """
    bits = vote_bits_per_parameter(vote, workers, word_bits)
    return _LATENCIES[vote](workers) * link.latency_s + bits * parameters / (8 * link.goodput_bytes_per_s)


class VotePart(NamedTuple):
    """A collective of a vote, with the bytes that the cost model counts for it."""

    collective: str
    nbytes: float
    algorithm: str


def vote_parts(vote: str, workers: int, parameters: int, word_bits: int = 32) -> tuple[VotePart, ...]:
    """Return the collectives of a vote in their order, by the table of our collectives.

    The arguments and errors are those of `vote_s`.
    """
    _check_vote(vote, workers)
    sign_bytes = parameters / 8
    if vote == "one-bit":
        return (
            VotePart("all_to_all", sign_bytes, "pairwise"),
            VotePart("all_gather", sign_bytes / workers, "recursive-doubling"),
        )
    if vote == "direct":
        return (VotePart("all_reduce", sign_bytes * int(tree_depth(workers + 1)), "rabenseifner"),)
    return (VotePart("all_reduce", parameters * word_bits / 8, f"server-{vote}"),)


def vote_by_collectives_s(
    vote: str, workers: int, parameters: int, link: Link, word_bits: int = 32, rule: Rule = "eager"
) -> float:
    """Return the seconds of the collectives in `vote_parts`, in closed form under a start rule of messages.

    The arguments and errors are those of `vote_s`.
    """
    parts = vote_parts(vote, workers, parameters, word_bits)
    return sum(
        float(collective_s(part.collective, workers, part.nbytes, link, part.algorithm, rule=rule)) for part in parts
    )


def vote_crossover(workers: IntOrArray, fewer_bits: str = "one-bit", fewer_latencies: str = "direct") -> FloatOrArray:
    """Return the ratio N beta / alpha above which the vote with fewer bits is faster.

    Here N is the number of parameters, beta the seconds per bit and alpha the latency of the link. The ratio is
    infinite if the vote with fewer bits is never faster, and 0 if this vote is always faster.

    Raises:
        SpecError: an unknown vote, or no worker.

    >>> [round(float(vote_crossover(workers)), 2) for workers in (8, 128)]
    [0.78, 8.64]
    """
    saved_bits = vote_bits_per_parameter(fewer_latencies, workers) - vote_bits_per_parameter(fewer_bits, workers)
    added_latencies = _LATENCIES[fewer_bits](workers) - _LATENCIES[fewer_latencies](workers)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossover = np.divide(added_latencies, saved_bits)
    return np.where(np.less_equal(saved_bits, 0), np.inf, np.maximum(crossover, 0.0))
