"""Operations of a training step, and their seconds on a GPU whose kernels are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.kernel_rates import BACKWARD_ATTENTION, TILE_TOKENS

Kind = Literal[
    "product", "attention", "attention backward", "memory", "lists", "view", "qr", "cholesky", "eigh", "largest"
]


QR_FLOPS, EIGENVECTOR_FLOPS = 8 / 3, 9.0
"""FLOPs of a QR decomposition with its orthogonal factor over m r^2, and of eigenvectors over d^3.

Source: G. Golub, C. Van Loan, "Matrix Computations" (4th ed., 2013), sections 5.2 and 8.3."""


UPDATES = ("lists", "view", "qr", "cholesky", "eigh", "largest")
"""Kinds of kernels of updates; without a measurement they take as long as their bytes."""


class Operation(NamedTuple):
    """A GPU kernel of a training step, or several equal ones.

    Attributes:
        kind: a matrix product, a pass of fused attention, or ``memory``, a kernel that the memory's bandwidth limits;
            ``lists``, the same on lists of tensors; ``view``, on which only the host works; a decomposition ``qr`` (by
            Householder reflections), ``cholesky`` (a QR decomposition by two Cholesky decompositions) or ``eigh``
            (eigenvectors); or ``largest``, the choice and the order of the largest numbers.
        shape: of a product ``(m, k) (k, n)`` the sizes ``(m, n, k)`` or, if grouped, ``(m, n, k, groups)``; of
            attention ``(sequences, heads, queries, keys, head width)``; of QR decompositions the rows, the columns and
            the number of matrices; of ``eigh`` the rows and the number of matrices; of ``largest`` the numbers to
            choose from; else empty.
        precision: number format of a product.
        nbytes: bytes that a kernel reads and writes.
        causal: whether attention masks half of the scores.
        kernels: number of such kernels.
    """

    kind: Kind
    shape: tuple[float, ...] = ()
    precision: str = "bf16"
    nbytes: float = 0.0
    causal: bool = False
    kernels: float = 1.0

    @property
    def flops(self) -> float:
        """Return the FLOPs of one kernel; a causal mask halves those of attention."""
        if self.kind == "product":
            m, n, k, *groups = self.shape
            return 2.0 * m * n * k * (groups[0] if groups else 1.0)
        if self.kind in ("qr", "cholesky"):
            rows, columns, matrices = self.shape
            return QR_FLOPS * rows * columns * columns * matrices
        if self.kind == "eigh":
            rows, matrices = self.shape
            return EIGENVECTOR_FLOPS * rows**3 * matrices
        if self.kind in ("memory", "lists", "view", "largest"):
            return 0.0
        sequences, heads, queries, keys, head_width = self.shape
        forward_flops = 4.0 * sequences * heads * queries * keys * head_width / (2 if self.causal else 1)
        return forward_flops if self.kind == "attention" else BACKWARD_ATTENTION * forward_flops


def product(
    m: float, n: float, k: float, precision: str, bytes_per_number: float, groups: float = 1.0, count: float = 1.0
) -> Operation:
    """Return ``count`` kernels that multiply matrices, each ``groups`` times ``(m, k) (k, n)``."""
    nbytes = bytes_per_number * groups * (m * k + k * n + m * n)
    shape = (m, n, k) if groups == 1 else (m, n, k, groups)
    return Operation("product", shape, precision, nbytes, kernels=count)


def memory(nbytes: float, count: float = 1.0) -> Operation:
    """Return ``count`` kernels that read and write ``nbytes`` each."""
    return Operation("memory", nbytes=nbytes, kernels=count)


def operation_s(operation: Operation, on: Hardware, attention: str = "flash") -> float:
    """Return the seconds of one kernel on a GPU, by the formulas of `syncline.costmodel.compute.kernel_rates`.

    Args:
        operation: the kernel.
        on: a GPU with ``kernels``.
        attention: kind of fused attention.

    Raises:
        SpecError: the GPU has no kernel of this number format or this kind of attention.
    """
    kernels = on.kernels
    assert kernels is not None
    # Memory of unknown bandwidth limits no kernel.
    memory_s = operation.nbytes / (kernels.memory * (on.memory_bytes_per_s or float("inf")))
    if operation.kind == "memory" or (operation.kind in UPDATES and kernels.updates is None):
        return kernels.floor_s + memory_s
    if operation.kind in UPDATES:
        assert kernels.updates is not None
        if operation.kind == "view":  # only the host works
            return 0.0
        if operation.kind == "lists":
            return kernels.floor_s + memory_s / kernels.updates.lists
        return kernels.floor_s + kernels.updates.seconds(operation.kind, operation.shape, operation.flops)
    if operation.kind == "product":
        product_rate = kernels.product(operation.precision)
        m, n, k, *groups = operation.shape
        power = 1.0 if on.power_w is None else on.power_w / kernels.power_w  # limit over that of the measurements
        efficiency = product_rate.efficiency(m, n, k, groups[0] if groups else 1.0, power)
        return kernels.floor_s + max(operation.flops / (on.peak_flops * product_rate.peak * efficiency), memory_s)
    sequences, heads, queries, keys, head_width = operation.shape
    waves = sequences * heads * queries / TILE_TOKENS / kernels.multiprocessors  # tiles per multiprocessor
    attention_rate = kernels.attention_pass(attention, backward=operation.kind == "attention backward")
    return kernels.floor_s + operation.flops / (on.peak_flops * attention_rate.efficiency(keys, head_width, waves))


class Seconds(NamedTuple):
    """The seconds of a sequence of kernels on the device and on its host.

    Attributes:
        device_s: seconds of the device, which runs the kernels one after another.
        launch_s: seconds of the host, which launches the kernels and runs ahead of the device.
    """

    device_s: float
    launch_s: float

    @property
    def total_s(self) -> float:
        """Return the seconds until all kernels have run: the host launches kernels while earlier ones run."""
        return max(self.device_s, self.launch_s)


def operations_s(
    operations: Iterable[Operation], on: Hardware, attention: str = "flash", eager: bool = False
) -> Seconds:
    """Return the seconds of a sequence of kernels on the device and on its host.

    Args:
        operations: kernels that run one after another.
        on: a GPU with ``kernels``.
        attention: kind of fused attention.
        eager: whether the host runs each operation in Python; otherwise it only launches kernels.
    """
    kernels = on.kernels
    assert kernels is not None
    device_s = num_kernels = 0.0
    for operation in operations:
        device_s += operation.kernels * operation_s(operation, on, attention)
        num_kernels += operation.kernels
    return Seconds(device_s, num_kernels * (kernels.eager_s if eager else kernels.launch_s))


def update_s(operations: Iterable[Operation], on: Hardware) -> float:
    """Return the seconds of an optimizer update's kernels, which the host dispatches while the device runs others.

    Args:
        on: a GPU whose kernels of updates are known.
    """
    assert on.kernels is not None and on.kernels.updates is not None
    device_s = host_s = 0.0
    for operation in operations:
        device_s += operation.kernels * operation_s(operation, on)
        host_s += operation.kernels * on.kernels.updates.host_s(operation.kind)
    return max(device_s, host_s)
