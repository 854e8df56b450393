"""The cluster file: network, hardware and wire formats from measurements of processes, as YAML."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
import yaml

from syncline.costmodel.least_squares import relative_fit
from syncline.costmodel.link_fit import NEGLIGIBLE, LinkFit, TimedCall, fit_link
from syncline.costmodel.numerics.uncertainty import Scope, Uncertainty, uncertainty_of
from syncline.errors import SpecError
from syncline.measure.calibration.collective_times import TIMED_BYTES
from syncline.measure.calibration.plan import Calibration
from syncline.runs.folders.path_lock import lock_path
from syncline.specs.cluster.links import link_fields
from syncline.specs.cluster.reading import bounds_fields
from syncline.units import format_bytes, format_seconds
from syncline.version import __version__

Fields = dict[str, Any]

FP32_BYTES = 4

MOST_SPREAD = 0.5
"""Limit on the bandwidth's relative standard error; beyond it, two standard errors include an infinite bandwidth."""

DIGITS = 5
"""Significant digits in the file."""

TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
RATES = {"kbit/s": 125.0, "Mbit/s": 125e3, "Gbit/s": 125e6}
"""Units of `quantity`, from the smallest."""


class ClusterFile:
    """A file that appears under its name only once it is complete.

    Args:
        path: path of the file. If it exists, a number is added, as in ``cluster-2.yaml``: measurements are never
            overwritten.
        exact: refuse an existing path instead.

    Raises:
        SpecError: the path exists although ``exact``, does not end in .yaml, or cannot be written.
    """

    def __init__(self, path: Path, exact: bool = False) -> None:
        if path.suffix not in (".yaml", ".yml"):
            raise SpecError("--out", str(path), "a name that ends in .yaml, so that a spec can name the file")
        self._lock = lock_path(path, exact=exact, kind="file", suffix=path.suffix)
        self._lock.on_abandon = partial(self._lock.partial_path().unlink, missing_ok=True)
        for remnant in self._lock.leftovers():
            remnant.unlink()  # an incomplete file of a process that died while it wrote

    def __enter__(self) -> ClusterFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.partial_path().unlink(missing_ok=True)
        self._lock.release()

    def write(self, result: Fields) -> Fields:
        """Write the sections of a result to the file; return the result with ``file``, ``name`` and ``rows``."""
        path, working = self._lock.path, self._lock.partial_path()
        sections = ("measured", "network", "hardware", "compute", "wires", "collectives")
        fields = {"name": path.stem} | {name: result[name] for name in sections if result.get(name)}
        text = yaml.safe_dump(rounded(fields), sort_keys=False, allow_unicode=True, width=200, default_flow_style=None)
        working.write_text(text, encoding="utf-8")
        working.rename(path)
        return {"file": str(path), "name": path.stem, **result, "rows": result["collectives"]}


def cluster_of(plan: Calibration, measured: Sequence[Fields], facts: Fields) -> Fields:
    """Return the sections of a cluster file, and the errors with which the fitted network predicts the collectives.

    Args:
        measured: a result of `syncline.measure.calibration.calibrate.measure` per number of processes.
        facts: ``command``, ``seconds``, ``machines``, ``backend``, ``device``.

    Raises:
        SpecError: the measurements do not determine a network.
    """
    rows = [row for measurement in measured for row in measurement["collectives"]]
    algorithms = "gloo" if facts["backend"] == "gloo" else "textbook"  # NCCL's algorithms are fitted as the textbook's
    calls = [TimedCall(row["collective"], row["workers"], row["nbytes"], row["median_s"]) for row in rows]
    fit = _determined_fit(calls, plan, algorithms)
    collectives = []
    for row, error in zip(rows, fit.errors.tolist(), strict=True):
        columns = {"measured_s" if name == "median_s" else name: value for name, value in row.items()}
        collectives.append(columns | {"predicted_s": row["median_s"] * (1 + error), "error": error})
    compute = [compute_of(measurement) for measurement in measured]
    cores = os.cpu_count() or 1
    # The most processes with a core each show the hardware: shared cores say little about a worker of a cluster.
    with_own_cores = [section for section in compute if section["workers"] <= cores * facts["machines"]]
    hardware_compute = with_own_cores[-1] if with_own_cores else compute[0]  # they ascend by number of processes
    scope = Scope.of_values(
        workers=[row["workers"] for row in rows if row["workers"] is not None],
        nbytes=[float(row["nbytes"]) for row in rows],
    )
    return {
        "measured": {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "command": facts["command"],
            "syncline": __version__, "torch": str(torch.__version__),
            "machine": f"{platform.machine()}, {cores} cores", "machines": facts["machines"],
            "backend": facts["backend"], "device": facts["device"], "threads": plan.threads,
            "problem": repr(plan.problem), "link_fitted": plan.link is None,
            "hardware_of_workers": hardware_compute["workers"],
            "seconds": facts["seconds"],
        },
        "network": network_section(fit, algorithms)
        | bounds_section(fit.errors, f"{facts['backend']}'s collectives of the calibration", scope),
        "hardware": hardware_section(hardware_compute, measured, plan),
        "compute": compute,
        "wires": [row for measurement in measured for row in wires_of(measurement)],
        "collectives": collectives,
        "constants": constants_of(fit, user_provided=plan.link is not None),
        "residuals": residuals_of(collectives),
    }  # fmt: skip


