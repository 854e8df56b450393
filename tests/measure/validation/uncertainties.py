"""``python -m tests.measure.validation.uncertainties`` writes what predictions rest on, from what was measured.

Most bases have measurements of several sources, and the bounds of each basis are those of a source that is not among
them (`uncertainty_of`). `sources_left_out` predicts each source's rows with the bounds of all others. For NVLink, each
measured number of GPUs is predicted from the others; for shapes of GPTs that were not measured, each cell of the
measured grid is predicted from points outside of it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.wide_area_pipelines import predictions
from replication.nvlink_fit import errors_of_machines_left_out, nvlink_collectives
from syncline.costmodel import HARDWARE, Link, chosen_algorithm, collective_s, gloo_s
from syncline.costmodel.bases import (
    FAMILIES,
    FITTED_PRESETS,
    GLOO_LINKS,
    LARGE_WIDTH,
    NARROW_MODELS,
    NCCL_LINKS,
    PIPELINES_ON_LINES,
    SET_UTILISATION,
    TIMED_STEPS,
    WIDE_LINES,
    WIDE_MODELS,
    any_library_basis,
    kernels_basis,
    nccl_nvlink_basis,
    nvlink_basis,
)
from syncline.costmodel.collectives.nccl import NUM_RINGS, node_times, nvlink_all_reduce_s
from syncline.costmodel.layouts.transformer_time import STEP_TIMES
from syncline.costmodel.network.presets import CARD_BYTES_PER_S, G6E_BYTES_PER_S, P3
from syncline.costmodel.network.software_costs import NcclCosts
from syncline.costmodel.numerics.uncertainty import FILE, RANGES, Scope, Uncertainty, uncertainty_of
from syncline.measure.validation.cluster_files import (
    COLLECTIVES,
    GPT_STEPS,
    MIB,
    UNCHANGED,
    in_several_calls,
    read_table,
)
from syncline.measure.validation.measured_steps import errors_by_cell, read_points, recomputes
from syncline.measure.validation.published import (
    TRAININGS,
    measured_step_s,
    model_of,
    predicted_step,
    source_of,
    training_spec,
)
from syncline.measure.validation.residuals import ANOTHER_SHAPE, is_within, min_measurements, residuals
from syncline.units import parse_bandwidth, parse_seconds
from tests.measure.validation.priced import bundled_rows, priced_rows
from tests.measure.validation.wide_lines import wide_line_errors

NO_TENSOR = "A100, one node, no tensor parallelism"

DATA_CENTRE_S = float(np.asarray(P3.gloo_delay_s))
"""Seconds one way between nodes of a region, from measured messages between them."""

G6E_CARD_BYTES_PER_S = 20e9 / 8
"""Bytes per second of a g6e.2xlarge. Source: AWS, EC2 instance types (up to 20 Gbit/s)."""

COMPUTED_PART = 0.7
"""Smallest part of a predicted step that is computing, for the step to judge computing."""


SENT_BY_TRAININGS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives whose errors bound those of trainings."""


class Residual(NamedTuple):
    """The error of a prediction, and what was measured.

    Attributes:
        error: ``predicted / measured - 1``.
        source: publication, machine or cluster; measurements of one source err alike.
        family: machine family.
        workers: number of workers.
        nbytes: bytes of a collective.
        width: width of a model.
    """

    error: float
    source: str
    family: str = ""
    workers: float | None = None
    nbytes: float | None = None
    width: float | None = None


Residuals = Mapping[str, Sequence[Residual]]


