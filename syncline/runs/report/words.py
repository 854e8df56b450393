"""Sentences on the page of a result, made of its rows: a summary, and warnings for readers who rely on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from syncline.columns import first_of, four_digits
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
        return ["There are no rows: nothing was finished."]
    summarize = SUMMARIES.get(result.command, _counted)
    return summarize(result)


def _of_trainings(result: Reported) -> list[str]:
    """Return sentences that compare methods on networks: the fastest to the target, the lowest loss, the waiting."""
    rows_on: dict[str, list[ReportedRow]] = {}
    for row in result.rows:
        rows_on.setdefault(row["network"], []).append(row)
    sentences = [_fastest_to_target(network, rows) for network, rows in rows_on.items()]

    # A method's losses are the same on all networks.
    first_rows = next(iter(rows_on.values()), [])
    by_loss = sorted((row for row in first_rows if row.get("loss") is not None), key=lambda row: row["loss"])
    if len(by_loss) > 1:
        best, *other_rows = by_loss
        highest = best["loss"] if best.get("loss_max") is None else best["loss_max"]
        lowest = {row["method"]: row["loss"] if row.get("loss_min") is None else row["loss_min"] for row in other_rows}
        tied = [method for method, low in lowest.items() if low <= highest]
        tie = f" Over the seeds it is not told apart from {in_a_sentence(tied)}." if tied else ""
        sentences.append(f"The lowest loss at the end is that of {best['method']}, {_loss(best)}.{tie}")
    sentences += [_waits(network, rows) for network, rows in list(rows_on.items())[-1:]]
    return [line for line in [*sentences, _setting(result)] if line]


def _fastest_to_target(network: str, rows: Sequence[ReportedRow]) -> str:
    """Return a sentence on the method that reaches the target loss first on a network; empty if none does."""
    timed_rows = [row for row in rows if row.get("time_to_target_s") is not None]
    reached = sorted(timed_rows, key=lambda row: row["time_to_target_s"])
    if not reached or len(rows) < 2:
        return ""
    first, target = reached[0], four_digits(reached[0]["target_loss"])
    baseline = rows[0]
    more = ""
    if first is baseline and len(reached) > 1:
        more = f", before {reached[1]['method']} at {format_seconds(reached[1]['time_to_target_s'])}"
    elif first is not baseline and baseline.get("time_to_target_s"):
        more = f", {first['time_to_target_speedup']:.3g} times as fast as {baseline['method']}"
    elif first is not baseline:
        more = f"; {baseline['method']} does not get there"
    first_time = format_seconds(first["time_to_target_s"])
    return f"On {network} {first['method']} is the first at a loss of {target}: after {first_time}{more}."


def _waits(network: str, rows: Sequence[ReportedRow]) -> str:
    """Return a sentence on the methods that wait longest and shortest for the network; empty without times."""
    timed_rows = [row for row in rows if row.get("exposed_communication_s") is not None and row["step_time_s"]]
    if not timed_rows:
        return ""

    def share(row: ReportedRow) -> float:
        """Return the share of a step in which the row's method waits for the network."""
        return float(row["exposed_communication_s"] / row["step_time_s"])

    longest, shortest = max(timed_rows, key=share), min(timed_rows, key=share)
    sentence = f"On {network} {longest['method']} waits for the network for {share(longest):.0%} of a step"
    return sentence + (f", {shortest['method']} for {share(shortest):.0%}." if shortest is not longest else ".")


def _of_a_run(result: Reported) -> list[str]:
    """Return sentences about a method: loss over the seeds, times, and traffic."""
    rows = result.rows
    if "step_time_s" not in rows[0]:
        return _counted(result)
    losses = sorted(row["loss"] for row in rows if row.get("loss") is not None)
    first, sentences = rows[0], []
    if losses:
        ends = f" ({four_digits(losses[0])} to {four_digits(losses[-1])} over {len(losses)} seeds)"
        loss = four_digits(median(losses)) + (ends if len(losses) > 1 else "")
        sentences.append(f"{first['method']} ends at a loss of {loss} after {first['steps']:,} steps.")
    sentences.append(
        f"On {first['network']} a step takes {format_seconds(first['step_time_s'])} and all of them "
        f"{format_seconds(first['wall_clock_s'])}; a worker sends {format_bytes(first['bytes_per_worker'])} per step."
    )
    return [*sentences, _waits(first["network"], rows[:1]), _setting(result)]


