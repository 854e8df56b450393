"""Published fits, tables and a calculator of DiLoCo at scale against what is computed here, row by row."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.command import parser_of, show
from benchmarks.evidence import backtest, intellect, off, ranking
from benchmarks.ideal_clock import IdealClock
from syncline.costmodel.scaling.laws import MeasuredLoss, PowerLaw, fitted_power_law, printed_losses
from syncline.costmodel.scaling.published import CHARLES_BY_REPLICAS, CHARLES_DDP, CHARLES_DILOCO

Floats = NDArray[np.float64]

GRID = np.logspace(-1, 3, 50)
"""Gbit/s that the printed bandwidths are of: 0.1 to 1000, 50 of them."""

FINE = np.logspace(-1.5, 3.7, 800)
"""Gbit/s at which a utilisation is computed."""

ROUNDED = 1.005
"""A bandwidth this little below a value of the grid counts as it: the papers round sizes and seconds more."""

TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)
BITS = 16


class Row(NamedTuple):
    """A printed number and ours."""

    what: str
    where: str
    printed: float
    ours: float
    unit: str
    difference: str


# Charles et al.: their tables from their tables.


def refitted(losses: Sequence[MeasuredLoss], names: Sequence[str]) -> PowerLaw:
    """The fit of printed losses."""
    return fitted_power_law([one.setting for one in losses], [one.loss for one in losses], names)


def charles() -> list[Row]:
    """Tables 7, 10 and 11 computed of Table 4; Table 5 by the printed fits."""
    rows = []
    every = printed_losses("charles-2025", "diloco")
    for replicas, law in {0: CHARLES_DDP, **CHARLES_BY_REPLICAS}.items():
        losses = printed_losses("charles-2025", "ddp-adam") if not replicas else every
        ours = refitted([one for one in losses if one.replicas == (replicas or 1)], ["parameters"])
        name = f"DiLoCo, M = {replicas}" if replicas else "data parallelism"
        rows += _law(f"loss, {name}", "Table 7", law, ours)
    rows += _law("loss, DiLoCo", "Table 10", CHARLES_DILOCO, refitted(every, ["parameters", "replicas"]))
    few = [one for one in every if one.parameters < 2e9]
    joint = refitted(few, ["parameters", "replicas"])
    for replicas, alone, both in ((1, 0.011, 0.019), (2, 0.0099, 0.013), (4, 0.012, 0.0082), (8, 0.014, 0.0076)):
        (largest,) = (one for one in every if one.parameters > 2e9 and one.replicas == replicas)
        own = refitted([one for one in few if one.replicas == replicas], ["parameters"])
        for name, law, printed in (("independent", own, alone), ("joint", joint, both)):
            residual = float(abs(np.log(law.value(largest.setting) / largest.loss)))
            what = f"residual at 2.4B, {name} fit, M = {replicas}"
            rows.append(Row(what, "Table 11", printed, round(residual, 4), "", f"{residual - printed:+.4f}"))
    for method, law in (("ddp-adam", CHARLES_DDP), ("diloco", CHARLES_DILOCO)):
        for one in [*printed_losses("charles-2025", method), *printed_losses("charles-2025", method, "test")]:
            told = law.value(one.setting)
            name = "data parallelism" if method == "ddp-adam" else f"DiLoCo, M = {one.replicas:g}"
            what = f"loss at {one.parameters / 1e9:g}B, {name}, by the printed fit"
            rows.append(Row(what, one.place, one.loss, round(told, 3), "nats per token", off(one.loss, told)))
    return rows


def _law(what: str, where: str, printed: PowerLaw, ours: PowerLaw) -> list[Row]:
    rows = [Row(f"{what}: A", where, printed.scale, round(ours.scale, 3), "", off(printed.scale, ours.scale))]
    for name, exponent in printed.exponents.items():
        own = ours.exponents[name]
        rows.append(Row(f"{what}: exponent of {name}", where, exponent, round(own, 5), "", f"{own - exponent:+.5f}"))
    return rows


# Compute utilisation over bandwidth, which their authors simulated.


class Printed(NamedTuple):
    """A table's part: a model, and Gbit/s per method for each of `TARGETS`."""

    where: str
    model: str
    layers: int
    width: int
    step_s: float
    methods: dict[str, tuple[float, ...]]