def measured_uncertainties(by_source: Residuals) -> dict[str, Uncertainty]:
    """Return the uncertainty of each basis, from the bundled measurements; `shape_uncertainty` is separate.

    Args:
        by_source: the residuals of `residuals_by_source`.
    """
    rows = bundled_rows()
    errors = residuals(rows) | nvlink_residuals() | {TIMED_STEPS: own_steps()}
    errors[WIDE_LINES] = [error.error for error in wide_line_errors()]
    bounds = {
        basis: uncertainty_of(basis_errors, basis)
        for basis, basis_errors in errors.items()
        if len(basis_errors) >= min_measurements(basis) and basis != NO_TENSOR + ANOTHER_SHAPE
    }
    for basis in FITTED_PRESETS.values():
        library = basis.partition(",")[0]
        of_library = [row for row in rows if row.get("backend") == library]
        scope = Scope.of_values(
            workers=[float(row["nodes"]) for row in of_library],
            nbytes=[float(row["megabytes"]) * MIB for row in of_library],
        )
        bounds[basis] = Uncertainty(bounds[basis].low, bounds[basis].high, bounds[basis].points, basis, 0, scope)
    return bounds | {basis: bounds_of(basis, rows) for basis, rows in by_source.items()}


def bounds_of(basis: str, rows: Sequence[Residual]) -> Uncertainty:
    """Return the uncertainty of a source that is not among those of the residuals, with the scope of these."""
    bounds = uncertainty_of([row.error for row in rows], basis, [row.source for row in rows])
    columns = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in RANGES}
    scope = Scope.of_values(filter(None, (row.family for row in rows)), **columns)
    return Uncertainty(bounds.low, bounds.high, bounds.points, basis, bounds.sources, scope)


def sources_left_out(rows: Sequence[Residual]) -> dict[str, tuple[int, float, Uncertainty]]:
    """Return, for each source, its number of rows, the part within the bounds of all others, and these bounds.

    Bases of two sources are left out, because one source says nothing about another.
    """
    out = {}
    for source in sorted({row.source for row in rows}):
        others = [row for row in rows if row.source != source]
        if len({row.source for row in others}) < 2:
            continue
        bounds = bounds_of("", others)
        hits = [is_within(row.error, bounds) for row in rows if row.source == source]
        out[source] = len(hits), float(np.mean(hits)), bounds
    return out


def residuals_by_source() -> dict[str, list[Residual]]:
    """Return the residuals of each basis of several sources."""
    return _over_nvlink() | _over_links() | training_residuals() | kernel_residuals()


def kernel_residuals() -> dict[str, list[Residual]]:
    """Return the errors of published trainings whose kernels are added up."""
    errors: dict[str, list[Residual]] = defaultdict(list)
    for row in priced_rows(TRAININGS):
        spec = training_spec(row)
        family, width = FAMILIES[spec.compute.machine.name], float(spec.width or 0)
        residual = Residual(row["error"], source_of(row), family, spec.workers, None, width)
        errors[kernels_basis(spec.kernel_experts or 1)].append(residual)
    return dict(errors)


def shape_uncertainty() -> Uncertainty:
    """Return the uncertainty of GPTs on one node without tensor parallelism, of a width and micro-batch not measured.

    Each cell of the measured grid is predicted by constants fitted to a fifth of the points outside of it. This takes
    half a minute.
    """
    single = read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node")
    machine = HARDWARE["a100"]
    recomputed = recomputes(single, machine.memory_bytes or np.inf)
    errors = errors_by_cell(single, STEP_TIMES["a100-megatron-deepspeed"].calibrated_on or (1, 0), machine, recomputed)
    return uncertainty_of(
        np.concatenate(list(errors.values())), "A100, one node, no tensor parallelism" + ANOTHER_SHAPE
    )


def pipelines_uncertainty() -> Uncertainty:
    """Return the uncertainty of pipelines on lines, from measurements that are not in the package.

    No number of the prediction is fitted to them but the time of computing, which comes from other rows.
    """
    return uncertainty_of([row.error for row in predictions()], PIPELINES_ON_LINES)


