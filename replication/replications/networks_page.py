"""Losses on the clocks of networks, as a page of a replication: figures, and the first method on each network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    named = {joined.name: joined for joined in map(network, result.spec.networks)}
    curves = [timed_cell.curve for timed_cell in cells if not timed_cell.cell.extra]
    timed = {name: sum(name in curve.clock_s for curve in curves) for name in named}
    named = {name: joined for name, joined in named.items() if timed[name] == max(timed.values())}
    finals = [curve for curve in curves if curve.clock_s.keys() >= named.keys()]
    aims = [aim for aim in targets(cells).values() if aim is not None]
    if finals:
        is_wide = needs_logarithm(loss for curve in finals for loss in curve.loss.ravel().tolist())
        figure = loss_against_clock(finals, named, target=aims, title=result.spec.name, log_loss=is_wide)
        save(figure, result.folder / CLOCKS)
    settings: dict[str, dict[str, tuple[float, list[float]]]] = {}
    rounding = result.spec.finals.rounding
    for timed_cell in (timed for timed in cells if not rounding or timed.cell.extra != rounding):
        settings.setdefault(timed_cell.cell.extra, {})[timed_cell.cell.method] = (
            timed_cell.bytes_per_worker,
            list(timed_cell.curve.loss[:, -1]),
        )
    if any(nbytes > 0 for methods in settings.values() for nbytes, _ in methods.values()):
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
    if without := untimed(rows):
        text += f" Who is first is not told of {', '.join(without)}, where not all have a clock."
    yield filled(text) + "\n"
    for name in (CLOCKS, BYTES):
        if (result.folder / name).is_file():
            yield f"![losses over {name.removesuffix('.png')}]({name})\n"
    aims = {rows[0]["to_all_loss"]: TO_ALL, rows[0]["to_first_loss"]: TO_FIRST}
    for loss, column in aims.items():
        if loss is None:
            continue
        first = firsts(rows, column)
        seeds = len(result.spec.finals.seeds)
        leaders = "; ".join(
            f"on {name} {row['method']} ({format_seconds(row[column])}; on {row[WON[column]]} of {seeds} seeds)"
            for name, row in first.items()
        )
        anyhow = firsts(rows, column, extras=True)
        if anyhow != first:
            others = "; ".join(
                f"on {name} {row['method']} in {row['setting']} ({format_seconds(row[column])})"
                for name, row in anyhow.items()
            )
            leaders = f"{leaders or 'nobody'}. Of all settings, in the others with knobs of the finals: {others}"
        yield filled(f"First at {four_digits(loss)}: {leaders or 'nobody'}.") + "\n"
        yield "| setting | method | sent per worker and step | " + " | ".join(spec.network_names) + " |"
        yield "|---|---|---|" + "---|" * len(spec.network_names)
        never = []
        for (setting, method), cell_rows in _by_cell(rows).items():
            sent = cell_rows[0]["bytes_per_worker"]
            times = [_time_of(row, column) for row in cell_rows]
            if set(times) == {"-"}:
                never.append(f"{method} in {setting}")
                continue
            yield f"| {setting} | {method} | {'-' if sent is None else format_bytes(sent)} | {' | '.join(times)} |"
        yield ""
        if never:
            yield filled(f"Never: {', '.join(never)}.") + "\n"


def _time_of(row: Mapping[str, Any], column: str) -> str:
    if row["timed_by"] is None:
        return NO_CLOCK
    return "-" if row[column] is None else format_seconds(row[column])


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


def _by_cell(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["setting"], row["method"]), []).append(row)
    return cells
