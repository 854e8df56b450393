"""The summary of a result in sentences; all their numbers come from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from syncline.planner.tables.columns import four_digits
from syncline.runs.report.reported import Reported
from syncline.units import format_bytes, format_seconds

ReportedRow = dict[str, Any]


def summary_of_result(result: Reported) -> list[str]:
    """Return the summary of a result, the most important sentence first."""
    if not result.rows:
        return ["There are no rows: nothing was finished."]
    summarize = TOLD.get(result.command, _counted)
    return summarize(result)


def _of_trainings(result: Reported) -> list[str]:
    """Return sentences on methods and networks: the first at the target, the lowest loss, the waiting."""
    rows = result.rows
    networks = list(dict.fromkeys(row["network"] for row in rows))
    sentences = [_first_there(name, [row for row in rows if row["network"] == name]) for name in networks]
    on_first = [row for row in rows if row["network"] == networks[0] and row.get("loss") is not None]
    if len(on_first) > 1:
        best, *others = sorted(on_first, key=lambda row: row["loss"])
        reaching = [row["method"] for row in others if _low(row) <= _high(best)]
        tie = f" Over the seeds it is not told apart from {in_a_sentence(reaching)}." if reaching else ""
        sentences.append(f"The lowest loss at the end is that of {best['method']}, {_loss(best)}.{tie}")
    sentences += [_waits(name, [row for row in rows if row["network"] == name]) for name in networks[-1:]]
    return [line for line in [*sentences, _setting(result)] if line]


def _first_there(network: str, rows: Sequence[ReportedRow]) -> str:
    reached = sorted(
        (row for row in rows if row.get("time_to_target_s") is not None), key=lambda r: r["time_to_target_s"]
    )
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
    return f"On {network} {first['method']} is the first at a loss of {target}: after {_after(first)}{more}."


def _after(row: ReportedRow) -> str:
    return format_seconds(row["time_to_target_s"])


def _waits(network: str, rows: Sequence[ReportedRow]) -> str:
    timed = [row for row in rows if row.get("exposed_communication_s") is not None and row["step_time_s"]]
    if not timed:
        return ""
    shares = [(row["exposed_communication_s"] / row["step_time_s"], row) for row in timed]
    largest, smallest = max(shares, key=lambda share: share[0]), min(shares, key=lambda share: share[0])
    sentence = f"On {network} {largest[1]['method']} waits for the network for {largest[0]:.0%} of a step"
    return sentence + (f", {smallest[1]['method']} for {smallest[0]:.0%}." if smallest[1] is not largest[1] else ".")


def _of_a_run(result: Reported) -> list[str]:
    rows = result.rows
    if "step_time_s" not in rows[0]:
        return _counted(result)
    losses = sorted(row["loss"] for row in rows if row.get("loss") is not None)
    first, sentences = rows[0], []
    if losses:
        middle = (losses[(len(losses) - 1) // 2] + losses[len(losses) // 2]) / 2
        spread = (
            f" ({four_digits(losses[0])} to {four_digits(losses[-1])} over {len(losses)} seeds)" if losses[1:] else ""
        )
        sentences.append(
            f"{first['method']} ends at a loss of {four_digits(middle)}{spread} after {first['steps']:,} steps."
        )
    sentences.append(
        f"On {first['network']} a step takes {format_seconds(first['step_time_s'])} and all of them "
        f"{format_seconds(first['wall_clock_s'])}; a worker sends {format_bytes(first['bytes_per_worker'])} per step."
    )
    return [*sentences, _waits(first["network"], rows[:1]), _setting(result)]


def _of_schedules(result: Reported) -> list[str]:
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
    from syncline.runs.sweep.ranking import ranked

    finished = [row for row in result.rows if row.get("error") is None]
    records = ranked(finished) if finished else []
    sentences = []
    if records and records[0].get("loss") is not None:
        best = records[0]
        knobs = ", ".join(f"{name} {best[name]}" for name in result.paths if name in best)
        sentences.append(f"The lowest median loss is {four_digits(best['loss'])}{', with ' + knobs if knobs else ''}.")
    sentences.append(f"{len(records):,} configurations, {len(finished):,} runs.")
    return sentences


def _of_claims(result: Reported) -> list[str]:
    states = [row["state"] for row in result.rows]
    counted = in_a_sentence(_so_many(state, states.count(state)) for state in dict.fromkeys(states))
    if not states[1:]:
        return [f"One comparison, which {counted.removeprefix('1 ')}."]
    return [f"Of {len(states)} comparisons {counted}."]


def _so_many(state: str, count: int) -> str:
    """Return the number of comparisons that hold, fail, or are unknown, in the words of a sentence."""
    verbs = {"holds": "hold", "fails": "fail"}
    if state in verbs:
        return f"{count} {state if count == 1 else verbs[state]}"
    return f"{count} {'is' if count == 1 else 'are'} {state}"


def _counted(result: Reported) -> list[str]:
    return [
        f"{len(result.rows):,} rows of {result.command}." if len(result.rows) > 1 else f"One row of {result.command}."
    ]


TOLD: dict[str, Callable[[Reported], list[str]]] = {
    "compare": _of_trainings, "trace": _of_trainings, "whatif": _of_trainings, "run": _of_a_run, "launch": _of_a_run,
    "pipeline": _of_schedules, "sweep": _of_a_sweep, "replicate": _of_claims,
}  # fmt: skip


def _setting(result: Reported) -> str:
    """Return a sentence with the workers, steps and seeds."""
    first = result.rows[0]
    seeds = result.noted.get("seeds")
    parts = [f"{first['workers']:,} workers", f"{max(row['steps'] for row in result.rows):,} steps"]
    parts += (
        [f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"] if isinstance(seeds, list) and seeds else []
    )
    return f"{', '.join(parts)}."


def _loss(row: ReportedRow) -> str:
    if row.get("loss_min") in (None, row.get("loss_max")):
        return four_digits(row["loss"])
    return f"{four_digits(row['loss'])} ({four_digits(row['loss_min'])} to {four_digits(row['loss_max'])})"


def _low(row: ReportedRow) -> float:
    return row["loss"] if row.get("loss_min") is None else row["loss_min"]


def _high(row: ReportedRow) -> float:
    return row["loss"] if row.get("loss_max") is None else row["loss_max"]


def in_a_sentence(names: Iterable[str]) -> str:
    """Return names joined as in a sentence.

    >>> in_a_sentence(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
