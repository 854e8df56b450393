"""Majority votes: reducers by which workers exchange signs of gradients or directions, and move by the sign of the sum.

The signs of all parameters are sent together. A format without a zero breaks zeros of a worker, and ties of the vote,
as ``ties`` says; ``ties: zero`` keeps them at the cost of more bits:

| vote              | bits per sign  | result's bits  | a worker's zero                    | a tied vote         |
|-------------------|----------------|----------------|------------------------------------|---------------------|
| one-bit           | 1 (2)          | 1 (2)          | broken (kept)                      | broken (kept)       |
| server, efficient | 1 (2)          | 1 (2)          | broken (kept)                      | broken (kept)       |
| server, naive     | 32             | 32             | kept                               | kept                |
| direct            | of a sum       | the same       | broken (kept)                      | kept                |
| quantised         | ``bits``       | the same       | kept                               | kept                |

Values in parentheses are for ``ties: zero``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import (
    Communicator,
    PackedIntegers,
    PackedSigns,
    WireFormat,
    encoding_details,
    first_row_per_replica,
    flatten_rows,
    repeat_for_workers,
)
from syncline.costmodel.traffic.packing import sum_levels
from syncline.errors import SpecError, require_one_of
from syncline.optim.base import ParamRow, Reducer
from syncline.optim.quantisers import most_levels, quantise_lp, quantise_max, random_bools, uniform
from syncline.optim.scalings import nan_where_nonfinite

Ties = Literal["zero", "alternate", "plus", "minus", "random"]
TIES: tuple[str, ...] = get_args(Ties)


def break_zeros(signs: Tensor, ties: Ties, workers: Sequence[int], t: int, coin_name: str) -> Tensor:
    """Return signs with each zero replaced by 1 or -1, as ``ties`` says; ``ties: zero`` keeps zeros.

    ``alternate`` is 1 at even ``t`` (from 0) and -1 at odd, which cancels over two steps; ``plus`` is always 1;
    ``minus`` is always -1, as in Distributed Lion's public code; ``random`` is a random sign per worker, entry and
    step, which does not depend on how workers are distributed over processes.

    Args:
        signs: ``(R, n)`` of -1, 0, 1.
        ties: value that replaces a zero.
        workers: number of each row's worker.
        coin_name: name of the stream of random signs.

    Source: Lion Cub, appendix B.1; its odd iterations, counted from 1, are even steps here.
    """
    if ties == "zero":
        return signs
    if ties == "random":
        replacement = random_bools(workers, signs.shape[1], signs.device, coin_name, t).to(signs.dtype) * 2 - 1
    else:
        is_minus = ties == "minus" or (ties == "alternate" and t % 2)
        replacement = torch.full_like(signs, -1 if is_minus else 1)
    return torch.where(signs == 0, replacement, signs)


@dataclass(frozen=True)
class SignEncoding:
    """An encoding of signs in bytes: one bit per sign, or two bits if zero is a third value (``ternary``).

    >>> SignEncoding(ternary=False).nbytes(9), SignEncoding(ternary=True).nbytes(9)
    (2, 3)
    """

    ternary: bool

    @property
    def per_byte(self) -> int:
        """Return the number of signs in a byte."""
        return 4 if self.ternary else 8

    def nbytes(self, count: int) -> int:
        """Return the number of bytes that ``count`` signs take."""
        return -(-count // self.per_byte)

    def encode(self, signs: Tensor) -> Tensor:
        """Encode signs ``(..., n)`` as bytes ``(..., nbytes(n))``."""
        return PackedIntegers(bits=2).encode(signs + 1) if self.ternary else PackedSigns().encode(signs > 0)

    def decode(self, encoded: Tensor, count: int) -> Tensor:
        """Decode bytes ``(..., nbytes(count))`` to int8 signs ``(..., count)``."""
        if self.ternary:
            return PackedIntegers(bits=2).decode(encoded, count, torch.int8) - 1
        return PackedSigns().decode(encoded, count, torch.int8)


class Vote(Reducer, ABC):
    """The base of all votes: a reducer that votes on the signs of all parameters' gradients or directions together."""

    def ballots(self, rows: list[ParamRow], comm: Communicator, t: int) -> Tensor:
        """Return each worker's votes on all N entries, ``(R, N)``: -1, 0 or 1; the vote on NaN is 0."""
        signs = []
        for row in rows:
            c = flatten_rows(row.g)
            signs.append((c > 0).to(torch.int8) - (c < 0).to(torch.int8))
        return torch.cat(signs, 1)

    @abstractmethod
    def verdict(self, ballots: Tensor, comm: Communicator, t: int) -> Tensor:
        """Return the result of the vote for each of S replicas, ``(S, N)``: -1, 0 or 1."""

    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        """Return the result of the vote for each row, in the shape of its ``g``.

        A worker whose own entry is not finite gets NaN there, so that its next loss shows the problem; votes cannot
        carry NaN to other workers. ``wire`` is not used, because votes have formats of their own.
        """
        ballots = self.ballots(rows, comm, t)
        verdict_of_workers = repeat_for_workers(self.verdict(ballots, comm, t), num_rows=len(ballots))
        parts = verdict_of_workers.split([row.g[0].numel() for row in rows], 1)
        results = []
        for part, row in zip(parts, rows, strict=True):
            result = part.to(row.g.dtype, copy=True).view(row.g.shape)  # workers with NaN need memory of their own
            results.append(nan_where_nonfinite(result, row.g))
        return results


