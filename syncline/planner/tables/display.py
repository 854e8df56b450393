"""The tables of runs, comparisons and lists, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rich.console import Group

from syncline.costmodel import Network
from syncline.planner.tables.columns import (
    Column,
    exposed_share,
    four_digits,
    seconds_of,
    shown,
    table,
    text_of,
    times_of,
    waiting_text,
)
from syncline.specs import CompareSpec, Experiment, RunSpec, study_of
from syncline.specs.study import Record
from syncline.units import format_bytes, format_seconds


def _with_share(seconds: float | None, share: float | None) -> str:
    """Return seconds with their share of a step in percent; "-" if they are unknown."""
    return "-" if seconds is None else f"{format_seconds(seconds)} ({share or 0.0:.0%})"


CLOCK_NOTE = "Step time, communication (its share) and bytes: means per step and worker. Wall clock: all steps."
EXPOSED_NOTE = (
    "Step time, exposed communication (its share: waiting for the network with nothing to compute) and bytes: means "
    "per step and worker. Wall clock: all steps."
)


def few_columns(rows: list[Record]) -> list[Column]:
    """Return the columns of the step time with its bounds, and of the share of a step that waits for the network."""
    return [("step\ntime", _bounded_step if _bounded(rows) else seconds_of("step_time_s")), ("waiting", waiting_text)]


def _bounded_step(row: Record) -> str:
    """Return the time of a step with the distances of its bounds in percent."""
    step_s, low_s, high_s = (row[f"step_time{end}_s"] for end in ("", "_low", "_high"))
    text = seconds_of("step_time_s")(row)
    return f"{text} {around(step_s, low_s, high_s)}" if step_s else text


def around(value: float, low: float, high: float) -> str:
    """Return the distances of both bounds from a value, in percent of the value.

    >>> around(0.358, 0.331, 0.655), around(100, 93, 107)
    ('-8+83%', '±7%')
    """
    below, above = (f"{max(0.0, distance):.0%}" for distance in (1 - low / value, high / value - 1))
    return f"±{above}" if below == above else f"-{below.removesuffix('%')}+{above}"


def speedup_column(rows: list[Record]) -> Column:
    """Return the column of speedups, with the distances of their bounds in percent if the rows have bounds."""
    if not _bounded(rows):
        return "speedup", times_of("speedup")

    def show(row: Record) -> str:
        """Return a row's speedup with its bounds as text."""
        if not (value := row["speedup"]):
            return "-"
        digits = max(0, 2 - int(math.log10(max(value, 1.0))))
        low, high = row["speedup_low"], row["speedup_high"]
        return f"{value:.{digits}f}x" + (f" {around(value, low, high)}" if low < high else "")

    return "speedup", show


def few_note(rows: list[Record], baseline: str) -> str:
    """Return the note that explains the columns of `few_columns` and the speedup over a baseline."""
    note = f"Waiting: part of a step with nothing to do but wait for the network. Speedup: over {baseline}."
    if not _bounded(rows):
        return note
    bases = "; ".join(dict.fromkeys(row["basis"] for row in rows))
    return f"{note}\n-, + and ±: the range where nine of ten measurements are expected; from {bases}."


def stuck_note(rows: list[Record]) -> str:
    """Return the note on trainings that ended early because no worker was left to continue."""
    stuck_rows = (row for row in rows if row.get("stuck"))
    return "".join(
        f"\n{row['method']} on {row['network']}: {row['stuck']}, after step {row['steps']:,}." for row in stuck_rows
    )


MORE = "\nMore: --columns all, or names of --json."


def clock_columns(rows: list[Record]) -> list[Column]:
    """Return the columns of the clock, with exposed communication if it is less than all communication in a row."""
    communication: Column = "communication", lambda row: _with_share(row["communication_s"], row["communication_share"])
    exposed: Column = "exposed", lambda row: _with_share(row["exposed_communication_s"], exposed_share(row))
    return [
        ("step\ntime", _bounded_step if _bounded(rows) else seconds_of("step_time_s")),
        exposed if _is_overlapped(rows) else communication,
        ("bytes\n/step", shown("bytes_per_worker", format_bytes)),
        ("wall\nclock", seconds_of("wall_clock_s")),
    ]


BOUNDS_NOTE = " -, + and ±: the range in which nine of ten measured ones are expected."


def bounds_note(rows: list[Record]) -> str:
    """Return a note about the bounds and their bases."""
    if not _bounded(rows):
        return ""
    bases = "".join(f"\nBounds rest on {basis}." for basis in dict.fromkeys(row["basis"] for row in rows))
    return f"{BOUNDS_NOTE}{bases}"


