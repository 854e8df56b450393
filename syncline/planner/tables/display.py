"""The tables of runs, comparisons and lists, for the terminal."""

from __future__ import annotations

from rich.console import Group

from syncline.columns import column_of
from syncline.costmodel import Network
from syncline.planner.tables.table import table, waiting
from syncline.specs import CompareSpec, Experiment, RunSpec, study_of
from syncline.specs.study import Record
from syncline.units import counted, format_seconds

MORE = "\nMore: --columns all, or names of --json."

BOUNDED = ("step_time_s", "speedup")
"""Columns that tables of trainings show with their bounds."""

BOUNDS_NOTE = " -, + and ±: the range in which nine of ten measured ones are expected."


def step_columns_note(rows: list[Record], baseline: str) -> str:
    """Return the note on the columns ``step_time_s``, ``waiting`` and ``speedup``; ``baseline`` names a method."""
    note = f"Waiting: part of a step with nothing to do but wait for the network. Speedup: over {baseline}."
    if not _have_bounds(rows):
        return note
    bases = "; ".join(dict.fromkeys(row["basis"] for row in rows))
    return f"{note}\n-, + and ±: the range where nine of ten measurements are expected; from {bases}."


def stuck_note(rows: list[Record]) -> str:
    """Return the note on trainings that ended early because no worker was left to continue."""
    stuck = [row for row in rows if row.get("stuck")]
    lines = [f"\n{row['method']} on {row['network']}: {row['stuck']}, after step {row['steps']:,}." for row in stuck]
    return "".join(lines)


CLOCK = "step_time_s communication_and_share bytes_per_worker wall_clock_s"
"""Columns of a training's times and bytes, without its loss."""


def clock_table(title: str, columns: str, rows: list[Record], *, note: str = "") -> Group:
    """Return a table of training times; ``columns`` has the names in `CLOCK` and others, separated by spaces.

    If computing hides a part of the communication in a row, the table shows the exposed part.
    """
    if _is_overlapped(rows):
        columns = columns.replace("communication_and_share", "exposed_and_share")
    return table(
        title, columns, rows, note=note, bounds=BOUNDED, values={
            "communication_and_share": lambda row: _with_share(row["communication_s"], row["communication_share"]),
            "exposed_and_share": lambda row: _with_share(row["exposed_communication_s"], waiting(row)),
            # Trainings by users' scripts have these two columns.
            "script": lambda row: row["method"],
            "world": lambda row: row["network"],
        },
    )  # fmt: skip


def _with_share(seconds: float | None, share: float | None) -> str | None:
    """Return seconds with their share of a step in percent; None if they are unknown."""
    return None if seconds is None else f"{format_seconds(seconds)} ({share or 0.0:.0%})"


def clock_note(rows: list[Record]) -> str:
    """Return the note that explains the columns in `CLOCK`."""
    name, meaning = "communication", "its share"
    if _is_overlapped(rows):
        name, meaning = "exposed communication", "its share: waiting for the network with nothing to compute"
    return f"Step time, {name} ({meaning}) and bytes: means per step and worker. Wall clock: all steps."


def bounds_note(rows: list[Record]) -> str:
    """Return the note on the bounds of times and the measurements behind them."""
    return BOUNDS_NOTE + bases_note(rows) if _have_bounds(rows) else ""


def bases_note(rows: list[Record]) -> str:
    """Return lines that name the measurements behind the rows' bounds."""
    return "".join(f"\nBounds rest on {basis}." for basis in dict.fromkeys(row["basis"] for row in rows))


def _have_bounds(rows: list[Record]) -> bool:
    """Return whether the rows have bounds; folders of earlier versions have none."""
    return bool(rows) and "step_time_low_s" in rows[0]


def _is_overlapped(rows: list[Record]) -> bool:
    """Return whether computing hides a part of the communication in any row."""
    return any(
        row["communication_s"] is not None
        and row["exposed_communication_s"] < row["communication_s"] * (1 - 1e-9)  # more than a rounding error
        for row in rows
    )


def network_title(network: Network, count: int, steps: int, unit_name: str = "workers") -> str:
    """Return the title of a table of one network, which joins ``count`` workers or other units."""
    name = f"{network.name}: " if "," not in network.name else ""
    return f"{name}{network.describe()}, {counted(count, unit_name)}, {counted(steps, 'steps')}"


def target_note(rows: list[Record]) -> str:
    """Return the note on the target loss; an empty text without a target."""
    target = rows[0]["target_loss"]
    return "" if target is None else f" Target: a loss of {column_of('loss').text(target)}."


def compare_tables(rows: list[Record], spec: CompareSpec) -> list[Group]:
    """Return one table per network; the last one explains the columns. Return none before the first step ends."""
    if not rows:
        return []
    note = step_columns_note(rows, baseline=spec.methods[0].name) + spec.compute.source_note() + stuck_note(rows) + MORE
    note = note.replace("\n", target_note(rows) + "\n", 1)  # the note on the target belongs to the first line
    return [
        table(
            network_title(network, spec.num_endpoints, spec.steps, unit_name=spec.endpoint_noun),
            "method loss step_time_s waiting speedup time_to_target_s time_to_target_speedup",
            [row for row in rows if row["network"] == network.name],
            note=note if network is spec.networks[-1] else "",
            keys=("method",), bounds=BOUNDED, values={"waiting": waiting},
        )
        for network in spec.networks
    ]  # fmt: skip


