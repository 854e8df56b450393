"""Statistics of Lion's update vectors and momenta: their distribution, and how well votes match the exact sum.

Pure functions of tensors ``(R, *s)`` whose rows are the workers of S replicas, replica by replica; each value is one
per replica, ``(S,)``.

Measures of every worker during a training: before a step, before an average, after a step.

`Measure` is the base of a measure, `Watch` records measures along a training. `MEASURES` has the names that specs call
``watch``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import DENSE, Communicator, flat
from syncline.errors import SpecError
from syncline.optim.base import Row
from syncline.optim.diloco import OUTER_MOMENTUM
from syncline.optim.lion import LionRule
from syncline.optim.method import Method
from syncline.optim.quantisers import Agreement, sign_agreement
from syncline.optim.votes import DirectVote, OneBitVote, QuantisedVote, Vote

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


Vectors = list[Tensor]
"""A vector for each row, in parts: ``(R, *s)`` of each parameter."""


class MeasuredValue(NamedTuple):
    """A value ``(S,)`` of each replica; ``layer`` is empty where it is of all parameters together."""

    measure: str
    value: Tensor
    layer: str = ""


class WatchedValue(NamedTuple):
    """A value of one seed after a number of completed steps."""

    seed: int
    step: int
    measure: str
    layer: str
    value: float


class Measure:
    """A measure of a method during training; each hook returns measured values, by default none.

    Parameters, gradients and states have the worker axis: rows ``(S W, *s)``, replica by replica.
    """

    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Measure before step ``t`` (from 0); ``p.grad`` are then the gradients of each worker."""
        return ()

    def before_average(
        self, method: Method, rows: list[Row], names: tuple[str, ...], t: int
    ) -> Iterable[MeasuredValue]:
        """Measure after the local update of step ``t``, before the states ``names`` of these rows are averaged."""
        return ()

    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Measure after step ``t``, including its averages."""
        return ()


class Watch:
    """Measures along one training.

    Args:
        measures: measures to record.
        every: number of steps between records before and after a step; measures before an average are always recorded.
    """

    def __init__(self, measures: Sequence[Measure], every: int = 1) -> None:
        self._measures, self._every = measures, every
        self._found: list[tuple[int, MeasuredValue]] = []

    def before_step(self, method: Method, t: int) -> None:
        """Record measures before a step; call it after the gradients are computed."""
        if (t + 1) % self._every == 0:
            for measure in self._measures:
                self._keep(t, measure.before_step(method, t))

    def before_average(self, method: Method, rows: list[Row], names: tuple[str, ...], t: int) -> None:
        """Ask the measures before an average; the method calls this."""
        for measure in self._measures:
            self._keep(t, measure.before_average(method, rows, names, t))

    def after_step(self, method: Method, t: int) -> None:
        """Record measures after a step; call it before the next gradients are computed."""
        for measure in self._measures:
            values = measure.after_step(method, t)
            if (t + 1) % self._every == 0:
                self._keep(t, values)

    def _keep(self, t: int, values: Iterable[MeasuredValue]) -> None:
        self._found += [(t + 1, value) for value in values]

    def values(self, seeds: Sequence[int]) -> list[WatchedValue]:
        """Return all measured values, in order."""
        return [
            WatchedValue(seed, step, measured.measure, measured.layer, float(value))
            for step, measured in self._found
            for seed, value in zip(seeds, measured.value.tolist(), strict=True)
        ]


class UpdateVectors(Measure):
    """Before a step of Lion, of the vectors ``c = beta1 m + (1 - beta1) g`` that its workers are about to vote on.

    - ``match: VOTE``, ``flip: VOTE``, ``zero: VOTE``: the share of entries whose sign, as each of `VOTES` would decide
      it, is that of the workers' exact sum, is the opposite, is none; whatever the training itself votes by;
    - ``mean_over_rms``, ``kurtosis``, ``largest_over_mean`` by layer: how entries are distributed, see `VectorShape`.

    What Lion does not move has none of them.

    Source: Lion Cub, Figures 3 and 4, Table 3.
    """

    @override
    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        rows = lion_rows(method.rows())
        if not rows:
            return []
        agreements = vote_agreements(rows, VOTES, method.comm, t)
        values = [
            MeasuredValue(f"{rate}: {vote}", getattr(agreement, rate))
            for rate in ("match", "flip", "zero")
            for vote, agreement in agreements.items()
        ]
        for row in rows:
            shape = vector_shape(row.g, method.comm.replicas)
            values += [
                MeasuredValue(name, value, layer_of(method, row.number)) for name, value in shape._asdict().items()
            ]
        return values


class MomentumSpread(Measure):
    """After a step, of each layer's first momentum: ``largest_spread`` and ``relative_spread`` between workers.

    Source: Lion Cub, section 5.1, Figures 6 and 17.
    """

    @override
    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        values: list[MeasuredValue] = []
        for row in method.rows(without_gradient=True):
            if "momentum_1" in row.state:
                momentum, layer = row.state["momentum_1"], layer_of(method, row.number)
                for name, spread in (("largest_spread", largest_spread), ("relative_spread", relative_spread)):
                    values.append(MeasuredValue(name, spread(momentum, method.comm.replicas), layer))
        return values


def layer_of(method: Method, number: int) -> str:
    """Return a parameter's name, or its number where it came without."""
    return method.names[number] or str(number)


