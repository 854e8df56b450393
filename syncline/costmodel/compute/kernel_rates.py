"""Rates of a GPU's kernels: matrix products by shape and number format, attention, and kernels that memory bounds.

A kernel takes the seconds ``t``, with P the peak of its number format and B the bandwidth of the memory:

    product     t = t_0 + max(F / (P e), bytes / (beta B))
                e = min(e_max k / (k + k_0) A / (A + A_0), e_sustained min(1, W / W_0)) m / (m + m_0)
    attention   t = t_0 + F / (P e),   e = e_max min(1, c / 128)^p s / (s + s_0) w / (w + w_0)
    others      t = t_0 + bytes / (beta B)

A product ``(m, k) (k, n)`` has F = 2 m n k FLOPs and A = m n results. Short sums cannot hide the loads of their
operands, and few results do not fill the GPU. Long products reach the limit of the chip's power: ``e_sustained`` at W_0
watts, in proportion less under a lower limit W, because the power of a chip at a fixed voltage is proportional to its
clock. Grouped products (experts) have A results together, and ``m / (m + m_0)``, with m the shorter side of a group,
counts incomplete tiles. Attention of b sequences of s tokens with a heads of c numbers has F = 4 b a s^2 c, half of it
with a causal mask, and 2.5 times as much in its backward pass; it has w = b a s / 128 tiles per multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.errors import SpecError, one_of

FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4")
"""Number formats of matrix products."""

GRADIENT_FORMATS = {"fp32": "fp32", "tf32": "fp32", "bf16": "bf16", "fp16": "fp16"}
"""Formats of gradients by that of the products; the gradients of products in 8 bits and less are bf16."""

ATTENTION_KINDS = ("flash", "flash-1", "cudnn", "eager")
"""FlashAttention-2, FlashAttention (1), cuDNN's fused attention, and products with softmax between them."""

BACKWARD_ATTENTION = 2.5
"""FLOPs of attention's backward pass over those of its forward pass: five products instead of two."""

TILE_TOKENS = 128
"""Queries of a tile of fused attention."""


def known_format(name: str, path: str = "precision") -> str:
    """Return the name of a number format.

    Raises:
        SpecError: there is no such format.
    """
    if name not in FORMATS:
        raise SpecError(path, name, one_of(FORMATS, name))
    return name


def gradient_format(name: str) -> str:
    """Return the format of gradients if products are in the format ``name``."""
    return GRADIENT_FORMATS.get(name, "bf16")


def bytes_per_activation(name: str) -> int:
    """Return the bytes of an activation if products are in the format ``name``."""
    return 4 if name in ("fp32", "tf32") else 2


@dataclass(frozen=True)
class ProductRate:
    """The efficiency of matrix products in one number format.

    Args:
        peak: peak of the format over that of the hardware's ``precision``.
        largest: e_max.
        half_depth: k_0, the depth k of half of the efficiency.
        half_area: A_0.
        sustained: e_sustained.
        half_width: m_0.
    """

    peak: float
    largest: float
    half_depth: float
    half_area: float
    sustained: float
    half_width: float = 0.0

    def efficiency(self, m: float, n: float, k: float, groups: float = 1.0, power: float = 1.0) -> float:
        """Return e, the FLOP/s of ``groups`` products over the format's peak; ``power`` is W / W_0."""
        area = groups * m * n
        shaped = self.largest * k / (k + self.half_depth) * area / (area + self.half_area)
        full = min(shaped, self.sustained * min(1.0, power))
        side = min(m, n)
        return full if groups == 1 else full * side / (side + self.half_width)


@dataclass(frozen=True)
class AttentionRate:
    """The efficiency of one pass of fused attention, over the peak of its 16-bit products.

    Args:
        largest: e_max.
        half_sequence: s_0.
        half_waves: w_0.
        head_power: p.
    """

    largest: float
    half_sequence: float
    half_waves: float
    head_power: float

    def efficiency(self, sequence: float, head: float, waves: float) -> float:
        """Return e for s tokens, heads of ``head`` numbers, and ``waves`` tiles per multiprocessor."""
        filled = sequence / (sequence + self.half_sequence) * waves / (waves + self.half_waves)
        return self.largest * min(1.0, head / 128) ** self.head_power * filled


@dataclass(frozen=True)
class KernelRates:
    """The rates of a GPU's kernels.

    Args:
        products: efficiencies by number format.
        attention: forward and backward efficiency by kind of attention.
        memory: beta, the share of the memory's bandwidth that elementwise kernels reach.
        multiprocessors: number of multiprocessors.
        power_w: W_0, the power limit at which the rates were measured, in watts.
        launch_s: seconds in which the host launches a kernel.
        dispatch_s: seconds in which the host dispatches an operation of PyTorch.
        eager_s: seconds in which the host runs an operation of `transformer_operations` eagerly.
        floor_s: t_0.
        source: origin of the numbers.
    """

    products: tuple[tuple[str, ProductRate], ...]
    attention: tuple[tuple[str, AttentionRate, AttentionRate], ...]
    memory: float
    multiprocessors: int
    power_w: float
    launch_s: float
    dispatch_s: float
    eager_s: float
    floor_s: float
    source: str

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the number formats that the GPU multiplies."""
        return tuple(name for name, _ in self.products)

    def product(self, precision: str) -> ProductRate:
        """Return the efficiencies of products in a number format.

        Raises:
            SpecError: the GPU has no products in this format.
        """
        for name, rate in self.products:
            if name == precision:
                return rate
        raise SpecError("precision", precision, one_of(self.formats, precision))

    def attention_pass(self, kind: str, backward: bool) -> AttentionRate:
        """Return the efficiency of one pass of fused attention.

        Raises:
            SpecError: no rate of this kind of attention is known for the GPU.
        """
        for name, forward_rate, backward_rate in self.attention:
            if name == kind:
                return backward_rate if backward else forward_rate
        names = tuple(name for name, _, _ in self.attention)
        raise SpecError("compute.kernels.attention", kind, one_of((*names, "eager"), kind))
