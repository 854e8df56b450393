"""Rates of a GPU's kernels: matrix products by shape and number format, attention, and kernels that memory limits.

A kernel takes t seconds, with P the peak of its number format in FLOP/s and B the bandwidth of the memory:

    product     t = t_0 + max(F / (P e), bytes / (beta B))
                e = min(e_max k / (k + k_0) A / (A + A_0), e_sustained min(1, W / W_0)) m / (m + m_0)
    attention   t = t_0 + F / (P e),   e = e_max min(1, c / 128)^p s / (s + s_0) w / (w + w_0)
    decomposed  t = t_0 + t_1 + a r + b m r + F / c                 of an m x r matrix
    others      t = t_0 + bytes / (beta B)

A product ``(m, k) (k, n)`` has F = 2 m n k FLOPs and A = m n results. Short sums (k) cannot hide the loads of their
operands, and few results (A) do not fill the GPU. Long products reach the limit of the chip's power: ``e_sustained`` at
W_0 watts, in proportion less under a lower limit W, because the power of a chip at a fixed voltage is proportional to
its clock. For grouped products (experts), A counts the results of all groups, and ``m / (m + m_0)``, with m the shorter
side of a group, accounts for incomplete tiles; it is 1 for a single product. Attention of b sequences of s tokens with
a heads of c numbers has F = 4 b a s^2 c, half of it with a causal mask, and 2.5 times as much in its backward pass; it
has w = b a s / 128 tiles per multiprocessor.

The rates are fitted to measured kernels (``python -m benchmarks.kernel_rates`` repeats the fits):

| GPU        | products                                        | attention                        | memory   |
|------------|-------------------------------------------------|----------------------------------|----------|
| H100, H200 | measured by this project on an H100 of 700 W    | the same                         | the same |
| H200       | fp32, decompositions: this project on an H200   |                                  |          |
| A100       | SimuMax (A100-80GB-PCIe, 300 W); fp32: NeuSight | SimuMax; FlashAttention-1: paper | NeuSight |
| B200       | SimuMax                                         | SimuMax                          | SimuMax  |

Sources: ``results/gpu/nvidia-h100-80gb-hbm3-shapes.json`` (1,205 rows), ``results/gpu/nvidia-h200-updates.json`` and
the parts ``kernels`` beside them; MooreThreads/SimuMax@3005b17, e691807
``configs/system`` (Apache-2.0) and sitar-lab/NeuSight ``scripts/asplos/data/dataset/train/collect`` (MIT), extracts in
``results/kernels``; T. Dao, "FlashAttention-2" (2023), section 1: FlashAttention reaches 30 to 50% of an A100's peak
forward and 25 to 35% backward.

These rates were not measured: fp16 is that of bf16; MXFP8 and NVFP4 are those of fp8; the fp8 and TF32 of other GPUs
are the H100's; m_0 of the H100 lies between those of A100 and B200; the ratio of FlashAttention-1 to FlashAttention-2
on the H100 is that of the A100; and the exponents p of A100 and B200 are the H100's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from syncline.errors import SpecError, one_of, require_one_of

FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4")
"""Number formats of matrix products."""

GRADIENT_FORMATS = {"fp32": "fp32", "tf32": "fp32", "bf16": "bf16", "fp16": "fp16"}
"""Formats of gradients by that of the products; the gradients of products in 8 bits and less are bf16."""

AttentionKind = Literal["flash", "flash-1", "cudnn", "eager"]
"""FlashAttention-2, FlashAttention (1), cuDNN's fused attention, and products with softmax between them."""

BACKWARD_OVER_FORWARD_ATTENTION = 2.5
"""FLOPs of attention's backward pass over those of its forward pass: five products instead of two."""

TILE_TOKENS = 128
"""Queries of a tile of fused attention."""

LAUNCH_S = 4.8e-6
"""Seconds in which a host launches a kernel without work: 1,000 launches on an H100's host, one after another."""

EAGER_LAYER_S, DISPATCHES, OPERATIONS = 0.70e-3, 44, 26
"""Seconds, dispatches and operations of one more layer of an eager GPT, forward and backward, if the host is the limit.

PyTorch dispatches 44 kernels, of which `transformer_operations` counts 26; the others are casts. Source:
``results/gpu``, an H100, one sequence of 1,024 tokens in autocast: 13.4 ms for 12 layers, 21.8 ms for 24."""

