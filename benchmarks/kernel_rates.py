"""Fits of the rates of GPUs' kernels, `syncline.costmodel.compute.kernel_rates`, to measured kernels.

The forms are those of `syncline.costmodel.compute.kernel_rates`; the fits minimise the logarithm of predicted over
measured, and a soft loss keeps outliers from deciding.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.command import parser_of, show
from syncline.costmodel.compute.kernel_rates import FLOOR_S, TILE_TOKENS

RESULTS = Path(__file__).parents[1] / "results"
Rows = NDArray[np.float64]


class Gpu(NamedTuple):
    """A GPU whose kernels were measured, with the peak of bf16 and the bandwidth that elementwise kernels reach."""

    peak_flops: float
    multiprocessors: int
    bytes_per_s: float


GPUS = {
    "h100": Gpu(989e12, 132, 0.88 * 3.35e12),
    "a100-pcie": Gpu(312e12, 108, 0.75 * 1.935e12),
    "b200": Gpu(2250e12, 148, 0.666 * 8e12),
    "a100-pcie-40gb": Gpu(312e12, 108, 0.82 * 1.555e12),
}
"""Bandwidths: H100 and A100-40GB as in `memory_share`, the others as SimuMax has them."""

PEAKS = {"bf16": 1.0, "fp8": 2.0, "tf32": 0.5, "fp32": 19.5 / 312}
WIDTHS = {"bf16": 2, "fp8": 1, "tf32": 4, "fp32": 4}


HALF_WAVES = 0.4
"""w_0 on the H100, of the A100's backward pass: there the number of heads changes only with their size."""


class Fit(NamedTuple):
    """The constants of one kind of kernel of one GPU, and the median error of the kernels by them."""

    gpu: str
    kernel: str
    kernels: int
    constants: str
    median_error: float


def measured() -> Iterator[tuple[str, str, str, tuple[float, ...], float]]:
    """Yield GPU, kind, precision, shape and seconds of every measured kernel; the H100's attention has its library."""
    shapes = json.loads((RESULTS / "gpu" / "nvidia-h100-80gb-hbm3-shapes.json").read_text())
    for row in shapes["parts"]["shapes"]["rows"]:
        shape, is_steady = row.get("shape", ()), row.get("spread", 1.0) < 0.1
        if "flops" in row and len(shape) == 3 and is_steady:
            yield "h100", "product", row["precision"], tuple(shape), row["median_s"]
        elif row["operation"].endswith("causal"):
            library, name = row["operation"].split(", ")[1], "attention" + " backward" * (row["pass"] == "backward")
            batch, heads, sequence, head = shape
            yield "h100", f"{name}, {library}", "bf16", (batch, heads, sequence, sequence, head), row["median_s"]
    for name in ("simumax.csv", "neusight.csv"):
        with (RESULTS / "kernels" / name).open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                shape = tuple(float(side) for side in line["shape"].split())
                yield line["gpu"], line["kind"], line["precision"], shape, float(line["time_us"]) / 1e6


def fitted(
    predict: Callable[[Sequence[float]], Rows], seconds: Rows, starts: Sequence[Sequence[float]]
) -> tuple[NDArray[np.float64], float]:
    """Return the constants of the best fit, and the median error of the kernels."""
    best: Any = None
    for start in starts:
        found = least_squares(
            lambda logs: np.log(predict(np.exp(logs)) / seconds), np.log(start), loss="soft_l1", f_scale=0.05
        )
        best = found if best is None or found.cost < best.cost else best
    constants = np.exp(best.x)
    return constants, float(np.median(np.abs(predict(constants) / seconds - 1)))


