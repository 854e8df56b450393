"""Kernels and seconds of updates: elementwise operations, matrix products and decompositions.

Muon and Scion orthogonalise matrices, Dion and PowerSGD iterate low-rank factors, and basis rotation runs an optimizer
in rotated coordinates of a matrix. The kernels are those that this package's methods dispatch to a GPU; the numbers of
`elementwise` count the operands and results of these methods' operations, and the operations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.operations import Operation, eager_update_s, elementwise, memory, product
from syncline.costmodel.compute.tensors import TensorShape, largest_divisor
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError, require_one_of

NEWTON_SCHULZ_STEPS = 5
"""Newton-Schulz iterations of Muon and Scion. Source: K. Jordan et al., "Muon" (2024)."""

DECOMPOSITION_RATE = 0.25
"""FLOP/s of a QR or eigenvalue decomposition over those of a matrix product.

Measured on one CPU core: 0.14 to 0.7 for d x d matrices with d from 64 to 768. On a GPU the ratio is far less and falls
with d; GPUs whose decompositions were measured have prices of their own."""

FP32_BYTES = 4.0

LISTED_BYTES = 10.0
"""Bytes per number that an operation on lists of tensors reads and writes, on average: of Adam's 9 operations, 92."""

UpdateKernels = Literal["eager", "tf32", "optimised"]
"""The implementation of updates: this package's eager methods; the same with products in TF32; or with Newton-Schulz
iterations in bf16 whose sums are part of their products, other products in TF32, and QR decompositions by Cholesky."""


class Updating(NamedTuple):
    """The choices that decide the time of an update.

    Attributes:
        with_messages: whether to include packing and unpacking of messages.
    """

    kernels: UpdateKernels = "eager"
    with_messages: bool = True


EAGER = Updating()
"""The updates of this package's methods."""


@dataclass(frozen=True)
class UpdateWork:
    """The GPU kernels of an optimizer's update.

    Args:
        step: kernels of every step, such as products and elementwise operations.
        renewal: kernels that renew the bases of basis rotation, every few steps.
        messages: kernels of every step that pack what workers send, and unpack what they receive.
        iterations: kernels of Newton-Schulz iterations of every step.
    """

    step: tuple[Operation, ...] = ()
    renewal: tuple[Operation, ...] = ()
    messages: tuple[Operation, ...] = ()
    iterations: tuple[Operation, ...] = ()

    @property
    def parts(self) -> tuple[tuple[Operation, ...], ...]:
        """Return the kernels of the update by part, in the order of the arguments."""
        return self.step, self.renewal, self.messages, self.iterations

    def __add__(self, other: UpdateWork) -> UpdateWork:
        return UpdateWork(*(part + other_part for part, other_part in zip(self.parts, other.parts, strict=True)))

    def _with_each(self, change: Callable[[Operation], Operation]) -> UpdateWork:
        """Return the work with each kernel replaced by ``change(kernel)``."""
        return UpdateWork(*(tuple(map(change, part)) for part in self.parts))

    def every(self, steps: float) -> UpdateWork:
        """Return the mean work per step if the update is done once in ``steps`` steps; kernels become fractions."""
        return self._with_each(lambda operation: operation._replace(kernels=operation.kernels / steps))

    def implemented(self, kernels: UpdateKernels) -> UpdateWork:
        """Return the work of this eager update by another implementation (`UpdateKernels`)."""
        if kernels == "eager":
            return self

        def replaced(operation: Operation) -> Operation:
            """Return the kernel that replaces an operation: a product in TF32, or (if optimised) a QR by Cholesky."""
            if operation.kind == "product":
                return operation._replace(precision="tf32")
            by_cholesky = operation.kind == "qr" and kernels == "optimised"
            return operation._replace(kind="cholesky") if by_cholesky else operation

        work = self._with_each(replaced)
        if kernels == "tf32":
            return work
        # Each product of a Newton-Schulz iteration includes the sum that was a kernel of its own.
        bf16_products = tuple(
            operation._replace(precision="bf16", nbytes=operation.nbytes / 2)  # half of fp32's
            for operation in self.iterations
            if operation.kind == "product"
        )
        return replace(work, iterations=bf16_products)

    def flops(
        self,
        renewal_period: float | None,
        decomposition_rate: float = DECOMPOSITION_RATE,
        *,
        with_messages: bool = True,
    ) -> float:
        """Return the FLOPs per step of products, with those of decompositions divided by ``decomposition_rate``.

        Args:
            renewal_period: steps between renewals of bases, over which their work is spread; None without renewals.
            decomposition_rate: FLOP/s of decompositions over those of products.
            with_messages: whether to include packing and unpacking of messages.
        """
        require(decomposition_rate > 0, "decomposition_rate", decomposition_rate, "a number above 0")

        def counted_flops(operations: Iterable[Operation]) -> float:
            """Return the FLOPs of products and decompositions; other kernels count as free."""
            rates = {"product": 1.0, "qr": decomposition_rate, "eigh": decomposition_rate}
            return sum(
                kernel.kernels * kernel.flops / rates[kernel.kind] for kernel in operations if kernel.kind in rates
            )

        renewal_flops = 0.0 if renewal_period is None else counted_flops(self.renewal) / renewal_period
        messages = self.messages if with_messages else ()
        return counted_flops(self.step + self.iterations + messages) + renewal_flops

    def seconds(self, hardware: Hardware, renewal_period: float | None, updating: Updating = EAGER) -> float:
        """Return the seconds of the update per step, by its kernels if their rates are known, else by FLOPs.

        Args:
            hardware: hardware; without known kernels it runs products at its peak times its mfu.
            renewal_period: steps between renewals of bases, over which their work is spread; None without renewals.
            updating: implementation of the update, and whether to include its messages.
        """
        if hardware.kernels is None or hardware.kernels.updates is None:
            flops = self.flops(renewal_period, with_messages=updating.with_messages)
            return flops / (hardware.peak_flops * hardware.mfu)
        work = self.implemented(updating.kernels)
        every_step = work.step + work.iterations + (work.messages if updating.with_messages else ())
        usual_s = eager_update_s(every_step, hardware)
        if renewal_period is None or not work.renewal:
            return usual_s
        with_renewal_s = eager_update_s(every_step + work.renewal, hardware)
        return usual_s + (with_renewal_s - usual_s) / renewal_period


