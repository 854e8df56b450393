"""Sentences on the page of a result, made of its rows: a summary, and warnings for readers who rely on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from syncline.columns import distinct_by_key, first_of, four_digits
from syncline.runs.report.reported import Reported
from syncline.runs.sweep.ranking import ranked
from syncline.units import format_bytes, format_seconds
from syncline.version import __version__

ReportedRow = dict[str, Any]

MOST_NAMED = 6
"""Largest number of methods that a warning names."""


def summary_of_result(result: Reported) -> list[str]:
    """Return the sentences of a result's summary, the most important first."""
    if not result.rows:
        return ["There are no rows, as nothing was finished."]
    summarize = SUMMARIES.get(result.command, _summarize_count)
    return summarize(result)


def _rows_by_network(result: Reported) -> dict[str, list[ReportedRow]]:
    """Return the rows of a result by network, in their order."""
    rows_by_network: dict[str, list[ReportedRow]] = {}
    for row in result.rows:
        rows_by_network.setdefault(row["network"], []).append(row)
    return rows_by_network


def _summarize_trainings(result: Reported) -> list[str]:
    """Return sentences that compare methods on networks: the fastest to the target, the lowest loss, the waiting."""
    rows_by_network = _rows_by_network(result)
    sentences = [_fastest_to_target(network, rows) for network, rows in rows_by_network.items()]
    networks = list(rows_by_network)
    first_network, last_network = networks[0], networks[-1]
    sentences.append(_lowest_loss(rows_by_network[first_network]))  # losses are the same on all networks
    # Methods wait longest on the slowest network, which bundled specs list last.
    sentences.append(_longest_and_shortest_wait(last_network, rows_by_network[last_network]))
    sentences.append(_setting(result))
    return [sentence for sentence in sentences if sentence]


def _lowest_loss(rows: Sequence[ReportedRow]) -> str:
    """Return sentences on the method with the lowest loss, and on methods that the seeds cannot tell apart from it.

    The result is empty if fewer than two methods have a loss.
    """
    rows_with_loss = [row for row in rows if row.get("loss") is not None]
    if len(rows_with_loss) < 2:
        return ""
    best, *other_rows = sorted(rows_with_loss, key=lambda row: row["loss"])
    highest_of_best = best["loss"] if best.get("loss_max") is None else best["loss_max"]
    tied_methods = []
    for row in other_rows:
        lowest = row["loss"] if row.get("loss_min") is None else row["loss_min"]
        if lowest <= highest_of_best:
            tied_methods.append(row["method"])
    sentence = f"The lowest loss at the end is that of {best['method']}, {_loss(best)}."
    if tied_methods:
        sentence += f" Over the seeds it cannot be told apart from {joined_with_and(tied_methods)}."
    return sentence


def _fastest_to_target(network: str, rows: Sequence[ReportedRow]) -> str:
    """Return a sentence on the method that reaches the target loss first on a network.

    The result is empty if none does, or if there is a single method.
    """
    reaching_rows = [row for row in rows if row.get("time_to_target_s") is not None]
    if not reaching_rows or len(rows) < 2:
        return ""
    fastest, *slower_rows = sorted(reaching_rows, key=lambda row: row["time_to_target_s"])
    baseline, target = rows[0], four_digits(fastest["target_loss"])
    time_text = format_seconds(fastest["time_to_target_s"])
    sentence = f"On {network} {fastest['method']} is the first at a loss of {target}: after {time_text}"
    if fastest is baseline:
        if slower_rows:
            second = slower_rows[0]
            sentence += f", before {second['method']} at {format_seconds(second['time_to_target_s'])}"
    elif baseline.get("time_to_target_s"):
        sentence += f", {fastest['time_to_target_speedup']:.3g} times as fast as {baseline['method']}"
    else:
        sentence += f"; {baseline['method']} does not get there"
    return f"{sentence}."


def _longest_and_shortest_wait(network: str, rows: Sequence[ReportedRow]) -> str:
    """Return a sentence on the methods that wait longest and shortest for the network; empty without times."""
    timed_rows = [row for row in rows if row.get("exposed_communication_s") is not None and row["step_time_s"]]
    if not timed_rows:
        return ""

    def share(row: ReportedRow) -> float:
        """Return the share of a step in which the row's method waits for the network."""
        return float(row["exposed_communication_s"] / row["step_time_s"])

    longest, shortest = max(timed_rows, key=share), min(timed_rows, key=share)
    sentence = f"On {network} {longest['method']} waits for the network for {share(longest):.0%} of a step"
    if shortest is not longest:
        sentence += f", {shortest['method']} for {share(shortest):.0%}"
    return f"{sentence}."


