"""Hardware by name: how long a worker computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, require
from syncline.costmodel.presets import preset
from syncline.errors import SpecError


@dataclass(frozen=True)
class Hardware:
    """One accelerator, or one core: its peak and the part of it that training reaches.

    Args:
        name: for people.
        peak_flops: the vendor's dense peak at ``precision`` (without structured sparsity), in FLOP/s; positive.
        mfu: model FLOPs utilisation, the fraction of the peak that a training step does useful work at; in (0, 1].
            A default, not a law: it falls for small models and small batches, so measure yours and
            ``dataclasses.replace(hardware, mfu=...)``.
        precision: the number format of the peak.
        source: where the numbers come from.

    Raises:
        SpecError: a peak or a utilisation out of range.

    Source: mfu as defined in A. Chowdhery et al., "PaLM" (2022), section 4.1 and appendix B.
    """

    name: str
    peak_flops: float
    mfu: float
    precision: str
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.peak_flops < float("inf"):
            raise SpecError("hardware.peak_flops", self.peak_flops, "a positive number of FLOP/s")
        if not 0 < self.mfu <= 1:
            raise SpecError("hardware.mfu", self.mfu, "a fraction above 0 and at most 1")


_LLAMA_3 = "mfu: 0.38 to 0.43 on 8,192 and more H100 (A. Grattafiori et al., The Llama 3 Herd of Models, 2024, Table 4)"

HARDWARE: dict[str, Hardware] = {
    preset.name: preset
    for preset in (
        Hardware(
            "h200",
            989e12,
            0.40,
            "bf16",
            f"Peak: NVIDIA H200 SXM data sheet, half of the 1,979 TFLOP/s with sparsity; the H100's chip. {_LLAMA_3}.",
        ),
        Hardware(
            "h100",
            989e12,
            0.40,
            "bf16",
            f"Peak: NVIDIA H100 SXM data sheet, half of the 1,979 TFLOP/s with sparsity. {_LLAMA_3}.",
        ),
        Hardware(
            "a100",
            312e12,
            0.44,
            "bf16",
            "Peak: NVIDIA A100 SXM data sheet. mfu: 44% at 1.7B parameters, 52% at 1T (D. Narayanan et al., Efficient "
            "Large-Scale Language Model Training on GPU Clusters, 2021, Table 1; it counts recomputation as work).",
        ),
        Hardware(
            "v100",
            125e12,
            0.30,
            "fp16",
            "Peak: NVIDIA V100 SXM2 data sheet (no bf16). mfu: 39 TFLOP/s at 1.2B parameters, 30% of one GPU's peak "
            "(M. Shoeybi et al., Megatron-LM, 2019, section 1).",
        ),
        Hardware(
            "rtx-4090",
            165.2e12,
            0.40,
            "bf16",
            "Peak: NVIDIA Ada GPU architecture white paper, bf16 with fp32 accumulation. mfu: an assumption.",
        ),
        Hardware(
            "cpu-core",
            96e9,
            0.50,
            "fp32",
            "An assumption: one core with two 256-bit fused multiply-add units at 3 GHz, 2 x 8 x 2 x 3e9 FLOP/s. "
            "mfu: an assumption.",
        ),
    )
}


def hardware(value: str | Hardware, path: str = "hardware") -> Hardware:
    """The hardware that a user means: a name in ``HARDWARE``, or a ``Hardware``.

    Raises:
        SpecError: an unknown name, with the closest match.
    """
    if isinstance(value, Hardware):
        return value
    return preset(value, HARDWARE, path)


def compute_s(flops: FloatOrArray, hardware: Hardware) -> FloatOrArray:
    """Seconds that a worker computes: ``flops / (mfu * peak)``.

    Args:
        flops: floating-point operations of the worker's share of a step (`ModelShape.flops_per_token` x its tokens).
        hardware: one worker's.

    Raises:
        SpecError: a negative number of operations.
    """
    require(np.greater_equal(flops, 0), "flops", flops, "at least 0")
    return flops / (hardware.mfu * hardware.peak_flops)