class ElementwiseWork(NamedTuple):
    """Elementwise operations of an update, which read and write all numbers of its tensors.

    Attributes:
        foreach_bytes: bytes per number that operations on lists of tensors (``torch._foreach_...``) read and write.
        kernel_bytes: bytes per number that all operations on one tensor read and write, in sum.
    """

    foreach_bytes: float = 0.0
    kernel_bytes: float = 0.0
    kernels: float = 0.0

    def on(self, tensors: Iterable[TensorShape]) -> tuple[Operation, ...]:
        """Return the kernels of these elementwise operations on the tensors of an update."""
        count_by_elements = Counter(tensor.elements for tensor in tensors)
        total_elements = sum(elements * count for elements, count in count_by_elements.items())
        operations = []
        if self.foreach_bytes and total_elements:
            num_lists = max(1, round(self.foreach_bytes / LISTED_BYTES))  # operations of about so many bytes per number
            list_bytes = self.foreach_bytes * total_elements / num_lists
            operations.append(Operation("lists", nbytes=list_bytes, kernels=num_lists))
        if self.kernels:
            bytes_per_number = self.kernel_bytes / self.kernels
            for elements, count in count_by_elements.items():
                operations.append(memory(bytes_per_number * elements, self.kernels * count))
        return tuple(operations)


MOVE = ElementwiseWork(foreach_bytes=12)
"""The step itself, ``x <- x - lr d``."""

DECAY = ElementwiseWork(foreach_bytes=8)
"""Decoupled weight decay."""

ADAM = ElementwiseWork(foreach_bytes=80)
"""Adam's moments and its division."""

LEAST_RELATIVE_DIFFERENCE = 0.2
"""Smallest difference of an update's seconds from Adam's, over Adam's, that counts; less is within the model's error.

On H100 and H200, MT-DAO's update takes 0.98 to 1.06 of Adam's seconds; computed from its kernels, 1.13 of them."""


