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
which the paper's ratio to FlashAttention-2 on the A100 gives.
"""

from __future__ import annotations

from dataclasses import replace

from syncline.costmodel.compute.kernel_rates import AttentionRate, KernelRates, ProductRate

LAUNCH_S = 4.8e-6
"""Seconds in which a host launches a kernel without work: 1,000 launches on an H100's host, one after another."""

EAGER_S = 27e-6
"""Seconds in which a host runs one operation of an eager training step: Python, autograd, casts, and launches.

One more layer of a GPT takes 0.70 ms forward and backward if the host is the limit (``results/gpu``, an H100: 13.4 ms
for 12 layers, 21.8 ms for 24, one sequence of 1,024 tokens), and has 26 operations of `transformer_operations`."""

FLOOR_S = 4.0e-6
"""Seconds that a kernel takes beside its work: the smallest of the measured products, without a queue before it."""

_H100_BF16 = ProductRate(1.0, 1.01, 437.0, 6.9e5, 0.734, 130.0)
_H100_FP8 = ProductRate(2.0, 1.12, 903.0, 1.07e6, 0.690, 130.0)
_H100_TF32 = ProductRate(0.5, 0.976, 365.0, 9.8e5, 0.727, 130.0)
_FP32 = ProductRate(19.5 / 312, 0.776, 55.0, 680.0, 0.786)

H100 = KernelRates(
    products=(
        ("bf16", _H100_BF16),
        ("fp16", _H100_BF16),
        ("fp8", _H100_FP8),
        ("tf32", _H100_TF32),
        ("fp32", replace(_FP32, peak=67 / 989.5)),
    ),
    attention=(
        ("flash", AttentionRate(0.370, 319.0, 0.0, 0.15), AttentionRate(0.347, 1022.0, 0.0, 0.15)),
        ("flash-1", AttentionRate(0.25, 319.0, 0.0, 0.15), AttentionRate(0.21, 1022.0, 0.0, 0.15)),
        ("cudnn", AttentionRate(0.629, 275.0, 0.5, 0.37), AttentionRate(0.581, 987.0, 0.0, 0.41)),
    ),
    memory=0.88,
    multiprocessors=132,
    power_w=700.0,
    launch_s=LAUNCH_S,
    eager_s=EAGER_S,
    floor_s=FLOOR_S,
    source="Kernels: measured by this project on an H100 SXM of 700 W (results/gpu), products within 3.9% and "
    "attention within 3% (medians).",
)

_A100_BF16 = ProductRate(1.0, 0.758, 118.0, 6.8e5, 0.753, 78.0)

A100 = KernelRates(
    products=(
        ("bf16", _A100_BF16),
        ("fp16", _A100_BF16),
        ("tf32", replace(_A100_BF16, peak=0.5)),
        ("fp32", _FP32),
    ),
    attention=(
        ("flash", AttentionRate(0.643, 160.0, 1.44, 0.15), AttentionRate(0.486, 271.0, 0.42, 0.15)),
        ("flash-1", AttentionRate(0.40, 0.0, 0.0, 0.15), AttentionRate(0.30, 0.0, 0.0, 0.15)),
    ),
    memory=0.82,
    multiprocessors=108,
    power_w=400.0,
    launch_s=LAUNCH_S,
    eager_s=EAGER_S,
    floor_s=FLOOR_S,
    source="Kernels: SimuMax's A100 (products within 2.8%, attention within 10%, medians); memory, fp32: NeuSight.",
)

_B200_BF16 = ProductRate(1.0, 1.31, 1050.0, 2.5e6, 0.490, 207.0)
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
    attention=(("cudnn", AttentionRate(0.547, 1.0, 1.86, 0.4), AttentionRate(0.414, 260.0, 0.44, 0.4)),),
    memory=0.666,
    multiprocessors=148,
    power_w=1000.0,
    launch_s=LAUNCH_S,
    eager_s=EAGER_S,
    floor_s=FLOOR_S,
    source="Kernels: SimuMax's B200 (products within 5.5%, attention within 9%, medians).",
)