def bounds_section(errors: Any, basis: str, scope: Scope) -> Fields:
    """Return the field ``bounds`` of a section, from the errors of its fit."""
    if len(errors) < 2:  # a single error gives no bounds
        return {}
    factors = uncertainty_of(errors)
    bounds = Uncertainty(factors.low, factors.high, points=len(errors), basis=basis, sources=0, scope=scope)
    return {"bounds": bounds_fields(bounds)}


def hardware_section(compute: Fields, measured: Sequence[Fields], plan: Calibration) -> Fields | None:
    """Return the hardware section of a spec, with bounds from the spread of the steps; None if their FLOPs are unknown.

    The bounds hold for transformers of the width that was timed.
    """
    if "mfu" not in compute:
        return None
    workers = compute["workers"]
    (measurement,) = [measurement for measurement in measured if measurement["workers"] == workers]
    steps_s = np.array([seconds for rank in measurement["steps"] for seconds in rank])
    width = float(getattr(plan.problem, "width", 0) or 0)  # 0, the width of no transformer, for other problems
    basis = f"training steps of {plan.problem.name} on {workers} workers"
    hardware = {
        "peak_flops": compute["peak_flops"], "mfu": min(1.0, compute["mfu"]), "precision": "fp32",
        "memory_bytes_per_s": compute["memory_bytes_per_s"],
    }  # fmt: skip
    errors = np.median(steps_s) / steps_s - 1  # the median step predicts each timed step
    return hardware | bounds_section(errors, basis, Scope(width=(width, width)))


def _determined_fit(calls: Sequence[TimedCall], plan: Calibration, algorithms: str) -> LinkFit:
    """Fit a link to the times of collectives; if the link is known, fit only the costs of its software.

    Args:
        algorithms: ``gloo`` or ``textbook``, the algorithms of the collectives.

    Raises:
        SpecError: the times do not determine a bandwidth.
    """
    if plan.link is not None:
        return fit_link(calls, plan.link, algorithms)
    with suppress(SpecError):  # the errors below name the option to change
        fit = fit_link(calls, library=algorithms)
        if fit.spread["bandwidth"] < MOST_SPREAD:
            return fit
    lost_in_noise = "the noise of these times hides the time per byte"
    if max(plan.timing.sizes) < max(TIMED_BYTES):
        sizes = ", ".join(map(format_bytes, plan.timing.sizes))
        largest = format_bytes(max(TIMED_BYTES))
        raise SpecError("--sizes", sizes, f"larger ones as well, such as {largest}, or --network: {lost_in_noise}")
    expected = f"a longer one, a machine that does nothing else, or --network: {lost_in_noise}"
    raise SpecError("--budget", format_seconds(plan.timing.budget_s), expected)


def network_section(fit: LinkFit, algorithms: str) -> Fields:
    """Return the link with units, and gloo's costs: per message, per call by number of workers, per byte."""
    network_fields = {key: value for key, value in link_fields(fit.link).items() if key not in ("name", "gloo")}
    network_fields["latency"] = quantity(float(fit.link.latency_s), TIMES)
    network_fields["bandwidth"] = quantity(float(fit.link.bandwidth_bytes_per_s), RATES)
    if algorithms != "gloo":
        return network_fields
    call_overhead: dict[Any, Any] = {workers: quantity(seconds, TIMES) for workers, seconds in fit.costs.call_s}
    for kind, call_s in fit.costs.call_of_s:
        call_overhead[kind] = {workers: quantity(seconds, TIMES) for workers, seconds in call_s}
    costs = {
        "message_overhead": quantity(float(fit.costs.message_s), TIMES) if fit.costs.message_s else None,
        "call_overhead": call_overhead,
        "byte_overhead": {kind: quantity(seconds, TIMES) for kind, seconds in fit.costs.byte_s if seconds},
    }
    return network_fields | {"gloo": {name: value for name, value in costs.items() if value}}


def compute_of(measurement: Fields) -> Fields:
    """Return the times and rates of steps, products and copies for one number of processes."""
    rank_medians_s = [float(np.median(blocks_s)) for blocks_s in measurement["steps"]]
    step_s = float(np.median([block_s for blocks_s in measurement["steps"] for block_s in blocks_s]))
    flops = measurement["flops_per_step"]
    section = {
        "workers": measurement["workers"], "step_s": step_s, "slowest_s": max(rank_medians_s),
        "spread": measurement["spread"],
        "peak_flops": measurement["product_flops_per_s"], "memory_bytes_per_s": measurement["copy_bytes_per_s"],
    }  # fmt: skip
    if flops is None:  # the loss is a formula, whose FLOPs say nothing about those of a model
        return section
    return section | {"flops_per_s": flops / step_s, "mfu": flops / step_s / measurement["product_flops_per_s"]}