STREAMING = "Douillard et al. (2025), Table 4"
CHARLES = "Charles et al. (2025), Table 6"
UTILISATION = (
    Printed(STREAMING, "1B", 24, 1864, 0.1, {
        "data parallelism": (86.8, 152.6, 184.2, 222.3, 569.0),
        "DiLoCo, H = 100": (1.4, 6.2, 13.3, 23.3, 86.8),
        "streaming, 8 fragments": (1.4, 5.2, 9.1, 16.0, 28.1),
        "streaming, 8 fragments, overlapped": (1.4, 4.3, 6.2, 9.1, 11.0),
        "streaming, 8 fragments, overlapped, 4 bits": (0.4, 0.9, 1.7, 2.0, 3.0),
    }),
    Printed(STREAMING, "10B", 48, 4168, 0.8, {
        "data parallelism": (104.8, 222.3, 222.3, 268.3, 471.5),
        "DiLoCo, H = 100": (1.7, 7.5, 16.0, 33.9, 104.8),
        "streaming, 16 fragments": (1.7, 5.2, 9.1, 13.3, 19.3),
        "streaming, 16 fragments, overlapped": (1.7, 3.6, 5.2, 6.2, 7.5),
        "streaming, 16 fragments, overlapped, 4 bits": (0.4, 0.9, 1.4, 1.4, 1.7),
    }),
    Printed(STREAMING, "100B", 108, 8784, 4.9, {
        "data parallelism": (184.2, 323.8, 390.7, 390.7, 471.5),
        "DiLoCo, H = 100": (3.0, 11.0, 23.3, 49.4, 184.2),
        "streaming, 36 fragments": (2.4, 6.2, 9.1, 11.0, 19.3),
        "streaming, 36 fragments, overlapped": (1.7, 3.6, 4.3, 5.2, 5.2),
        "streaming, 36 fragments, overlapped, 4 bits": (0.5, 0.9, 1.1, 1.1, 1.4),
    }),
    Printed(CHARLES, "Chinchilla 10B", 48, 4168, 0.8, {
        "data parallelism": (104.8, 184.2, 222.3, 222.3, 390.7),
        "DiLoCo, H = 1": (104.8, 184.2, 222.3, 222.3, 390.7),
        "DiLoCo, H = 10": (16.0, 49.4, 86.8, 152.6, 222.3),
        "DiLoCo, H = 50": (3.0, 11.0, 23.3, 41.0, 126.5),
        "DiLoCo, H = 100": (1.4, 6.2, 13.3, 23.3, 86.8),
        "DiLoCo, H = 300": (0.5, 2.0, 4.3, 9.1, 41.0),
    }),
    Printed(CHARLES, "Llama 3 405B", 126, 16368, 26.0, {
        "data parallelism": (126.5, 222.3, 268.3, 323.8, 323.8),
        "DiLoCo, H = 1": (126.5, 222.3, 268.3, 323.8, 323.8),
        "DiLoCo, H = 10": (19.3, 72.0, 126.5, 184.2, 268.3),
        "DiLoCo, H = 50": (3.6, 13.3, 28.1, 59.6, 184.2),
        "DiLoCo, H = 100": (2.0, 7.5, 16.0, 33.9, 126.5),
        "DiLoCo, H = 300": (0.7, 3.0, 6.2, 13.3, 59.6),
    }),
    Printed(CHARLES, "DeepSeek-V3 671B", 61, 30280, 20.0, {
        "data parallelism": (323.8, 569.0, 686.6, 686.6, 1000.0),
        "DiLoCo, H = 1": (323.8, 569.0, 686.6, 686.6, 1000.0),
        "DiLoCo, H = 10": (49.4, 152.6, 268.3, 390.7, 686.6),
        "DiLoCo, H = 50": (7.5, 33.9, 72.0, 126.5, 390.7),
        "DiLoCo, H = 100": (4.3, 16.0, 41.0, 72.0, 268.3),
        "DiLoCo, H = 300": (1.7, 6.2, 13.3, 28.1, 126.5),
    }),
)  # fmt: skip
"""Widths are such that so many layers have the parameters of the model's name, which is what was sent."""


