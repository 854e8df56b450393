"""Measures of workers during a training, such as their drift in a round or the distribution of their update vectors.

`Measure` is the base of measures, `Watch` records them, and `MEASURES` has their names in specs. The tensors of
measures have R rows: the workers of the first replica, then those of the second, and so on for S replicas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import DENSE, Communicator, first_row_per_replica, flatten_rows
from syncline.errors import SpecError
from syncline.optim.base import ParamRow
from syncline.optim.diloco import OUTER_MOMENTUM
from syncline.optim.lion import LionRule
from syncline.optim.method import Method
from syncline.optim.quantisers import Agreement, sign_agreement
from syncline.optim.votes import DirectVote, OneBitVote, QuantisedVote, Vote

VOTES: Mapping[str, Vote] = {
    "one bit": OneBitVote(),
    "signs": DirectVote(),
    "4 bits, L1": QuantisedVote(bits=4),
    "8 bits, L0": QuantisedVote(bits=8, p=0.0),
    "8 bits, L1": QuantisedVote(bits=8),
    "8 bits, Linf": QuantisedVote(bits=8, p=math.inf),
    "8 bits, Qinf": QuantisedVote(bits=8, p=math.inf, stochastic=True),
}
"""The votes of Lion Cub's Figure 4 and Tables 2 and 3, by the names of their results. ``signs`` has tied votes of 0."""


class VectorShape(NamedTuple):
    """Statistics of the entries of a vector c, each averaged over the workers of each of S replicas, ``(S,)``.

    Attributes:
        mean_over_rms: ``mean |c| / sqrt(mean c^2)``: 0.866 for a uniform distribution, 0.798 for a Gaussian one, 0.707
            for a Laplace distribution.
        kurtosis: ``mean c^4 / (mean c^2)^2``: 1.8, 3 and 6 for these.
        largest_over_mean: ``max |c| / mean |c|``.
    """

    mean_over_rms: Tensor
    kurtosis: Tensor
    largest_over_mean: Tensor


def lion_rows(rows: Sequence[ParamRow]) -> list[ParamRow]:
    """Return the parameters that follow Lion, with each worker's update vector c in place of its gradient g.

        c = beta1 m + (1 - beta1) g

    The gradients are those of the coming step; states do not change.
    """
    mixed_rows = []
    for row in rows:
        if isinstance(row.rule, LionRule):
            (name,) = row.rule.states
            mixed_rows.append(row._replace(g=torch.lerp(row.g, row.state[name], row.group["betas"][0])))
    return mixed_rows


def vector_shape(c: Tensor, replicas: int = 1) -> VectorShape:
    """Return statistics of the distribution of the entries of ``c (R, *s)``, including zeros, for each replica.

    Source: Lion Cub, section 4.1 and Figure 3.
    """
    magnitudes = flatten_rows(c).abs().double()
    mean, mean_square = magnitudes.mean(1), magnitudes.square().mean(1)

    def mean_over_workers(statistic: Tensor) -> Tensor:
        return statistic.reshape(replicas, -1).mean(1)

    return VectorShape(
        mean_over_rms=mean_over_workers(mean / mean_square.sqrt()),
        kurtosis=mean_over_workers(magnitudes.pow(4).mean(1) / mean_square.square()),
        largest_over_mean=mean_over_workers(magnitudes.amax(1) / mean),
    )


def largest_spread(m: Tensor, replicas: int = 1) -> Tensor:
    """Return the largest entry ``(S,)`` of the standard deviation over workers of ``m (R, *s)``, for each replica.

    The variance divides by M - 1 for M workers; the deviation of one worker is 0.

    Source: Lion Cub, section 5.1, Figures 6 and 17.
    """
    return _deviation(m, replicas).amax(1)


def relative_spread(m: Tensor, replicas: int = 1) -> Tensor:
    """Return how much workers' tensors ``m (R, *s)`` differ, relative to their size, for each replica, ``(S,)``.

    It is the root mean square of the standard deviation over workers over the root mean square of the workers' mean.
    """
    worker_mean = flatten_rows(m).double().unflatten(0, (replicas, -1)).mean(1)
    return (_deviation(m, replicas).square().mean(1) / worker_mean.square().mean(1)).sqrt()


def _deviation(m: Tensor, replicas: int) -> Tensor:
    """Return the standard deviation of ``m (R, *s)`` between the workers of each replica, ``(S, n)``."""
    by_worker = flatten_rows(m).double().unflatten(0, (replicas, -1))
    if by_worker.shape[1] == 1:
        return torch.zeros_like(by_worker[:, 0])
    return by_worker.std(1)