FLOOR_S = 4.0e-6
"""Seconds that a kernel takes beside its work: the smallest of the measured products, without a queue before it."""


def gradient_format(name: str) -> str:
    """Return the number format of gradients if matrices are multiplied in the format ``name``."""
    return GRADIENT_FORMATS.get(name, "bf16")


def bytes_per_number(name: str) -> int:
    """Return the bytes of an activation or gradient if matrices are multiplied in the number format ``name``."""
    return 4 if name in ("fp32", "tf32") else 2


@dataclass(frozen=True)
class ProductRate:
    """The efficiency of matrix products in one number format, with the symbols of the module's formulas.

    Args:
        peak: peak of the format over that of the hardware's ``precision``.
        largest: e_max, the efficiency that very large products would have if power were not limited.
        half_depth: k_0, the depth k at which a product has half of the efficiency.
        half_area: A_0, the number of results at which a product has half of the efficiency.
        sustained: e_sustained, the efficiency at the limit of the power.
        half_width: m_0, the shorter side at which grouped products have half of the efficiency.
    """

    peak: float
    largest: float
    half_depth: float
    half_area: float
    sustained: float
    half_width: float = 0.0

    def efficiency(self, m: float, n: float, k: float, groups: float = 1.0, relative_power: float = 1.0) -> float:
        """Return the FLOP/s of ``groups`` products ``(m, k) (k, n)`` over the peak of their number format.

        With A = groups m n results it is ``min(e_max k / (k + k_0) A / (A + A_0), e_sustained min(1, W / W_0))``. If
        there are several groups, it is multiplied by ``s / (s + m_0)`` with s = min(m, n).

        Args:
            m: rows of a result.
            n: columns of a result.
            k: length of the sums.
            relative_power: W / W_0, the power limit over that of the measurements.
        """
        results = groups * m * n
        shape_limit = self.largest * k / (k + self.half_depth) * results / (results + self.half_area)
        power_limit = self.sustained * min(1.0, relative_power)
        efficiency = min(shape_limit, power_limit)
        if groups == 1:  # only grouped products have a `half_width`
            return efficiency
        shorter_side = min(m, n)
        return efficiency * shorter_side / (shorter_side + self.half_width)


@dataclass(frozen=True)
class AttentionRate:
    """The efficiency of fused attention's forward or backward pass: its FLOP/s over the peak of 16-bit products.

    Args:
        largest: e_max, with the symbols of `efficiency`.
        half_sequence: s_0, the tokens at which attention has half of the efficiency.
        half_waves: w_0, the tiles per multiprocessor at which attention has half of the efficiency.
        head_power: p, the exponent of the head's width.
    """

    largest: float
    half_sequence: float
    half_waves: float
    head_power: float

    def efficiency(self, sequence: float, head_width: float, waves: float) -> float:
        """Return the FLOP/s of attention over the peak: ``e_max min(1, c / 128)^p s / (s + s_0) w / (w + w_0)``.

        The class has the constants.

        Args:
            sequence: s, tokens of a sequence.
            head_width: c, width of a head.
            waves: w, tiles of 128 queries per multiprocessor.
        """
        occupancy = sequence / (sequence + self.half_sequence) * waves / (waves + self.half_waves)
        return self.largest * min(1.0, head_width / 128) ** self.head_power * occupancy


@dataclass(frozen=True)
class DecompositionRate:
    """The seconds of a decomposition of F FLOPs of an m x r matrix: ``t + a r + b m r + F / c``.

    Householder reflections process the r columns one after another, each by small kernels that read the remaining
    matrix. The FLOPs are those of matrix products.

    Args:
        column_s: a, seconds per column.
        entry_s: b, seconds per entry of the matrix.
        flops_per_s: c, rate of the products.
        start_s: t, seconds to start.
    """

    column_s: float
    entry_s: float
    flops_per_s: float
    start_s: float = 0.0

    def seconds(self, shape: tuple[float, ...], flops: float) -> float:
        """Return the seconds of decompositions; the shape has rows, columns (unless square) and number of matrices."""
        rows, matrices = shape[0], shape[-1]
        columns = shape[-2]  # square matrices have the shape (rows, matrices)
        return self.start_s + matrices * columns * (self.column_s + rows * self.entry_s) + flops / self.flops_per_s


