"""The cost of rotating a matrix's optimizer: memory, work, and the renewal interval of each pipeline stage.

Numbers and FLOPs for a matrix with m rows and n columns, with d the length of a rotated side, beyond Adam's states:

| source | geometry   | bases         | averages      | products of a step          | of a renewal |
|--------|------------|---------------|---------------|-----------------------------|--------------|
| `1st`  | bilateral  | `m^2 + n^2`   |               | `6 m n (m + n)`             | `2 m n d + 4 d^3` per side |
| `1st`  | unilateral | `min(m, n)^2` |               | `6 m n d`                   | `2 m n d + 4 d^3` |
| `2nd`  | bilateral  | `m^2 + n^2`   | `m^2 + n^2`   | `6 m n (m + n) + 2 m n (m + n)` | `4 d^3` per side |
| `2nd`  | unilateral | `min(m, n)^2` | `min(m, n)^2` | `6 m n d + 2 m n d`         | `4 d^3` |

A renewal also decomposes a d x d matrix: a QR decomposition with its orthogonal factor takes `8/3 d^3` FLOPs,
eigenvectors take `9 d^3`.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.compute.update_work import EIGENVECTOR_FLOPS, QR_FLOPS, UpdateWork
from syncline.errors import SpecError, one_of

SOURCES = ("1st", "2nd", "gradient")
GEOMETRIES = ("unilateral", "bilateral")


def rotated_sides(rows: int, columns: int, geometry: str) -> tuple[int, ...]:
    """Return the lengths of the sides that have a basis: both, or only the shorter.

    Raises:
        SpecError: an unknown geometry.

    >>> rotated_sides(4, 6, "bilateral"), rotated_sides(4, 6, "unilateral")
    ((4, 6), (4,))
    """
    if geometry not in GEOMETRIES:
        raise SpecError("geometry", geometry, one_of(GEOMETRIES, geometry))
    return (rows, columns) if geometry == "bilateral" else (min(rows, columns),)


def rotation_elements(rows: int, columns: int, source: str, geometry: str) -> int:
    """Return the number of elements beyond Adam's states: the bases, and with ``2nd`` averages of products.

    Raises:
        SpecError: an unknown source or geometry.

    Source: Basis Rotation, Appendix H, Table 1.

    >>> [rotation_elements(4096, 4096, source, "bilateral") * 4 / 2**30 for source in ("2nd", "1st")]  # GiB
    [0.25, 0.125]
    """
    if source not in SOURCES:
        raise SpecError("source", source, one_of(SOURCES, source))
    bases = sum(d * d for d in rotated_sides(rows, columns, geometry))
    return bases * (2 if source == "2nd" else 1)


def rotation_work(
    rows: int,
    columns: int,
    source: str,
    geometry: str,
    *,
    estimate: str = "power",
    momentum: str = "original",
) -> UpdateWork:
    """Return the work of updating one matrix, by the table of this module.

    A step rotates the gradient and the momentum, and rotates the update direction back. With a rotated momentum a step
    needs one rotation less, and each renewal rotates the momentum out of the old bases and into the new ones.

    Args:
        rows: m.
        columns: n.
        source: ``1st``, ``2nd`` or ``gradient``.
        geometry: ``unilateral`` or ``bilateral``.
        estimate: ``power`` or ``exact``.
        momentum: ``original`` or ``rotated``.

    Raises:
        SpecError: an unknown source, geometry, estimate or momentum.

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
        momentum_turn = 2 * product if momentum == "rotated" else 0.0
        gram = 0.0 if source == "2nd" else product
        iteration = 2 if estimate == "power" else 1  # C B for the quotients, and again for the iteration
        decomposition = QR_FLOPS if estimate == "power" else EIGENVECTOR_FLOPS
        total += UpdateWork(step, gram + momentum_turn + iteration * 2 * cube, decomposition * cube)
    return total


def stage_frequencies(delays: Sequence[int], base: int, *, reversed_order: bool = False) -> list[int | None]:
    """Return the steps between renewals at each stage of a pipeline, fewer at stages with larger gradient delays.

        f = floor(base (mid + 1) / w),   mid = floor(P / 2) - 1,   w = tau + 1 if tau > mid, else tau

    For an even number of stages with delays P - 1 to 0 the total number of renewals is that of ``base`` at every stage,
    apart from rounding down: the sum of 1/f is P / base. A stage without delay then never renews its first basis
    (None). If all delays are equal, every stage has ``base``.

    Args:
        delays: tau, gradient delay in updates of each of P stages.
        base: f0, mean steps between renewals.
        reversed_order: whether the stage with the largest delay has the longest interval instead of the shortest.

    Raises:
        SpecError: a base below 1, or a negative delay.

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
