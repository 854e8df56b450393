"""What ``syncline project`` shows to people: a table per network, or a paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group

from syncline.experiments.columns import Column, Record, count_of, seconds_of, table, text_of, times_of
from syncline.experiments.display import clock_columns, clock_note, network_title
from syncline.specs import ProjectSpec, TableSpec
from syncline.studies.papers.speed import verdict
from syncline.units import format_bandwidth, format_bytes

TOO_LARGE = " *"
"""Behind the memory of a method that does not fit into the hardware's."""

WORTH_NOTE = (
    "\nFaster, 5% more: than {}, at bandwidths below (<) or above (>) this one, with all else of the network as it is."
)
WAYS = {"below": "<", "above": ">"}


def project_tables(rows: list[Record], *specs: ProjectSpec | TableSpec) -> list[Group]:
    """One table per model, hardware and network, with all numbers of workers; or the table of a paper."""
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    if not projections:
        return [_paper_table(rows, specs[0])]
    columns: list[Column] = [text_of("method")]
    counts = {spec.workers for spec in projections}
    if len(counts) > 1:
        columns.append(count_of("workers"))
    columns += clock_columns(rows)
    columns += [
        ("speedup", times_of("speedup")),
        ("faster\nat bit/s", _worth("faster")),
        ("5% more\nat bit/s", _worth("faster_by_5_percent")),
        ("memory", _memory),
    ]
    tables = []
    for (model, machine), alike in groupby(projections, key=_subject):
        group = list(alike)
        several = len({_subject(spec) for spec in projections}) > 1
        for network in group[0].networks:
            of = [row for row in rows if (row["model"], row["hardware"]) == (model, machine)]
            title = network_title(network, group[0].workers, group[0].steps)
            if len(counts) > 1:
                title = title.replace(f", {group[0].workers:,} workers", "")
            if several:
                title = f"{model}{f' on {machine}' if machine else ''}; {title}"
            shown = [row for row in of if row["network"] == network.name]
            tables.append((title, shown))
    note = f"{clock_note(rows)} Speedups: over {projections[0].methods[0].name}."
    if any(row["faster"] for row in rows):
        note += WORTH_NOTE.format(projections[0].methods[0].name)
    note += memory_note(rows, projections)
    return [
        table(title, columns, shown, note if number == len(tables) - 1 else "", section="workers")
        for number, (title, shown) in enumerate(tables)
    ]


def _subject(spec: ProjectSpec) -> tuple[str, str | None]:
    return spec.model.name, spec.compute.hardware.name if spec.compute.hardware else None


def _worth(name: str) -> Callable[[Record], str]:
    def show(row: Record) -> str:
        when, rate = row[name], row[f"{name}_bandwidth_bytes_per_s"]
        if when is None:
            return "-"
        return when if rate is None else f"{WAYS[when]} {format_bandwidth(rate).removesuffix('bit/s')}"

    return show


def _paper_table(rows: list[Record], spec: Any) -> Group:
    columns, note, section = PAPER_TABLES[spec.kind]
    left = [number for number, (heading, _) in enumerate(columns) if heading in TEXT_HEADINGS]
    told = note(rows) if callable(note) else note
    return table(spec.description, columns, rows, f"{told}Source: {spec.source}.", left, section)


def _memory(row: Record) -> str:
    return format_bytes(row["memory_bytes"]) + (TOO_LARGE if row["fits"] is False else "")


def memory_note(rows: list[Record], specs: Sequence[ProjectSpec]) -> str:
    """What the memory is of, and what its mark means where there is one."""
    counted = specs[0].memory
    note = f"\nMemory: of one worker, {counted.precision}{'' if counted.activations else ', without activations'}."
    if all(row["fits"] is not False for row in rows):
        return note
    sizes = {}
    for spec in specs:
        machine = spec.memory.hardware or spec.compute.hardware
        if machine is not None and machine.memory_bytes is not None:
            sizes[machine.name] = f"{format_bytes(machine.memory_bytes)} ({machine.memory_bytes / 2**30:g} GiB)"
    what = " or ".join(f"the {size} of {name}" for name, size in sizes.items())
    return f"{note} {TOO_LARGE.strip()}: does not fit into {what}."


TEXT_HEADINGS = ("method", "model", "network", "unit", "vote", "cheapest", "optimizer", "by collectives")

VERDICT_COLUMNS: list[Column] = [
    ("same", lambda row: "yes" if row["matches"] else "no"),
    ("paper's\ndeviation", lambda row: f"{row['deviation']:+.1%}"),
]

SYNC_COLUMNS: list[Column] = [
    text_of("network"),
    ("sync\n(paper)", seconds_of("sync_s")),
    ("speedup\n(paper)", lambda row: f"{row['speedup']:.4f}"),
    ("sync\n(alpha-beta)", seconds_of("alpha_beta_sync_s")),
    ("speedup\n(alpha-beta)", lambda row: f"{row['alpha_beta_speedup']:.4f}"),
    ("sync beyond\nalpha-beta", seconds_of("unexplained_sync_s")),
]

