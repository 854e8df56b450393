"""Tables of ``syncline project`` for the terminal, one per network or that of a paper, and the notes below them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group

from syncline.columns import distinct_by_key, first_of, large_text
from syncline.costmodel.collectives.prices import CLOSED_FORM
from syncline.costmodel.layouts.memory import USABLE
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.places import ring_text
from syncline.costmodel.scaling.published import fit_named
from syncline.errors import SpecError
from syncline.planner.assumptions import Assumption, projection_assumptions
from syncline.planner.prediction_tables import assumptions_block
from syncline.planner.projection.project import subject_of
from syncline.planner.projection.training_totals import loss_fit_method, training_at_scale
from syncline.planner.tables.display import BOUNDED, MORE, network_title, step_columns_note
from syncline.planner.tables.table import EXTRAPOLATED, TOO_LARGE, table, waiting
from syncline.specs import Experiment, ProjectSpec, study_of
from syncline.specs.study import Record
from syncline.units import counted, format_bandwidth, format_bytes, format_seconds


def training_columns(rows: Sequence[Record]) -> list[str]:
    """Return the columns of a whole training that the rows have: time, tokens, loss, goodput, cost and energy."""
    fields = rows[0].keys() if rows else ()  # all rows have the same fields
    columns = []
    if "training_s" in fields:
        columns.append("training_s")
        if len({row.get("tokens") for row in rows}) > 1:  # each method may need its own number to reach a target loss
            columns.append("tokens")
        if "loss" in fields:
            columns.append("loss")
    if "goodput" in fields:
        columns += ["goodput", "checkpoint_interval_s"]
    if "cost" in fields:
        columns += ["cost", "energy_j"]
    return columns


def training_note(rows: Sequence[Record], specs: Sequence[ProjectSpec]) -> str:
    """Return the notes on losses (fit, extrapolation, reasons for unknown ones), on failures, and on the cost."""
    notes = _loss_lines(rows, {spec.model.name: spec for spec in specs})
    if len(notes) > MOST_LINES:
        notes = [*notes[:MOST_LINES], "\nMore: --json."]
    notes += dict.fromkeys(  # reasons why a training takes less time than data parallelism computes, each once
        f"\n{row['method']}: {row['below_computing']}." for row in rows if row.get("below_computing")
    )
    # For each reason why trainings stop before their end, one method is the example.
    method_by_reason = {row["stuck"]: row["method"] for row in rows if row.get("stuck")}
    notes += [f"\n{method}: {reason}." for reason, method in method_by_reason.items()]
    if rows and rows[0].get("goodput") is not None:
        notes.append("\nGoodput: percent of the time that is in steps that count; the time is with what failures cost.")
        elastic_rows = [row for row in rows if row["recovery"] == "elastic" and row["rejoin_s"] is not None]
        rejoin_s = {row["method"]: row["rejoin_s"] for row in elastic_rows}
        if rejoin_s:
            texts = [f"{method} {format_seconds(seconds)}" for method, seconds in rejoin_s.items()]
            notes.append(f"\nA worker that returns fetches its state over its link: {', '.join(texts[:MOST_LINES])}.")
    if rows and "cost" in rows[0]:
        notes.append(
            "\nCost: accelerators by the hour, bytes that leave sites, and "
            "electricity, where the list has prices for them."
        )
    return "".join(notes)


def _loss_lines(rows: Sequence[Record], spec_by_model: dict[str, ProjectSpec]) -> list[str]:
    """Return lines on the fits that predict the rows' losses, and on the reasons for losses that are unknown."""
    lines: list[str] = []
    reasons_and_methods: list[tuple[str, str]] = []
    for row in rows:
        if row.get("loss") is not None:
            bounds = "" if row["loss_low"] is None else f" ({row['loss_low']:.2f} to {row['loss_high']:.2f})"
            range_text = "seen"  # the fit has seen trainings of this size
            if row["extrapolation"]:
                range_text = f"{EXTRAPOLATED.strip()}: extrapolation, {row['beyond']}"
            lines.append(f"\nLoss of {row['method']}: fit {row['loss_fit']}{bounds}, {range_text}.")
        elif row.get("loss_unknown"):
            reasons_and_methods.append((_unknown_loss_reason(row, spec_by_model[row["model"]]), row["method"]))
    for reason, methods in distinct_by_key(reasons_and_methods).items():
        lines.append(f"\nLoss unknown of {', '.join(methods)}: {reason}.")
    return list(dict.fromkeys(lines))