def _bounded(rows: list[Record]) -> bool:
    """Return whether the rows have bounds; folders of earlier versions have none."""
    return bool(rows) and "step_time_low_s" in rows[0]


def clock_note(rows: list[Record]) -> str:
    """Return the note that explains the columns of the clock."""
    return EXPOSED_NOTE if _is_overlapped(rows) else CLOCK_NOTE


def _is_overlapped(rows: list[Record]) -> bool:
    """Return whether computing hides a part of the communication in any row."""
    timed_rows = [row for row in rows if row["communication_s"] is not None]
    return any(row["exposed_communication_s"] < row["communication_s"] * (1 - 1e-9) for row in timed_rows)


def network_title(network: Network, count: int, steps: int, unit_name: str = "workers") -> str:
    """Return the title of a table of one network, which joins ``count`` workers or other units."""
    name = f"{network.name}: " if "," not in network.name else ""
    return f"{name}{network.describe()}, {count:,} {unit_name}, {steps:,} steps"


def compare_tables(rows: list[Record], spec: CompareSpec) -> list[Group]:
    """Return one table per network, of which the last explains the columns; none without a first step."""
    if not rows:
        return []
    target = rows[0]["target_loss"]
    columns: list[Column] = [
        text_of("method"),
        ("val loss", _loss),
        *few_columns(rows),
        speedup_column(rows),
        ("time to\ntarget" if target is None else f"to loss\n{four_digits(target)}", seconds_of("time_to_target_s")),
        ("speedup\nto it", times_of("time_to_target_speedup")),
    ]
    note = f"{few_note(rows, spec.methods[0].name)}{spec.compute.source_note()}{stuck_note(rows)}{MORE}"
    return [
        table(
            network_title(network, spec.num_endpoints, spec.steps, unit_name=spec.endpoint_noun),
            columns,
            rows=[row for row in rows if row["network"] == network.name],
            note=note if network is spec.networks[-1] else "",
            keys=("method",),
        )
        for network in spec.networks
    ]


def _loss(row: Record) -> str:
    """Return the loss of a training as text, with the step at which the training ended early."""
    text = lost_or_number("loss")(row)
    ended_early = row["interrupted"] or row.get("stuck")
    return f"{text}\n(step {row['steps']})" if ended_early and "\n" not in text else text


def lost_or_number(name: str) -> Callable[[Record], str]:
    """Return a function from a row to the text of a number, or the step at which the training diverged."""

    def show(row: Record) -> str:
        """Return a row's number as text, or the step at which its training diverged."""
        value = row.get(name)
        is_missing = value is None or not math.isfinite(value)  # in a file a number that is not finite is null
        if is_missing and name in row and row["diverged_at"] is not None:
            return f"diverged\n(step {row['diverged_at']})"
        return "-" if value is None else four_digits(value)

    return show


def subject(spec: Experiment) -> str:
    """Return the name of an experiment for its progress bar."""
    return spec.method.name if isinstance(spec, RunSpec) else spec.name


def run_tables(rows: list[Record], spec: Experiment) -> list[Group]:
    """Return each seed's metrics, then the clock that the seeds share; or the tables of a study."""
    if not isinstance(spec, RunSpec):
        return study_of(spec).tables(rows, spec) if rows else []
    title = f"{spec.method.name}, {spec.num_endpoints:,} {spec.endpoint_noun}, {rows[0]['steps']:,} steps"
    columns: list[Column] = [("seed", lambda row: str(row["seed"]))]
    columns += [(name.replace("_", " "), lost_or_number(name)) for name in rows[0] if name not in OF_CLOCK]
    note = "Train loss and means: over the last tenth of the steps. The others: the workers' mean, at the end."
    tables = [table(title, columns, rows, note, keys=("seed",))]
    if "step_time_s" in rows[0]:
        network: Column = ("network", lambda row: row["network"])
        title = network_title(spec.network, spec.num_endpoints, steps=rows[0]["steps"], unit_name=spec.endpoint_noun)
        note = clock_note(rows) + spec.compute.source_note() + bounds_note(rows) + stuck_note(rows[:1]) + MORE
        tables.append(table(title, [network, *clock_columns(rows)], rows=rows[:1], note=note))
    if "ages" in rows[0]:
        tables.append(_server_table(rows[0]))
    return tables


OF_WORKERS = ("ages", "ages_above", "contributions", "steps_by_worker", "waited_s", "waited_for_s")
"""Fields of a row that are lists, by age or by worker."""