def above_adam_s(
    work: UpdateWork,
    tensors: Sequence[TensorShape],
    hardware: Hardware,
    renewal_period: float | None,
    updating: Updating,
) -> float:
    """Return the seconds per step by which an update takes longer than Adam's; 0 if it takes hardly longer.

    Args:
        renewal_period: steps between renewals of bases; None without renewals.
        updating: implementation of the update, and whether to include its messages.
    """
    seconds = work.seconds(hardware, renewal_period, updating)
    # Adam's update has two parts: its moments with the division, and the move of the parameters.
    adam_s = UpdateWork(ADAM.on(tensors) + MOVE.on(tensors)).seconds(hardware, renewal_period=None)
    return seconds - adam_s if seconds > (1 + LEAST_RELATIVE_DIFFERENCE) * adam_s else 0.0


BLOCK_VIEWS = 27
"""Views by which the blocks of a tensor are cut, packed and joined, beside those of the operands of products."""


def largest_numbers(numbers: float, count: float = 1.0) -> Operation:
    """Return ``count`` kernels that each choose the largest among ``numbers`` fp32 numbers."""
    return Operation("largest", (numbers,), nbytes=FP32_BYTES * numbers, kernels=count)


def block_messages(tensors: Iterable[TensorShape], k: int, chunk: int, has_basis: bool) -> tuple[Operation, ...]:
    """Return the kernels that pack the k largest coefficients of each block of tensors, and join received blocks.

    Args:
        k: number of coefficients of a block.
        chunk: largest length of a block along each dimension.
        has_basis: whether blocks are multiplied with a basis along each dimension. A worker transforms the blocks that
            it sends, and transforms back the sent and the received coefficients: three times in all.
    """
    operations: list[Operation] = []
    for shape, count in Counter(tensor.shape for tensor in tensors).items():
        block_sides = [largest_divisor(length, chunk) for length in shape] or [1]
        elements, block_elements = math.prod(shape), math.prod(block_sides)
        if has_basis:
            for side in block_sides:
                # (other side, side) (side, side) of each block; the blocks of a vector are rows of one product.
                other_side = block_elements // side if len(shape) > 1 else 1
                blocks = elements / other_side / side
                operations.append(product(other_side, side, side, "fp32", FP32_BYTES, groups=blocks, count=3 * count))
        operations += [largest_numbers(elements, count), Operation("view", kernels=BLOCK_VIEWS * count)]
        sent_part = min(k / block_elements, 1.0)
        number_bytes = 77 + 170 * sent_part  # by number: 77 of each, and 170 more of one that is sent
        operations.append(elementwise(number_bytes * elements, kernels=19, count=count))
    return tuple(operations)


def shapes_of(tensors: Iterable[TensorShape]) -> list[tuple[int, int, int]]:
    """Return the shorter side, the longer side and the count of each different shape of matrices among tensors."""
    counts = Counter((min(tensor.sides), max(tensor.sides)) for tensor in tensors if tensor.is_matrix)
    return [(short, long, count) for (short, long), count in counts.items()]


def fp32_product(m: float, n: float, k: float, count: float = 1.0) -> Operation:
    """Return ``count`` products ``(m, k) (k, n)`` of fp32 matrices."""
    return product(m, n, k, "fp32", FP32_BYTES, count=count)


def qr(rows: float, columns: float) -> Operation:
    """Return a kernel that decomposes one fp32 matrix: it reads the matrix and writes its orthogonal factor."""
    return Operation("qr", (rows, columns, 1.0), "fp32", 2 * FP32_BYTES * rows * columns)