def _unknown_loss_reason(row: Record, spec: ProjectSpec) -> str:
    """Return the reason for an unknown loss in few words; the field ``loss_unknown`` has all details."""
    (method,) = [candidate for candidate in spec.methods if candidate.name == row["method"]]
    try:
        fit = fit_named(None, loss_fit_method(method))
    except SpecError:
        return "no published fit covers this method"
    if row["tokens"] is None:  # the training has a target loss, and no fit gives its tokens
        return str(row["loss_unknown"])
    training = training_at_scale(method, spec, row["tokens"]).completed_by(fit)
    variables = training.range_variables(fit)  # the numbers of which the fit has seen a range, by name
    for name, span in fit.seen_ranges.items():
        if name in variables and span.factor_outside(variables[name]) != 1:
            seen_range = f"{large_text(span.low)} to {large_text(span.high)}"
            count = f"{large_text(variables[name])} {name.replace('_', ' ')}"
            return f"{count}, outside the range of the fits, {seen_range}; --extrapolate predicts it nevertheless"
    return str(row["loss_unknown"])


MOST_LINES = 8
"""Limit on the lines about losses in a note."""


THRESHOLD_NOTE = "\n5% faster: than {}, on links of less (<) or more (>) bandwidth, all else unchanged."
THRESHOLD_SIGNS = {"below": "<", "above": ">", "always": "any", "never": "none"}


def project_tables(
    rows: list[Record], *specs: Experiment, assumptions: Sequence[Assumption] | None = None
) -> list[Group]:
    """Return the assumptions and a table per model, hardware and network; or the table of a paper.

    Args:
        specs: the projections, with all numbers of workers; or the spec of a study.
        assumptions: assumptions of the rows; None: those of `projection_assumptions`.
    """
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    if not projections:
        return study_of(specs[0]).tables(rows, specs[0])
    has_worker_counts = len({spec.workers for spec in projections}) > 1
    columns = project_columns(rows, several=has_worker_counts)
    has_subjects = len({subject_of(spec) for spec in projections}) > 1
    titles_and_rows = []
    for (model, machine, layout), specs_of_subject in groupby(projections, key=subject_of):
        spec = next(specs_of_subject)  # the others of this subject differ only in the number of workers
        for network in spec.networks:
            title = network_title(network, spec.workers, spec.steps)
            if has_worker_counts:  # the table has a column of them
                title = title.replace(f", {counted(spec.workers, 'workers')}", "")
            if has_subjects:
                title = f"{model} on {machine}; {title}" if machine else f"{model}; {title}"
            if layout:
                title += f"; {layout}"
            table_key = model, machine, layout, network.name
            table_rows = [
                row for row in rows if (row["model"], row["hardware"], row["layout"], row["network"]) == table_key
            ]
            titles_and_rows.append((title, table_rows))

    baseline = projections[0].methods[0].name
    note = "Every: steps from one exchange to the next. " + step_columns_note(rows, baseline)
    if "faster_by_5_percent" in columns:
        note += THRESHOLD_NOTE.format(baseline)
    note += training_note(rows, projections) + simulation_note(rows) + places_note(rows, projections[0].networks)
    note += memory_note(rows, projections) + MORE
    if assumptions is None:
        assumptions = projection_assumptions(projections, rows)
    groups = [assumptions_block(assumptions)]
    for index, (title, table_rows) in enumerate(titles_and_rows, start=1):
        groups.append(
            table(
                title, columns, table_rows, note=note if index == len(titles_and_rows) else "", section="workers",
                keys=("method", "workers") if has_worker_counts else ("method",), bounds=BOUNDED,
                values={"waiting": waiting, "faster_by_5_percent": _threshold_text},
            )
        )  # fmt: skip
    return groups