OF_CLOCK = {
    "step_time_s", "compute_s", "communication_s", "communication_share", "exposed_communication_s", "encode_s",
    "trigger_s", "optimizer_s", "bytes_per_worker", "wall_clock_s", "method", "network", "workers", "steps", "seed",
    "diverged_at", "basis", "step_time_low_s", "step_time_high_s", "wall_clock_low_s", "wall_clock_high_s", *OF_WORKERS,
}  # fmt: skip
"""Fields of a row that the table of a run's metrics leaves out: fields of the clock, which seeds share, and names."""


def _server_table(row: Record) -> Group:
    """Return the table of each worker's updates at the server, with a note on the ages of updates."""
    names = ("updates", "steps", "waited_s", "waited_for_s")
    values_by_worker = zip(*(row[name] for name in OF_WORKERS[2:]), strict=True)
    workers = [
        {"worker": worker} | dict(zip(names, values, strict=True)) for worker, values in enumerate(values_by_worker)
    ]
    counts = ", ".join(f"{age}: {count}" for age, count in enumerate(row["ages"]) if count)
    note = f"Ages of updates (versions of the model since a worker took its own), and how many had each: {counts}."
    columns: list[Column] = [
        ("worker", lambda row: str(row["worker"])),
        ("updates", lambda row: str(row["updates"])),
        ("local steps", lambda row: str(row["steps"])),
        ("waited", seconds_of("waited_s")),
        ("waited for", seconds_of("waited_for_s")),
    ]
    return table(f"At the server, {row['versions']:,} versions of the model", columns, rows=workers, note=note)


CATALOGUE_COLUMNS = {
    "networks": ("name", "description", "links", "source"),
    "clusters": ("name", "workers", "hardware", "links", "description", "source"),
    "hardware": ("name", "peak_flops", "mfu", "precision", "memory", "source"),
    "models": ("name", "parameters", "layers", "width", "heads", "vocabulary", "sequence", "source"),
    "methods": ("name", "family", "bytes_per_worker_and_step", "sends", "keeps", "memory", "source"),
    "problems": ("name", "description", "fields", "source"),
    "schedules": ("name", "description", "takes", "source"),
    "studies": ("name", "command", "description", "source"),
    "specs": ("command", "description"),
    "fits": ("name", "methods", "seen", "off", "source"),
    "prices": ("name", "accelerator_hour", "egress_gb", "currency", "source"),
    "failures": ("name", "per", "mtbf_s", "description", "source"),
}
"""Columns of a list for people; ``--json`` has all fields."""


METHOD_SIZES = {"sends": "bytes_per_worker", "keeps": "state_bytes", "memory": "memory_bytes"}
"""Columns of the list of methods that show sizes, with the fields in bytes."""

METHODS_NOTE = (
    "Sends: per worker and step, mean; keeps: states beyond the parameters; memory: these, weights, gradients "
    "and buffers of the largest call, without activations; all for {} in fp32, {} workers.\n"
    "N: parameters; N': those that are no matrices; Σ: over tensors of n numbers, "
    "or over matrices m by n that travel as factors of rank r.\n"
)

HARDWARE_NOTE = "Peak: in that precision. mfu: the share of it that a training reaches.\n"


def catalogue_table(catalogue: str, rows: list[Record]) -> Group:
    """Return the table of ``syncline list``: the names of a catalogue that a spec can use."""
    names = list(CATALOGUE_COLUMNS[catalogue])
    if not any(row.get("source") for row in rows):
        names = [name for name in names if name != "source"]
    if catalogue == "methods":
        rows = [row | {name: format_bytes(row[key]) for name, key in METHOD_SIZES.items()} for row in rows]
    if catalogue == "hardware":
        rows = [row | {"peak_flops": f"{row['peak_flops'] / 1e12:.4g} TFLOP/s"} for row in rows]
    columns: list[Column] = [(name.replace("_", " "), lambda row, name=name: _cell(row.get(name))) for name in names]  # type: ignore[misc]
    text_columns = [index for index, name in enumerate(names) if not isinstance(rows[0][name], int | float)]
    notes = {"methods": METHODS_NOTE.format(rows[0].get("model"), rows[0].get("workers")), "hardware": HARDWARE_NOTE}
    note = notes.get(catalogue, "")
    note += f"Everything about them: syncline list {catalogue} --json"
    return table(catalogue, columns, rows, note=note, text_columns=text_columns)


def _cell(value: Any) -> str:
    """Return a field of a list as text; "-" for none."""
    if isinstance(value, list):
        return ", ".join(map(_spec_text, value))
    return "-" if value is None else _spec_text(value)


def _spec_text(value: Any) -> str:
    """Return a value as a spec writes it."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={_spec_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spec_text, value))}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "null"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
