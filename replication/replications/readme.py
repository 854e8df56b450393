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
from replication.replications.spec import Cell, setting
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
    for extra in result.spec.extras:
        for label in extra.methods:
            thresholds[f"{label}, {extra.name}"] = extra.set.get("method.threshold", thresholds[label])
    placed = []
    for cell, training_of_seed in read_averages(result.tables()).items():
        label = f"{cell.method}, {cell.extra}" if cell.extra else cell.method
        trainings = list(training_of_seed.values())
        averaged = [training.averaged for training in trainings]
        placed.append(Placed(label, averaged, trainings[0].trigger or [], thresholds.get(label)))
    if placed:
        save(averages_over_steps(placed, title=result.spec.name), result.folder / AVERAGES_FIGURE)
    for name, stage in measured_stages(result):
        lines, layers = measured_lines(stage.rows), measured_layers(stage.rows)
        if lines:
            save(measures_over_steps(lines, title=result.spec.name), result.folder / f"measured-{name}.png")
        if layers:
            save(measures_by_layer(layers, title=result.spec.name), result.folder / layers_figure(name))


def _page(result: Replicated, command: str, claims: Mapping[str, str]) -> Iterator[str]:
    spec = result.spec
    yield f"# Replication: {spec.name}\n"
    for text in (spec.description, spec.source):
        paragraph = " ".join(text.split())
        if paragraph:
            yield filled(paragraph[0].upper() + paragraph[1:]) + "\n"
    yield f"Setting: {setting(spec.training)}. Made, in pieces or at once, by\n\n    {command}\n"
    yield from _stages(result)
    if result.effort:
        yield from _effort(result)
    if result.losses():
        yield from _losses(result)
        averages, crossings = read_averages(result.tables()), crossing_rows(spec.crossings, result.evaluations())
        if averages:
            yield from averages_page(averages, AVERAGES_FIGURE)
        if crossings:
            yield from crossings_page(crossings)
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
    rule = "The lowest loss was chosen."
    if rerun:
        repeated = f"The best {rerun.top_trials} of each were trained again on seeds {_listed(rerun.seeds)}"
        rule = f"{repeated}, and the lowest {rerun.choose} of all losses was chosen."
    num_knobs = [len(method.tune) for method in spec.methods]
    low, high = min(num_knobs), max(num_knobs)
    text = (
        f"Equal: {trials} trial{'s' if trials > 1 else ''} of each of {len(spec.methods)} methods, "
        f"over {low if low == high else f'{low} to {high}'} knobs each, "
        f"on seeds {_listed(search.seeds)}; the first trial is what the spec says. {rule}"
    )
    yield filled(text) + "\n"
    if (result.folder / SEARCH_FIGURE).is_file():
        yield f"![trials]({SEARCH_FIGURE})\n"
    heading = "at an end of its range" + (", or beyond" if search.one_by_one else "")
    yield f"| method | trials | chosen | knobs | {heading} |\n|---|---|---|---|---|"
    for method in spec.methods:
        chosen = result.chosen.get(method.label)
        if chosen is None:
            yield f"| {method.label} | {result.effort[method.label]} | not yet | | |"
            continue
        shown, at_an_end = [], []
        for path, value in chosen["knobs"].items():
            shown.append(f"{path} {value:g}")
            tuned = Tuned.parse(f"method.{path}={method.tune[path]}")
            number = 1 - value if tuned.below_one else value  # the range of a decay rate is of its distance to 1
            if number < tuned.low * NEAR_AN_END or number > tuned.high / NEAR_AN_END:
                at_an_end.append(path)
        yield (
            f"| {method.label} | {result.effort[method.label]} | {chosen['trial']} | {', '.join(shown)} "
            f"| {', '.join(at_an_end) or '-'} |"
        )
    yield ""


def _losses(result: Replicated) -> Iterator[str]:
    yield "## Losses\n"
    yield f"![last losses]({FIGURE})\n"
    network = result.spec.training.get("network", DEFAULT_NETWORK)
    clock_heads = f"sent per worker and step | step on {network}"
    yield f"| setting | method | last loss: median (lowest to highest) | seeds | {clock_heads} |"
    yield "|---|---|---|---|---|---|"
    sent, step_s = result.last("bytes_per_worker"), result.last("step_time_s")
    for cell, losses in result.losses().items():
        values = list(losses.values())
        loss, low, high = _loss_text(median(values)), _loss_text(min(values)), _loss_text(max(values))
        sent_text = _median_text(sent[cell].values(), format_bytes)
        step_text = _median_text(step_s[cell].values(), format_seconds)
        yield (
            f"| {cell.extra or 'finals'} | {cell.method} | {loss} ({low} to {high}) | {len(values)} "
            f"| {sent_text} | {step_text} |"
        )
    if result.spec.finals.rounding:
        yield "\n" + filled(_rounding_sentence(result, result.spec.finals.rounding))
    settings = []
    for extra in result.spec.extras:
        changes = [json.dumps(extra.set)[1:-1]] if extra.set else []
        if extra.match_averages_of:
            changes.append(f"as many averages on each seed as {extra.match_averages_of}")
        settings.append(f"`{extra.name}` is {', '.join(changes)}")
    if settings:
        yield "\n" + filled(f"Settings: {'; '.join(settings)}.")
    yield ""


def _loss_text(loss: float) -> str:
    return four_digits(loss) if math.isfinite(loss) else "diverged"


def _rounding_sentence(result: Replicated, rounding: str) -> str:
    """Return a sentence with the changes of the finals by rounding, beside the ranges of the seeds."""
    losses, changes = result.losses(), []
    for cell, final_losses in losses.items():
        repeated_losses = losses.get(Cell(cell.method, rounding))
        if cell.extra or repeated_losses is None:
            continue
        change = median(abs(loss - final_losses[seed]) for seed, loss in repeated_losses.items())
        seed_range = max(final_losses.values()) - min(final_losses.values())
        changes.append(f"{cell.method} {change:.1g} ({seed_range:.2g})")
    return f"Median change of a final by rounding, and the range of the seeds: {', '.join(changes)}."


def _median_text(values: Iterable[float | None], format_value: Callable[[float], str]) -> str:
    """Return the median of the values that are known, as text; a dash if none is."""
    numbers = [value for value in values if value is not None]
    return format_value(median(numbers)) if numbers else "-"


def _verdicts(result: Replicated, claims: Mapping[str, str]) -> Iterator[str]:
    spec = result.spec
    yield "## Verdicts\n"
    text = (
        f"Of {setting(spec.training)}. Differences are the left side less the right one, seed by seed. P is the "
        f"share of {RESAMPLES:,} resamples of the search's trials and of the seeds in which the comparison is as "
        f"claimed. A claim holds if P is at least {SURE:g} for each comparison, fails if one is reversed in as "
        f"large a share, and else is unknown, as it is with fewer than {spec.min_seeds} seeds. The last number of "
        "a row is the smallest difference that this search and these seeds can see."
    )
    yield filled(text) + "\n"
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
