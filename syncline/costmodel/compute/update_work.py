"""FLOPs and seconds of updates that multiply or decompose matrices; an mfu already covers elementwise updates.

Muon and Scion orthogonalise matrices, Dion and PowerSGD iterate low-rank factors, and basis rotation runs an optimizer
in rotated coordinates of a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.tensors import TensorShape
from syncline.errors import SpecError, one_of

NEWTON_SCHULZ_STEPS = 5
"""Newton-Schulz iterations of Muon and Scion. Source: K. Jordan et al., "Muon" (2024)."""


def newton_schulz_flops(rows: int, columns: int, steps: int = NEWTON_SCHULZ_STEPS) -> float:
    """Return the FLOPs of orthogonalising an m x n matrix by Newton-Schulz iterations.

    An iteration is ``X <- a X + (b A + c A^2) X`` with ``A = X X^T`` on the smaller side, of three products. All
    iterations take ``steps (4 d^2 D + 2 d^3)`` with d = min(m, n) and D = max(m, n).

    Args:
        rows: m.
        columns: n.
        steps: number of iterations.

    >>> newton_schulz_flops(2, 2, 1)  # three products of 2 x 2 matrices
    48.0
    """
    short, long = sorted((float(rows), float(columns)))
    return steps * (4 * short * short * long + 2 * short**3)


DECOMPOSITION_RATE = 0.25
"""FLOP/s of a QR or eigenvalue decomposition over those of a matrix product.

Measured on one CPU core: 0.14 to 0.7 for d x d matrices with d from 64 to 768. On a GPU the ratio is far less and falls
with d, so measure it there."""

QR_FLOPS, EIGENVECTOR_FLOPS = 8 / 3, 9.0
"""FLOPs of a QR decomposition with its orthogonal factor, and of eigenvectors, of a d x d matrix over d^3.

