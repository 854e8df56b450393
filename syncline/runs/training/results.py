"""Results of trainings with their clocks: rows of ``--json``, and the files ``curves.parquet`` and ``summary.parquet``.

``curves.parquet`` has a row per method, network, seed and step, ``summary.parquet`` a row per method, network and seed.
The metadata of each field has the unit of its column.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from syncline.analysis import Curve, loss_against_clock, median_and_range, time_to_target_s
from syncline.analysis.curves import FloatArray
from syncline.columns import column_of
from syncline.costmodel import Network
from syncline.runs.folders.folder import RunFolder
from syncline.runs.folders.result_files import CURVES, read_parquet, type_of
from syncline.runs.folders.streams import trace_columns
from syncline.sim import Clock
from syncline.sim.failures.costs import FailureCosts
from syncline.specs import Training

if TYPE_CHECKING:
    from syncline.runs.training.trained import Trained
    from syncline.training import History


def clock_record(clock: Clock) -> dict[str, float]:
    """Return the columns with the parts of a mean step's time; seconds and bytes are means per worker and step.

    ``bytes_per_worker`` counts payload: the bytes that a worker passes to collectives, for any algorithm.
    """
    record = {
        "step_time_s": clock.step_time_s, "compute_s": clock.compute_s, "encode_s": clock.encode_s,
        "trigger_s": clock.trigger_s, "optimizer_s": clock.optimizer_s, "communication_s": clock.communication_s,
        "communication_share": clock.communication_s / clock.step_time_s if clock.step_time_s else 0.0,
        "exposed_communication_s": clock.exposed_communication_s, "bytes_per_worker": clock.bytes_per_worker,
        "wall_clock_s": clock.wall_s,
    }  # fmt: skip
    if clock.failed is not None:
        record |= failure_record(clock.failed)
    return record


def failure_record(failed: FailureCosts) -> dict[str, Any]:
    """Return the columns with the costs of failures; the shares of the workers' time add up to 1 with ``goodput``."""
    return {
        "goodput": failed.goodput, "interruptions": failed.interruptions, "lost_steps": failed.lost_steps,
        "lost_share": failed.share("lost_s"), "checkpoint_share": failed.share("checkpoint_s"),
        "restart_share": failed.share("restart_s"), "down_share": failed.share("down_s"), "stuck": failed.stuck,
    }  # fmt: skip


def final_loss(trained: Trained) -> tuple[float, float, float]:
    """Return the median, lowest and highest final loss over the seeds, infinite without a loss.

    The median is also infinite if half of the seeds diverged.
    """
    losses = trained.history.last_evaluation().get("loss")
    if losses is None:
        return math.inf, math.inf, math.inf
    is_diverged = np.array([step is not None for step in trained.history.diverged_at])
    losses_or_nan = np.where(is_diverged, np.nan, losses)  # NaN counts as infinite in a median
    median, lowest, highest = median_and_range(losses_or_nan[:, None])
    return float(median[0]), float(lowest[0]), float(highest[0])


def reachable_target(trained: list[Trained]) -> float | None:
    """Return the highest final loss of the methods whose loss falls, because all of these reach it; None without any.

    A loss falls if the final one is below the first.
    """
    final_losses = []
    for training in trained:
        if training.history.steps:
            final, _, _ = final_loss(training)
            medians, _, _ = median_and_range(training.history.evaluation["loss"].T)
            if final < medians[0]:
                final_losses.append(final)
    return max(final_losses, default=None)


def eval_clock_s(trained: Trained, clock: Clock) -> np.ndarray:
    """Return the seconds of the clock at each evaluation, ``(E,)``."""
    return np.concatenate([[0.0], clock.step_end_s])[trained.history.eval_step]


def time_to_target(trained: Trained, clock: Clock, target: float | None) -> float:
    """Return the seconds until the median evaluation loss over the seeds reached the target; infinite if never."""
    if target is None:
        return math.inf
    median, _, _ = median_and_range(trained.history.evaluation["loss"].T)
    return time_to_target_s(eval_clock_s(trained, clock), median, target)


def run_records(trained: Trained, clock: Clock | None, network: Network, workers: int) -> list[dict[str, Any]]:
    """Return a row for each seed: final metrics, and the columns of the clock, which are equal for all seeds.

    Asynchronous trainings also have columns on their server and their delays. If no step was completed, ``clock`` is
    None and its columns are missing.
    """
    labels = {"method": trained.method, "network": network.name, "workers": workers}
    timing: dict[str, Any] = {} if clock is None else clock_record(clock)
    if trained.asynchronous is not None:
        timing |= trained.asynchronous.record()
    return [labels | final | timing for final in trained.history.final_records()]