def _summarize_run(result: Reported) -> list[str]:
    """Return sentences about a method: loss over the seeds, times, and traffic."""
    rows = result.rows
    if "step_time_s" not in rows[0]:  # a study, with rows of its own
        return _summarize_count(result)
    losses = [row["loss"] for row in rows if row.get("loss") is not None]
    first, sentences = rows[0], []
    if losses:
        loss = four_digits(median(losses))
        if len(losses) > 1:
            loss += f" ({four_digits(min(losses))} to {four_digits(max(losses))} over {len(losses)} seeds)"
        sentences.append(f"{first['method']} ends at a loss of {loss} after {first['steps']:,} steps.")
    sentences.append(
        f"On {first['network']} a step takes {format_seconds(first['step_time_s'])} and all of them "
        f"{format_seconds(first['wall_clock_s'])}; a worker sends {format_bytes(first['bytes_per_worker'])} per step."
    )
    return [*sentences, _longest_and_shortest_wait(first["network"], rows[:1]), _setting(result)]


def _summarize_schedules(result: Reported) -> list[str]:
    """Return sentences on the shortest and the longest schedule on each network."""
    sentences = []
    for network, rows in _rows_by_network(result).items():
        by_makespan = sorted(rows, key=lambda row: row["makespan_s"])
        best, worst = by_makespan[0], by_makespan[-1]
        sentence = f"On {network} the shortest is {best['schedule']}: {format_seconds(best['makespan_s'])} with a "
        sentence += f"bubble of {best['bubble']:.0%}"
        if worst is not best:
            sentence += f"; {worst['schedule']} takes {format_seconds(worst['makespan_s'])}"
        sentences.append(f"{sentence}.")
    first = result.rows[0]
    return [*sentences, f"{first['stages']} stages, {first['microbatches']} micro-batches."]


def _summarize_sweep(result: Reported) -> list[str]:
    """Return sentences on the best configuration and the number of runs."""
    finished_rows = [row for row in result.rows if row.get("error") is None]
    configurations = ranked(finished_rows)
    sentences = []
    if configurations and configurations[0].get("loss") is not None:
        best = configurations[0]
        values = [f"{path} {best[path]}" for path in result.paths if path in best]
        sentence = f"The lowest median loss is {four_digits(best['loss'])}"
        sentences.append(f"{sentence}, with {', '.join(values)}." if values else f"{sentence}.")
    sentences.append(f"{len(configurations):,} configurations, {len(finished_rows):,} runs.")
    return sentences


def _summarize_comparisons(result: Reported) -> list[str]:
    """Return a sentence with the numbers of a replication's comparisons that hold, fail or are unknown."""
    verbs = {"holds": ("holds", "hold"), "fails": ("fails", "fail")}  # other states are adjectives
    counts = Counter(row["state"] for row in result.rows)
    parts = []
    for state, count in counts.items():
        singular, plural = verbs.get(state, (f"is {state}", f"are {state}"))
        if len(result.rows) == 1:
            return [f"One comparison, which {singular}."]
        verb = singular if count == 1 else plural
        parts.append(f"{count} {verb}")
    return [f"Of {len(result.rows)} comparisons {joined_with_and(parts)}."]


def _summarize_count(result: Reported) -> list[str]:
    """Return a sentence with the number of rows."""
    count = len(result.rows)
    return [f"{count:,} rows of {result.command}." if count > 1 else f"One row of {result.command}."]


SUMMARIES: dict[str, Callable[[Reported], list[str]]] = {
    "compare": _summarize_trainings, "trace": _summarize_trainings, "whatif": _summarize_trainings,
    "run": _summarize_run, "launch": _summarize_run, "pipeline": _summarize_schedules, "sweep": _summarize_sweep,
    "replicate": _summarize_comparisons,
}  # fmt: skip
"""The function that summarizes the result of each command; results of other commands are counted."""


def _setting(result: Reported) -> str:
    """Return a sentence with the numbers of workers, steps and seeds."""
    seeds = result.stored_facts.get("seeds")
    most_steps = max(row["steps"] for row in result.rows)  # a training that diverged made fewer
    parts = [f"{result.rows[0]['workers']:,} workers", f"{most_steps:,} steps"]
    if isinstance(seeds, list) and seeds:
        parts.append(f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}")
    return f"{', '.join(parts)}."


def _loss(row: ReportedRow) -> str:
    """Return the loss of a row as text, with its range over the seeds."""
    lowest, highest = row.get("loss_min"), row.get("loss_max")
    if lowest is None or highest is None or lowest == highest:
        return four_digits(row["loss"])
    return f"{four_digits(row['loss'])} ({four_digits(lowest)} to {four_digits(highest)})"