@dataclass(frozen=True)
class OneBitVote(Vote):
    """A vote in which each of P workers counts the votes on one chunk of the N entries.

    Workers send packed signs of each chunk to its owner by an all-to-all of ``N / 8`` bytes, and owners send the signs
    of the sums to all by an all-gather of ``N / (8 P)`` bytes. With ``ties: zero`` a sign takes two bits.

    Args:
        ties: value that replaces a worker's zero and a tied vote, see ``break_zeros``.

    Raises:
        SpecError: ``ties`` has another value.

    Source: Lion Cub, section 3 (1-bit compressed all-reduce), after Tang et al., 1-bit Adam (2021).
    """

    ties: Ties = "alternate"

    def __post_init__(self) -> None:
        check_ties(self.ties)

    @override
    def verdict(self, ballots: Tensor, comm: Communicator, t: int) -> Tensor:
        """Return the result of the vote, counted by the owners of chunks."""
        encoding, details = SignEncoding(ternary=self.ties == "zero"), encoding_details(ballots)
        count, workers = ballots.shape[1], comm.world_size
        chunk = encoding.nbytes(math.ceil(count / workers)) * encoding.per_byte  # entries of an owner, in whole bytes

        # Each worker sends its votes on a chunk to the owner of the chunk.
        signs = break_zeros(ballots, self.ties, comm.local_workers, t, coin_name="vote")
        chunks = torch.nn.functional.pad(signs, (0, workers * chunk - count)).unflatten(1, (workers, chunk))
        received = comm.all_to_all(encoding.encode(chunks), label="votes", details=details)

        # The owners count, and send the results to all workers.
        vote_sum = encoding.decode(received, chunk).sum(1)
        result = break_zeros(vote_sum.sign(), self.ties, comm.local_workers, t, coin_name="tie")
        all_results = comm.all_gather(encoding.encode(result), label="verdict", details=details)
        return encoding.decode(first_row_per_replica(all_results, comm), chunk).flatten(1)[:, :count]


