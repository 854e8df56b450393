"""What updates take that multiply matrices, in FLOPs and in seconds; an mfu has elementwise ones in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.orthogonal import newton_schulz_flops
from syncline.costmodel.compute.tensors import TensorShape
from syncline.errors import SpecError

DECOMPOSITION_RATE = 0.25
"""Part of a product's speed that a QR or eigenvalue decomposition reaches: .14 to .7 on one CPU core, for d from 64 to
768. On a GPU it is far less, and falls with d: measure it there."""

QR_FLOPS, EIGENVECTOR_FLOPS = 8 / 3, 9.0
"""Per d^3. Source: G. Golub, C. Van Loan, "Matrix Computations" (4th ed., 2013), sections 5.2 and 8.3."""


@dataclass(frozen=True)
class UpdateWork:
    """FLOPs of the products and decompositions of an update, of one or more matrices.

    Args:
        step: products of every step, as of rotating to and fro.
        renewal: products of a renewal, as of bases.
        decomposition: decompositions of a renewal.
    """

    step: float = 0.0
    renewal: float = 0.0
    decomposition: float = 0.0

    def __add__(self, other: UpdateWork) -> UpdateWork:
        """Of both."""
        return UpdateWork(
            self.step + other.step, self.renewal + other.renewal, self.decomposition + other.decomposition
        )

    def seconds(
        self, hardware: Hardware, frequency: float | None, decomposition_rate: float = DECOMPOSITION_RATE
    ) -> float:
        """Seconds per step, renewals shared out over the steps between them.

            [step + (renewal + decomposition / rate) / frequency] / (peak mfu)

        Args:
            hardware: products run at its peak times its mfu.
            frequency: steps between renewals; None for bases that stay.
            decomposition_rate: the part of that speed at which decompositions run.

        Raises:
            SpecError: a rate that is not above 0.
        """
        if not decomposition_rate > 0:
            raise SpecError("decomposition_rate", decomposition_rate, "a number above 0")
        renewals = 0.0 if frequency is None else (self.renewal + self.decomposition / decomposition_rate) / frequency
        return (self.step + renewals) / (hardware.peak_flops * hardware.mfu)


def orthogonal_work(tensors: Sequence[TensorShape]) -> UpdateWork:
    """Of orthogonalising the matrices among them in every step, as Muon and Scion do.

    >>> orthogonal_work([TensorShape("w", (2, 2), True)]).step  # five iterations of three products of 2 x 2 matrices
    240.0
    """
    return UpdateWork(sum(newton_schulz_flops(*tensor.sides) for tensor in tensors if tensor.is_matrix))


def low_rank_work(rows: int, columns: int, rank: int, products: int, every: float = 1) -> UpdateWork:
    """Of one power iteration, ``P = orth(M Q)``, ``R = M^T P``, and what else multiplies M or its factors.

        products 2 m n r + QR of m x r,   8/3 m r^2

    Args:
        rows: m, of the side that P has.
        columns: n.
        rank: r.
        products: of m n r, with these two.
        every: steps from one to the next.

    >>> low_rank_work(4, 2, 1, 3).step  # three products of 16 FLOPs
    48.0
    """
    return UpdateWork(products * 2.0 * rows * columns * rank / every, 0.0, QR_FLOPS * rows * rank * rank / every)