def vote_agreements(
    rows: Sequence[ParamRow], votes: Mapping[str, Vote], comm: Communicator, t: int
) -> dict[str, Agreement]:
    """Compare the result of each vote with the sign of the workers' exact sum, over the entries of all parameters.

    A vote with too few bits for the number of workers is left out. The ledger records none of the communication.

    Args:
        rows: rows whose ``g`` are update vectors.
        t: number of the step; a vote may break ties by it.

    Returns:
        For each vote by name, shares ``(S,)`` of the entries whose exact sum is not zero.

    Source: Lion Cub, Figure 4 and Table 3.
    """
    with comm.ledger.paused():
        vectors = torch.cat([flatten_rows(row.g).double() for row in rows], 1)
        exact_sum = first_row_per_replica(comm.all_reduce(vectors), comm)
        agreements = {}
        for name, vote in votes.items():
            try:
                directions = vote.reduce(list(rows), comm, DENSE, t)
            except SpecError:  # too few bits for the number of workers
                continue
            result = first_row_per_replica(torch.cat([flatten_rows(direction) for direction in directions], 1), comm)
            agreements[name] = sign_agreement(result, exact_sum)
    return agreements


Vectors = list[Tensor]
"""One vector per worker over all parameters: a tensor ``(R, *s)`` for each parameter."""


class MeasuredValue(NamedTuple):
    """A measured value of each of S replicas, ``(S,)``; without a ``layer`` it is about all parameters together."""

    measure: str
    value: Tensor
    layer: str = ""


class WatchedValue(NamedTuple):
    """A measured value of the training with one seed, after ``step`` completed steps."""

    seed: int
    step: int
    measure: str
    layer: str
    value: float


class Measure:
    """A measure of a method during training; each hook returns measured values, by default none.

    Parameters, gradients and states are ``(S M, *s)``: a row for each of M workers, replica by replica.
    """

    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Measure before step ``t`` (from 0), when ``p.grad`` has the gradient of each worker."""
        return ()

    def before_average(
        self, method: Method, rows: list[ParamRow], names: tuple[str, ...], t: int
    ) -> Iterable[MeasuredValue]:
        """Measure after the local update of step ``t``, before the states ``names`` of these rows are averaged."""
        return ()

    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Measure after step ``t``, including its averages."""
        return ()


class Watch:
    """A recorder of measures along one training.

    Args:
        every: number of steps between records of measures before and after a step; those before an average are always
            recorded.
    """

    def __init__(self, measures: Sequence[Measure], every: int = 1) -> None:
        self._measures, self._every = measures, every
        self._step_values: list[tuple[int, MeasuredValue]] = []  # (number of completed steps, value)

    def before_step(self, method: Method, t: int) -> None:
        """Record measures before a step; call it after the gradients are computed."""
        if (t + 1) % self._every == 0:
            for measure in self._measures:
                self._record(t, measure.before_step(method, t))

    def before_average(self, method: Method, rows: list[ParamRow], names: tuple[str, ...], t: int) -> None:
        """Record measures just before the workers average the states ``names``, whatever ``every`` is."""
        for measure in self._measures:
            self._record(t, measure.before_average(method, rows, names, t))

    def after_step(self, method: Method, t: int) -> None:
        """Record measures after a step; call it before the next gradients are computed."""
        for measure in self._measures:
            values = measure.after_step(method, t)  # a measure may need each step
            if (t + 1) % self._every == 0:
                self._record(t, values)

    def _record(self, t: int, values: Iterable[MeasuredValue]) -> None:
        """Store measured values of step ``t`` (from 0), after which ``t + 1`` steps are completed."""
        self._step_values += [(t + 1, value) for value in values]

    def values(self, seeds: Sequence[int]) -> list[WatchedValue]:
        """Return all recorded values in order, one for each of the ``seeds`` of the replicas."""
        watched_values = []
        for step, measured in self._step_values:
            for seed, value in zip(seeds, measured.value.tolist(), strict=True):
                watched_values.append(WatchedValue(seed, step, measured.measure, measured.layer, float(value)))
        return watched_values