TRAFFIC_COLUMNS: list[Column] = [
    text_of("method"),
    text_of("model"),
    count_of("k"),
    count_of("chunk"),
    ("MB/step", lambda row: f"{row['megabytes_per_step']:,.3f}"),
    ("MB/step\n(paper)", lambda row: f"{row['paper_megabytes_per_step']:,}"),
    *VERDICT_COLUMNS,
]

VOLUME_COLUMNS: list[Column] = [
    text_of("method"),
    text_of("model"),
    count_of("steps"),
    ("volume", lambda row: f"{row['volume']:,.2f}"),
    text_of("unit"),
    ("volume\n(paper)", lambda row: f"{row['paper_volume']:,.10g} {row['paper_unit']}"),
    *VERDICT_COLUMNS,
]


def _rate(name: str) -> Callable[[Record], str]:
    return lambda row: format_bandwidth(row[name])


def _digits(name: str) -> Callable[[Record], str]:
    return lambda row: f"{row[name]:,.4g}"


def _signed(name: str) -> Callable[[Record], str]:
    return lambda row: f"{row[name]:+.0%}"


def _part(name: str) -> Callable[[Record], str]:
    return lambda row: f"{row[name]:.1%}"


VOTE_COLUMNS: list[Column] = [
    text_of("vote"),
    text_of("network"),
    count_of("workers"),
    ("α\n(paper)", _digits("paper_latencies")),
    ("α", _digits("latencies")),
    ("bits\n(paper)", _digits("paper_bits_per_parameter")),
    ("bits", _digits("bits_per_parameter")),
    ("time\n(paper)", seconds_of("paper_s")),
    ("closed\nform", seconds_of("closed_form_s")),
    ("lockstep", seconds_of("lockstep_s")),
    ("events", seconds_of("events_s")),
]

CROSSOVER_COLUMNS: list[Column] = [
    ("Nβ/α", _digits("ratio")),
    count_of("workers"),
    ("naive", _digits("naive_over_alpha")),
    ("efficient", _digits("efficient_over_alpha")),
    ("direct", _digits("direct_over_alpha")),
    ("one-bit", _digits("one_bit_over_alpha")),
    ("cheapest", lambda row: row["fastest"]),
    ("one-bit is\nfrom Nβ/α", _digits("crossover_ratio")),
]

SPEED_COLUMNS: list[Column] = [
    ("optimizer", lambda row: row["method"]),
    ("bandwidth", _rate("bandwidth_bytes_per_s")),
    ("step\n(paper)", seconds_of("paper_step_s")),
    ("step", seconds_of("step_s")),
    ("error", _signed("step_error")),
    ("comm.\n(paper)", _part("paper_communication_share")),
    ("comm.", _part("communication_share")),
    ("error of\nits time", _signed("communication_error")),
    ("not\nexplained", lambda row: f"{row['unexplained_s'] * 1e3:+.0f} ms"),
    ("", lambda row: "fitted" if row["fitted"] else "predicted"),
]

WALL_CLOCK_COLUMNS: list[Column] = [
    text_of("method"),
    ("for", lambda row: row["panel"]),
    ("bandwidth", _rate("bandwidth_bytes_per_s")),
    ("total\n(equation)", seconds_of("equation_total_s")),
    ("total\n(events)", seconds_of("events_total_s")),
    ("total\n(overlap)", seconds_of("overlap_total_s")),
    ("comm.\n(equation)", seconds_of("equation_communication_s")),
    ("comm.\n(events)", seconds_of("events_communication_s")),
    ("comm.\n(overlap)", seconds_of("overlap_communication_s")),
]


def _slips(rows: list[Record]) -> str:
    """Where the printed terms are not those of the collectives."""
    slips = {row["vote"]: row["slip"] for row in rows if row["slip"]}
    made = {row["vote"]: row["collectives"] for row in rows}
    lines = [f"{vote}: {of}{f'; {slips[vote]}' if vote in slips else ''}." for vote, of in made.items()]
    return (
        "α: latencies. Bits: per parameter, one after another. Without (paper): by the collectives of the vote:\n"
        + ("\n".join(lines) + "\n")
    )


PAPER_TABLES: dict[str, tuple[list[Column], str | Callable[[list[Record]], str], str]] = {
    "curvadion-table": (SYNC_COLUMNS, "", ""),
    "traffic-table": (TRAFFIC_COLUMNS, "Same: equal when cut off after as many digits as the paper prints. ", ""),
    "volume-table": (
        VOLUME_COLUMNS,
        "Unit: the reading of the paper's unit that comes nearest to its number; without 'same', none explains it. ",
        "",
    ),
    "vote-table": (VOTE_COLUMNS, _slips, "workers"),
    "vote-figure": (CROSSOVER_COLUMNS, "Cost in latencies α. ", "ratio"),
    "speed-table": (SPEED_COLUMNS, lambda rows: f"{verdict(rows)}\n", "method"),
    "wall-clock-figure": (
        WALL_CLOCK_COLUMNS,
        "Overlap: by events, with a step of computing during each average. ",
        "method",
    ),
}
"""Columns and note of each kind of table, and the field whose changes are ruled."""
