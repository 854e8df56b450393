"""Hardware presets, and a worker's seconds of computing, by a utilisation or by measured seconds for batch sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from syncline.costmodel.compute.kernel_rates import A100, B200, FORMATS, H100, KernelRates, gradient_format
from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.costmodel.numerics.measured_times import MeasuredTimes, nvlink_all_reduce
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, require_one_of


@dataclass(frozen=True)
class Hardware:
    """An accelerator or a CPU core with its peak, its utilisation in training, and its memory.

    Args:
        name: display name.
        peak_flops: the vendor's dense peak at ``precision`` (without structured sparsity), in FLOP/s; positive.
        mfu: model FLOPs utilisation, the useful FLOP/s of a training step over the peak; in (0, 1]. Those of presets
            are for large models and batches; utilisation is less for small ones.
        precision: the number format of the peak.
        source: origin of the numbers.
        memory_bytes: M, memory of one worker, in bytes; None if unknown.
        memory_bytes_per_s: bandwidth of that memory, in bytes/s; None if unknown.
        collectives: measured times of collectives among several such devices in one node.
        power_w: limit of the device's power, in watts; None: that of its data sheet.
        kernels: rates of its kernels; None if only the utilisation is known.
        bounds: errors of computing times on this machine, from a calibration; None without a calibration.
        host_bytes_per_s: rate of the device's link to its host's memory, each way; None if unknown.

    Source: mfu as defined in A. Chowdhery et al., "PaLM" (2022), section 4.1 and appendix B.
    """

    name: str
    peak_flops: float
    mfu: float
    precision: str
    source: str
    memory_bytes: float | None = None
    memory_bytes_per_s: float | None = None
    collectives: tuple[MeasuredTimes, ...] = ()
    power_w: float | None = None
    kernels: KernelRates | None = None
    bounds: Uncertainty | None = None
    host_bytes_per_s: float | None = None

    @property
    def number_format(self) -> str:
        """Return the number format of gradients if matrices are multiplied in ``precision``."""
        return gradient_format(self.precision)

    def measured(self, kind: str) -> MeasuredTimes | None:
        """Return the measured times of a collective among such devices in a node, or None without a measurement."""
        return next((times for times in self.collectives if times.kind == kind), None)

    def __post_init__(self) -> None:
        is_positive = 0 < self.peak_flops < math.inf
        require(is_positive, "hardware.peak_flops", self.peak_flops, "a positive number of FLOP/s")
        require(0 < self.mfu <= 1, "hardware.mfu", self.mfu, "a fraction above 0 and at most 1")
        require_one_of("hardware.precision", self.precision, FORMATS)
        rate = "bytes per second"
        units = {"memory_bytes": "bytes", "memory_bytes_per_s": rate, "host_bytes_per_s": rate, "power_w": "watts"}
        for field, unit in units.items():
            value = getattr(self, field)
            if value is not None and not 0 < value < math.inf:
                raise SpecError(f"hardware.{field}", value, f"a positive number of {unit}, or none")


_LLAMA_3 = "mfu: 0.38 to 0.43 on 8,192 and more H100 (A. Grattafiori et al., The Llama 3 Herd of Models, 2024, Table 4)"

_NARAYANAN = (
    "mfu: 44% at 1.7B parameters, 52% at 1T (D. Narayanan et al., Efficient Large-Scale Language Model Training on GPU "
    "Clusters, 2021, Table 1; it counts recomputation as work)"
)
_MEGATRON = (
    "mfu: 39 TFLOP/s at 1.2B parameters, 30% of one GPU's peak (M. Shoeybi et al., Megatron-LM, 2019, section 1)"
)
_A100 = f"Peak and memory: NVIDIA A100 SXM data sheet, {{}}. {_NARAYANAN}."
_V100 = f"Peak and memory: NVIDIA V100 SXM2 data sheet (no bf16), {{}}. {_MEGATRON}."

# Vendors write GB for GiB: a driver reports 42,405,855,232 bytes for a "40 GB" A100, which is 98.7% of 40 GiB and more
# than 40e9. Bandwidths are decimal.
_GIB = 2.0**30

_NVLINK_2, _NVLINK_3 = ((nvlink_all_reduce(gpu),) for gpu in ("v100", "a100"))

# Links to the host's memory, each way: pinned copies of an H100 and an H200 (results/gpu) reach 55 GB/s, 86% of PCI
# Express 5; the others have this part of their data sheets. A DGX B200's processors have PCI Express 5; a Grace shares
# 450 GB/s each way (NVLink-C2C) between two Blackwells.
_PCIE_3, _PCIE_4, _PCIE_5, _C2C = 13.8e9, 27.5e9, 55e9, 194e9

HARDWARE: dict[str, Hardware] = {
    preset.name: preset
    for preset in (
        Hardware(
            "b300", 2250e12, 0.40, "bf16",
            "Peak: NVIDIA HGX B300 specifications, half of the 4.5 PFLOP/s of bf16 with sparsity. Memory: AWS, EC2 P6 "
            "instances, 268 GB at 8 TB/s. Kernels: as b200, not measured. mfu: an assumption, the H100's.",
            268 * _GIB, 8e12, kernels=B200, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "gb300", 2500e12, 0.40, "bf16",
            "Peak and memory: NVIDIA GB300 NVL72 data sheet, a 72nd of 360 PFLOP/s of bf16 with sparsity (dense: "
            "half), of 20 TB and of 576 TB/s. Kernels: as b200, not measured. mfu: an assumption, the H100's.",
            277 * _GIB, 8e12, kernels=B200, host_bytes_per_s=_C2C,
        ),
        Hardware(
            "b200", 2250e12, 0.40, "bf16",
            "Peak and memory: NVIDIA DGX B200 data sheet, an eighth of 72 PFLOP/s of fp8 with sparsity (dense: half, "
            "bf16: half again), of 1,440 GB and of 64 TB/s. mfu: an assumption, the H100's.",
            180 * _GIB, 8e12, kernels=B200, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "gb200", 2500e12, 0.40, "bf16",
            "Peak and memory: NVIDIA GB200 NVL72 data sheet, a 72nd of 360 PFLOP/s of bf16 with sparsity (dense: "
            "half), of 13.4 TB and of 576 TB/s. mfu: an assumption, the H100's.",
            186 * _GIB, 8e12, kernels=B200, host_bytes_per_s=_C2C,
        ),
        Hardware(
            "h200", 989e12, 0.40, "bf16",
            "Peak: NVIDIA H200 SXM data sheet, half of the 1,979 TFLOP/s with sparsity; the H100's chip. Memory: the "
            f"same sheet, 141 GB at 4.8 TB/s. {_LLAMA_3}.",
            141 * _GIB, 4.8e12, kernels=H100, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "gh200", 989e12, 0.40, "bf16",
            "Peak: NVIDIA GH200 data sheet, half of the 1,979 TFLOP/s with sparsity; the H100's chip. Memory: the same "
            f"sheet, 96 GB at 4 TB/s. Kernels: as h100, not measured. {_LLAMA_3}.",
            96 * _GIB, 4e12, kernels=replace(H100, updates=None), host_bytes_per_s=2 * _C2C,
        ),
        Hardware(
            "h20", 148e12, 0.40, "bf16",
            "Peak and memory: NVIDIA H20 data sheet, 96 GB at 4 TB/s; an H100 with fewer multiprocessors. mfu: an "
            "assumption, the H100's.",
            96 * _GIB, 4e12, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "h100", 989e12, 0.40, "bf16",
            "Peak: NVIDIA H100 SXM data sheet, half of the 1,979 TFLOP/s with sparsity. Memory: the same sheet, 80 GB "
            f"at 3.35 TB/s. {_LLAMA_3}.",
            80 * _GIB, 3.35e12, kernels=H100, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "a100", 312e12, 0.44, "bf16", _A100.format("80 GB at 2,039 GB/s"), 80 * _GIB, 2039e9, _NVLINK_3,
            kernels=A100, host_bytes_per_s=_PCIE_4,
        ),
        Hardware(
            "a100-40gb", 312e12, 0.44, "bf16", _A100.format("40 GB at 1,555 GB/s"), 40 * _GIB, 1555e9, _NVLINK_3,
            kernels=A100, host_bytes_per_s=_PCIE_4,
        ),
        Hardware(
            "v100", 125e12, 0.30, "fp16", _V100.format("16 GB at 900 GB/s"), 16 * _GIB, 900e9, _NVLINK_2,
            host_bytes_per_s=_PCIE_3,
        ),
        Hardware(
            "v100-32gb", 125e12, 0.30, "fp16", _V100.format("32 GB at 900 GB/s"), 32 * _GIB, 900e9, _NVLINK_2,
            host_bytes_per_s=_PCIE_3,
        ),
        Hardware(
            "mi300x", 1307.4e12, 0.40, "bf16",
            "Peak and memory: AMD Instinct MI300X data sheet, 192 GB at 5.3 TB/s. mfu: an assumption, the H100's.",
            192 * _GIB, 5.3e12, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "mi325x", 1307.4e12, 0.40, "bf16",
            "Peak and memory: AMD Instinct MI325X data sheet, 256 GB at 6 TB/s. mfu: an assumption, the H100's.",
            256 * _GIB, 6e12, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "tpu-v4", 275e12, 0.46, "bf16",
            "Peak and memory: Google Cloud TPU v4 documentation, 32 GiB at 1,228 GB/s. mfu: 46.2% with 540B parameters "
            "(A. Chowdhery et al., PaLM, 2022, Table 3).",
            32 * _GIB, 1228e9,
        ),
        Hardware(
            "tpu-v5e", 197e12, 0.46, "bf16",
            "Peak and memory: Google Cloud TPU v5e documentation, 16 GB at 819 GB/s. mfu: an assumption, that of v4.",
            16 * _GIB, 819e9,
        ),
        Hardware(
            "tpu-v5p", 459e12, 0.46, "bf16",
            "Peak and memory: Google Cloud TPU v5p documentation, 95 GB at 2,765 GB/s. mfu: an assumption, that of v4.",
            95 * _GIB, 2765e9,
        ),
        Hardware(
            "l40s", 362e12, 0.40, "bf16",
            "Peak and memory: NVIDIA L40S data sheet, half of the 733 TFLOP/s with sparsity, 48 GB at 864 GB/s. mfu: "
            "an assumption.",
            48 * _GIB, 864e9, host_bytes_per_s=_PCIE_4,
        ),
        Hardware(
            "rtx-5090", 209.5e12, 0.40, "bf16",
            "Peak and memory: NVIDIA RTX Blackwell GPU architecture white paper, bf16 with fp32 accumulation, 32 GB at "
            "1,792 GB/s. mfu: an assumption.",
            32 * _GIB, 1792e9, host_bytes_per_s=_PCIE_5,
        ),
        Hardware(
            "rtx-4090", 165.2e12, 0.40, "bf16",
            "Peak and memory: NVIDIA Ada GPU architecture white paper, bf16 with fp32 accumulation, 24 GB at 1,008 "
            "GB/s. mfu: an assumption.",
            24 * _GIB, 1008e9, host_bytes_per_s=_PCIE_4,
        ),
        Hardware(
            "rtx-3090", 71e12, 0.40, "bf16",
            "Peak and memory: NVIDIA Ampere GA102 GPU architecture white paper, Appendix A, bf16 with fp32 "
            "accumulation, 24 GB at 936 GB/s. mfu: an assumption.",
            24 * _GIB, 936e9, host_bytes_per_s=_PCIE_4,
        ),
        Hardware(
            "cpu-core", 96e9, 0.50, "fp32",
            "An assumption: one core with two 256-bit fused multiply-add units at 3 GHz, 2 x 8 x 2 x 3e9 FLOP/s. "
            "mfu: an assumption. Memory: the machine's, so not known; its bandwidth: an assumption, one channel of "
            "DDR4-3200.",
            memory_bytes_per_s=25.6e9,
        ),
    )
}  # fmt: skip
"""Hardware presets by name."""


def compute_s(flops: FloatOrArray, hardware: Hardware) -> FloatOrArray:
    """Return the computing seconds of a worker: ``flops / (mfu * peak)``.

    Args:
        flops: floating-point operations of the worker's share of a step (`ModelShape.flops_per_token` x its tokens).
    """
    require(np.greater_equal(flops, 0), "flops", flops, "at least 0")
    return flops / (hardware.mfu * hardware.peak_flops)


@dataclass(frozen=True)
class BatchTimes:
    """Compute seconds of a worker's step by batch size, interpolated linearly between measured sizes.

    Args:
        times_s: measured seconds by batch size, in samples or in tokens per worker.

    >>> BatchTimes({1: 0.012, 8: 0.060, 32: 0.210}).seconds(20)
    0.135
    """

    times_s: Mapping[float, float]

    def __post_init__(self) -> None:
        if not self.times_s:
            raise SpecError("batch_times", dict(self.times_s), "seconds for at least one batch size, as in {8: 60 ms}")
        for size, seconds in self.times_s.items():
            require(0 < size < math.inf, "batch_times", size, "batch sizes above 0")
            require(0 <= seconds < math.inf, f"batch_times.{size:g}", seconds, "a time of at least 0 s")

    @property
    def sizes(self) -> list[float]:
        """Return the measured batch sizes in ascending order."""
        return sorted(self.times_s)

    def seconds(self, batch: float, extrapolate: bool = False) -> float:
        """Return the computing seconds of a worker's step at a batch size.

        Args:
            batch: size, in the unit of the measured sizes.
            extrapolate: whether a batch outside the measured sizes lies on the line through the two nearest ones.
        """
        sizes = self.sizes
        if sizes[0] <= batch <= sizes[-1]:
            return float(np.interp(batch, sizes, [self.times_s[size] for size in sizes]))
        expected = f"batch sizes below and above a worker's {batch:g}"
        if len(sizes) == 1:
            raise SpecError("batch_times", f"{sizes[0]:g}", expected)
        if not extrapolate:
            raise SpecError("batch_times", f"{sizes[0]:g} to {sizes[-1]:g}", f"{expected}, or extrapolate")
        nearest, second = (sizes[0], sizes[1]) if batch < sizes[0] else (sizes[-1], sizes[-2])
        slope = (self.times_s[nearest] - self.times_s[second]) / (nearest - second)
        seconds = self.times_s[nearest] + (batch - nearest) * slope
        if seconds < 0:
            raise SpecError("batch_times", f"{seconds:g} s at {batch:g}", "a continuation that is not negative")
        return seconds

    @property
    def decreasing_pairs(self) -> list[tuple[float, float]]:
        """Return neighbouring sizes, (smaller, larger), if the larger takes less time: surely a measurement error."""
        pairs = itertools.pairwise(self.sizes)
        return [(small, large) for small, large in pairs if self.times_s[large] < self.times_s[small]]
