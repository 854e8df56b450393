"""Operations of a training step, and their seconds on a GPU whose kernels are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from syncline.costmodel.compute.hardware import Hardware
from syncline.costmodel.compute.kernel_rates import BACKWARD_OVER_FORWARD_ATTENTION, TILE_TOKENS

Kind = Literal[
    "product", "attention", "attention backward", "memory", "lists", "view", "qr", "cholesky", "eigh", "largest"
]

QR_FLOPS_FACTOR, EIGENVECTOR_FLOPS_FACTOR = 8 / 3, 9.0
"""FLOPs of a QR decomposition of m x r with its orthogonal factor over m r^2, and of eigenvectors of d x d over d^3.

Source: G. Golub, C. Van Loan, "Matrix Computations" (4th ed., 2013), sections 5.2 and 8.3."""

UPDATE_KINDS = ("lists", "view", "qr", "cholesky", "eigh", "largest")
"""Kinds of kernels that only updates have; on a GPU without measurements of them they take as long as their bytes."""


class Operation(NamedTuple):
    """A GPU kernel of a training step, or several equal ones.

    Attributes:
        kind: ``product`` of matrices; ``attention`` or ``attention backward``, a pass of fused attention; ``memory``,
            a kernel that the memory's bandwidth limits; ``lists``, such a kernel on lists of tensors; ``view``, which
            only the host runs; ``qr``, a QR decomposition by Householder reflections; ``cholesky``, one by two
            Cholesky decompositions; ``eigh``, eigenvectors; ``largest``, a top-k selection with its sorting.
        shape: ``(m, n, k)`` or, if grouped, ``(m, n, k, groups)`` of products ``(m, k) (k, n)``; ``(sequences, heads,
            queries, keys, head width)`` of attention; ``(rows, columns, matrices)`` of QR decompositions; ``(rows,
            matrices)`` of ``eigh``; ``(numbers,)`` of ``largest``; else empty.
        precision: number format of a product.
        nbytes: bytes that one kernel reads and writes.
        causal: whether attention masks half of the scores.
        kernels: number of such kernels, one after another; each may treat several matrices of its shape at once.
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
            return QR_FLOPS_FACTOR * rows * columns * columns * matrices
        if self.kind == "eigh":
            rows, matrices = self.shape
            return EIGENVECTOR_FLOPS_FACTOR * rows**3 * matrices
        if self.kind in ("memory", "lists", "view", "largest"):
            return 0.0
        sequences, heads, queries, keys, head_width = self.shape
        forward_flops = 4.0 * sequences * heads * queries * keys * head_width / (2 if self.causal else 1)
        return forward_flops if self.kind == "attention" else BACKWARD_OVER_FORWARD_ATTENTION * forward_flops


def product(
    m: float, n: float, k: float, precision: str, bytes_per_number: float, groups: float = 1.0, count: float = 1.0
) -> Operation:
    """Return ``count`` kernels that multiply matrices, each ``groups`` times ``(m, k) (k, n)``."""
    nbytes = bytes_per_number * groups * (m * k + k * n + m * n)
    shape = (m, n, k) if groups == 1 else (m, n, k, groups)
    return Operation("product", shape, precision, nbytes, kernels=count)


def memory(nbytes: float, count: float = 1.0) -> Operation:
    """Return ``count`` kernels; each reads and writes ``nbytes`` bytes in total."""
    return Operation("memory", nbytes=nbytes, kernels=count)


def elementwise(nbytes: float, kernels: int, count: float = 1.0) -> Operation:
    """Return ``count`` times ``kernels`` elementwise kernels that read and write ``nbytes`` together."""
    return memory(nbytes / kernels, kernels * count)


def kernel_s(operation: Operation, gpu: Hardware, attention: str = "flash") -> float:
    """Return the device's seconds of one of an operation's kernels, by the formulas of `kernel_rates`.

    Raises:
        SpecError: the GPU has no kernel of this number format or this kind of attention.
    """
    rates = gpu.kernels
    assert rates is not None
    # Memory of unknown bandwidth limits no kernel.
    memory_s = operation.nbytes / (rates.memory * (gpu.memory_bytes_per_s or float("inf")))
    kind, updates = operation.kind, rates.updates
    if kind == "memory" or (kind in UPDATE_KINDS and updates is None):
        return rates.floor_s + memory_s
    if kind in UPDATE_KINDS and updates is not None:
        if kind == "view":  # only the host runs a view
            return 0.0
        if kind == "lists":
            return rates.floor_s + memory_s / updates.lists
        return rates.floor_s + updates.seconds(kind, operation.shape, operation.flops)
    if kind == "product":
        product_rate = rates.product_rate(operation.precision)
        m, n, k, *groups = operation.shape
        relative_power = 1.0 if gpu.power_w is None else gpu.power_w / rates.power_w
        efficiency = product_rate.efficiency(m, n, k, groups[0] if groups else 1.0, relative_power)
        return rates.floor_s + max(operation.flops / (gpu.peak_flops * product_rate.peak * efficiency), memory_s)
    # Fused attention keeps its scores on the chip, so that memory does not limit it.
    sequences, heads, queries, keys, head_width = operation.shape
    tiles_per_multiprocessor = sequences * heads * queries / TILE_TOKENS / rates.multiprocessors
    attention_rate = rates.attention_rate(attention, backward=kind == "attention backward")
    efficiency = attention_rate.efficiency(keys, head_width, tiles_per_multiprocessor)
    return rates.floor_s + operation.flops / (gpu.peak_flops * efficiency)


class Seconds(NamedTuple):
    """The seconds of a sequence of kernels on the device and on its host.

    Attributes:
        device_s: seconds of the device, which runs the kernels one after another.
        launch_s: seconds of the host, which launches the kernels and runs ahead of the device.
    """

    device_s: float
    launch_s: float


def operations_s(
    operations: Iterable[Operation], gpu: Hardware, attention: str = "flash", eager: bool = False
) -> Seconds:
    """Return the seconds of a sequence of kernels on the device and on its host.

    Args:
        operations: kernels that run one after another.
        gpu: a GPU with ``kernels``.
        eager: whether the host runs each operation in Python; otherwise it only launches kernels.
    """
    assert gpu.kernels is not None
    device_s = num_kernels = 0.0
    for operation in operations:
        device_s += operation.kernels * kernel_s(operation, gpu, attention)
        num_kernels += operation.kernels
    return Seconds(device_s, num_kernels * (gpu.kernels.eager_s if eager else gpu.kernels.launch_s))


def eager_update_s(operations: Iterable[Operation], gpu: Hardware) -> float:
    """Return the seconds of an optimizer update's kernels, which the host dispatches while the device runs others."""
    assert gpu.kernels is not None and gpu.kernels.updates is not None
    device_s = host_s = 0.0
    for operation in operations:
        device_s += operation.kernels * kernel_s(operation, gpu)
        host_s += operation.kernels * gpu.kernels.updates.host_s(operation.kind)
    return max(device_s, host_s)