class Rounds(Measure):
    """At the end of each round of K steps, before the parameters are averaged, for M workers.

    With ``x_t, u_t`` after the average that the round began with, ``x^m, u^m`` of worker m at its end, ``x-bar, u-bar``
    their means, and ``Delta^m = x_t - x^m`` (the pseudo-gradient, which points as gradients do):

    - ``parameter_change``, ``momentum_change``: ``mean_m ||s^m - s_t|| / ||s_t||``;
    - ``parameter_variance``, ``momentum_variance``: ``1/M sum_m ||s^m - s-bar||^2``;
    - ``momentum_norm``: ``||u-bar||``, what the variance is to be held against;
    - ``momentum_information_nats``: ``mean_m -1/2 ln(1 - rho_m^2)`` per coordinate, rho the correlation (about 0) of
      ``u^m`` and ``u_t`` over the coordinates: ``1/2 ln(1 + beta^(2K) S / L)`` where ``u^m = beta^K u_t + l``;
    - ``local_update_global_momentum``, ``local_update_local_momentum``, ``local_update_global_update``,
      ``global_update_global_momentum``, ``local_momentum_global_momentum``: cosines, of ``Delta^m`` or its mean and
      ``u^m`` or its mean, mean over the workers. An outer optimizer's momentum, after its step, is the global one.

    The momentum is the last of several, the slow one. What has no momentum has no measure of it, nor has the first
    round one of how it changed.

    Source: MT-DAO, section 4.1 (other metrics), sections 5.1 and 5.4, Figures 3, 4 and 6, Appendix F.2.
    """

    def __init__(self) -> None:
        self._start: tuple[Vectors, Vectors] | None = None
        self._end: tuple[Vectors, Vectors] | None = None

    @override
    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        if self._start is None:  # states are made in the first step, so that momenta begin with the second round
            params = [p for group in method.param_groups for p in group["params"] if p.requires_grad and p.numel()]
            self._start = [p.detach().clone() for p in params], []
        return ()

    @override
    def before_average(
        self, method: Method, rows: list[Row], names: tuple[str, ...], t: int
    ) -> Iterable[MeasuredValue]:
        if "params" in names:
            self._end = _state(rows)
        return ()

    @override
    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        if self._end is None or self._start is None:
            return ()
        rows, start, end = method.rows(without_gradient=True), self._start, self._end
        self._start, self._end = _state(rows), None
        outer = [row.state[OUTER_MOMENTUM] for row in rows if OUTER_MOMENTUM in row.state]
        return list(measured(start, end, outer, method.comm.replicas))


def measured(
    start: tuple[Vectors, Vectors], end: tuple[Vectors, Vectors], outer: Vectors, replicas: int
) -> Iterator[MeasuredValue]:
    """Yield the measured values of one round.

    Args:
        start: parameters and momenta after the average at the beginning of the round.
        end: parameters and momenta before the average at the end of the round.
        outer: momenta of the outer optimizer; empty without an outer optimizer.
        replicas: S, number of replicas.
    """

    def mean(value: Tensor) -> Tensor:
        return value.reshape(replicas, -1).mean(1)

    (x0, u0), (x, u) = start, end
    update = [a - b for a, b in zip(x0, x, strict=True)]
    yield MeasuredValue("parameter_change", mean(_norm(update) / _norm(x0)))
    yield MeasuredValue("parameter_variance", mean(_spread(x, replicas)))
    mean_update = _mean(update, replicas)
    yield MeasuredValue("local_update_global_update", mean(_cosine(update, mean_update)))
    if not u:
        return
    shared = outer or _mean(u, replicas)
    if u0:
        yield MeasuredValue("momentum_change", mean(_norm([a - b for a, b in zip(u, u0, strict=True)]) / _norm(u0)))
        yield MeasuredValue("momentum_information_nats", mean(-0.5 * torch.log1p(-_cosine(u, u0).square())))
    yield MeasuredValue("momentum_variance", mean(_spread(u, replicas)))
    yield MeasuredValue("momentum_norm", mean(_norm(_mean(u, replicas))))
    yield MeasuredValue("local_update_global_momentum", mean(_cosine(update, shared)))
    yield MeasuredValue("local_update_local_momentum", mean(_cosine(update, u)))
    yield MeasuredValue("global_update_global_momentum", mean(_cosine(mean_update, shared)))
    yield MeasuredValue("local_momentum_global_momentum", mean(_cosine(u, shared)))


def _state(rows: list[Row]) -> tuple[Vectors, Vectors]:
    """Return copies of parameters and of their slow momenta; of none if not all have one."""
    names = [max(filter(re.compile(r"momentum(_\d+)?").fullmatch, row.state), default="") for row in rows]
    momenta = [row.state[name].clone() for row, name in zip(rows, names, strict=True) if name]
    return [row.x.detach().clone() for row in rows], momenta if all(names) else []


def _dot(a: Vectors, b: Vectors) -> Tensor:
    """Return the dot product of each row, ``(R,)``, in double precision."""
    products = [(x.double() * y.double()).reshape(len(x), -1).sum(1) for x, y in zip(a, b, strict=True)]
    return torch.stack(products).sum(0)


def _norm(a: Vectors) -> Tensor:
    return _dot(a, a).sqrt()


def _cosine(a: Vectors, b: Vectors) -> Tensor:
    return _dot(a, b) / (_norm(a) * _norm(b))


def _mean(a: Vectors, replicas: int) -> Vectors:
    """Return the mean over each replica's workers, repeated for each of its rows."""
    by_replica = [x.unflatten(0, (replicas, -1)) for x in a]
    return [x.mean(1, keepdim=True).expand_as(x).flatten(0, 1) for x in by_replica]


def _spread(a: Vectors, replicas: int) -> Tensor:
    return _norm([x - y for x, y in zip(a, _mean(a, replicas), strict=True)]).square()


MEASURES: Mapping[str, Callable[[], Measure]] = {
    "rounds": Rounds, "update-vectors": UpdateVectors, "momentum-spread": MomentumSpread,
}  # fmt: skip
"""Measures by the names that specs call them."""
