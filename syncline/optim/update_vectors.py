"""Statistics of Lion's update vectors and momenta: their distribution, and how well votes match the exact sum.

Pure functions of tensors ``(R, *s)`` whose rows are the workers of S replicas, replica by replica; each value is one
per replica, ``(S,)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from syncline.comm import DENSE, Communicator, flat
from syncline.errors import SpecError
from syncline.optim.base import Row
from syncline.optim.lion import LionRule
from syncline.optim.quantised_vote import QuantisedVote
from syncline.optim.quantisers import Agreement, sign_agreement
from syncline.optim.votes import DirectVote, OneBitVote, Vote

VOTES: Mapping[str, Vote] = {
    "one bit": OneBitVote(),
    "signs": DirectVote(),
    "4 bits, L1": QuantisedVote(4),
    "8 bits, L0": QuantisedVote(8, 0.0),
    "8 bits, L1": QuantisedVote(8),
    "8 bits, Linf": QuantisedVote(8, math.inf),
    "8 bits, Qinf": QuantisedVote(8, math.inf, stochastic=True),
}
"""Of Lion Cub's Figure 4 and Table 2, as methods take them; of ``signs`` a tie is a zero (Table 3), of one bit it is
broken."""


class VectorShape(NamedTuple):
    """Statistics of the magnitudes of a vector's entries, mean over the workers, each ``(S,)``.

    ``mean_over_rms``: ``mean |c| / sqrt(mean c^2)``, which is ``sqrt(3) / 2`` = 0.866 of uniform entries,
    ``sqrt(2 / pi)`` = 0.798 of Gaussian ones and ``1 / sqrt(2)`` = 0.707 of Laplace's; ``kurtosis``:
    ``mean c^4 / (mean c^2)^2``, 1.8, 3 and 6; ``largest_over_mean``: ``max |c| / mean |c|``.
    """

    mean_over_rms: Tensor
    kurtosis: Tensor
    largest_over_mean: Tensor


def lion_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that Lion moves, with each worker's ``c = beta1 m + (1 - beta1) g`` in place of its gradient.

    Nothing is changed: it is what the rule will make of gradients that are fresh.
    """
    mixed = []
    for row in rows:
        if isinstance(row.rule, LionRule):
            (name,) = row.rule.states
            mixed.append(row._replace(g=torch.lerp(row.g, row.state[name], row.group["betas"][0])))
    return mixed


def vector_shape(c: Tensor, replicas: int = 1) -> VectorShape:
    """Return the distribution statistics of the entries of ``c (R, *s)``; entries that are zero count.

    Source: Lion Cub, section 4.1 and Figure 3.
    """
    sizes = flat(c).abs().double()
    mean, square = sizes.mean(1), sizes.square().mean(1)
    statistics = mean / square.sqrt(), sizes.pow(4).mean(1) / square.square(), sizes.amax(1) / mean
    return VectorShape(*(statistic.reshape(replicas, -1).mean(1) for statistic in statistics))


def largest_spread(m: Tensor, replicas: int = 1) -> Tensor:
    """Return the largest standard deviation over workers of an entry of ``m (R, *s)``, about their mean: ``(S,)``.

    The variance is over M - 1: of momenta whose gradients differ by noise of variance s^2 alone its expectation is
    ``s^2 (1 - beta) / (1 + beta) (1 - beta^(2 t))``, and the largest entry's is that times what the largest of so many
    is. Of one worker it is 0.

    Source: Lion Cub, section 5.1, Figures 6 and 17.
    """
    return _deviation(m, replicas).amax(1)


def relative_spread(m: Tensor, replicas: int = 1) -> Tensor:
    """Return ``(S,)``: the root of the mean variance between workers over the root of the mean squared mean."""
    shared = flat(m).double().unflatten(0, (replicas, -1)).mean(1)
    return (_deviation(m, replicas).square().mean(1) / shared.square().mean(1)).sqrt()


def _deviation(m: Tensor, replicas: int) -> Tensor:
    """Return the standard deviation between the workers of each replica, ``(S, n)``."""
    workers = flat(m).double().unflatten(0, (replicas, -1))
    return workers.std(1) if workers.shape[1] > 1 else torch.zeros_like(workers[:, 0])


def vote_agreements(rows: Sequence[Row], votes: Mapping[str, Vote], comm: Communicator, t: int) -> dict[str, Agreement]:
    """Return how often votes match the sign of the workers' exact sum, over all rows' entries together.

    A vote whose fields are too narrow for so many workers is left out. The ledger notes nothing.

    Args:
        rows: rows whose ``g`` are update vectors.
        votes: votes by name.
        comm: the group of workers.
        t: number of the step, on which the breaking of ties depends.

    Returns:
        Rates ``(S,)`` over the entries whose exact sum is not zero.

    Source: Lion Cub, Figure 4 and Table 3.
    """
    replicas = comm.replicas
    with comm.ledger.paused():
        exact = _first_rows(comm.all_reduce(torch.cat([flat(row.g).double() for row in rows], 1)), replicas)
        agreements = {}
        for name, vote in votes.items():
            try:
                decided = vote.reduce(list(rows), comm, DENSE, t)
            except SpecError:
                continue
            agreements[name] = sign_agreement(
                _first_rows(torch.cat([flat(direction) for direction in decided], 1), replicas), exact
            )
    return agreements


def _first_rows(x: Tensor, replicas: int) -> Tensor:
    """Return each replica's first row, which equals the rows of its other workers."""
    return x.unflatten(0, (replicas, -1))[:, 0]
