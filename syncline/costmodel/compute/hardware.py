"""Hardware presets, and a worker's seconds of computing, by a utilisation or by measured seconds for batch sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from syncline.costmodel.compute.kernel_rates import A100, B200, FORMATS, H100, KernelRates, gradient_format
from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.costmodel.numerics.measured_times import MeasuredTimes, nvlink_all_reduce
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, require_one_of
from syncline.files import read_csv


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


KERNELS = {"a100": A100, "b200": B200, "h100": H100, "gh200": replace(H100, updates=None)}
"""Rates of kernels by their names in ``hardware.csv``."""

GIB = 2.0**30
"""Bytes of what vendors call a GB: a "40 GB" A100 has 42,405,855,232 bytes, which is 98.7% of 40 GiB and over 40e9."""


def _presets() -> Iterator[Hardware]:
    """Yield the hardware in ``hardware.csv``."""
    for row in read_csv(Path(__file__).with_name("hardware.csv")):
        memory_bytes = float(row["memory_gib"]) * GIB if row["memory_gib"] else None
        memory_bytes_per_s, host_bytes_per_s = (
            float(row[name]) if row[name] else None for name in ("memory_bytes_per_s", "host_bytes_per_s")
        )
        kernels = KERNELS[row["kernels"]] if row["kernels"] else None
        node_gpu = row["nvlink_all_reduce"]
        collectives = (nvlink_all_reduce(node_gpu),) if node_gpu else ()
        yield Hardware(
            row["name"], float(row["peak_flops"]), float(row["mfu"]), row["precision"], row["source"], memory_bytes,
            memory_bytes_per_s, collectives, kernels=kernels, host_bytes_per_s=host_bytes_per_s,
        )  # fmt: skip


HARDWARE: dict[str, Hardware] = {preset.name: preset for preset in _presets()}
"""Hardware presets by name.

Rates of the link to the host's memory, each way: pinned copies of an H100 and an H200 (results/gpu) reach 55 GB/s, 86%
of PCI Express 5; the others have this part of their data sheets. A DGX B200's processors have PCI Express 5; a Grace
shares 450 GB/s each way (NVLink-C2C) between two Blackwells.
"""


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
