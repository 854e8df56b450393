"""What rotating a matrix's optimizer costs: memory, work, and how often each stage of a pipeline can afford it.

Of a matrix with m rows and n columns, beyond Adam's own states:

| source | geometry   | bases         | averages      | products of a step          | of a renewal |
|--------|------------|---------------|---------------|-----------------------------|--------------|
| `1st`  | bilateral  | `m^2 + n^2`   |               | `6 m n (m + n)`             | `2 m n d + 4 d^3` per side |
| `1st`  | unilateral | `min(m, n)^2` |               | `6 m n d`                   | `2 m n d + 4 d^3` |
| `2nd`  | bilateral  | `m^2 + n^2`   | `m^2 + n^2`   | `6 m n (m + n) + 2 m n (m + n)` | `4 d^3` per side |
| `2nd`  | unilateral | `min(m, n)^2` | `min(m, n)^2` | `6 m n d + 2 m n d`         | `4 d^3` |

A renewal also decomposes a d x d matrix: QR with its orthogonal factor `8/3 d^3`, eigenvectors `9 d^3`.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.compute.update_work import EIGENVECTOR_FLOPS, QR_FLOPS, UpdateWork
from syncline.errors import SpecError, one_of

SOURCES = ("1st", "2nd", "gradient")
GEOMETRIES = ("unilateral", "bilateral")


def rotated_sides(rows: int, columns: int, geometry: str) -> tuple[int, ...]:
    """Lengths of the sides that have a basis.

    Raises:
        SpecError: an unknown geometry.

    >>> rotated_sides(4, 6, "bilateral"), rotated_sides(4, 6, "unilateral")
    ((4, 6), (4,))
    """
    if geometry not in GEOMETRIES:
        raise SpecError("geometry", geometry, one_of(GEOMETRIES, geometry))
    return (rows, columns) if geometry == "bilateral" else (min(rows, columns),)


def rotation_elements(rows: int, columns: int, source: str, geometry: str) -> int:
    """Numbers that a rotated matrix keeps beyond Adam's states: its bases, and averages of products for ``2nd``.

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
    """The work of one matrix, by the table above.

    A step rotates gradient and momentum and rotates the direction back; with a rotated momentum it rotates one less,
    and each renewal turns that momentum out of the old bases and into the new ones.

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
    for name, value, known in (
        ("source", source, SOURCES),
        ("estimate", estimate, ("power", "exact")),
        ("momentum", momentum, ("original", "rotated")),
    ):
        if value not in known:
            raise SpecError(name, value, one_of(known, value))
    total = UpdateWork()
    for d in rotated_sides(rows, columns, geometry):
        product, cube = 2.0 * rows * columns * d, float(d) ** 3
        step = (3 if momentum == "original" else 2) * product + (product if source == "2nd" else 0.0)
        turning = 2 * product if momentum == "rotated" else 0.0
        gram = 0.0 if source == "2nd" else product
        iteration = 2 if estimate == "power" else 1  # C B for the quotients, and once more for the iteration
        decomposition = QR_FLOPS if estimate == "power" else EIGENVECTOR_FLOPS
        total += UpdateWork(step, gram + turning + iteration * 2 * cube, decomposition * cube)
    return total


def stage_frequencies(delays: Sequence[int], base: int, *, reversed_order: bool = False) -> list[int | None]:
    """Steps between renewals at each stage of a pipeline, fewer where gradients are later.

        f = floor(base (mid + 1) / w),   mid = floor(P / 2) - 1,   w = tau + 1 if tau > mid, else tau

    For an even number of stages with delays P - 1 to 0 all renewals together are those of ``base`` everywhere, but for
    rounding down: the sum of 1/f is P / base. A stage without delay then never renews its first basis (None). Where all
    delays are equal nothing is to be shared out.

    Args:
        delays: tau of each of P stages.
        base: f0, steps.
        reversed_order: whether the latest stage gets the longest interval in place of the shortest.

    Raises:
        SpecError: a base below 1, or a negative delay.

    Source: Basis Rotation, Appendix I. Printed there with ``mid`` in place of ``mid + 1``, which divides by 0 at a
    delay of 1 and is negative at 0.

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
    out: list[int | None] = []
    for delay in delays:
        tau = max(delays) + min(delays) - delay if reversed_order else delay
        weight = tau + 1 if tau > mid else tau
        out.append(max(1, base * (mid + 1) // weight) if weight else None)
    return out
