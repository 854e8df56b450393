"""The headline's tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from benchmarks.headline.finals import TARGETS, Finals
from benchmarks.headline.sizes import Size
from syncline.units import format_bytes


def seconds(value: float) -> str:
    """Write seconds with three digits.

    >>> seconds(1.2345), seconds(61.24), seconds(1234.5), seconds(math.inf), seconds(0.9996)
    ('1.23 s', '61.2 s', '1234 s', 'never', '1.00 s')
    """
    if not math.isfinite(value):
        return "never"
    if value < 0.9995:  # 0.9996 s would be written as 1000 ms
        return f"{value * 1e3:.3g} ms"
    return f"{value:.{max(0, 2 - int(math.log10(value)))}f} s"


def spread(times_s: Sequence[float]) -> str:
    """Write the median over the seeds with the first and the last; if some never arrive, how many do.

    >>> spread([3.0, 1.0, 2.0]), spread([math.inf, 1.0, 2.0]), spread([math.inf])
    ('2.00 s (1.00 s to 3.00 s)', '2 of 3 seeds: 1.00 s to 2.00 s', 'never')
    """
    arrived = sorted(time_s for time_s in times_s if math.isfinite(time_s))
    if not arrived:
        return "never"
    span = f"{seconds(arrived[0])} to {seconds(arrived[-1])}"
    if len(arrived) < len(times_s):
        return f"{len(arrived)} of {len(times_s)} seeds: {span}"
    return f"{seconds(median(arrived))} ({span})"


def loss(values: Sequence[float]) -> str:
    """Write the median of losses over the seeds, and their range.

    >>> loss([1.5, 2.5, 2.0])
    '2.000 (1.500 to 2.500)'
    """
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def losses(finals: Finals) -> str:
    """A table of what no network changes: final losses, bytes, and steps to each target."""
    rows = []
    for method, cell in finals.cells.items():
        row = [method, loss(finals.last_losses(method)), format_bytes(cell.bytes_per_worker)]
        for target in TARGETS:
            steps = [step for step in finals.steps(method, target) if math.isfinite(step)]
            if len(steps) == finals.seeds:
                row.append(f"{median(steps):.0f}")
            else:
                row.append(f"{len(steps)} of {finals.seeds} seeds" if steps else "never")
        rows.append(row)
    return markdown(["method", "final loss", "sent per step", *(f"steps to {target:.2f}" for target in TARGETS)], rows)


def by_network(finals: Finals) -> str:
    """A table for each network: step times, and times to each target."""
    tables = []
    for network in finals.networks:
        rows = [
            [
                method,
                seconds(cell.step_time_s[network]),
                *(spread(cell.times_s(network, target)) for target in TARGETS),
            ]
            for method, cell in finals.cells.items()
        ]
        tables.append(markdown([f"on {network}", "step", *(f"to {target:.2f}" for target in TARGETS)], rows))
    return "\n".join(tables)


def by_size(rows: Sequence[Size]) -> str:
    """A table of step times: methods by models and networks."""
    columns = list(dict.fromkeys((row.model, row.network) for row in rows))
    by_method: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        by_method.setdefault(row.method, {})[row.model, row.network] = seconds(row.step_time_s)
    lines = [[method, *(cells.get(column, "") for column in columns)] for method, cells in by_method.items()]
    return markdown(["step", *(f"{model} on {network}" for model, network in columns)], lines)


def first_three(finals: Finals) -> str:
    """A table of the three methods that are first at each target, and of how many reach it with most seeds."""
    rows = []
    for network in finals.networks:
        row = [network]
        for target in TARGETS:
            times_s = {method: finals.median_time_s(method, network, target) for method in finals.cells}
            arrived = [method for method in sorted(times_s, key=times_s.__getitem__) if math.isfinite(times_s[method])]
            first = ", ".join(f"{method} {seconds(times_s[method])}" for method in arrived[:3])
            row.append(f"{first}; {len(arrived)} of {len(times_s)}" if arrived else "none")
        rows.append(row)
    return markdown(["first at a loss of", *(f"{target:.2f}" for target in TARGETS)], rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table, a line for each row."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