Source: G. Golub, C. Van Loan, "Matrix Computations" (4th ed., 2013), sections 5.2 and 8.3."""


@dataclass(frozen=True)
class UpdateWork:
    """FLOPs of the products and decompositions of an update of one or more matrices.

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
        """Return the seconds per step, with the work of a renewal spread over the steps between two renewals.

        Args:
            hardware: hardware that runs products at its peak times its mfu.
            frequency: number of steps between renewals; None without renewals.
            decomposition_rate: FLOP/s of decompositions over those of products.
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
    """Return the work per step of a power iteration, ``P = orth(M Q)`` and ``R = M^T P``, and of further products.

    Args:
        rows: m, rows of the matrix M.
        columns: n, columns of M.
        rank: r, rank of the factors P (m x r) and Q (n x r); the QR decomposition of P takes 8/3 m r^2 FLOPs.
        products: number of products of M with a factor, 2 m n r FLOPs each, with the two of the iteration.
        interval: number of steps between two iterations.

    >>> low_rank_work(4, 2, 1, 3).step  # three products of 16 FLOPs
    48.0
    """
    return UpdateWork(products * 2.0 * rows * columns * rank / interval, 0.0, QR_FLOPS * rows * rank * rank / interval)


SOURCES = ("1st", "2nd", "gradient")
"""Matrices that give the bases of basis rotation: averages of gradients, or of their products, or a gradient."""

GEOMETRIES = ("unilateral", "bilateral")
"""Sides of a matrix that basis rotation rotates: only the shorter, or both."""


def rotated_sides(rows: int, columns: int, geometry: str) -> tuple[int, ...]:
    """Return the lengths of the sides of a matrix that basis rotation rotates.

    >>> rotated_sides(4, 6, "bilateral"), rotated_sides(4, 6, "unilateral")
    ((4, 6), (4,))
    """
    if geometry not in GEOMETRIES:
        raise SpecError("geometry", geometry, one_of(GEOMETRIES, geometry))
    return (rows, columns) if geometry == "bilateral" else (min(rows, columns),)


def rotation_elements(rows: int, columns: int, source: str, geometry: str) -> int:
    """Return the number of elements that basis rotation keeps beyond Adam's states for an m x n matrix.

    A basis of a side of length d has d^2 elements; with the source ``2nd`` there is also an average of products.

    Source: Basis Rotation, Appendix H, Table 1.

    >>> [rotation_elements(4096, 4096, source, "bilateral") * 4 / 2**30 for source in ("2nd", "1st")]  # GiB
    [0.25, 0.125]
    """
    if source not in SOURCES:
        raise SpecError("source", source, one_of(SOURCES, source))
    bases = sum(d * d for d in rotated_sides(rows, columns, geometry))
    return bases * (2 if source == "2nd" else 1)


def rotation_work(
    rows: int, columns: int, source: str, geometry: str, *, estimate: str = "power", momentum: str = "original"
) -> UpdateWork:
    """Return the work of updating one m x n matrix by basis rotation, for each rotated side of length d.

    A step takes three rotations of 2 m n d FLOPs (the gradient, the momentum, and the update back), and one product
    more with the source ``2nd``. A renewal takes 2 d^3 FLOPs per product with a basis, twice for a power iteration, and
    a decomposition of a d x d matrix; other sources than ``2nd`` also multiply a matrix with its transpose. With a
    rotated momentum a step needs one rotation less, and each renewal rotates the momentum from the old to the new
    bases.

    Args:
        rows: m.
        columns: n.
        source: ``1st``, ``2nd`` or ``gradient``.
        geometry: ``unilateral`` or ``bilateral``.
        estimate: ``power`` or ``exact``.
        momentum: ``original`` or ``rotated``.

    >>> rotation_work(2, 2, "1st", "unilateral").step  # three products of 2 x 2 matrices
    48.0
    """
    for name, value, choices in (
        ("source", source, SOURCES),
        ("estimate", estimate, ("power", "exact")),
        ("momentum", momentum, ("original", "rotated")),
    ):
        if value not in choices:
            raise SpecError(name, value, one_of(choices, value))
    total = UpdateWork()
    for d in rotated_sides(rows, columns, geometry):
        product, cube = 2.0 * rows * columns * d, float(d) ** 3
        step = (3 if momentum == "original" else 2) * product + (product if source == "2nd" else 0.0)
        momentum_rotations = 2 * product if momentum == "rotated" else 0.0
        gram = 0.0 if source == "2nd" else product
        basis_products = 2 if estimate == "power" else 1  # for the Rayleigh quotients, and for the power iteration
        decomposition = QR_FLOPS if estimate == "power" else EIGENVECTOR_FLOPS
        total += UpdateWork(step, gram + momentum_rotations + basis_products * 2 * cube, decomposition * cube)
    return total


def stage_frequencies(delays: Sequence[int], base: int, *, reversed_order: bool = False) -> list[int | None]:
    """Return the steps between renewals of bases at each pipeline stage, fewer at stages with larger gradient delays.

    A stage with a delay of tau updates has ``floor(base (mid + 1) / w)`` steps, with ``mid = floor(P / 2) - 1`` for P
    stages and ``w = tau + 1 if tau > mid, else tau``. For an even P with delays P - 1 to 0 there are as many renewals
    in all as with ``base`` at every stage, apart from rounding. A stage without delay never renews its first basis
    (None). If all delays are equal, every stage has ``base``.

    Args:
        delays: tau of each of P stages, in updates.
        base: mean steps between renewals.
        reversed_order: whether the stage with the largest delay has the longest interval instead of the shortest.

    Source: Basis Rotation, Appendix I. The paper prints ``mid`` in place of ``mid + 1``, which divides by 0
    at a delay of 1 and is negative at 0.

    >>> stage_frequencies([3, 2, 1, 0], 10)
    [5, 6, 20, None]
    """
    if base < 1:
        raise SpecError("frequency", base, "steps, at least 1")
    if any(delay < 0 for delay in delays):
        raise SpecError("delays", list(delays), "updates, at least 0")
    if len(set(delays)) <= 1:
        return [base] * len(delays)
    mid = len(delays) // 2 - 1
    intervals: list[int | None] = []
    for delay in delays:
        tau = max(delays) + min(delays) - delay if reversed_order else delay
        weight = tau + 1 if tau > mid else tau
        intervals.append(max(1, base * (mid + 1) // weight) if weight else None)
    return intervals