@dataclass(frozen=True)
class DirectVote(Vote):
    """A vote by one all-reduce that sums the votes of P workers, each 0 (minus) or 1 (plus): ``sign(2 sum - P)``.

    A sum takes ``ceil(log2(P + 1))`` bits per entry. With ``ties: zero`` a vote is 0 (minus), 1 (zero) or 2 (plus), the
    result is ``sign(sum - P)``, and a sum takes ``ceil(log2(2 P + 1))`` bits. If as many workers vote plus as minus,
    the result is 0 for every value of ``ties``.

    Args:
        ties: what a worker votes where its own entry is 0, see ``break_zeros``.
        bits: bits of a sum; by default, as few as the number of workers needs.

    Raises:
        SpecError: ``break_zeros`` does not know ``ties``, or the ``bits`` are too few for all workers.

    Source: Lion Cub, section 3 (direct all-reduce); its public code has fields of 4 bits.
    """

    ties: Ties = "alternate"
    bits: int | None = None

    def __post_init__(self) -> None:
        check_ties(self.ties)
        self.sum_encoding(workers=1)  # raises an error for a wrong number of bits

    @property
    def largest_vote(self) -> int:
        """Return the number that stands for a vote of plus: 1, or 2 if a vote of zero is 1."""
        return 2 if self.ties == "zero" else 1

    def sum_encoding(self, workers: int) -> PackedIntegers:
        """Return the encoding of the sums of all workers' votes, after a check that its bits suffice."""
        needed_bits = (self.largest_vote * workers).bit_length()
        encoding = PackedIntegers(needed_bits if self.bits is None else self.bits)
        encoding.check_sum(self.largest_vote, workers)
        return encoding

    @override
    def verdict(self, ballots: Tensor, comm: Communicator, t: int) -> Tensor:
        packed, largest_sum = self.sum_encoding(comm.world_size), self.largest_vote * comm.world_size
        signs = break_zeros(ballots, self.ties, comm.local_workers, t, coin_name="vote")
        votes = signs + 1 if self.ties == "zero" else signs > 0  # integers from 0 to ``largest_vote``
        words = comm.all_reduce(packed.encode(votes), op="sum", label="votes", details=encoding_details(ballots))
        sums = packed.decode(first_row_per_replica(words, comm), count=ballots.shape[1])
        return (2 * sums - largest_sum).sign()  # half of the largest sum is a tie


@dataclass(frozen=True)
class ServerVote(Vote):
    """A vote by a server: worker 0 gathers the signs of all workers, and broadcasts the sign of the sum.

    Args:
        server: ``naive`` sends a 32-bit word per sign in both directions; ``efficient`` packs signs.
        ties: value that replaces a worker's zero and a tied vote with ``efficient``, see ``break_zeros``; by default
            ``alternate``. Words of ``naive`` keep zeros.

    Raises:
        SpecError: ``server`` or ``ties`` has another value, or ``ties`` is given with ``naive``.

    Source: Distributed Lion (Liu et al., 2024); Lion Cub, Table 1 (parameter servers).
    """

    server: Literal["naive", "efficient"] = "efficient"
    ties: Ties | None = None

    def __post_init__(self) -> None:
        if self.ties is not None:
            check_ties(self.ties)
        if self.server not in ("naive", "efficient"):
            raise SpecError("server", self.server, "'naive' or 'efficient'")
        if self.server == "naive" and self.ties not in (None, "zero"):
            raise SpecError("ties", self.ties, "'zero' or none with words, which hold zeros")  # words are in fp32

    @override
    def verdict(self, ballots: Tensor, comm: Communicator, t: int) -> Tensor:
        """Return the result of the vote, counted and broadcast by worker 0, the server."""
        if self.server == "naive":
            vote_sum = first_row_per_replica(comm.gather(ballots.to(torch.float32), label="votes"), comm).sum(1)
            result = repeat_for_workers(vote_sum.sign(), num_rows=len(ballots))
            return first_row_per_replica(comm.broadcast(result, label="verdict"), comm)
        ties = self.ties or "alternate"
        encoding, details, count = SignEncoding(ternary=ties == "zero"), encoding_details(ballots), ballots.shape[1]
        signs = break_zeros(ballots, ties, comm.local_workers, t, coin_name="vote")
        # The server is worker 0, the first row of a replica; the gathered votes in other rows have no meaning.
        received = first_row_per_replica(comm.gather(encoding.encode(signs), label="votes", details=details), comm)
        vote_sum = encoding.decode(received, count).sum(1)
        servers = [0] * comm.replicas  # worker 0 of each replica breaks ties
        result = break_zeros(vote_sum.sign(), ties, workers=servers, t=t, coin_name="tie")
        encoded_result = repeat_for_workers(encoding.encode(result), num_rows=len(ballots))
        broadcast = comm.broadcast(encoded_result, label="verdict", details=details)
        return encoding.decode(first_row_per_replica(broadcast, comm), count)