class UpdateVectors(Measure):
    """A measure of Lion's update vectors ``c = beta1 m + (1 - beta1) g`` before each step.

    - ``match: VOTE``, ``flip: VOTE``, ``zero: VOTE``: the shares of entries for which the result of each vote in
      `VOTES` has the sign of the workers' exact sum, the opposite sign, or no sign;
    - ``mean_over_rms``, ``kurtosis``, ``largest_over_mean`` by layer: the distribution of entries, see `VectorShape`.

    Only parameters that follow Lion are measured.

    Source: Lion Cub, Figures 3 and 4, Table 3.
    """

    @override
    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Return the measured values of the update vectors of the coming step."""
        rows = lion_rows(method.rows())  # their ``g`` are update vectors
        if not rows:
            return []
        agreements = vote_agreements(rows, VOTES, method.comm, t)
        values = []
        for share_name in Agreement._fields:
            for vote_name, agreement in agreements.items():
                values.append(MeasuredValue(f"{share_name}: {vote_name}", getattr(agreement, share_name)))
        for row in rows:
            layer = param_name(method, row.param_index)
            for name, value in vector_shape(row.g, method.comm.replicas)._asdict().items():
                values.append(MeasuredValue(name, value, layer))
        return values


class MomentumSpread(Measure):
    """A measure of how much workers' first momenta differ after a step: ``largest_spread`` and ``relative_spread``.

    Source: Lion Cub, section 5.1, Figures 6 and 17.
    """

    @override
    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Return both spreads of each layer's first momentum."""
        values: list[MeasuredValue] = []
        replicas = method.comm.replicas
        for row in method.rows(without_gradient=True):
            if "momentum_1" in row.state:
                momentum, layer = row.state["momentum_1"], param_name(method, row.param_index)
                values.append(MeasuredValue("largest_spread", largest_spread(momentum, replicas), layer))
                values.append(MeasuredValue("relative_spread", relative_spread(momentum, replicas), layer))
        return values


def param_name(method: Method, param_index: int) -> str:
    """Return the name of a parameter of a method, or its index as text if it has no name."""
    return method.names[param_index] or str(param_index)


