"""FLOPs and seconds of updates that multiply or decompose matrices; an mfu already covers elementwise updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.orthogonal import newton_schulz_flops
from syncline.costmodel.compute.tensors import TensorShape
from syncline.errors import SpecError

DECOMPOSITION_RATE = 0.25
"""Speed of a QR or eigenvalue decomposition over that of a matrix product: .14 to .7 on one CPU core, for d from 64 to
768. On a GPU it is far less and falls with d, so measure it there."""

QR_FLOPS, EIGENVECTOR_FLOPS = 8 / 3, 9.0
"""FLOPs of each decomposition per d^3.

Source: G. Golub, C. Van Loan, "Matrix Computations" (4th ed., 2013), sections 5.2 and 8.3."""


@dataclass(frozen=True)
class UpdateWork:
    """FLOPs of the products and decompositions of an update, of one or more matrices.

    Args:
        step: FLOPs of the products of every step, such as rotations.
        renewal: FLOPs of the products of a renewal, for instance of bases.
        decomposition: FLOPs of the decompositions of a renewal.
    """

    step: float = 0.0
    renewal: float = 0.0
    decomposition: float = 0.0

    def __add__(self, other: UpdateWork) -> UpdateWork:
        """Return the sum of the work of two updates."""
        return UpdateWork(
            self.step + other.step, self.renewal + other.renewal, self.decomposition + other.decomposition
        )

    def seconds(
        self, hardware: Hardware, frequency: float | None, decomposition_rate: float = DECOMPOSITION_RATE
    ) -> float:
        """Return the seconds per step, with renewals spread over the steps between them.

            [step + (renewal + decomposition / rate) / frequency] / (peak mfu)

        Args:
            hardware: hardware that runs products at its peak times its mfu.
            frequency: steps between renewals; None without renewals.
            decomposition_rate: speed of decompositions over that of products.

        Raises:
            SpecError: a rate that is not above 0.
        """
        if not decomposition_rate > 0:
            raise SpecError("decomposition_rate", decomposition_rate, "a number above 0")
        renewals = 0.0 if frequency is None else (self.renewal + self.decomposition / decomposition_rate) / frequency
        return (self.step + renewals) / (hardware.peak_flops * hardware.mfu)


def orthogonal_work(tensors: Sequence[TensorShape]) -> UpdateWork:
    """Return the work of orthogonalising every matrix among the tensors in each step, as Muon and Scion do.

    >>> orthogonal_work([TensorShape("w", (2, 2), True)]).step  # five iterations of three products of 2 x 2 matrices
    240.0
    """
    return UpdateWork(sum(newton_schulz_flops(*tensor.sides) for tensor in tensors if tensor.is_matrix))


def low_rank_work(rows: int, columns: int, rank: int, products: int, interval: float = 1) -> UpdateWork:
    """Return the work per step of a power iteration, ``P = orth(M Q)``, ``R = M^T P``, and of further products.

        products 2 m n r + QR of m x r,   8/3 m r^2

    Args:
        rows: m, rows of M and of P.
        columns: n.
        rank: r.
        products: number of products of M or its factors, 2 m n r FLOPs each, with the two of the iteration.
        interval: steps between two iterations.

    >>> low_rank_work(4, 2, 1, 3).step  # three products of 16 FLOPs
    48.0
    """
    return UpdateWork(products * 2.0 * rows * columns * rank / interval, 0.0, QR_FLOPS * rows * rank * rank / interval)