class Utilisation(NamedTuple):
    """Gbit/s to a compute utilisation: printed, by `sl.project`, and by the projection of a plan of `sl.advise`.

    The two differ in their settings: `project` is told the step's seconds and sends gradients layer by layer, as the
    papers do; a plan of `advise` computes on hardware that takes as long, with buckets of 25 MiB and the fastest
    algorithm. ``on_grid`` is the grid's value just below, ``steps_off`` its distance from the printed value in steps.
    """

    where: str
    model: str
    method: str
    utilisation: float
    printed_gbit_s: float
    project_gbit_s: float
    project_on_grid: float
    project_steps_off: int
    advise_gbit_s: float
    advise_on_grid: float
    advise_steps_off: int


def method_fields(name: str) -> Any:
    """Return a method by its printed name, with its exchanges in the backward pass, as both papers simulate them."""
    if name == "data parallelism":
        return "ddp-adam"
    if name.startswith("DiLoCo"):
        period = int(name.split("= ")[1])
        return {"kind": "diloco", "lr": 1.0, "wire": "bf16", "period": period, "in_backward": True, "label": name}
    stream = {
        "fragments": int(name.split()[1]),
        "strides": LAYERS_PER_FRAGMENT,
        "tau": int("overlapped" in name),
        "in_backward": True,
    }
    wire = "e3m0" if "4 bits" in name else "bf16"
    return {"kind": "streaming-diloco", "lr": 1.0, "wire": wire, "period": 100, "stream": stream, "label": name}


LAYERS_PER_FRAGMENT = 3
"""Layers of a fragment, which lie as many layers apart as there are fragments; Douillard et al., section 4."""

TRAINING_STEPS = 30_000


def projected_shares(part: Printed) -> dict[str, Floats]:
    """Return each method's compute utilisation on links of the rates `FINE`, by `sl.project`."""
    import syncline as sl

    rows = sl.project(
        model=_model(part),
        workers=[2],
        methods=[method_fields(name) for name in part.methods],
        networks=[_link(rate) for rate in FINE],
        compute={"seconds": part.step_s},
        tokens_per_worker=8,
        steps=TRAINING_STEPS,
        overlap="ddp",
        bucket_size=12 * part.width**2 * BITS // 8,
        precision="bf16",
        algorithm="ring",
        thresholds=False,
    ).rows
    return _shares(part, rows)


def advised_shares(part: Printed) -> dict[str, Floats]:
    """Return each method's compute utilisation on links of the rates `FINE`, by a plan of `sl.advise`."""
    from syncline.planner.advice.plans import TrainingPlan, spec_of_setting
    from syncline.planner.advice.question import advice_question
    from syncline.planner.projection.project import project_all
    from syncline.questions.projections import Advise
    from syncline.specs.cluster.networks import network

    def rows_of(peak_flops: float, rates: Sequence[float]) -> Any:
        hardware = {"name": "h", "peak_flops": peak_flops, "mfu": 0.5, "memory_bytes": 1e15, "precision": "bf16"}
        batch = 16
        asked = Advise(
            model=_model(part), network=_link(1.0), hardware=hardware, workers=2, batch_tokens=batch,
            tokens=batch * TRAINING_STEPS, methods=[method_fields(name) for name in part.methods],
        )  # fmt: skip
        question = advice_question(asked)
        spec = spec_of_setting(question, TrainingPlan(question.methods[0]), question.methods)
        links = tuple(network(_link(rate)) for rate in rates)
        return project_all([spec.model_copy(update={"networks": links})], thresholds=False)

    trial_flops = 1e15
    peak_flops = trial_flops * rows_of(trial_flops, [1.0])[0]["compute_s"] / part.step_s
    return _shares(part, rows_of(peak_flops, FINE.tolist()))


def _model(part: Printed) -> dict[str, Any]:
    return {"layers": part.layers, "width": part.width, "heads": 8, "vocabulary": 8, "sequence": 8, "name": "m"}