class Rounds(Measure):
    """A measure of workers' drift at the end of each round of K local steps, before the parameters are averaged.

    ``x_t, u_t`` are parameters and momenta after the average at the start of the round, ``x^m, u^m`` those of worker m
    of M at its end, ``x-bar, u-bar`` their means, and ``Delta^m = x_t - x^m`` is the pseudo-gradient. The values are:

    - ``parameter_change``, ``momentum_change``: ``mean_m ||s^m - s_t|| / ||s_t||`` for s = x and u;
    - ``parameter_variance``, ``momentum_variance``: ``1/M sum_m ||s^m - s-bar||^2``;
    - ``momentum_norm``: ``||u-bar||``, the scale of the variance;
    - ``momentum_information_nats``: ``mean_m -1/2 ln(1 - rho_m^2)`` per coordinate, with rho the cosine of ``u^m`` and
      ``u_t``; if ``u^m = beta^K u_t + l``, this is ``1/2 ln(1 + beta^(2K) S / L)`` for variances S of u_t and L of l;
    - ``local_update_global_momentum``, ``local_update_local_momentum``, ``local_update_global_update``,
      ``global_update_global_momentum``, ``local_momentum_global_momentum``: cosines of ``Delta^m`` or its mean and
      ``u^m`` or its mean, averaged over the workers. With an outer optimizer, its momentum after its step is the global
      momentum.

    The momentum is the slowest of several. Without momentum there are no values of it, and no changes in the first
    round.

    Source: MT-DAO, section 4.1 (other metrics), sections 5.1 and 5.4, Figures 3, 4 and 6, Appendix F.2.
    """

    def __init__(self) -> None:
        self._start: tuple[Vectors, Vectors] | None = None
        self._end: tuple[Vectors, Vectors] | None = None

    @override
    def before_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Store the parameters before the first step as the start of the first round."""
        if self._start is None:  # there are no momenta before the first step
            params = [p for group in method.param_groups for p in group["params"] if p.requires_grad and p.numel()]
            self._start = [p.detach().clone() for p in params], []
        return ()

    @override
    def before_average(
        self, method: Method, rows: list[ParamRow], names: tuple[str, ...], t: int
    ) -> Iterable[MeasuredValue]:
        """Store parameters and momenta at the end of a round, before ``params`` are averaged."""
        if "params" in names:
            self._end = _params_and_momenta(rows)
        return ()

    @override
    def after_step(self, method: Method, t: int) -> Iterable[MeasuredValue]:
        """Return the values of a round after its average, and store the start of the next round."""
        if self._end is None or self._start is None:  # no average of the parameters in this step
            return ()
        start, end = self._start, self._end
        rows = method.rows(without_gradient=True)
        self._start, self._end = _params_and_momenta(rows), None
        outer_momenta = [row.state[OUTER_MOMENTUM] for row in rows if OUTER_MOMENTUM in row.state]
        return list(round_values(start, end, outer_momenta, method.comm.replicas))


def round_values(
    start: tuple[Vectors, Vectors], end: tuple[Vectors, Vectors], outer_momenta: Vectors, replicas: int
) -> Iterator[MeasuredValue]:
    """Yield the values that `Rounds` measures in one round of local steps, of momenta only if there are any.

    Args:
        start: parameters and momenta after the average at the beginning of the round.
        end: parameters and momenta before the average at the end of the round.
        outer_momenta: momenta of the outer optimizer; empty without an outer optimizer.
        replicas: S, number of replicas.
    """

    def mean(value: Tensor) -> Tensor:
        return value.reshape(replicas, -1).mean(1)

    x_start, u_start = start
    x, u = end
    update = [before - after for before, after in zip(x_start, x, strict=True)]
    yield MeasuredValue("parameter_change", mean(_norms(update) / _norms(x_start)))
    yield MeasuredValue("parameter_variance", mean(_squared_distance_from_mean(x, replicas)))
    mean_update = _replica_mean(update, replicas)
    yield MeasuredValue("local_update_global_update", mean(_cosines(update, mean_update)))
    if not u:
        return
    global_momentum = outer_momenta if outer_momenta else _replica_mean(u, replicas)
    if u_start:
        momentum_change = [after - before for after, before in zip(u, u_start, strict=True)]
        yield MeasuredValue("momentum_change", mean(_norms(momentum_change) / _norms(u_start)))
        rho = _cosines(u, u_start)
        yield MeasuredValue("momentum_information_nats", mean(-0.5 * torch.log1p(-rho.square())))
    yield MeasuredValue("momentum_variance", mean(_squared_distance_from_mean(u, replicas)))
    yield MeasuredValue("momentum_norm", mean(_norms(_replica_mean(u, replicas))))
    yield MeasuredValue("local_update_global_momentum", mean(_cosines(update, global_momentum)))
    yield MeasuredValue("local_update_local_momentum", mean(_cosines(update, u)))
    yield MeasuredValue("global_update_global_momentum", mean(_cosines(mean_update, global_momentum)))
    yield MeasuredValue("local_momentum_global_momentum", mean(_cosines(u, global_momentum)))


def _params_and_momenta(rows: list[ParamRow]) -> tuple[Vectors, Vectors]:
    """Return copies of the parameters and of their slowest momenta; no momenta if some parameter has none."""
    params = [row.x.detach().clone() for row in rows]
    momenta = []
    for row in rows:
        names = [name for name in row.state if re.fullmatch(r"momentum(_\d+)?", name)]
        if not names:
            return params, []
        slowest = max(names, key=lambda name: (len(name), name))  # they are numbered from the fastest to the slowest
        momenta.append(row.state[slowest].clone())
    return params, momenta


def _dot(a: Vectors, b: Vectors) -> Tensor:
    """Return the dot product of each worker's two vectors, ``(R,)``, in double precision."""
    products = [(x.double() * y.double()).reshape(len(x), -1).sum(1) for x, y in zip(a, b, strict=True)]
    return torch.stack(products).sum(0)


def _norms(a: Vectors) -> Tensor:
    """Return the norm of each worker's vector, ``(R,)``."""
    return _dot(a, a).sqrt()


def _cosines(a: Vectors, b: Vectors) -> Tensor:
    """Return the cosine of each worker's two vectors, ``(R,)``."""
    return _dot(a, b) / (_norms(a) * _norms(b))


def _replica_mean(a: Vectors, replicas: int) -> Vectors:
    """Return the mean vector over the workers of each replica, repeated for each worker."""
    by_replica = [x.unflatten(0, (replicas, -1)) for x in a]
    return [x.mean(1, keepdim=True).expand_as(x).flatten(0, 1) for x in by_replica]


def _squared_distance_from_mean(a: Vectors, replicas: int) -> Tensor:
    """Return the squared distance of each worker's vector from the mean over its replica, ``(R,)``."""
    return _norms([x - mean for x, mean in zip(a, _replica_mean(a, replicas), strict=True)]).square()


MEASURES: Mapping[str, Callable[[], Measure]] = {
    "rounds": Rounds, "update-vectors": UpdateVectors, "momentum-spread": MomentumSpread,
}  # fmt: skip
"""Measures by their names in the field ``watch`` of specs."""