@dataclass(frozen=True)
class UpdateRates:
    """The rates of the kernels of eager updates, and the seconds in which the host dispatches them.

    Args:
        qr: QR decompositions of fp32 matrices by Householder reflections.
        cholesky: the same by two Cholesky decompositions (of the matrix's Gram matrix, then of the result's).
        eigh: eigenvectors of symmetric fp32 matrices.
        largest: seconds of choosing the largest of several numbers: a constant, and seconds per number.
        lists: bandwidth of operations on lists of tensors over that of other elementwise operations.
        dispatch_s: seconds of the host per operation.
        product_dispatch_s: seconds of the host per matrix product, with the views of its operands.
        largest_dispatch_s: seconds of the host to choose and order the largest numbers.
        view_s: seconds of the host per view of a tensor, beside those of products' operands.
    """

    qr: DecompositionRate
    cholesky: DecompositionRate
    eigh: DecompositionRate
    largest: tuple[float, float]
    lists: float
    dispatch_s: float
    product_dispatch_s: float
    largest_dispatch_s: float
    view_s: float

    def seconds(self, kind: str, shape: tuple[float, ...], flops: float) -> float:
        """Return the seconds of a matrix decomposition, or of a top-k selection, on the device.

        Args:
            kind: ``qr``; ``cholesky``, or a QR decomposition by reflections where that is faster; ``eigh``; or
                ``largest``, the top-k selection.
            shape: see `syncline.costmodel.compute.operations.Operation`.

        Returns:
            The seconds without the ``floor_s`` of any kernel.
        """
        if kind == "largest":
            (numbers,) = shape
            constant_s, seconds_per_number = self.largest
            return constant_s + seconds_per_number * numbers
        if kind == "eigh":
            return self.eigh.seconds(shape, flops)
        qr_s = self.qr.seconds(shape, flops)
        return min(self.cholesky.seconds(shape, flops), qr_s) if kind == "cholesky" else qr_s

    def host_s(self, kind: str) -> float:
        """Return the seconds in which the host dispatches a kernel of an update, by the kind of its `Operation`."""
        if kind in ("qr", "cholesky", "eigh"):  # the device's seconds contain those of the host
            return 0.0
        special_s = {"product": self.product_dispatch_s, "largest": self.largest_dispatch_s, "view": self.view_s}
        return special_s.get(kind, self.dispatch_s)


@dataclass(frozen=True)
class KernelRates:
    """The rates at which a GPU runs kernels: products by number format, attention, memory, launches.

    Args:
        products: efficiencies by number format.
        attention: forward and backward efficiency by kind of attention.
        memory: beta, the share of the memory's bandwidth that elementwise kernels reach.
        power_w: W_0, the power limit at which the rates were measured, in watts.
        source: origin of the numbers.
        launch_s: seconds in which the host launches a kernel of a compiled step.
        dispatch_s: seconds in which the host of an eager step dispatches an operation of PyTorch.
        eager_s: the same seconds per operation of `transformer_operations`, which leaves out some of PyTorch's.
        floor_s: t_0, seconds that a kernel takes beside its work.
        updates: rates of the kernels of updates; None if they were not measured.
    """

    products: tuple[tuple[str, ProductRate], ...]
    attention: tuple[tuple[str, AttentionRate, AttentionRate], ...]
    memory: float
    multiprocessors: int
    power_w: float
    source: str
    launch_s: float = LAUNCH_S
    dispatch_s: float = EAGER_LAYER_S / DISPATCHES
    eager_s: float = EAGER_LAYER_S / OPERATIONS
    floor_s: float = FLOOR_S
    updates: UpdateRates | None = None

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the number formats in which the GPU multiplies matrices."""
        return tuple(name for name, _ in self.products)

    def product_rate(self, precision: str) -> ProductRate:
        """Return the efficiency of a GPU's matrix products in a number format."""
        require_one_of("precision", precision, self.formats)
        return dict(self.products)[precision]

    def attention_rate(self, kind: str, backward: bool) -> AttentionRate:
        """Return the efficiency of the forward or backward pass of fused attention on a GPU."""
        rates = {name: (forward_rate, backward_rate) for name, forward_rate, backward_rate in self.attention}
        if kind not in rates:
            raise SpecError("compute.kernels.attention", kind, one_of((*rates, "eager"), kind))
        forward_rate, backward_rate = rates[kind]
        return backward_rate if backward else forward_rate