def project_columns(rows: Sequence[Record], several: bool) -> list[str]:
    """Return the few most important columns of a projection, which fit into 80 characters.

    For whole trainings, time and loss replace the bandwidths, and money replaces the step time. The memory has a column
    if a method does not fit.

    Args:
        several: whether there are several numbers of workers, which then have a column.
    """
    training = training_columns(rows)
    columns = ["method", "period"]
    if several:
        columns.append("workers")
    if "cost" not in training:
        columns.append("step_time_s")
        if "tokens" not in training:
            columns.append("waiting")
    columns.append("speedup")
    if not training and any(row.get("faster") for row in rows):  # some thresholds are known
        columns.append("faster_by_5_percent")
    if any(row["fits"] is False for row in rows):
        columns.append("memory_bytes")
    return columns + training


def _threshold_text(row: Record) -> str | None:
    """Return the bandwidths at which a method is 5 % faster: ``< 10 Gbit/s``, ``any``, or None if unknown."""
    side, threshold = row["faster_by_5_percent"], row["faster_by_5_percent_bandwidth_bytes_per_s"]
    if side is None:
        return None
    sign = THRESHOLD_SIGNS[side]
    return sign if threshold is None else f"{sign} {format_bandwidth(threshold)}"


def simulation_note(rows: Sequence[Record]) -> str:
    """Return lines on the methods without a closed form on a network: their evaluator, or why they have no time."""
    simulated_rows = [row for row in rows if row["timed_by"] not in (None, CLOSED_FORM)]
    names_by_evaluator = distinct_by_key(
        (row["timed_by"], f"{row['method']} on {row['network']}") for row in simulated_rows
    )
    methods_by_reason = distinct_by_key((row["not_timed"], row["method"]) for row in rows if row["timed_by"] is None)
    lines = [
        f"\nNo closed form, simulated by {evaluator}: {first_of(names, MOST_NAMED)}."
        for evaluator, names in names_by_evaluator.items()
    ]
    reason_lines = [f"\n-: {first_of(names, MOST_NAMED)}: {reason}." for reason, names in methods_by_reason.items()]
    lines += reason_lines[:MOST_NAMED]
    if len(reason_lines) > MOST_NAMED:
        lines.append(f"\n-: {len(reason_lines) - MOST_NAMED} more, which --json has in 'not_timed'.")
    return "".join(lines)


def places_note(rows: Sequence[Record], networks: Sequence[Network]) -> str:
    """Return lines on the algorithms on networks with places, such as a matrix, and on the places' order in a ring."""
    lines = []
    for network in networks:
        known_rows = [row for row in rows if row["network"] == network.name and row["timed_by"] and row["algorithm"]]
        order = ring_text(network, max(row["workers"] for row in known_rows)) if known_rows else ""
        if order:  # it is empty unless workers have places on the network, as on a matrix
            methods_by_algorithm = distinct_by_key((row["algorithm"], row["method"]) for row in known_rows)
            names = "; ".join(
                f"{algorithm}: {first_of(methods, MOST_NAMED)}" for algorithm, methods in methods_by_algorithm.items()
            )
            lines.append(f"\nAlgorithms on {network.name}: {names}. Order of the places in a ring: {order}.")
    return "".join(lines)


MOST_NAMED = 8
"""Limit on the methods and reasons that a note names."""


def memory_note(rows: list[Record], specs: Sequence[ProjectSpec]) -> str:
    """Return the note that explains the mark of memory that does not fit; empty if no row has the mark."""
    if all(row["fits"] is not False for row in rows):  # None: unknown
        return ""
    limits = {}
    for spec in specs:
        machine = spec.memory_machine
        if machine is not None and machine.memory_bytes is not None:
            size = f"{format_bytes(machine.memory_bytes)} ({machine.memory_bytes / 2**30:g} GiB)"
            limits[machine.name] = f"{USABLE:.0%} of the {size} of {machine.name}"
    return f"\n{TOO_LARGE.strip()}: does not fit into {' or '.join(limits.values())}."