Clocks = Mapping[tuple[str, str], Clock]
"""Clocks by (method, network)."""

Bounds = Mapping[tuple[str, str], Mapping[str, Any]]
"""Columns with the bounds of a row's times, by (method, network)."""

MOST_ROWS = 5_000_000
"""Largest number of rows of ``curves.parquet``; longer trainings store every n-th step and every evaluation.

``metrics.parquet`` has all steps.
"""

ROWS_AT_A_TIME = 1 << 20
"""Largest number of rows in memory while ``curves.parquet`` is written."""


def write_curves(
    folder: RunFolder,
    spec: Training,
    trained: Sequence[Trained],
    clocks: Clocks,
    networks: Mapping[str, Network | str],
    target: float | None = None,
    bounds: Bounds | None = None,
) -> None:
    """Write ``curves.parquet`` and ``summary.parquet`` of trainings with their clocks.

    Args:
        trained: the trained methods; the first is the baseline of speedups.
        networks: networks, or their labels in a figure, by name.
        target: the loss to which times are reported; None without one.
        bounds: bounds of each method's times on each network, if they are known.
    """
    labels = {}
    for name, network in networks.items():
        labels[name] = network if isinstance(network, str) else network.describe()
    metadata = {"loss_label": loss_label(spec), "networks": labels, "target_loss": target}
    steps_of_all_seeds = sum(training.history.steps * len(training.history.seeds) for training in trained)
    every = max(1, math.ceil(steps_of_all_seeds * len(networks) / MOST_ROWS))  # every n-th step is stored
    tables = _curve_tables(trained, clocks, networks=list(networks), every=every)
    folder.long_table("curves", (with_units(table, metadata | {"every_steps": every}) for table in tables))
    rows = summary_rows(trained, clocks, networks=list(networks), workers=spec.workers, target=target, bounds=bounds)
    folder.long_table("summary", [with_units(summary_table(rows), metadata)] if rows else [])


def loss_label(spec: Training) -> str:
    """Return the name and the unit of the loss of a spec's problem."""
    return getattr(spec.problem, "loss_label", "loss of the workers' mean")