def _of_schedules(result: Reported) -> list[str]:
    """Return sentences on the shortest and the longest schedule on each network."""
    sentences = []
    for network in dict.fromkeys(row["network"] for row in result.rows):
        rows = sorted((row for row in result.rows if row["network"] == network), key=lambda row: row["makespan_s"])
        best, worst = rows[0], rows[-1]
        more = f"; {worst['schedule']} takes {format_seconds(worst['makespan_s'])}" if worst is not best else ""
        sentences.append(
            f"On {network} the shortest is {best['schedule']}: {format_seconds(best['makespan_s'])} with a bubble of "
            f"{best['bubble']:.0%}{more}."
        )
    first = result.rows[0]
    return [*sentences, f"{first['stages']} stages, {first['microbatches']} micro-batches."]


def _of_a_sweep(result: Reported) -> list[str]:
    """Return sentences on the best configuration and the number of runs."""
    finished = [row for row in result.rows if row.get("error") is None]
    records = ranked(finished) if finished else []
    sentences = []
    if records and records[0].get("loss") is not None:
        best = records[0]
        values = ", ".join(f"{name} {best[name]}" for name in result.paths if name in best)
        values_text = f", with {values}" if values else ""
        sentences.append(f"The lowest median loss is {four_digits(best['loss'])}{values_text}.")
    sentences.append(f"{len(records):,} configurations, {len(finished):,} runs.")
    return sentences


def _of_claims(result: Reported) -> list[str]:
    """Return a sentence with the numbers of a replication's comparisons that hold, fail or are unknown."""
    states = [row["state"] for row in result.rows]
    parts = []
    for state in dict.fromkeys(states):
        count = states.count(state)
        singular, plural = (state, state[:-1]) if state in ("holds", "fails") else (f"is {state}", f"are {state}")
        parts.append(f"{count} {singular if count == 1 else plural}")
    if len(states) == 1:
        return [f"One comparison, which {parts[0].removeprefix('1 ')}."]
    return [f"Of {len(states)} comparisons {in_a_sentence(parts)}."]


def _counted(result: Reported) -> list[str]:
    """Return a sentence with the number of rows."""
    number = len(result.rows)
    return [f"{number:,} rows of {result.command}." if number > 1 else f"One row of {result.command}."]


SUMMARIES: dict[str, Callable[[Reported], list[str]]] = {
    "compare": _of_trainings, "trace": _of_trainings, "whatif": _of_trainings, "run": _of_a_run, "launch": _of_a_run,
    "pipeline": _of_schedules, "sweep": _of_a_sweep, "replicate": _of_claims,
}  # fmt: skip
"""The function that summarizes the result of each command; results of other commands are counted."""


def _setting(result: Reported) -> str:
    """Return a sentence with the numbers of workers, steps and seeds."""
    first = result.rows[0]
    seeds = result.noted.get("seeds")
    parts = [f"{first['workers']:,} workers", f"{max(row['steps'] for row in result.rows):,} steps"]
    if isinstance(seeds, list) and seeds:
        parts.append(f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}")
    return f"{', '.join(parts)}."


def _loss(row: ReportedRow) -> str:
    """Return the loss of a row as text, with its range over the seeds."""
    if row.get("loss_min") in (None, row.get("loss_max")):
        return four_digits(row["loss"])
    return f"{four_digits(row['loss'])} ({four_digits(row['loss_min'])} to {four_digits(row['loss_max'])})"