def check_ties(ties: str) -> None:
    """Raise a SpecError if ``ties`` does not name a replacement of zeros and tied votes, see ``break_zeros``."""
    require_one_of("ties", ties, TIES)


@dataclass(frozen=True)
class QuantisedVote(Vote):
    """A vote with weights: each worker's tensor c is quantised to integers q from -s to s; the result is sign(sum q).

        q = clamp(round(s c / (2 M_p(c))), -s, s),   M_p(c) = (mean |c|^p)^(1/p),   s = floor((2^bits - 1) / (2 P))

    Each tensor has a scale M_p of its own. The P workers send ``q + s`` by one all-reduce, with ``bits`` bits per
    entry. An entry that is rounded to 0 abstains, and an entry with the sum 0 does not move.

    Args:
        bits: bits of a sum of integers, 1 to 31, enough for ``2 s P``.
        p: exponent of the power mean of magnitudes, which is mapped to s / 2: 0 (geometric mean), a positive number, or
            infinity (the maximum).
        stochastic: whether the largest magnitude is mapped to s and numbers are rounded at random without bias (Q_inf);
            only with infinite p.

    Raises:
        SpecError: a value is out of range, or there are too many workers for the bits.

    Source: Lion Cub, equation 1 and section 2.
    """

    bits: int = 8
    p: float = 1.0
    stochastic: bool = False

    def __post_init__(self) -> None:
        PackedIntegers(self.bits)  # refuses a wrong number of bits
        if not self.p >= 0:
            raise SpecError("p", self.p, "a number >= 0; inf for the maximum")
        if self.stochastic and self.p != math.inf:
            raise SpecError("stochastic", True, "false unless p is inf")

    def levels(self, workers: int, dtype: torch.dtype) -> int:
        """Return s, the largest integer, or a smaller one if the tensors' dtype cannot represent it."""
        return min(sum_levels(self.bits, workers), most_levels(dtype))

    @override
    def ballots(self, rows: list[ParamRow], comm: Communicator, t: int) -> Tensor:
        """Return each worker's quantised gradients or directions as integers ``(R, N)``."""
        integers = []
        for row in rows:
            c, levels = row.g, self.levels(comm.world_size, row.g.dtype)
            if self.stochastic:
                noise = uniform(comm.local_workers, c[0].numel(), c.device, "quantised vote", row.param_index, t)
                q = quantise_max(c, levels, noise.view(c.shape))
            else:
                q = quantise_lp(c, levels, self.p)
            # A NaN becomes 0, an abstention.
            integers.append(q.nan_to_num().to(torch.int64).reshape(len(c), -1))
        return torch.cat(integers, 1)

    @override
    def verdict(self, ballots: Tensor, comm: Communicator, t: int) -> Tensor:
        packed, workers = PackedIntegers(self.bits), comm.world_size
        offset = sum_levels(self.bits, workers)  # s, added because packed integers are not negative
        packed.check_sum(largest=2 * offset, workers=workers)
        details = encoding_details(ballots)
        words = comm.all_reduce(packed.encode(ballots + offset), op="sum", label="votes", details=details)
        sums = packed.decode(first_row_per_replica(words, comm), count=ballots.shape[1])
        return (sums - offset * workers).sign()