def orthogonal_work(tensors: Sequence[TensorShape]) -> UpdateWork:
    """Return the work of orthogonalising every matrix among the tensors in each step, as Muon and Scion do.

    An iteration, ``X <- a X + (b A + c A^2) X`` with the d x d matrix ``A = X X^T``, has three products. All five
    iterations take ``5 (4 d^2 D + 2 d^3)`` FLOPs with d = min(m, n) and D = max(m, n).

    >>> orthogonal_work([TensorShape("w", (2, 2), True)]).flops(None)  # five iterations of three products
    240.0
    """
    step: list[Operation] = []
    iterations: list[Operation] = []
    for d, D, count in shapes_of(tensors):
        matrix_bytes, square_bytes = FP32_BYTES * d * D, FP32_BYTES * d * d
        step.append(elementwise(5 * matrix_bytes, kernels=4, count=count))  # norm, division, and the scale at the end
        repetitions = NEWTON_SCHULZ_STEPS * count
        for m, n, k in ((d, d, D), (d, d, d), (d, D, d)):  # X X^T, A^2, and the product with X
            iterations.append(fp32_product(m, n, k, repetitions))
        iterations.append(elementwise(5 * matrix_bytes, kernels=2, count=repetitions))  # a X plus the product
        iterations.append(elementwise(7 * square_bytes, kernels=3, count=repetitions))  # b A + c A^2
    return UpdateWork(tuple(step), iterations=tuple(iterations))


def low_rank_work(rows: int, columns: int, rank: int, products: int) -> UpdateWork:
    """Return the work of a power iteration, ``P = orth(M Q)`` and ``R = M^T P``, and of further products.

    Args:
        rows: m, rows of the matrix M.
        columns: n, columns of M.
        rank: r, rank of the factors P (m x r) and Q (n x r); the QR decomposition of P takes 8/3 m r^2 FLOPs.
        products: number of products of M with a factor, 2 m n r FLOPs each, with the two of the iteration.

    >>> low_rank_work(4, 2, 1, 3).step[0].flops  # one of three products of 16 FLOPs
    16.0
    """
    left_bytes, right_bytes = FP32_BYTES * rows * rank, FP32_BYTES * columns * rank  # bytes of P; bytes of Q, as of R
    operations = [
        fp32_product(rows, rank, columns),
        fp32_product(columns, rank, rows),
        fp32_product(rows, columns, rank, products - 2),
        qr(rows, rank),
        elementwise(7 * left_bytes, kernels=11),  # test P for zero, and choose its signs
        elementwise(11 * right_bytes, kernels=7),  # norms of the columns of R, which give Q
    ]
    return UpdateWork(tuple(operations))


def repeated(work: UpdateWork, count: float) -> UpdateWork:
    """Return the work of ``count`` equal updates in each step."""
    return work.every(1 / count)


SOURCES = ("1st", "2nd", "gradient")
"""Matrices that give the bases of basis rotation: averages of gradients, or of their products, or a gradient."""

GEOMETRIES = ("unilateral", "bilateral")
"""Sides of a matrix that basis rotation rotates: only the shorter, or both."""


def rotated_sides(rows: int, columns: int, geometry: str) -> tuple[int, ...]:
    """Return the lengths of the sides of a matrix that basis rotation rotates.

    >>> rotated_sides(4, 6, "bilateral"), rotated_sides(4, 6, "unilateral")
    ((4, 6), (4,))
    """
    require_one_of("geometry", geometry, GEOMETRIES)
    return (rows, columns) if geometry == "bilateral" else (min(rows, columns),)


def rotation_elements(rows: int, columns: int, source: str, geometry: str) -> int:
    """Return the number of elements that basis rotation stores beyond Adam's states for an m x n matrix.

    Each rotated side, of length d, has a basis of d^2 elements; with the source ``2nd`` also an average of as many.

    Source: Basis Rotation, Appendix H, Table 1.

    >>> [rotation_elements(4096, 4096, source, "bilateral") * 4 / 2**30 for source in ("2nd", "1st")]  # GiB
    [0.25, 0.125]
    """
    require_one_of("source", source, SOURCES)
    bases = sum(d * d for d in rotated_sides(rows, columns, geometry))
    return bases * (2 if source == "2nd" else 1)