def _link(rate: float) -> dict[str, Any]:
    return {"latency": 0, "bandwidth": f"{rate:.9g} Gbit/s", "name": f"{rate:.9g}"}


def _shares(part: Printed, rows: Sequence[Any]) -> dict[str, Floats]:
    count = len(part.methods)
    return {
        name: np.array([row["compute_s"] / row["step_time_s"] for row in rows[number::count]])
        for number, name in enumerate(part.methods)
    }


def utilisation(part: Printed) -> list[Utilisation]:
    """Return the rows of a part: two workers, one all-reduce between them, no latency, bf16."""
    projected, advised = projected_shares(part), advised_shares(part)
    rows = []
    for name, printed in part.methods.items():
        for target, value in zip(TARGETS, printed, strict=True):
            ours = [sufficient_rate(shares[name], target) for shares in (projected, advised)]
            columns = [(round(rate, 3), *on_grid(rate, value)) for rate in ours]
            rows.append(Utilisation(part.where, part.model, name, target, value, *columns[0], *columns[1]))
    return rows


def sufficient_rate(shares: Floats, target: float) -> float:
    """Return the rate at which the shares of `FINE` reach a target, in Gbit/s."""
    first = int(np.argmax(shares >= target))
    return float(np.exp(np.interp(target, shares[first - 1 : first + 1], np.log(FINE[first - 1 : first + 1]))))


def on_grid(value: float, printed: float) -> tuple[float, int]:
    """Return the grid's value that is not above, and how many steps it is above the printed one."""
    place = min(max(int(np.searchsorted(GRID, value * ROUNDED, side="right")) - 1, 0), len(GRID) - 1)
    return round(float(GRID[place]), 1), place - int(np.argmin(np.abs(np.log(GRID / printed))))


# A public calculator.


class Setting(NamedTuple):
    """What is entered into the calculator."""

    parameters: float
    batch_tokens: float
    replicas: int
    chips: int
    period: int
    gbit_s: float
    latency_s: float
    fragments: int = 0
    tflops: float = 495.0


SETTINGS = (
    Setting(1e9, 1e6, 2, 16, 30, 100, 0.1),
    Setting(1e9, 1e6, 4, 16, 30, 10, 0.02),
    Setting(1e9, 1e6, 2, 16, 30, 1, 0.1),
    Setting(5e9, 2e6, 2, 64, 30, 10, 0.05),
    Setting(10e9, 910_534, 2, 100, 30, 100, 0.1),
    Setting(10e9, 910_534, 2, 100, 30, 10, 0.1, 16),
    Setting(10e9, 4e6, 8, 128, 100, 10, 0.03),
    Setting(10e9, 4e6, 8, 128, 100, 10, 0.03, 16),
    Setting(50e9, 8e6, 4, 512, 100, 100, 0.01),
    Setting(100e9, 16e6, 8, 2048, 100, 2, 0.05, 36),
)


class Calculated(NamedTuple):
    """Compute utilisation and days of a training: the calculator's, and ours on the same link and on all links."""

    setting: str
    calculator_days: float
    calculator_utilisation: float
    ours_days: float
    ours_utilisation: float
    all_links_days: float
    all_links_utilisation: float
    latency_s: float
    why: str


