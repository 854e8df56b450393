"""What is told of the headline: tables in Markdown, the same in the terminal and in the documentation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from benchmarks.headline.kept import TARGETS, Finals, Reached, Row
from benchmarks.headline.sizes import Size
from syncline.units import format_bytes


def seconds(value: float) -> str:
    """Three digits.

    >>> seconds(1.2345), seconds(61.24), seconds(1234.5), seconds(math.inf), seconds(0.9996)
    ('1.23 s', '61.2 s', '1234 s', 'never', '1.00 s')
    """
    if not math.isfinite(value):
        return "never"
    if value < 0.9995:  # what rounds to 1000 ms is told in seconds
        return f"{value * 1e3:.3g} ms"
    return f"{value:.{max(0, 2 - int(math.log10(value)))}f} s"


def reached(one: Reached, seeds: int) -> str:
    """The median, and the first and last seed; how many, where not all did."""
    if not one.seeds:
        return "never"
    spread = f"{seconds(one.low_s)} to {seconds(one.high_s)}"
    if one.seeds < seeds:
        return f"{one.seeds} of {seeds} seeds: {spread}"
    return f"{seconds(one.median_s)} ({spread})" if seeds > 1 else seconds(one.median_s)


def loss(row: Row) -> str:
    """The median, and the range over the seeds."""
    if row.loss_min == row.loss_max:
        return f"{row.loss:.3f}"
    return f"{row.loss:.3f} ({row.loss_min:.3f} to {row.loss_max:.3f})"


def losses(finals: Finals, targets: Sequence[float] = TARGETS) -> str:
    """What no network changes: final losses, bytes, steps to each target."""
    seeds = len(finals.spec.seeds)
    head = ["method", "final loss", "sent per step", *(f"steps to {target:.2f}" for target in targets)]
    first = finals.spec.networks[0].name
    rows = (row for row in finals.rows(tuple(targets)) if row.network == first)
    return markdown(head, (losses_row(finals, row, targets, seeds) for row in rows))


def by_network(finals: Finals, targets: Sequence[float] = TARGETS) -> str:
    """A table of each network: step times, and times to each target."""
    rows, seeds = finals.rows(tuple(targets)), len(finals.spec.seeds)
    parts = []
    for link in finals.spec.networks:
        head = [f"on {link.name}", "step", *(f"to {target:.2f}" for target in targets)]
        own = [row for row in rows if row.network == link.name]
        cells = (
            [row.method, seconds(row.step_time_s), *(reached(row.reached[t], seeds) for t in targets)] for row in own
        )
        parts.append(markdown(head, cells))
    return "\n".join(parts)


def losses_row(finals: Finals, row: Row, targets: Sequence[float], seeds: int) -> list[str]:
    """What no network changes."""
    steps = [finals.steps_to(row.method, target) for target in targets]
    shown = ["never" if not one.seeds else f"{one.median_s:.0f}" if one.seeds == seeds else
             f"{one.seeds} of {seeds} seeds" for one in steps]  # fmt: skip
    return [row.method, loss(row), format_bytes(row.bytes_per_worker), *shown]


def by_size(rows: Sequence[Size]) -> str:
    """Step times of each model on each network."""
    models = list(dict.fromkeys(row.model for row in rows))
    networks = list(dict.fromkeys(row.network for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows))
    at = {(row.model, row.method, row.network): row.step_time_s for row in rows}
    head = ["step", *(f"{model} on {network}" for model in models for network in networks)]

    def cell(*key: str) -> str:
        return seconds(at[key]) if key in at else ""  # type: ignore[index]

    cells = (
        [method, *(cell(model, method, network) for model in models for network in networks)] for method in methods
    )
    return markdown(head, cells)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, a line each."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def first_three(finals: Finals, targets: Sequence[float] = TARGETS) -> str:
    """Who reaches each target first on each network, and how many methods reach it with most seeds."""
    rows = finals.rows(tuple(targets))
    cells = []
    for link in finals.spec.networks:
        own = [row for row in rows if row.network == link.name]
        line = [link.name]
        for target in targets:
            there = sorted((row.reached[target].median_s, row.method) for row in own)
            there = [one for one in there if math.isfinite(one[0])]
            first = ", ".join(f"{name} {seconds(at_s)}" for at_s, name in there[:3])
            line.append(f"{first}; {len(there)} of {len(own)}" if there else "none")
        cells.append(line)
    return markdown(["first at a loss of", *(f"{target:.2f}" for target in targets)], cells)
