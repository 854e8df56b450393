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
    """A GPU whose kernels were measured.

    Attributes:
        peak_flops: peak of products in bf16.
        multiprocessors: number of multiprocessors.
        bytes_per_s: bandwidth that elementwise kernels reach.
        fp32_share: peak of products in fp32 over that in bf16.
    """

    peak_flops: float
    multiprocessors: int
    bytes_per_s: float
    fp32_share: float = 19.5 / 312


GPUS = {
    "h100": Gpu(989e12, 132, 0.88 * 3.35e12),
    "h200": Gpu(989e12, 132, 0.88 * 4.8e12, fp32_share=67 / 989.5),
    "a100-pcie": Gpu(312e12, 108, 0.75 * 1.935e12),
    "b200": Gpu(2250e12, 148, 0.666 * 8e12),
    "a100-pcie-40gb": Gpu(312e12, 108, 0.82 * 1.555e12),
}
"""Bandwidths: H100 and A100-40GB as in `memory_share`, the others as SimuMax has them."""

PEAKS = {"bf16": 1.0, "fp8": 2.0, "tf32": 0.5}
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
    share_of_peak = card.fp32_share if precision == "fp32" else PEAKS[precision]
    flops, area, peak = 2 * count * m * n * k, count * m * n, card.peak_flops * share_of_peak
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


DECOMPOSITIONS = {"qr": (8 / 3, 6), "qr by cholesky": (8 / 3, 0), "eigh": (9.0, 6)}
"""FLOPs of a decomposition of an m x r matrix over m r^2, and the elementwise kernels that were timed with it."""

SMALLEST_EIGH = 513
"""Rows from which cuSOLVER computes eigenvectors by one method; by another, smaller matrices take as long as larger."""


def decompositions(kind: str, rows: Rows) -> Fit:
    """Return t, a, b and c of decompositions of stacks of matrices, ``t + stack (a r + b m r) + F / c``.

    Householder reflections and eigenvectors have no t; Cholesky decompositions and eigenvectors have no b.
    """
    stack, m, r, seconds = rows.T
    flops_share, kernels = DECOMPOSITIONS[kind]
    flops = flops_share * stack * m * r * r

    def predict(constants: Sequence[float]) -> Rows:
        start, column, entry, rate = {"qr": (0, *constants), "eigh": (0, constants[0], 0, constants[1])}.get(
            kind, (constants[0], constants[1], 0, constants[-1])
        )
        return np.asarray(kernels * FLOOR_S + start + stack * r * (column + m * entry) + flops / rate)

    starts = {"qr": [3.6e-6, 7e-10, 5e13], "eigh": [1e-5, 1e13]}.get(kind, [3e-4, 5e-7, 1e13])
    constants, error = fitted(predict, seconds, [starts])
    return Fit("h200", kind, len(seconds), " ".join(f"{value:.4g}" for value in constants), error)


def largest(rows: Rows) -> Fit:
    """Return the seconds of any choice of the largest numbers, and those per number."""
    counts, seconds = rows.T
    constants, error = fitted(lambda at: np.asarray(at[0] + at[1] * counts), seconds, [[5e-5, 1.5e-11]])
    return Fit("h200", "largest", len(seconds), " ".join(f"{value:.4g}" for value in constants), error)


UPDATES = (
    ("nvidia-h100-80gb-hbm3.json", "kernels"),
    ("nvidia-h200-ceilings-compute-readback-alone-kernels-optimizers.json", "kernels"),
    ("nvidia-h200-updates.json", "updates"),
)
"""Files and parts with kernels of updates."""


ONE_KERNEL = ("zero_", "mul", "add_", "lerp", "addcmul_", "norm", "cat", "to int64", "gather", "scatter_")
"""Operations whose dispatch was timed, and which are one kernel each."""

HOST_LIMITED = [[1, 512, 512], [1, 768, 768], [1, 1024, 1024], [1, 1536, 1536]]
"""Shapes whose bf16 Newton-Schulz iterations take as long as the host dispatches 15 products and 5 other operations."""


def updates() -> list[Fit]:
    """Return the fits of the kernels of updates on H100 and H200, which have the same chip."""
    rows = [row for file, part in UPDATES for row in _rows_of(file, part)]
    shapes: dict[str, list[tuple[float, ...]]] = {}
    for row in rows:
        kind = row["kernel"]
        if kind in DECOMPOSITIONS and (kind != "eigh" or row["shape"][-1] >= SMALLEST_EIGH):
            shapes.setdefault(kind, []).append((*row["shape"], row["median_s"]))
        elif kind == "top-k of blocks" or (kind == "elementwise" and row["operation"] == "topk"):
            shapes.setdefault("largest", []).append((float(np.prod(row["shape"])), row["median_s"]))
        elif kind == "product" and row["precision"] == "fp32":
            shapes.setdefault("fp32", []).append((*row["shape"], row["median_s"]))
    out = [products("h200", "fp32", np.array(shapes.pop("fp32"))), largest(np.array(shapes.pop("largest")))]
    out += [decompositions(kind, np.array(found)) for kind, found in shapes.items()]
    lists = [(row["nbytes"], row["median_s"]) for row in rows if row["kernel"] == "foreach"]
    share = memory_share(lists, GPUS["h200"].bytes_per_s)
    out.append(Fit("h200", "lists", len(lists), f"{share:.3f} of the memory's bandwidth", float("nan")))
    hosts = [row["median_s"] for row in rows if row["kernel"] == "dispatch" and row["operation"] in ONE_KERNEL]
    dispatch_s = float(np.median(hosts))
    out.append(Fit("h200", "dispatch", len(hosts), f"{dispatch_s:.3g} s", float("nan")))
    limited = [row["median_s"] for row in rows if row.get("precision") == "bf16" and row["shape"] in HOST_LIMITED]
    product_s = [(seconds - 5 * dispatch_s) / 15 for seconds in limited]
    out.append(Fit("h200", "dispatch of a product", len(limited), f"{np.median(product_s):.3g} s", float("nan")))
    return out


def _rows_of(file: str, part: str) -> list[dict[str, Any]]:
    """Return the rows of a part of a benchmark of a GPU."""
    found: list[dict[str, Any]] = json.loads((RESULTS / "gpu" / file).read_text())["parts"][part]["rows"]
    return found


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
    return out + updates()


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