def products(gpu: str, precision: str, rows: Rows, groups: Rows | None = None, rate: Sequence[float] = ()) -> Fit:
    """Return e_max, k_0, A_0 and e_sustained of products, or m_0 of grouped ones beside a ``rate`` of others."""
    card, (m, n, k, seconds) = GPUS[gpu], rows.T
    count: Any = 1.0 if groups is None else groups
    flops, area, peak = 2 * count * m * n * k, count * m * n, card.peak_flops * PEAKS[precision]
    memory_s = WIDTHS[precision] * count * (m * k + n * k + m * n) / card.bytes_per_s

    def predict(constants: Sequence[float]) -> Rows:
        largest, depth, half_area, sustained = constants[:4] if groups is None else rate
        share = np.minimum(largest * k / (k + depth) * area / (area + half_area), sustained)
        if groups is not None:
            share = share * np.minimum(m, n) / (np.minimum(m, n) + constants[0])
        return np.asarray(FLOOR_S + np.maximum(flops / (peak * share), memory_s))

    starts = [[0.85, depth, area_0, 0.75] for depth in (50, 300) for area_0 in (1e5, 1e6)]
    constants, error = fitted(predict, seconds, starts if groups is None else [[100.0]])
    kernel = f"{'products' if groups is None else 'grouped products'}, {precision}"
    return Fit(gpu, kernel, len(seconds), " ".join(f"{value:.4g}" for value in constants), error)


def attention(gpu: str, kind: str, rows: Rows) -> Fit:
    """Return e_max, s_0, p and, except on the H100, w_0 of causal attention."""
    card, (sequences, heads, sequence, _, head, seconds) = GPUS[gpu], rows.T
    forward = 2 * sequences * heads * sequence**2 * head
    flops = forward * (2.5 if "backward" in kind else 1.0)
    waves = sequences * heads * sequence / TILE_TOKENS / card.multiprocessors

    def predict(constants: Sequence[float]) -> Rows:
        largest, half_sequence, power, *fitted_waves = constants
        half_waves = fitted_waves[0] if fitted_waves else HALF_WAVES
        share = largest * np.minimum(1, head / 128) ** power * sequence / (sequence + half_sequence)
        return np.asarray(FLOOR_S + flops / (card.peak_flops * share * waves / (waves + half_waves)))

    more = [] if gpu == "h100" else [0.5]
    constants, error = fitted(predict, seconds, [[0.5, 300, 0.3, *more], [0.5, 50, 0.3, *more]])
    return Fit(gpu, kind, len(seconds), " ".join(f"{value:.4g}" for value in constants), error)


def memory_share(rows: Sequence[tuple[float, float]], bandwidth: float) -> float:
    """Return the median share of a memory's bandwidth that elementwise kernels reach, from bytes and seconds."""
    return float(np.median([nbytes / (seconds * bandwidth) for nbytes, seconds in rows]))


def fits() -> list[Fit]:
    """Return all fits."""
    groups: dict[tuple[str, str, str, int], list[tuple[float, ...]]] = {}
    for gpu, kind, precision, shape, seconds in measured():
        groups.setdefault((gpu, kind, precision, len(shape)), []).append((*shape, seconds))
    out: list[Fit] = []
    rates: dict[str, list[float]] = {}
    for (gpu, kind, precision, sides), rows in groups.items():
        values = np.array(rows, dtype=np.float64)
        if kind.startswith("attention"):
            out.append(attention(gpu, kind, values))
        elif kind == "product" and sides == 3:
            out.append(products(gpu, precision, values))
            rates[gpu] = [float(text) for text in out[-1].constants.split()]
        elif kind == "product":
            out.append(products(gpu, precision, values[:, [0, 1, 2, 4]], values[:, 3], rates[gpu]))
        else:
            share = memory_share([(nbytes, took) for nbytes, took in rows], 1.555e12)
            out.append(Fit(gpu, kind, len(rows), f"{share:.3f} of the memory's bandwidth", float("nan")))
    return out


def table(rows: Sequence[Fit]) -> str:
    """Return the fits as Markdown."""
    lines = ["| GPU | kernel | kernels | constants | median error |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.gpu} | {row.kernel} | {row.kernels} | {row.constants} | {100 * row.median_error:.1f}% |"
        for row in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the fits."""
    options = parser_of("benchmarks.kernel_rates", __doc__).parse_args(argv)
    show(fits(), table, options.json)


if __name__ == "__main__":
    main()