def rotation_work(
    rows: int, columns: int, source: str, geometry: str, *, estimate: str = "power", momentum: str = "original"
) -> UpdateWork:
    """Return the work of updating one m x n matrix by basis rotation.

    Each rotated side of length d adds the following. A step takes three rotations of 2 m n d FLOPs (the gradient, the
    momentum, and the update back), and one product more with the source ``2nd``. A renewal takes 2 d^3 FLOPs per
    product with a basis, twice for a power iteration, and a decomposition of a d x d matrix; other sources than ``2nd``
    also multiply a matrix with its transpose. If the momentum is kept rotated, a step takes two rotations, and each
    renewal rotates the momentum to the new bases. Elementwise operations are Adam's and those that sort the basis
    vectors.

    Args:
        rows: m.
        columns: n.
        source: ``1st``, ``2nd`` or ``gradient``.
        geometry: ``unilateral`` or ``bilateral``.
        estimate: bases from one ``power`` iteration, or from an ``exact`` decomposition into eigenvectors.
        momentum: whether the momentum is kept in the ``original`` or in the ``rotated`` coordinates.

    >>> rotation_work(2, 2, "1st", "unilateral").flops(None)  # three products of 2 x 2 matrices
    48.0
    """
    require_one_of("source", source, SOURCES)
    require_one_of("estimate", estimate, ("power", "exact"))
    require_one_of("momentum", momentum, ("original", "rotated"))
    matrix_bytes = FP32_BYTES * rows * columns
    step, renewal = [elementwise(20 * matrix_bytes, kernels=8)], []  # Adam's moments, and its division
    if momentum == "rotated":
        renewal.append(memory(2 * matrix_bytes))
    for d in rotated_sides(rows, columns, geometry):
        basis_bytes = FP32_BYTES * d * d
        product_with_transpose = fp32_product(d, d, rows * columns / d)
        step.append(fp32_product(rows, columns, d, 3 if momentum == "original" else 2))
        if source == "2nd":
            step += [product_with_transpose, memory(3 * basis_bytes)]
        else:
            renewal.append(product_with_transpose)
        if source == "1st":
            renewal.append(memory(3 * matrix_bytes))
        if momentum == "rotated":
            renewal.append(fp32_product(rows, columns, d, 2))
        if estimate == "power":
            renewal += [fp32_product(d, d, d, 2), qr(d, d)]
            renewal += [elementwise(21 * basis_bytes, kernels=17), memory(3 * matrix_bytes, 2)]
        else:
            renewal += [fp32_product(d, d, d), Operation("eigh", (d, 1.0), "fp32", 2 * basis_bytes)]
            renewal.append(elementwise(19 * basis_bytes, kernels=12))
    return UpdateWork(tuple(step), tuple(renewal))


def stage_renewal_intervals(delays: Sequence[int], base: int, *, reversed_order: bool = False) -> list[int | None]:
    """Return the steps between renewals of bases at each pipeline stage; larger gradient delays have shorter intervals.

    A stage with a delay of tau updates has ``floor(base (mid + 1) / w)`` steps, with ``mid = floor(P / 2) - 1`` for P
    stages and ``w = tau + 1 if tau > mid else tau``. For an even P with delays P - 1 to 0 there are as many renewals
    in all as with ``base`` at every stage, apart from rounding. A stage without delay (with ``reversed_order``, the one
    with the largest delay) never renews its first basis (None). If all delays are equal, every stage has ``base``.

    Args:
        delays: tau of each of P stages, in updates.
        base: mean steps between renewals.
        reversed_order: whether the stage with the largest delay has the longest interval instead of the shortest.

    Source: Basis Rotation, Appendix I. The paper prints ``mid`` in place of ``mid + 1``, which divides by 0
    at a delay of 1 and is negative at 0.

    >>> stage_renewal_intervals([3, 2, 1, 0], 10)
    [5, 6, 20, None]
    """
    require(base >= 1, "frequency", base, "steps, at least 1")
    if any(delay < 0 for delay in delays):
        raise SpecError("delays", list(delays), "updates, at least 0")
    if len(set(delays)) <= 1:
        return [base] * len(delays)
    mid = len(delays) // 2 - 1
    intervals: list[int | None] = []
    for delay in delays:
        # Reversed, the largest delay changes places with the smallest, and so on.
        tau = max(delays) + min(delays) - delay if reversed_order else delay
        weight = tau + 1 if tau > mid else tau
        # A stage of weight 0 never renews its bases.
        intervals.append(max(1, base * (mid + 1) // weight) if weight else None)
    return intervals
