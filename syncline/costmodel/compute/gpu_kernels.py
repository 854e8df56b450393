"""Rates of the kernels of GPUs, fitted to measured kernels; ``python -m benchmarks.kernel_rates`` repeats the fits.

| GPU        | products                                        | attention                        | memory   |
|------------|-------------------------------------------------|----------------------------------|----------|
| H100, H200 | measured by this project on an H100 of 700 W    | the same                         | the same |
| A100       | SimuMax (A100-80GB-PCIe, 300 W); fp32: NeuSight | SimuMax; FlashAttention-1: paper | NeuSight |
| B200       | SimuMax                                         | SimuMax                          | SimuMax  |

Sources: ``results/gpu/nvidia-h100-80gb-hbm3-shapes.json`` (1,205 rows); MooreThreads/SimuMax@3005b17, e691807
``configs/system`` (Apache-2.0) and sitar-lab/NeuSight ``scripts/asplos/data/dataset/train/collect`` (MIT), extracts in
``results/kernels``; T. Dao, "FlashAttention-2" (2023), section 1: FlashAttention reaches 30 to 50% of an A100's peak
forward and 25 to 35% backward.

Not measured, and so carried over: fp16 from bf16; MXFP8 and NVFP4 from fp8; the fp8 and TF32 of other GPUs from the
H100's; the half width of grouped products of the H100 (between those of A100 and B200); FlashAttention-1 on the H100,
which has the ratio to FlashAttention-2 of the A100; and the exponents of head sizes of A100 and B200 from the H100.
"""

from __future__ import annotations

from dataclasses import replace

from syncline.costmodel.compute.kernel_rates import AttentionRate, KernelRates, ProductRate

LAUNCH_S = 4.8e-6
"""Seconds in which a host launches a kernel without work: 1,000 launches on an H100's host, one after another."""

EAGER_LAYER_S, DISPATCHES, OPERATIONS = 0.70e-3, 44, 26
"""Seconds in which a host runs one more layer of an eager GPT, forward and backward, if the host is the limit.

Of its 44 dispatches PyTorch makes 26 operations of `transformer_operations`, and casts. Source: ``results/gpu``, an
H100, one sequence of 1,024 tokens in autocast: 13.4 ms for 12 layers, 21.8 ms for 24."""

DISPATCH_S, EAGER_S = EAGER_LAYER_S / DISPATCHES, EAGER_LAYER_S / OPERATIONS

FLOOR_S = 4.0e-6
"""Seconds that a kernel takes beside its work: the smallest of the measured products, without a queue before it."""

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
        ("fp32", replace(_FP32, peak=67 / 989.5)),
    ),
    attention=(
        ("flash", AttentionRate(0.3567, 544.7, 0.4, 0.3001), AttentionRate(0.3411, 1129.0, 0.4, 0.2517)),
        ("flash-1", AttentionRate(0.22, 0.0, 0.4, 0.3001), AttentionRate(0.19, 0.0, 0.4, 0.2517)),
        ("cudnn", AttentionRate(0.6415, 436.2, 0.4, 0.4341), AttentionRate(0.5938, 1076.0, 0.4, 0.4202)),
    ),
    memory=0.88,
    multiprocessors=132,
    power_w=700.0,
    launch_s=LAUNCH_S,
    dispatch_s=DISPATCH_S,
    eager_s=EAGER_S,
    floor_s=FLOOR_S,
    source="Kernels: measured by this project on an H100 SXM of 700 W (results/gpu), products within 3.9% and "
    "attention within 4.8% (medians).",
)

_A100_BF16 = ProductRate(1.0, 0.7584, 117.6, 6.756e5, 0.753, 75.6)

A100 = KernelRates(
    products=(
        ("bf16", _A100_BF16),
        ("fp16", _A100_BF16),
        ("tf32", replace(_A100_BF16, peak=0.5)),
        ("fp32", _FP32),
    ),
    attention=(
        ("flash", AttentionRate(0.6536, 233.2, 1.398, 0.3), AttentionRate(0.4987, 382.6, 0.4073, 0.25)),
        ("flash-1", AttentionRate(0.40, 0.0, 0.0, 0.3), AttentionRate(0.30, 0.0, 0.0, 0.25)),
    ),
    memory=0.82,
    multiprocessors=108,
    power_w=400.0,
    launch_s=LAUNCH_S,
    dispatch_s=DISPATCH_S,
    eager_s=EAGER_S,
    floor_s=FLOOR_S,
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
    launch_s=LAUNCH_S,
    dispatch_s=DISPATCH_S,
    eager_s=EAGER_S,
    floor_s=FLOOR_S,
    source="Kernels: SimuMax's B200 (products within 5.5%, attention within 9%, medians).",
)