def _curve_tables(trained: Sequence[Trained], clocks: Clocks, networks: list[str], every: int) -> Iterator[pa.Table]:
    """Yield the parts of ``curves.parquet``, sorted by network, then method, then seed, with every n-th step."""
    metrics: list[str] = []  # evaluations other than the loss, then traces
    for training in trained:
        metrics += [name for name in training.history.evaluation if name != "loss"]
        for name, values in training.history.trace.items():
            metrics += trace_columns(name, values)
    metrics = list(dict.fromkeys(metrics))
    for network, training in product(networks, trained):
        if (training.method, network) not in clocks:
            continue
        history = training.history
        # Stored are every n-th step from 0, all steps with evaluations, and the last.
        every_nth = np.arange(0, history.steps, every)
        steps = np.unique(np.concatenate([every_nth, history.eval_step, [history.steps]])).astype(np.int64)
        # At step 0, before the first step, seconds and bytes are 0.
        seconds = np.concatenate([[0.0], clocks[training.method, network].step_end_s])[steps]
        nbytes = np.concatenate([[0.0], bytes_sent(training)])[steps]
        seeds_at_a_time = max(1, ROWS_AT_A_TIME // len(steps))
        for first_index in range(0, len(history.seeds), seeds_at_a_time):
            seeds = history.seeds[first_index : first_index + seeds_at_a_time]
            num_seeds = len(seeds)
            seed_indices = np.arange(first_index, first_index + num_seeds)
            text_indices = np.zeros(num_seeds * len(steps), dtype=np.int32)  # the index of the dictionary's only text
            columns: dict[str, pa.Array] = {
                "method": pa.DictionaryArray.from_arrays(text_indices, [training.method]),
                "network": pa.DictionaryArray.from_arrays(text_indices, [network]),
                "seed": pa.array(np.repeat(seeds, len(steps))),
                "step": pa.array(np.tile(steps, num_seeds)),
                "seconds": pa.array(np.tile(seconds, num_seeds)),
                "bytes": pa.array(np.tile(nbytes, num_seeds)),
                "loss": _evaluation_column(history, "loss", steps, seed_indices),
                "train_loss": _trace_column(history.loss, steps, seed_indices),
            }
            columns |= {metric: _metric_column(history, metric, steps, seed_indices) for metric in metrics}
            yield pa.table(columns)


def bytes_sent(trained: Trained) -> np.ndarray:
    """Return the payload bytes that a worker has sent to collectives or a server by the end of each step, ``(T,)``.

    They are means over the workers that take part in a step.
    """
    if trained.asynchronous is not None:
        return trained.asynchronous.bytes_sent()
    calls = trained.calls()
    steps = np.array([call.step for call in calls], dtype=np.int64)
    payloads = np.array([call.payload_bytes for call in calls], dtype=np.float64)
    are_all_equal = len({call.group for call in calls}) <= 1
    if not are_all_equal:  # workers form groups, or some are absent
        members_by_step: dict[int, set[int]] = {}
        for call in calls:
            if call.group:
                members_by_step.setdefault(call.step, set()).update(call.group)
        for index, call in enumerate(calls):
            if call.group:  # only members send; without a group all workers do
                payloads[index] *= len(call.group) / len(members_by_step[call.step])
    return np.cumsum(np.bincount(steps, payloads, minlength=trained.history.steps))


def _metric_column(history: History, name: str, steps: np.ndarray, seed_indices: np.ndarray) -> pa.Array:
    """Return a column of ``curves.parquet``: a trace (values of each step), one of its components, or an evaluation.

    A trace begins with the evaluation before the first step, if there is an evaluation of the same name.

    Args:
        name: name of the column; ``position_0`` is the first component of the trace ``position``.
    """
    trace_name, _, component = name.rpartition("_")
    values = history.trace.get(name)
    if values is None and trace_name in history.trace and component.isdecimal():
        values = history.trace[trace_name].reshape(history.steps, len(history.seeds), -1)[:, :, int(component)]
    if values is None:
        return _evaluation_column(history, name, steps, seed_indices)
    return _trace_column(values, steps, seed_indices, evaluation=history.evaluation.get(name))


def _trace_column(
    values: np.ndarray, steps: np.ndarray, seed_indices: np.ndarray, evaluation: np.ndarray | None = None
) -> pa.Array:
    """Return a quantity of each step, ``(T, S)``, as a column with the rows of the stored steps and seeds.

    Args:
        values: the quantity after each step.
        steps: numbers of the stored steps, the first of which is 0, before the first step.
        evaluation: evaluations of the same quantity, ``(E, S)``; the first is that of step 0. With None the column is
            null at step 0.
    """
    value_before = np.full((1, values.shape[1]), np.nan)
    if evaluation is not None and len(evaluation):
        value_before = evaluation[:1]
    stored_values = np.concatenate([value_before, values])[np.ix_(steps, seed_indices)].astype(np.float64)
    is_missing = np.zeros(stored_values.shape, dtype=bool)
    is_missing[0] = evaluation is None
    return pa.array(stored_values.T.ravel(), mask=is_missing.T.ravel())


def _evaluation_column(history: History, name: str, steps: np.ndarray, seed_indices: np.ndarray) -> pa.Array:
    """Return the evaluations of a quantity as a column, with null at stored steps without an evaluation."""
    shape = len(steps), len(seed_indices)
    stored_values, is_missing = np.zeros(shape), np.ones(shape, dtype=bool)
    values = history.evaluation.get(name)
    if values is not None:
        rows = np.searchsorted(steps, history.eval_step[: len(values)])  # all steps of evaluations are stored
        stored_values[rows], is_missing[rows] = values[:, seed_indices], False
    return pa.array(stored_values.T.ravel(), mask=is_missing.T.ravel())


def summary_rows(
    trained: Sequence[Trained],
    clocks: Clocks,
    networks: Sequence[str],
    workers: int,
    target: float | None,
    bounds: Bounds | None,
) -> list[dict[str, Any]]:
    """Return a row per network, method and seed: final metrics, clock, and the seed's time to the target loss."""
    rows = []
    for network, training in product(networks, trained):
        clock = clocks.get((training.method, network))
        baseline = clocks.get((trained[0].method, network))
        if clock is None or baseline is None:  # a training of another network, or without a baseline on this one
            continue
        timing = clock_record(clock) | {"speedup": baseline.step_time_s / clock.step_time_s}
        if bounds is not None:
            timing |= bounds.get((training.method, network), {})
        evaluated_at_s, losses = eval_clock_s(training, clock), training.history.evaluation["loss"]
        for seed_index, final in enumerate(training.history.final_records()):
            reached_s = math.inf
            if target is not None:
                reached_s = time_to_target_s(evaluated_at_s, losses[:, seed_index], target)
            labels = {"method": training.method, "network": network, "seed": final["seed"], "workers": workers}
            rows.append(labels | final | timing | {"target_loss": target, "time_to_target_s": reached_s})
    return rows


def summary_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of a summary as a table whose columns have the same types in all folders."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if name == "time_to_target_s":  # a target that was not reached is null
            values = [value if math.isfinite(value) else None for value in values]  # type: ignore[arg-type]
        columns[name] = pa.array(values, type_of(name).arrow_type)
    return pa.table(columns)


def unit_of(column: str, loss_label: str) -> str:
    """Return the unit of a column of ``curves.parquet`` or ``summary.parquet``; an empty text for names and shares.

    >>> unit_of("wall_clock_s", ""), unit_of("bytes", ""), unit_of("loss", "validation loss (nats)")
    ('s', 'B', 'validation loss (nats)')
    """
    if column in ("loss", "target_loss"):
        return loss_label
    if column == "train_loss":
        return f"training loss, as {loss_label}"
    return "completed steps" if column in ("step", "steps") else column_of(column).unit


def with_units(table: pa.Table, metadata: Mapping[str, Any]) -> pa.Table:
    """Return a table with the unit of each column, and with the fields of ``metadata`` in its metadata."""
    schema_fields = []
    for field in table.schema:
        unit = unit_of(field.name, metadata["loss_label"])
        schema_fields.append(field.with_metadata({"unit": unit}) if unit else field)
    return table.cast(pa.schema(schema_fields, metadata={"syncline": json.dumps(metadata)}))


class FileCurves(NamedTuple):
    """The evaluations in a ``curves.parquet``.

    Attributes:
        sent_bytes: by method, the payload bytes that a worker has sent by each step of the curve; they are equal on all
            networks.
        networks: label of each network in a figure, by name; only networks on which something was evaluated.
        label: name of the loss, with its unit.
        target: a loss whose time is reported; None without one.
    """

    curves: Sequence[Curve]
    sent_bytes: Mapping[str, FloatArray]
    networks: Mapping[str, str]
    label: str
    target: float | None


def read_curves(path: Path) -> FileCurves:
    """Return the evaluations in a ``curves.parquet``; no curves if nothing was evaluated."""
    table = read_parquet(path, CURVES)
    metadata: dict[str, Any] = json.loads(table.schema.metadata[b"syncline"])
    evaluated = table.filter(pc.is_valid(table["loss"]))
    evaluated_on = evaluated["network"].unique().to_pylist()
    networks = {name: text for name, text in metadata["networks"].items() if name in evaluated_on}
    curves, sent_bytes = [], {}
    for method in evaluated["method"].unique().to_pylist():
        rows = evaluated.filter(pc.equal(evaluated["method"], method))
        num_seeds = len(rows["seed"].unique())
        columns: dict[str, FloatArray] = {}
        clock_s: dict[str, FloatArray] = {}
        for name in networks:
            network_rows = rows.filter(pc.equal(rows["network"], name))
            if len(network_rows):  # an asynchronous method belongs to a single network
                for column in ("step", "loss", "seconds", "bytes"):
                    columns[column] = network_rows[column].to_numpy().reshape(num_seeds, -1)
                clock_s[name] = columns["seconds"][0]  # times are equal for all seeds
        if clock_s:  # steps, losses and bytes are equal on all networks
            curves.append(Curve(method, columns["step"][0], loss=columns["loss"], clock_s=clock_s))
            sent_bytes[method] = columns["bytes"][0]
    return FileCurves(curves, sent_bytes, networks, label=metadata["loss_label"], target=metadata["target_loss"])


def figure_of_file(folder: Path) -> Figure:
    """Return the figure of a run folder's ``curves.parquet``: loss against seconds, with a panel per network."""
    curves = read_curves(folder / "curves.parquet")
    return loss_against_clock(curves.curves, curves.networks, loss_label=curves.label, target=curves.target)