def run_tables(rows: list[Record], spec: Experiment) -> list[Group]:
    """Return a table of each seed's losses, a table of the times, which all seeds share, or the tables of a study."""
    if not isinstance(spec, RunSpec):
        return study_of(spec).tables(rows, spec) if rows else []
    title = f"{spec.method.name}, {spec.num_endpoints:,} {spec.endpoint_noun}, {rows[0]['steps']:,} steps"
    columns = ["seed", *(name for name in rows[0] if name not in CLOCK_FIELDS)]
    note = "Train loss and means: over the last tenth of the steps. The others: the workers' mean, at the end."
    tables: list[Group] = [table(title, columns, rows, note=note, keys=("seed",))]
    if "step_time_s" in rows[0]:
        title = network_title(spec.network, spec.num_endpoints, steps=rows[0]["steps"], unit_name=spec.endpoint_noun)
        note = clock_note(rows) + spec.compute.source_note() + bounds_note(rows) + stuck_note(rows[:1]) + MORE
        tables.append(clock_table(title, f"network {CLOCK}", rows[:1], note=note))
    if "ages" in rows[0]:
        tables.append(_server_table(rows[0]))
    return tables


PER_WORKER_FIELDS = ("ages", "ages_above", "contributions", "steps_by_worker", "waited_s", "waited_for_s")
"""Fields of a row that are lists, by age or by worker."""

CLOCK_FIELDS = {
    "step_time_s", "compute_s", "communication_s", "communication_share", "exposed_communication_s", "encode_s",
    "trigger_s", "optimizer_s", "bytes_per_worker", "wall_clock_s", "method", "network", "workers", "steps", "seed",
    "diverged_at", "basis", "step_time_low_s", "step_time_high_s", "wall_clock_low_s", "wall_clock_high_s",
    *PER_WORKER_FIELDS,
}  # fmt: skip
"""Fields of a row that the table of a run's metrics leaves out: times and bytes, which seeds share, and names."""


def _server_table(row: Record) -> Group:
    """Return the table of each worker's updates at the server, with a note on the ages of updates."""
    workers = [
        {
            "worker": worker,
            "updates": updates,
            "steps": row["steps_by_worker"][worker],
            "waited_s": row["waited_s"][worker],
            "waited_for_s": row["waited_for_s"][worker],  # by the other workers
        }
        for worker, updates in enumerate(row["contributions"])
    ]
    note = f"Ages of updates (versions of the model since a worker took its own), and how many had each: {ages(row)}."
    title = f"At the server, {row['versions']:,} versions of the model"
    return table(title, ["worker", "updates", "steps", "waited_s", "waited_for_s"], workers, note=note)


def ages(row: Record) -> str:
    """Return how many updates had each age, in words."""
    return ", ".join(f"{age}: {count}" for age, count in enumerate(row["ages"]) if count)


CATALOGUE_COLUMNS = {
    "networks": "name description links source",
    "clusters": "name workers hardware links description source",
    "hardware": "name peak_flops mfu precision memory source",
    "models": "name parameters layers width heads vocabulary sequence source",
    "methods": "name family bytes_per_worker_and_step bytes_per_worker state_bytes memory_bytes source",
    "problems": "name description fields source",
    "schedules": "name description takes source",
    "studies": "name command description source",
    "specs": "command description",
    "fits": "name methods seen off source",
    "prices": "name accelerator_hour egress_gb currency source",
    "failures": "name per mtbf_s description source",
}
"""Columns of a list for people; ``--json`` has all fields."""

METHODS_NOTE = (
    "Sends, bytes/worker: per step, mean; states: beyond the parameters; memory: these, weights, gradients and buffers "
    "of the largest call, without activations; all for {} in fp32, {} workers.\n"
    "N: parameters; N': those that are no matrices; Σ: over tensors of n numbers, "
    "or over matrices m by n that travel as factors of rank r.\n"
)

HARDWARE_NOTE = "Peak: in that precision. mfu: the share of it that a training reaches.\n"


def catalogue_table(catalogue: str, rows: list[Record]) -> Group:
    """Return the table of ``syncline list``: the names of a catalogue that a spec can use."""
    has_source = any(row.get("source") for row in rows)
    names = [name for name in CATALOGUE_COLUMNS[catalogue].split() if name != "source" or has_source]
    # The sizes of all methods are for the model and the workers that each row names.
    notes = {"methods": METHODS_NOTE.format(rows[0].get("model"), rows[0].get("workers")), "hardware": HARDWARE_NOTE}
    note = f"{notes.get(catalogue, '')}All fields: syncline list {catalogue} --json"
    return table(catalogue, names, rows, note=note)