def in_a_sentence(names: Iterable[str]) -> str:
    """Return names joined by commas and a final "and".

    >>> in_a_sentence(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def warnings_of(result: Reported) -> list[str]:
    """Return the warnings about a result as sentences, the most serious first."""
    checks = (_unfinished, _diverged, _unknown, _single_seed, _equal_speed, _other_code)
    return [warning for check in checks for warning in check(result)]


def caveats_of(result: Reported) -> list[str]:
    """Return the limitations that all results of this command have, as sentences."""
    bases = list(dict.fromkeys(str(row["basis"]) for row in result.rows if row.get("basis")))
    caveats = [f"Bounds of times are where nine of ten measurements are expected; from {basis}." for basis in bases]
    if result.command in ("compare", "run", "sweep", "replicate") and any(
        row.get("loss") is not None for row in result.rows
    ):
        caveats.append(
            "Losses are of the problem that was trained, which is small: they show mechanisms and do not predict the "
            "loss of a large model."
        )
    if result.command in ("compare", "run", "sweep", "project", "pipeline", "trace", "whatif"):
        caveats.append(
            "Times are simulated, not measured, and are those of this network and this computing time alone."
        )
    return caveats


def _unfinished(result: Reported) -> Iterator[str]:
    """Yield warnings about a failed process, an interrupt, failed runs, and missing trainings of a replication."""
    if result.output.get("failed") or result.noted.get("failed"):
        yield f"A real process failed: {result.output.get('failed') or result.noted['failed']}"
    if result.output.get("interrupted") or result.noted.get("interrupted"):
        yield "It was ended before it was finished: these are the results until then."
    errors = [row for row in result.rows if row.get("error")]
    if errors:
        yield f"{len(errors):,} of {len(result.rows):,} runs failed, the first with: {errors[0]['error']}"
    if result.output.get("left"):
        yield f"{result.output['left']:,} trainings of the replication are still to be made."


def _diverged(result: Reported) -> Iterator[str]:
    """Yield a warning for each method and seed that diverged."""
    seen_methods = set()
    for row in result.rows:
        if row.get("diverged_at") is None or (row.get("method"), row.get("seed")) in seen_methods:
            continue
        seen_methods.add((row.get("method"), row.get("seed")))
        seed_text = f", seed {row['seed']}" if "seed" in row else ""
        count_text = f" ({row['diverged_seeds']} seeds)" if row.get("diverged_seeds") else ""
        yield f"{row.get('method')}{seed_text} diverged at step {row['diverged_at']}{count_text}."


def _unknown(result: Reported) -> Iterator[str]:
    """Yield warnings about unknown times and losses, too little memory, extrapolated losses, and missed targets."""
    for field, missing_text in (("not_timed", "no time"), ("loss_unknown", "no loss")):
        reasons: dict[str, list[str]] = {}
        for row in result.rows:
            if row.get(field):
                reasons.setdefault(str(row[field]), []).append(str(row.get("method")))
        for reason, methods in reasons.items():
            yield f"{_few_names(methods)}: {missing_text}, as {reason}."
    if too_large := [str(row.get("method")) for row in result.rows if row.get("fits") is False]:
        yield f"{_few_names(too_large)}: more than a worker's memory holds."
    if extrapolated := [str(row.get("method")) for row in result.rows if row.get("extrapolation")]:
        yield f"{_few_names(extrapolated)}: the loss is extrapolated, as no fit has seen the like."
    missed: dict[str, list[str]] = {}
    for row in result.rows:
        if row.get("target_loss") is not None and row.get("time_to_target_s", 0) is None:
            missed.setdefault(f"{row['target_loss']:.4g}", []).append(str(row["method"]))
    for target, methods in missed.items():
        yield f"{_few_names(methods)}: a loss of {target} is not reached."


def _single_seed(result: Reported) -> Iterator[str]:
    """Yield a warning if the losses are those of a single seed."""
    seeds = result.noted.get("seeds")
    if isinstance(seeds, list) and len(seeds) == 1 and any(row.get("loss") is not None for row in result.rows):
        yield "One seed: nothing says how far apart losses of equal methods would be."


def _equal_speed(result: Reported) -> Iterator[str]:
    """Yield a warning for each network on which the bounds of a speedup include 1."""
    equal: dict[str, list[str]] = {}
    for row in result.rows:
        low, high = row.get("speedup_low"), row.get("speedup_high")
        if low is not None and high is not None and low != high and low <= 1 <= high:
            equal.setdefault(str(row.get("network")), []).append(str(row["method"]))
    for network, methods in equal.items():
        names = _few_names(methods)
        yield f"{names} on {network}: by its bounds a step may be longer or shorter than the first method's."


def _other_code(result: Reported) -> Iterator[str]:
    """Yield warnings if the code differed from its commit, or if another version of Syncline made the result."""
    commit, version = result.noted.get("git_commit"), result.noted.get("syncline")
    if isinstance(commit, str) and commit.endswith("+"):
        yield "It was made by code that differs from its commit."
    if version is not None and version != __version__:
        yield f"It was made by Syncline {version}, and this page by {__version__}."


def _few_names(methods: list[str]) -> str:
    """Return distinct names as in a sentence: all, or the first ones and the number of further ones."""
    names = list(dict.fromkeys(methods))
    return in_a_sentence(names) if len(names) <= MOST_NAMED else first_of(names, MOST_NAMED)
