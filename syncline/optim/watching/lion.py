"""Measures of the votes of Lion's workers, and of the spread of their momenta."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from syncline.optim.method import Method
from syncline.optim.update_vectors import (
    VOTES,
    largest_spread,
    lion_rows,
    relative_spread,
    vector_shape,
    vote_agreements,
)
from syncline.optim.watch import Measure, MeasuredValue


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