def wires_of(measurement: Fields) -> list[Fields]:
    """Return a row per wire format: the seconds to encode and to decode n numbers, each ``fixed + element n``.

    ``bytes_per_s`` are the bytes of fp32 numbers that are encoded and decoded per second, without the fixed seconds.
    """
    rows = []
    for name in measurement["wires"][0]:  # all ranks have the same formats
        timings = np.array([rank[name] for rank in measurement["wires"]])  # (ranks, sizes, 3)
        elements, encode_s, decode_s = np.median(timings, axis=0).T
        encode_fixed_s, encode_element_s = _fit_line(elements, encode_s)
        decode_fixed_s, decode_element_s = _fit_line(elements, decode_s)
        element_s = encode_element_s + decode_element_s
        rows.append({
            "wire": name, "workers": measurement["workers"], "encode_fixed_s": encode_fixed_s,
            "encode_element_s": encode_element_s, "decode_fixed_s": decode_fixed_s,
            "decode_element_s": decode_element_s, "bytes_per_s": FP32_BYTES / element_s if element_s else None,
        })  # fmt: skip
    return rows


def _fit_line(elements: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Return the seconds a and b of the line ``a + b n`` fitted to measured seconds; n, the ``elements``, ascend."""
    slope = (seconds[-1] - seconds[0]) / (elements[-1] - elements[0])
    # The fit starts from a rough guess: half of the shortest time is fixed. Noise may make the slope negative. Relative
    # errors above ``scale`` count less than squared.
    start = [seconds[0] / 2, max(slope, seconds[0] / elements[-1])]
    fit = relative_fit(lambda constants: constants[0] + constants[1] * elements, seconds, start, scale=0.05)
    fixed_s, element_s = fit.constants.tolist()
    # A constant that is negligible even at the size at which it matters most is 0.
    if fixed_s <= NEGLIGIBLE * seconds[0]:
        fixed_s = 0.0
    if element_s * elements[-1] <= NEGLIGIBLE * seconds[-1]:
        element_s = 0.0
    return fixed_s, element_s


def constants_of(fit: LinkFit, user_provided: bool) -> list[Fields]:
    """Return a row for each constant: its value, whether the user gave it, and its standard error if known.

    Constants of value 0 are left out unless they were fitted.
    """
    values: dict[str, float] = {
        "latency": float(fit.link.latency_s),
        "bandwidth": float(fit.link.bandwidth_bytes_per_s),
        "message_overhead": float(fit.costs.message_s),
    }
    values |= {f"call_overhead.{workers}": seconds for workers, seconds in fit.costs.call_s}
    for kind, call_s in fit.costs.call_of_s:
        values |= {f"call_overhead.{kind}.{workers}": seconds for workers, seconds in call_s}
    values |= {f"byte_overhead.{kind}": seconds for kind, seconds in fit.costs.byte_s}
    provided = ("latency", "bandwidth") if user_provided else ()
    return [
        {"constant": name, "value": value, "given": name in provided, "spread": fit.spread.get(name)}
        for name, value in values.items()
        if value or name in fit.spread
    ]


def residuals_of(rows: Sequence[Fields]) -> list[Fields]:
    """Return statistics of the fit's errors by collective and number of processes, and over all rows."""
    groups: dict[tuple[str, int | None], list[Fields]] = {}
    for row in rows:
        groups.setdefault((row["collective"], row["workers"]), []).append(row)
    groups["all", None] = list(rows)
    residuals = []
    for (kind, workers), group in groups.items():
        errors = np.array([row["error"] for row in group])
        residuals.append({
            "collective": kind, "workers": workers, "points": len(group), "median": float(np.median(np.abs(errors))),
            "worst": float(np.abs(errors).max()), "bias": float(errors.mean()),
            "spread": float(np.median([row["spread"] for row in group])),
        })  # fmt: skip
    return residuals


def quantity(value: float, units: dict[str, float]) -> str:
    """Return a value as text in the largest of the units that does not exceed it, with `DIGITS` significant digits.

    The values of ``units`` increase; a value below the smallest unit gets this unit.
    """
    rounded_value = rounded(value)
    smallest_unit, *_ = units
    fitting_units = [unit for unit, unit_value in units.items() if abs(rounded_value) >= unit_value] or [smallest_unit]
    number = rounded(rounded_value / units[fitting_units[-1]])
    return f"{number:.10g} {fitting_units[-1]}"


def rounded(value: Any) -> Any:
    """Return a value with all numbers in it, at any depth, rounded to `DIGITS` significant digits."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
