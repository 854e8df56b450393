"""The page and the figures of a replication's folder, made of its completed stages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from replication.figures.layers import measures_by_layer
from replication.figures.losses import last_losses
from replication.figures.over_steps import Placed, averages_over_steps, measures_over_steps
from replication.figures.trials import TriedTrial, trials_over_knob
from replication.replications.averages import averages_page, read_averages
from replication.replications.crossings import crossing_rows, crossings_page
from replication.replications.dropped_rules import dropped_rules_page
from replication.replications.measured import MEASURED, layers_figure, measured_layers, measured_lines, measured_page
from replication.replications.networks_page import networks_page
from replication.replications.pages import filled
from replication.replications.reading import PAGE, claim_texts, command_in, read_replication
from replication.replications.replicated import Replicated
from replication.replications.spec import Cell, ExtraStage, setting
from replication.replications.stage_tables import CompletedStage
from replication.replications.stages import DEFAULT_NETWORK
from replication.replications.verdicts import RESAMPLES, SURE
from syncline import SynclineError
from syncline.columns import four_digits
from syncline.files import atomic_path
from syncline.runs.sweep.search import Tuned
from syncline.units import format_bytes, format_seconds

SEARCH_FIGURE = "search.png"
FIGURE, AVERAGES_FIGURE = "losses.png", "averages.png"
NEAR_AN_END = 1.1
"""A knob within this factor of an end of its range is reported: the best value may lie beyond."""


def write_readme(result: Replicated, command: str, claims: Mapping[str, str]) -> None:
    """Write ``README.md`` and, once the finals are complete, ``losses.png``.

    Raises:
        SynclineError: the folder cannot be written.
    """
    try:
        if "search" in result.kept:
            _draw_search(result)
        if result.losses():
            _draw(result)
            _draw_measured(result)
        with atomic_path(result.folder / PAGE) as path:
            path.write_text("\n".join(_page(result, command, claims)), encoding="utf-8")
    except OSError as error:
        raise SynclineError(f"{result.folder}: cannot be written ({error.strerror})") from None


def page_of(folder: Path) -> str:
    """Return the page of a folder, made from its tables.

    Raises:
        SynclineError: the folder is no replication.
    """
    result = read_replication(folder)
    return "\n".join(_page(result, command_in(folder), claim_texts(result.spec)))


def write_page(folder: Path) -> None:
    """Write the page of a folder anew; nothing is trained or drawn."""
    (folder / PAGE).write_text(page_of(folder), encoding="utf-8")


def _draw(result: Replicated) -> None:
    from syncline.analysis import save

    settings: dict[str, dict[str, list[float]]] = {}
    for cell, losses in result.losses().items():
        settings.setdefault(cell.extra, {})[cell.method] = list(losses.values())
    save(last_losses(settings, title=result.spec.name), result.folder / FIGURE)


def _draw_search(result: Replicated) -> None:
    """Draw every trial over the first knob, coloured by the second."""
    from syncline.analysis import save

    knobs: dict[str, tuple[str, str]] = {}
    tried: dict[str, list[TriedTrial]] = {}
    for method in result.spec.methods:
        first, other = [*method.tune, ""][:2]
        knobs[method.label] = first, other
        for row in result.kept["search"].rows:
            if row["method"] == method.label:
                values = json.loads(row["knobs"])
                tried.setdefault(method.label, []).append(
                    TriedTrial(values[first], values.get(other, 0.0), row["loss"])
                )
    if any(math.isfinite(method.loss) for trials in tried.values() for method in trials):
        save(trials_over_knob(tried, knobs, title=f"{result.spec.name}: search"), result.folder / SEARCH_FIGURE)


def measured_stages(result: Replicated) -> list[tuple[str, CompletedStage]]:
    """Return the completed stages with measures along trainings, by name."""
    return [(name.removeprefix(MEASURED), stage) for name, stage in result.kept.items() if name.startswith(MEASURED)]


def _draw_measured(result: Replicated) -> None:
    from syncline.analysis import save

    thresholds = {method.label: method.method.get("threshold") for method in result.spec.methods}
    thresholds |= {
        f"{label}, {extra.name}": extra.set.get("method.threshold", thresholds[label])
        for extra in result.spec.extras
        for label in extra.methods
    }
    placed = []
    for cell, seeds in read_averages(result.tables()).items():
        label = f"{cell.method}, {cell.extra}" if cell.extra else cell.method
        first = next(iter(seeds.values()))
        averaged = [training.averaged for training in seeds.values()]
        placed.append(Placed(label, averaged, first.trigger or [], thresholds.get(label)))
    if placed:
        save(averages_over_steps(placed, title=result.spec.name), result.folder / AVERAGES_FIGURE)
    for name, stage in measured_stages(result):
        if lines := measured_lines(stage.rows):
            save(measures_over_steps(lines, title=result.spec.name), result.folder / f"measured-{name}.png")
        if layers := measured_layers(stage.rows):
            save(measures_by_layer(layers, title=result.spec.name), result.folder / layers_figure(name))


def _page(result: Replicated, command: str, claims: Mapping[str, str]) -> Iterator[str]:
    spec = result.spec
    yield f"# Replication: {spec.name}\n"
    for text in (spec.description, spec.source):
        if paragraph := " ".join(text.split()):
            yield filled(paragraph[0].upper() + paragraph[1:]) + "\n"
    yield f"Setting: {setting(spec.training)}. Made, in pieces or at once, by\n\n    {command}\n"
    yield from _stages(result)
    if result.effort:
        yield from _effort(result)
    if result.losses():
        yield from _losses(result)
        if averages := read_averages(result.tables()):
            yield from averages_page(averages, AVERAGES_FIGURE)
        if crossed := crossing_rows(spec.crossings, result.evaluations()):
            yield from crossings_page(crossed)
        for name, stage in measured_stages(result):
            yield from measured_page(name, stage.rows, f"measured-{name}.png")
        if result.networks:
            yield from networks_page(result)
        yield from _verdicts(result, claims)
        if spec.search.one_by_one and result.verdicts:
            yield from dropped_rules_page(result)


def _stages(result: Replicated) -> Iterator[str]:
    yield "## Stages\n"
    if result.num_remaining:
        yield f"{result.num_remaining} of {sum(result.planned.values())} trainings are still to be made.\n"
    yield "| stage | trainings | made | hours of trainings | version | commit |\n|---|---|---|---|---|---|"
    for name, planned in result.planned.items():
        stage = result.kept.get(name)
        if stage is None:
            yield f"| {name} | {result.finished.get(name, 0)} of {planned} | not whole | | | |"
            continue
        about = stage.about
        versions = f"{about['syncline']}, Python {about['python']}, torch {about['packages'].get('torch')}"
        commit = (about["git_commit"] or "-")[:12] + ("+" if str(about["git_commit"]).endswith("+") else "")
        yield f"| {name} | {planned} | {about['day']} | {about['seconds'] / 3600:.2f} | {versions} | {commit} |"
    yield ""


def _effort(result: Replicated) -> Iterator[str]:
    spec = result.spec
    search, rerun, trials = spec.search, spec.rerun, max(result.effort.values())
    yield "## Effort, and what was chosen\n"
    rule = (
        f"The best {rerun.top_trials} of each were trained again on seeds {_listed(rerun.seeds)}, and the lowest "
        f"{rerun.choose} of all losses was chosen."
        if rerun
        else "The lowest loss was chosen."
    )
    knobs = _shown_range(len(method.tune) for method in spec.methods)
    yield (
        filled(
            f"Equal: {trials} trial{'s' * (trials > 1)} of each of {len(spec.methods)} methods, "
            f"over {knobs} knobs each, "
            f"on seeds {_listed(search.seeds)}; the first trial is what the spec says. {rule}"
        )
        + "\n"
    )
    if (result.folder / SEARCH_FIGURE).is_file():
        yield f"![trials]({SEARCH_FIGURE})\n"
    heading = "at an end of its range" + (", or beyond" if search.one_by_one else "")
    yield f"| method | trials | chosen | knobs | {heading} |\n|---|---|---|---|---|"
    for method in spec.methods:
        chosen = result.chosen.get(method.label)
        if chosen is None:
            yield f"| {method.label} | {result.effort[method.label]} | not yet | | |"
            continue
        shown = ", ".join(f"{path} {value:g}" for path, value in chosen["knobs"].items())
        ends = ", ".join(
            path for path, value in chosen["knobs"].items() if _is_at_an_end(path, method.tune[path], value)
        )
        yield f"| {method.label} | {result.effort[method.label]} | {chosen['trial']} | {shown} | {ends or '-'} |"
    yield ""


def _shown_range(numbers: Iterable[int]) -> str:
    """Return the lowest and the highest of some numbers, or the number that all are."""
    low, *_, high = [*sorted(numbers)] * 2
    return f"{low}" if low == high else f"{low} to {high}"


def _is_at_an_end(path: str, ends: str, value: float) -> bool:
    tuned = Tuned.parse(f"method.{path}={ends}")
    drawn = 1 - value if tuned.below_one else value
    return drawn < tuned.low * NEAR_AN_END or drawn > tuned.high / NEAR_AN_END


def _losses(result: Replicated) -> Iterator[str]:
    yield "## Losses\n"
    yield f"![last losses]({FIGURE})\n"
    network = result.spec.training.get("network", DEFAULT_NETWORK)
    clock_heads = f"sent per worker and step | step on {network}"
    yield f"| setting | method | last loss: median (lowest to highest) | seeds | {clock_heads} |"
    yield "|---|---|---|---|---|---|"
    sent, step_s = result.last("bytes_per_worker"), result.last("step_time_s")
    for cell, losses in result.losses().items():
        values = sorted(losses.values())
        loss, low, high = (
            four_digits(value) if math.isfinite(value) else "diverged"
            for value in (median(values), values[0], values[-1])
        )
        clock = _median_of(sent[cell].values(), format_bytes), _median_of(step_s[cell].values(), format_seconds)
        yield (
            f"| {cell.extra or 'finals'} | {cell.method} | {loss} ({low} to {high}) | {len(values)} "
            f"| {clock[0]} | {clock[1]} |"
        )
    if rounding := result.spec.finals.rounding:
        yield "\n" + filled(_rounding_words(result, rounding))
    changes = [f"`{extra.name}` is {_setting_of(extra)}" for extra in result.spec.extras]
    if changes:
        yield "\n" + filled(f"Settings: {'; '.join(changes)}.")
    yield ""


def _rounding_words(result: Replicated, rounding: str) -> str:
    """Return a sentence with the changes of the finals by rounding, beside the ranges of the seeds."""
    losses = result.losses()
    changes = {
        cell.method: (
            median(abs(loss - losses[cell][seed]) for seed, loss in losses[Cell(cell.method, rounding)].items()),
            max(losses[cell].values()) - min(losses[cell].values()),
        )
        for cell in losses
        if not cell.extra and Cell(cell.method, rounding) in losses
    }
    shown = ", ".join(f"{method} {change:.1g} ({seeds:.2g})" for method, (change, seeds) in changes.items())
    return f"Median change of a final by rounding, and the range of the seeds: {shown}."


def _setting_of(extra: ExtraStage) -> str:
    """Return a description of the changes of an extra."""
    counted = [f"as many averages on each seed as {extra.match_averages_of}"] if extra.match_averages_of else []
    return ", ".join([*([json.dumps(extra.set)[1:-1]] if extra.set else []), *counted])


def _median_of(values: Iterable[float | None], shown: Callable[[float], str]) -> str:
    present = [value for value in values if value is not None]
    return shown(median(present)) if present else "-"


def _verdicts(result: Replicated, claims: Mapping[str, str]) -> Iterator[str]:
    spec = result.spec
    yield "## Verdicts\n"
    yield (
        filled(
            f"Of {setting(spec.training)}. Differences are the left side less the right one, seed by seed. P is the "
            f"share of {RESAMPLES:,} resamples of the search's trials and of the seeds in which the comparison is as "
            f"claimed. A claim holds if P is at least {SURE:g} for each comparison, fails if one is reversed in as "
            f"large a share, and else is unknown, as it is with fewer than {spec.min_seeds} seeds. The last number of "
            "a row is the smallest difference that this search and these seeds can see."
        )
        + "\n"
    )
    yield (
        "| claim | | comparison | difference: median (lowest to highest) | seeds as claimed | P | seen from "
        "| would be settled by |\n|---|---|---|---|---|---|---|---|"
    )
    for row in result.verdicts:
        claim_text = claims.get(row["claim"], row["claim"])
        numbers = [f"{row[name]:+.3f}" for name in ("difference", "difference_min", "difference_max")]
        yield (
            f"| {claim_text} | **{row['state']}** | {row['comparison']} | {numbers[0]} ({numbers[1]} to {numbers[2]}) "
            f"| {row['as_claimed']} of {row['seeds']} | {row['probability']:.2f} | {row['resolution']:.3f} "
            f"| {row['settled_by']} |"
        )
    judged = {row["claim"] for row in result.verdicts}
    waiting = [claims.get(claim.claim, claim.claim) for claim in spec.claims if claim.claim not in judged]
    if waiting:
        yield "\n" + filled(f"Not trained yet: {'; '.join(waiting)}.")
    yield ""


def _listed(seeds: tuple[int, ...]) -> str:
    return ", ".join(map(str, seeds))
