"""Votes with weights: small integers that say how sure a worker is, summed by one all-reduce."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, PackedIntegers, encoded_from, first_rows
from syncline.costmodel.traffic.packing import sum_levels
from syncline.errors import SpecError
from syncline.optim.base import Row
from syncline.optim.noise import uniform
from syncline.optim.quantisers import most_levels, quantise_lp, quantise_max
from syncline.optim.votes import Vote


@dataclass(frozen=True)
class QuantisedVote(Vote):
    """Each worker's tensor, quantised to integers in ``[-s, s]``; the verdict is the sign of their sum.

        q = clamp(round(s c / (2 M_p(c))), -s, s),   M_p(c) = (mean |c|^p)^(1/p),   s = floor((2^bits - 1) / (2 P))

    per tensor. What travels: one all-reduce of ``q + s`` in fields of ``bits`` bits, as many as fit into a word. What
    is rounded to 0 abstains, and a sum of 0 does not move.

    Args:
        bits: bits of a sum of integers, 1 to 31, enough for ``2 s P``.
        p: exponent of the power mean of magnitudes, which is mapped to s / 2: 0 (geometric mean), a positive number, or
            infinity (the maximum).
        stochastic: whether the largest magnitude is mapped to s and numbers are rounded at random without bias (Q_inf);
            only with infinite p.

    Raises:
        SpecError: a value out of range; when it votes, too many workers for the width.

    Source: Lion Cub, equation 1 and section 2.
    """

    bits: int = 8
    p: float = 1.0
    stochastic: bool = False

    def __post_init__(self) -> None:
        PackedIntegers(self.bits)
        if not self.p >= 0:
            raise SpecError("p", self.p, "a number >= 0; inf for the maximum")
        if self.stochastic and self.p != math.inf:
            raise SpecError("stochastic", True, "false unless p is inf")

    def levels(self, workers: int, dtype: torch.dtype) -> int:
        """Return s, the largest integer, or a smaller one if the tensors' dtype cannot represent it."""
        return min(sum_levels(self.bits, workers), most_levels(dtype))

    @override
    def ballots(self, rows: list[Row], comm: Communicator, t: int) -> Tensor:
        # Integers; a worker whose mean is not a number abstains.
        out = []
        for row in rows:
            c, levels = row.g, self.levels(comm.world_size, row.g.dtype)
            if self.stochastic:
                noise = uniform(comm.local_workers, c[0].numel(), c.device, "quantised vote", row.number, t)
                q = quantise_max(c, levels, noise.view(c.shape))
            else:
                q = quantise_lp(c, levels, self.p)
            out.append(q.nan_to_num().to(torch.int64).reshape(len(c), -1))
        return torch.cat(out, 1)

    @override
    def verdict(self, ballots: Tensor, comm: Communicator, t: int) -> Tensor:
        fields, workers = PackedIntegers(self.bits), comm.world_size
        offset = sum_levels(self.bits, workers)
        fields.check_sum(2 * offset, workers)
        details = encoded_from(ballots)
        words = comm.all_reduce(fields.encode(ballots + offset), op="sum", label="votes", details=details)
        return (fields.decode(first_rows(words, comm), ballots.shape[1]) - offset * workers).sign()