def calculated(one: Setting) -> Calculated:
    """A row: replicas are our workers, who compute for as long as the calculator says."""
    import syncline as sl

    clock = IdealClock(
        one.parameters, 20 * one.parameters, one.batch_tokens, one.replicas, one.chips, one.tflops * 1e12, 50e9, 1e-4,
        one.gbit_s * 1e9 / 8, one.latency_s,
    )  # fmt: skip
    inside = max(clock.compute_s, clock.inner_s * clock.steps)
    outer = clock.outer_s * clock.steps / one.period
    theirs = max(inside, outer) if one.fragments else inside + outer
    step_s = clock.compute_s / clock.steps
    width = round((one.parameters / 12 / 48) ** 0.5 / 8) * 8
    method: dict[str, Any] = {"kind": "diloco", "lr": 1.0, "wire": "bf16", "period": one.period, "label": "m"}
    if one.fragments:
        method |= {"kind": "streaming-diloco", "stream": {"fragments": min(one.fragments, one.period), "tau": 1}}
    days, shares = [], []
    for links in (1.0, one.chips / one.replicas):
        (row,) = sl.project(
            model={"layers": 48, "width": width, "heads": 8, "vocabulary": 8, "sequence": 8, "name": "m"},
            workers=[one.replicas],
            methods=[method],
            networks=[{"latency": one.latency_s, "bandwidth": f"{links * one.gbit_s} Gbit/s", "name": "m"}],
            compute={"seconds": step_s},
            tokens_per_worker=8,
            steps=30_000,
            algorithm="ring",
            precision="bf16",
        ).rows
        days.append(row["step_time_s"] * clock.steps / 86400)
        shares.append(step_s / row["step_time_s"])
    hops = 2 * (one.replicas - 1)
    ring, theirs_sends = (f"{2 - 2 / nodes:.2f}" for nodes in (one.replicas, one.chips))
    why = f"a ring of {one.replicas} sends {ring} times the model by {hops} latencies"
    why += f", the calculator's of {one.chips} {theirs_sends} times by one"
    if one.fragments:
        why += "; its overlap hides a fragment behind all steps until the next, ours behind one step (tau = 1)"
    if clock.inner_s > step_s:
        why += "; inside a replica it waits for its all-reduce, which is not in ours"
    name = (
        f"{one.parameters / 1e9:g}B, {one.batch_tokens / 1e6:g}M tokens a step, M = {one.replicas}, {one.chips} chips, "
        f"H = {one.period}, {one.gbit_s:g} Gbit/s, {1e3 * one.latency_s:g} ms"
        + (f", {one.fragments} fragments" if one.fragments else "")
    )
    return Calculated(
        name, round(theirs / 86400, 3), round(clock.compute_s / theirs, 4), round(days[0], 3), round(shares[0], 4),
        round(days[1], 3), round(shares[1], 4), one.latency_s, why,
    )  # fmt: skip


TABLES: dict[str, Callable[[], list[Any]]] = {
    "charles": charles,
    "backtest": backtest,
    "ranking": ranking,
    "intellect": intellect,
    "utilisation": lambda: [row for part in UTILISATION for row in utilisation(part)],
    "calculator": lambda: [calculated(one) for one in SETTINGS],
}
"""What makes the rows of a table, by the name of its file."""


def summary(rows: Sequence[Utilisation]) -> str:
    """Return how many cells have the grid's value, are one step of the grid off, or more, by table and method."""
    lines = ["table | method | cells | project: same, one step, more | advise: same, one step, more"]
    groups: dict[tuple[str, str], list[Utilisation]] = {}
    for row in rows:
        name = re.sub(r", \d+ fragments", "", row.method) if row.method.startswith("streaming") else row.method
        groups.setdefault((row.where, name.split(", H")[0]), []).append(row)
    for (where, name), cells in groups.items():
        project = _counts([row.project_steps_off for row in cells])
        advise = _counts([row.advise_steps_off for row in cells])
        lines.append(f"{where} | {name} | {len(cells)} | {project} | {advise}")
    return "\n".join(lines)


def _counts(steps_off: Sequence[int]) -> str:
    distances = np.abs(steps_off)
    return ", ".join(str(int(count)) for count in (sum(distances == 0), sum(distances == 1), sum(distances > 1)))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the rows of a table, or write all of them."""
    parser = parser_of("benchmarks.scaling", __doc__)
    parser.add_argument("--table", choices=tuple(TABLES), default="charles")
    parser.add_argument("--out", type=Path, help="a folder: writes each table as a CSV file there")
    options = parser.parse_args(argv)
    if options.out:
        tables = {name: make() for name, make in TABLES.items()}
        options.out.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            with (options.out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([rows[0]._fields, *rows])
        print(summary(tables["utilisation"]))
        return
    show(TABLES[options.table](), lambda rows: "\n".join(" | ".join(map(str, row)) for row in rows), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