_H100_BF16 = ProductRate(1.0, 1.012, 437.4, 6.926e5, 0.7339, 130.0)
_H100_FP8 = ProductRate(2.0, 1.119, 903.3, 1.068e6, 0.6907, 130.0)
_H100_TF32 = ProductRate(0.5, 0.9768, 364.8, 9.805e5, 0.7269, 130.0)
_FP32 = ProductRate(19.5 / 312, 0.7884, 90.03, 1.963e4, 0.7967)

H100 = KernelRates(
    products=(
        ("bf16", _H100_BF16),
        ("fp16", _H100_BF16),
        ("fp8", _H100_FP8),
        ("tf32", _H100_TF32),
        ("fp32", ProductRate(67 / 989.5, 0.9087, 226.9, 2.531e5, 0.7378)),
    ),
    attention=(
        ("flash", AttentionRate(0.3567, 544.7, 0.4, 0.3001), AttentionRate(0.3411, 1129.0, 0.4, 0.2517)),
        ("flash-1", AttentionRate(0.22, 0.0, 0.4, 0.3001), AttentionRate(0.19, 0.0, 0.4, 0.2517)),
        ("cudnn", AttentionRate(0.6415, 436.2, 0.4, 0.4341), AttentionRate(0.5938, 1076.0, 0.4, 0.4202)),
    ),
    memory=0.88,
    multiprocessors=132,
    power_w=700.0,
    source="Kernels: measured by this project on an H100 SXM of 700 W (results/gpu), products within 3.9% and "
    "attention within 4.8% (medians).",
    updates=UpdateRates(
        qr=DecompositionRate(3.57e-6, 7.97e-10, 1.06e14),
        cholesky=DecompositionRate(8.27e-7, 0.0, 1.28e13, 3.28e-4),
        eigh=DecompositionRate(9.64e-6, 0.0, 1.16e13),
        largest=(6.4e-5, 1.48e-11),
        lists=0.85,
        dispatch_s=11.9e-6,
        product_dispatch_s=20.7e-6,
        largest_dispatch_s=67e-6,
        view_s=2.8e-6,
    ),
)

_A100_BF16 = ProductRate(1.0, 0.7584, 117.6, 6.756e5, 0.753, 75.6)

A100 = KernelRates(
    products=(("bf16", _A100_BF16), ("fp16", _A100_BF16), ("tf32", replace(_A100_BF16, peak=0.5)), ("fp32", _FP32)),
    attention=(
        ("flash", AttentionRate(0.6536, 233.2, 1.398, 0.3), AttentionRate(0.4987, 382.6, 0.4073, 0.25)),
        ("flash-1", AttentionRate(0.40, 0.0, 0.0, 0.3), AttentionRate(0.30, 0.0, 0.0, 0.25)),
    ),
    memory=0.82,
    multiprocessors=108,
    power_w=400.0,
    source="Kernels: SimuMax's A100 (products within 2.8%, attention within 10%, medians); memory, fp32: NeuSight.",
)

_B200_BF16 = ProductRate(1.0, 1.312, 1050.0, 2.497e6, 0.4896, 229.8)
_B200_FP8 = replace(_B200_BF16, peak=2.0)

B200 = KernelRates(
    products=(
        ("bf16", _B200_BF16),
        ("fp16", _B200_BF16),
        ("fp8", _B200_FP8),
        ("mxfp8", _B200_FP8),
        ("nvfp4", replace(_B200_BF16, peak=4.0)),
        ("tf32", replace(_B200_BF16, peak=0.5)),
        ("fp32", replace(_FP32, peak=75 / 2250)),
    ),
    attention=(("cudnn", AttentionRate(0.5527, 0.0, 3.552, 0.4), AttentionRate(0.4137, 256.8, 0.3853, 0.4)),),
    memory=0.666,
    multiprocessors=148,
    power_w=1000.0,
    source="Kernels: SimuMax's B200 (products within 5.5%, attention within 9%, medians).",
)
