"""DeMo: each worker sends the largest coefficients of its momentum's blocks, and forgets what it sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, Details, SparsePairs, WireFormat, encoded_from, first_rows, for_all
from syncline.errors import SpecError
from syncline.optim.base import Reducer, Row, UpdateRule
from syncline.optim.chunks import Basis
from syncline.optim.coefficients import Coefficients, MeanOver
from syncline.optim.matrices import MatrixSplit, Orthogonalised, Signed
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import Unscaled, check_unit

DEMO_MOMENTUM = "demo_momentum"

PAIRS = SparsePairs(64, "fp32")
"""The public code's: 12 bytes per coefficient."""


def demo_rule(base: Literal["sgd", "signum", "muon"]) -> UpdateRule:
    """Return the rule for DeMo's averaged components: used as they are, by their sign, or orthogonalised.

    Muon's orthogonalisation takes matrices; everything else then moves by its sign.
    """
    sign = MomentumRule((), (), Signed())
    if base == "sgd":
        return MomentumRule((), (), Unscaled())
    if base == "signum":
        return sign
    if base == "muon":
        return MatrixSplit(MomentumRule((), (), Orthogonalised()), sign)
    raise SpecError("base", base, "'sgd', 'signum' or 'muon'")


@dataclass(frozen=True)
class CoefficientMean(Reducer):
    """A reducer that decouples momenta: top-k coefficients of blocks in an orthonormal basis.

        m <- beta m + g;   c = top-k per block of T(m);   m <- m - alpha T^-1(c);   q = T^-1(mean of all workers' c)

    and ``q`` takes the place of the gradient: SGD uses it, Signum its sign, Muon its polar factor. What travels: an
    all-gather of k (index, value) pairs per block. With the identity basis, k a whole block and ``alpha = 0`` it is the
    average of momenta.

    With a ``period`` K the momentum takes in every gradient and is exchanged after steps ``K - 1``, ``2 K - 1``, ...;
    parameters do not change in between: DeMo never averages parameters, so local steps would make workers drift
    apart.

    Args:
        k: number of coefficients that are sent per block; a block with fewer entries sends all.
        chunk: largest length of a block along a dimension. The length is the dimension's largest divisor up to this.
        beta: decay rate of the momentum.
        alpha: share of the sent components that is subtracted from the momentum: 1 in the public code, 0.2 in the
            paper.
        basis: ``dct``; ``random``, an orthonormal basis that is new in each step and equal on all workers; or
            ``identity``.
        average: ``senders``, each coefficient is averaged over the workers that sent it (public code); ``all``, over
            all workers (paper).
        pairs: encoding of the pairs of index and value.
        period: K, number of steps between exchanges; 1 for DeMo as published.
        per_node: number of workers of a node; consecutive workers form a node. They average their gradients in full in
            every step, and each node acts as one worker of DeMo. If there are fewer workers, all form one node. 1 for
            DeMo without nodes.

    Raises:
        SpecError: for a value out of range.

    Source: DeMo, section 2.1 and Algorithm 4; section 5 for nodes; defaults of its public code.
    """

    k: int = 32
    chunk: int = 64
    beta: float = 0.999
    alpha: float = 1.0
    basis: Basis = "dct"
    average: MeanOver = "senders"
    pairs: SparsePairs = PAIRS
    period: int = 1
    per_node: int = 1

    def __post_init__(self) -> None:
        Coefficients(self.k, self.chunk, self.basis, self.pairs)
        for name in ("period", "per_node"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "an integer >= 1")
        check_unit("beta", self.beta)
        if not 0 <= self.alpha <= 1:
            raise SpecError("alpha", self.alpha, "a number from 0 to 1")
        if self.average not in ("senders", "all"):
            raise SpecError("average", self.average, "'senders' or 'all'")

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``demo_beta`` and ``alpha``."""
        return {"demo_beta": self.beta, "alpha": self.alpha}

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return a zero momentum for a parameter."""
        return {DEMO_MOMENTUM: torch.zeros_like(x)}

    @property
    def coefficients(self) -> Coefficients:
        """Return the selection of coefficients to send of a momentum."""
        return Coefficients(self.k, self.chunk, self.basis, self.pairs)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes that one worker sends for a parameter of this shape."""
        return self.coefficients.nbytes(shape)

    @override
    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> Sequence[Tensor | None]:
        # The wire is the pairs' own; ``wire`` is that of gradients inside a node.
        size = min(self.per_node, comm.world_size)
        if size > 1:
            details = Details(in_backward=True)
            means = comm.mean_within([row.g for row in rows], size, wire, "gradient", details)
            rows = [row._replace(g=g) for row, g in zip(rows, means, strict=True)]
        for row in rows:
            row.state[DEMO_MOMENTUM].mul_(row.group["demo_beta"]).add_(row.g)
        if (t + 1) % self.period:
            return [None] * len(rows)
        encoded = [self._extract(row, t) for row in rows]
        sizes = [part.shape[-1] for part in encoded]
        details = encoded_from(*(row.g for row in rows))
        sent = torch.cat(encoded, dim=-1)
        if size > 1:
            everyone = from_all_nodes(sent, size, comm, details)
        else:
            everyone = comm.all_gather(sent, label="top-k", details=details)
        # All workers of a replica receive the same: decode it once.
        parts = first_rows(everyone, comm).split(sizes, dim=-1)
        return [self._assemble(part, row, t) for part, row in zip(parts, rows, strict=True)]

    def _extract(self, row: Row, t: int) -> Tensor:
        """Return the bytes that each worker sends ``(R, b)``; takes them out of its momentum."""
        momentum = row.state[DEMO_MOMENTUM]
        encoded, arrived = self.coefficients.extract(momentum, t)
        if row.group["alpha"]:
            momentum.sub_(arrived(), alpha=row.group["alpha"])
        return encoded

    def _assemble(self, encoded: Tensor, row: Row, t: int) -> Tensor:
        """Return ``q (R, *s)`` from what all workers sent ``(S, M, b)``."""
        return for_all(self.coefficients.assemble(encoded, row.g, t, self.average), row.g.shape[0])


def from_all_nodes(sent: Tensor, size: int, comm: Communicator, details: Details) -> Tensor:
    """Gather the bytes of each node of ``size`` workers, ``(R, b)`` to ``(R, M/size, b)``; its workers have the same.

    Each worker hands its share of the node's bytes to those in its place of the other nodes, and what they hand back to
    its node: between nodes everything travels once.
    """
    nodes, nbytes = comm.world_size // size, sent.shape[1]
    if nodes == 1:
        return sent.unsqueeze(1)
    share = -(-nbytes // size)
    shares = torch.nn.functional.pad(sent, (0, share * size - nbytes)).unflatten(1, (size, share))
    places = [worker % size for worker in comm.local_workers]
    local_shares = shares[list(range(len(sent))), places]
    between = comm.all_gather_across(local_shares, size, "top-k", details)
    inside = comm.all_gather_within(between.flatten(1), size, "top-k", Details(encoded_bytes=0))
    return inside.unflatten(2, (nodes, share)).transpose(1, 2).flatten(2)[..., :nbytes]