def joined_with_and(names: Iterable[str]) -> str:
    """Return names joined by commas and a final "and".

    >>> joined_with_and(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def warnings_of(result: Reported) -> list[str]:
    """Return the warnings about a result as sentences, the most serious first."""
    kinds = (
        _completeness_warnings, _divergence_warnings, _value_warnings, _single_seed_warning, _equal_speed_warnings,
        _code_warnings,
    )  # fmt: skip
    sentences: list[str] = []
    for warnings_of_kind in kinds:
        sentences += warnings_of_kind(result)
    return sentences


def caveats_of(result: Reported) -> list[str]:
    """Return the limitations that all results of this command have, as sentences."""
    bases = list(dict.fromkeys(str(row["basis"]) for row in result.rows if row.get("basis")))
    caveats = [f"Bounds of times are where nine of ten measurements are expected; from {basis}." for basis in bases]
    has_losses = any(row.get("loss") is not None for row in result.rows)
    if has_losses and result.command in ("compare", "run", "sweep", "replicate"):
        caveats.append(
            "Losses are of the problem that was trained, which is small: they show mechanisms and do not predict the "
            "loss of a large model."
        )
    if result.command in ("compare", "run", "sweep", "project", "pipeline", "trace", "whatif"):
        caveats.append(
            "Times are simulated, not measured, and are those of this network and this computing time alone."
        )
    return caveats


def _completeness_warnings(result: Reported) -> Iterator[str]:
    """Yield warnings about a failed process, an interrupt, failed runs, and missing trainings of a replication."""
    failure = result.output.get("failed") or result.stored_facts.get("failed")
    if failure:
        yield f"A real process failed: {failure}"
    if result.output.get("interrupted") or result.stored_facts.get("interrupted"):
        yield "It was interrupted: these are the results until then."
    errors = [row for row in result.rows if row.get("error")]
    if errors:
        yield f"{len(errors):,} of {len(result.rows):,} runs failed, the first with: {errors[0]['error']}"
    if result.output.get("left"):
        yield f"{result.output['left']:,} trainings of the replication are still to be made."


def _divergence_warnings(result: Reported) -> Iterator[str]:
    """Yield a warning for each method and seed that diverged."""
    seen_trainings = set()
    for row in result.rows:
        method_and_seed = row.get("method"), row.get("seed")
        if row.get("diverged_at") is None or method_and_seed in seen_trainings:
            continue
        seen_trainings.add(method_and_seed)
        seed_text = f", seed {row['seed']}" if "seed" in row else ""
        count_text = f" ({row['diverged_seeds']} seeds)" if row.get("diverged_seeds") else ""
        yield f"{row.get('method')}{seed_text} diverged at step {row['diverged_at']}{count_text}."


def _value_warnings(result: Reported) -> Iterator[str]:
    """Yield warnings about unknown times and losses, too little memory, extrapolated losses, and missed targets.

    Each names the methods that it is about.
    """
    for column, missing_text in (("not_timed", "no time"), ("loss_unknown", "no loss")):
        reasons_and_methods = [(str(row[column]), str(row.get("method"))) for row in result.rows if row.get(column)]
        for reason, methods in distinct_by_key(reasons_and_methods).items():
            yield f"{_few_names(methods)}: {missing_text}, as {reason}."
    too_large = [str(row.get("method")) for row in result.rows if row.get("fits") is False]  # None: unknown
    if too_large:
        yield f"{_few_names(too_large)}: more than a worker's memory holds."
    extrapolated = [str(row.get("method")) for row in result.rows if row.get("extrapolation")]
    if extrapolated:
        yield f"{_few_names(extrapolated)}: the loss is extrapolated, as it is outside the range of the fits."
    methods_by_target: dict[str, list[str]] = {}
    for row in result.rows:
        is_missed = "time_to_target_s" in row and row["time_to_target_s"] is None
        if is_missed and row.get("target_loss") is not None:
            methods_by_target.setdefault(f"{row['target_loss']:.4g}", []).append(str(row["method"]))
    for target, methods in methods_by_target.items():
        yield f"{_few_names(methods)}: a loss of {target} is not reached."


def _single_seed_warning(result: Reported) -> Iterator[str]:
    """Yield a warning if the losses are those of a single seed."""
    seeds = result.stored_facts.get("seeds")
    if isinstance(seeds, list) and len(seeds) == 1 and any(row.get("loss") is not None for row in result.rows):
        yield "One seed: the spread between seeds is unknown."


def _equal_speed_warnings(result: Reported) -> Iterator[str]:
    """Yield a warning for each network with methods whose speedup has a bound on each side of 1."""
    methods_by_network: dict[str, list[str]] = {}
    for row in result.rows:
        low, high = row.get("speedup_low"), row.get("speedup_high")
        if low is not None and high is not None and low != high and low <= 1 <= high:
            methods_by_network.setdefault(str(row.get("network")), []).append(str(row["method"]))
    for network, methods in methods_by_network.items():
        names = _few_names(methods)
        yield f"{names} on {network}: by its bounds a step may be longer or shorter than the first method's."


def _code_warnings(result: Reported) -> Iterator[str]:
    """Yield warnings if the code differed from its commit, or if another version of Syncline made the result."""
    commit, version = result.stored_facts.get("git_commit"), result.stored_facts.get("syncline")
    if isinstance(commit, str) and commit.endswith("+"):  # "+": files differ from the commit
        yield "Its code had uncommitted changes."
    if version is not None and version != __version__:
        yield f"Syncline {version} made it, and this page was made by {__version__}."


def _few_names(methods: list[str]) -> str:
    """Return distinct names as in a sentence: all, or the first ones and the number of further ones."""
    names = list(dict.fromkeys(methods))
    return joined_with_and(names) if len(names) <= MOST_NAMED else first_of(names, MOST_NAMED)
