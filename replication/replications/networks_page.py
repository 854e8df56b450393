"""Losses on the clocks of networks, as a page of a replication: figures, and the first method on each network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replication.figures.losses import last_losses_over_bytes, needs_logarithm
from replication.replications.networks import (
    AVERAGES,
    NETWORKS_TABLE,
    TO_ALL,
    TO_FIRST,
    WON,
    TimedCell,
    firsts,
    targets,
    untimed,
)
from replication.replications.pages import filled
from replication.replications.replicated import Replicated
from replication.replications.spec import ReplicationSpec
from syncline.analysis import loss_against_clock
from syncline.columns import four_digits
from syncline.specs import network
from syncline.units import format_bytes, format_seconds

CLOCKS, BYTES = "networks.png", "bytes.png"

NO_CLOCK = "no clock"
"""The entry of a method that was not trained on a network and cannot be timed there either."""


def draw_networks(result: Replicated, cells: Sequence[TimedCell]) -> None:
    """Write ``networks.png``, the finals' losses on each network's clock, and ``bytes.png``, all losses over bytes.

    The first figure has the networks on which the largest number of methods have a clock, so that a method with a clock
    on every network is not alone in a figure.
    """
    from syncline.analysis import save

    networks = {joined.name: joined for joined in map(network, result.spec.networks)}
    curves = [timed_cell.curve for timed_cell in cells if not timed_cell.cell.extra]
    num_timed = {name: sum(name in curve.clock_s for curve in curves) for name in networks}
    networks = {name: joined for name, joined in networks.items() if num_timed[name] == max(num_timed.values())}
    finals = [curve for curve in curves if curve.clock_s.keys() >= networks.keys()]
    target_losses = [target for target in targets(cells).values() if target is not None]
    if finals:
        is_wide = needs_logarithm(loss for curve in finals for loss in curve.loss.ravel().tolist())
        figure = loss_against_clock(finals, networks, target=target_losses, title=result.spec.name, log_loss=is_wide)
        save(figure, result.folder / CLOCKS)
    settings: dict[str, dict[str, tuple[float, list[float]]]] = {}  # bytes and last losses by setting and method
    any_bytes, rounding = False, result.spec.finals.rounding
    for timed_cell in cells:
        if rounding and timed_cell.cell.extra == rounding:
            continue
        nbytes, last_losses = timed_cell.bytes_per_worker, list(timed_cell.curve.loss[:, -1])
        settings.setdefault(timed_cell.cell.extra, {})[timed_cell.cell.method] = nbytes, last_losses
        any_bytes |= nbytes > 0
    if any_bytes:
        save(last_losses_over_bytes(settings, title=result.spec.name), result.folder / BYTES)


def networks_page(result: Replicated) -> Iterator[str]:
    """Yield a table of the times on each network, and the method that is first on it."""
    spec, rows = result.spec, result.networks
    yield "## Over networks\n"
    text = (
        f"What was trained once, timed on {', '.join(spec.network_names)} by {_timed_by(spec)}; nothing is "
        "trained again. Times are until the median over the seeds reaches a loss: one that all methods of the finals "
        f"reach, and the one with which {spec.labels[0]} ends. Who is first is told of the finals, whose knobs were "
        f"searched with equal effort. A dash: never. All numbers: `{NETWORKS_TABLE}`."
    )
    if any(row["timed_by"] == AVERAGES for row in rows):
        text += (
            " What averages when its trigger says so, or was placed as often, is timed seed by seed with the averages "
            "that its training had, which no network changes."
        )
    if any(row["timed_by"] is None for row in rows):
        text += (
            f" '{NO_CLOCK}': workers at their own pace who come in another order there than in the training, and so "
            "average what others have not sent yet: only a training on it tells; or stages that it does not join."
        )
    untimed_networks = untimed(rows)
    if untimed_networks:
        text += f" Who is first is not told of {', '.join(untimed_networks)}, where not all have a clock."
    yield filled(text) + "\n"
    for name in (CLOCKS, BYTES):
        if (result.folder / name).is_file():
            yield f"![losses over {name.removesuffix('.png')}]({name})\n"
    target_losses = {rows[0]["to_all_loss"]: TO_ALL, rows[0]["to_first_loss"]: TO_FIRST}
    for loss, column in target_losses.items():
        if loss is not None:
            yield from _target_section(result, loss, column)


def _target_section(result: Replicated, loss: float, column: str) -> Iterator[str]:
    """Yield the first method at a loss on each network, and a table of the times; ``column`` has the times."""
    names, rows, seeds = result.spec.network_names, result.networks, len(result.spec.finals.seeds)
    first_of_finals, first_of_all = firsts(rows, column), firsts(rows, column, extras=True)
    leaders = []
    for name, row in first_of_finals.items():
        time = format_seconds(row[column])
        leaders.append(f"on {name} {row['method']} ({time}; on {row[WON[column]]} of {seeds} seeds)")
    text = "; ".join(leaders) or "nobody"
    if first_of_all != first_of_finals:
        others = []
        for name, row in first_of_all.items():
            others.append(f"on {name} {row['method']} in {row['setting']} ({format_seconds(row[column])})")
        text += f". Of all settings, in the others with knobs of the finals: {'; '.join(others)}"
    yield filled(f"First at {four_digits(loss)}: {text}.") + "\n"
    yield "| setting | method | sent per worker and step | " + " | ".join(names) + " |"
    yield "|---|---|---|" + "---|" * len(names)
    rows_of_cell: dict[tuple[str, str], list[Mapping[str, Any]]] = {}  # a row per network
    for row in rows:
        rows_of_cell.setdefault((row["setting"], row["method"]), []).append(row)
    never = []
    for (setting, method), cell_rows in rows_of_cell.items():
        times = []
        for row in cell_rows:
            time = "-" if row[column] is None else format_seconds(row[column])
            times.append(NO_CLOCK if row["timed_by"] is None else time)
        if set(times) == {"-"}:
            never.append(f"{method} in {setting}")
            continue
        sent = cell_rows[0]["bytes_per_worker"]
        yield f"| {setting} | {method} | {'-' if sent is None else format_bytes(sent)} | {' | '.join(times)} |"
    yield ""
    if never:
        yield filled(f"Never: {', '.join(never)}.") + "\n"


def _timed_by(spec: ReplicationSpec) -> str:
    """Return a description of the parts of a step's time."""
    if not spec.training.get("pipeline"):
        return "the calls that each method makes, updates in no time"
    description = "the model's own pipeline"
    clock = spec.pipeline_clock
    if clock is not None and clock.model is not None:
        description = f"a pipeline of {clock.model.name} with {clock.tokens_per_batch:,} tokens a batch"
        description += f" on {clock.hardware.name}, whose losses these are not"
    return f"the events of {description}, products of matrices in updates included"