def nvlink_residuals() -> dict[str, list[float]]:
    """Return errors of measured numbers of GPUs predicted from the others: between two of them, and beyond the last."""
    errors: dict[str, list[float]] = defaultdict(list)
    for gpu in NUM_RINGS:
        times_of = node_times(gpu)
        for gpus in times_of:
            others = {count: times for count, times in times_of.items() if count != gpus}
            where = "between" if min(times_of) < gpus < max(times_of) else "beyond"
            for size, measured_s in zip(*times_of[gpus], strict=True):
                basis = nvlink_basis(gpu, 3 if where == "between" else max(times_of) + 1, float(size))
                errors[basis].append(nvlink_all_reduce_s(gpu, gpus, float(size), others) / measured_s - 1)
    return {basis: np.asarray(basis_errors).tolist() for basis, basis_errors in errors.items()}


def own_steps() -> list[float]:
    """Return the errors of our own trainings over shaped links, as `validate` predicts them."""
    return [float(row["predicted_ms"]) / float(row["measured_ms"]) - 1 for row in _own("own_steps.csv")]


def _own(name: str) -> list[dict[str, str]]:
    with COLLECTIVES.with_name(name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _over_nvlink() -> dict[str, list[Residual]]:
    """Return errors of NCCL's collectives over NVLink by basis, of each machine by constants of all others."""
    rows, errors = nvlink_collectives(), defaultdict(list)
    for machine, machine_errors in errors_of_machines_left_out(rows).items():
        machine_rows = [row for row in rows if row["machine"] == machine]
        for row, error in zip(machine_rows, machine_errors.tolist(), strict=True):
            workers = float(row["gpus"]) * float(row["nodes"])
            family = f"NVLink {row['nvlink']}"
            errors[nccl_nvlink_basis(float(row["bytes"]))].append(
                Residual(error, machine, family, workers, float(row["bytes"]))
            )
    return dict(errors)


def _over_links() -> dict[str, list[Residual]]:
    """Return errors of collectives over links of known rate and latency, as a user describes the link.

    | basis         | predicted                                                               |
    |---------------|-------------------------------------------------------------------------|
    | `NCCL_LINKS`  | NCCL's algorithms with the default costs                                |
    | `GLOO_LINKS`  | gloo's algorithms, whose software costs nothing                         |
    | `ANY_LIBRARY` | the fastest textbook algorithm of what trainings send, of any library   |
    """
    errors: dict[str, list[Residual]] = defaultdict(list)
    for library, source, kind, workers, nbytes, link, measured_s in _collectives():
        by_library = gloo_s(kind, workers, nbytes, link) if library == "gloo" else _by_nccl(kind, workers, nbytes, link)
        row = Residual(float(by_library) / measured_s - 1, source, "", float(workers), nbytes)
        errors[GLOO_LINKS if library == "gloo" else NCCL_LINKS].append(row)
        if kind in SENT_BY_TRAININGS:
            fastest = chosen_algorithm("auto", kind, workers, nbytes, link)
            error = float(collective_s(kind, workers, nbytes, link, fastest)) / measured_s - 1
            errors[any_library_basis(nbytes)].append(row._replace(error=error, source=f"{library} on {source}"))
    # The rate of NCCL's large all-reduces on g6e.2xlarge, over the rate of the card.
    error = G6E_BYTES_PER_S / G6E_CARD_BYTES_PER_S - 1
    errors[NCCL_LINKS].append(Residual(error, "g6e.2xlarge"))
    errors[any_library_basis(None)].append(Residual(error, "nccl on g6e.2xlarge"))
    return dict(errors)


def _by_nccl(kind: str, workers: int, nbytes: float, link: Link) -> float:
    costs = Link(link.latency_s, link.bandwidth_bytes_per_s, nccl=NcclCosts())
    return float(collective_s(kind, workers, nbytes, costs))


def _collectives() -> Iterator[tuple[str, str, str, int, float, Link, float]]:
    """Yield library, source, kind, workers, bytes, link and measured seconds of collectives over links."""
    for row in read_table(COLLECTIVES)[1]:
        if row["collective"] in ("all_reduce", "broadcast", "reduce") and not in_several_calls(row):
            is_default = UNCHANGED in (row["delay_ms"], row["gbit_s"])
            link = Link(DATA_CENTRE_S, CARD_BYTES_PER_S)
            if not is_default:
                link = Link(float(row["delay_ms"]) / 1e3, float(row["gbit_s"]) * 1e9 / 8)
            nbytes = float(row["megabytes"]) * MIB
            yield (
                row["backend"], "p3.2xlarge", row["collective"], int(row["nodes"]), nbytes, link,
                float(row["time_ms"]) / 1e3,
            )  # fmt: skip
    for row in _own("own_collectives.csv"):
        link = Link(parse_seconds(row["delay"], "delay"), parse_bandwidth(row["rate"], "rate"))
        yield (
            "gloo", "our shaped links", row["collective"], int(row["workers"]), float(row["bytes"]), link,
            float(row["measured_ms"]) / 1e3,
        )  # fmt: skip


def training_rows() -> Iterator[dict[str, str]]:
    """Yield published trainings of dense models, and vTrain's without tensor parallelism and stages."""
    yield from (row for row in _own(TRAININGS.name) if model_of(row).experts == 1)
    for point in read_points(str(GPT_STEPS[0].parent), GPT_STEPS[0].name, "single_node"):
        if point.tensor == 1 and point.stages == 1:
            fields = {
                "source": "vTrain", "model": "gpt3-1.3b", "hardware": "a100", "gpus": point.gpus,
                "sequence": point.sequence, "micro_batch": point.micro_batch, "global_batch": point.global_batch,
                "layers": point.layers, "width": point.width, "heads": point.heads, "sharding": "optimizer",
                "step_s": point.measured_s,
            }  # fmt: skip
            yield {name: str(value) for name, value in fields.items()}


def training_residuals() -> dict[str, list[Residual]]:
    """Return errors of trainings that compute for most of a step, by the width of the model.

    Bases that end in `SET_UTILISATION` have the same rows, predicted by the median ratio of the other rows of their
    source, machine and width.
    """
    errors: dict[str, list[Residual]] = defaultdict(list)
    machines: dict[tuple[str, str, str], list[Residual]] = defaultdict(list)
    for row in training_rows():
        spec = training_spec(row, by_utilisation=True)
        step = predicted_step(spec)
        step_s, computing_s = (float(np.ravel(seconds)[0]) for seconds in (step.step_time_s, step.computing_s))
        if computing_s < COMPUTED_PART * step_s:
            continue
        measured_s, width = measured_step_s(row), spec.model.width
        assert measured_s is not None
        family = FAMILIES.get(row["hardware"], row["hardware"].upper())
        residual = Residual(step_s / measured_s - 1, source_of(row), family, spec.workers, None, float(width))
        basis = WIDE_MODELS if width >= LARGE_WIDTH else NARROW_MODELS
        errors[basis].append(residual)
        machines[basis, source_of(row), spec.compute.machine.name].append(residual)
    for (basis, *_), rows in machines.items():
        for number, row in enumerate(rows):
            others = [other.error for place, other in enumerate(rows) if place != number]
            if len(others) > 2:
                error = (1 + row.error) / (1 + float(np.median(others))) - 1
                errors[basis + SET_UTILISATION].append(row._replace(error=error))
    return dict(errors)


if __name__ == "__main__":
    apart, by_source = [shape_uncertainty(), pipelines_uncertainty()], residuals_by_source()
    rows = sorted([*measured_uncertainties(by_source).items(), *((row.basis, row) for row in apart)])
    with FILE.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(
            file, ["basis", "points", "sources", "low", "high", *Scope().columns()], lineterminator="\n"
        )
        out.writeheader()
        for basis, row in rows:
            out.writerow(
                {"basis": basis, "points": row.points, "sources": row.sources, "low": f"{row.low:.4f}",
                 "high": f"{row.high:.4f}"} | row.scope.columns()
            )  # fmt: skip
    for basis, measured in by_source.items():
        for source, (count, part, bounds) in sources_left_out(measured).items():
            print(f"{basis}; without {source}: {part:.0%} of {count} in {bounds.low:.2f} to {bounds.high:.2f}")
