"""Warnings that a reader needs before trusting a result, from its rows and its folder."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.runs.report.reported import Reported
from syncline.runs.report.words import in_a_sentence
from syncline.version import __version__

MOST_NAMED = 6
"""Largest number of methods that a warning names."""


def warnings_of(result: Reported) -> list[str]:
    """Return the warnings as one sentence each, the most serious first."""
    return [
        *_ended(result),
        *_lost(result),
        *_unknown(result),
        *_too_few(result),
        *_not_told_apart(result),
        *_made_by(result),
    ]


def caveats_of(result: Reported) -> list[str]:
    """Return sentences that hold for every result of its kind."""
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


def _ended(result: Reported) -> Iterator[str]:
    if result.told.get("failed") or result.noted.get("failed"):
        yield f"A real process failed: {result.told.get('failed') or result.noted['failed']}"
    if result.told.get("interrupted") or result.noted.get("interrupted"):
        yield "It was ended before it was finished: these are the results until then."
    errors = [row for row in result.rows if row.get("error")]
    if errors:
        yield f"{len(errors):,} of {len(result.rows):,} runs failed, the first with: {errors[0]['error']}"
    if result.told.get("left"):
        yield f"{result.told['left']:,} trainings of the replication are still to be made."


def _lost(result: Reported) -> Iterator[str]:
    seen = set()
    for row in result.rows:
        if row.get("diverged_at") is None or (row.get("method"), row.get("seed")) in seen:
            continue
        seen.add((row.get("method"), row.get("seed")))
        seed_text = f", seed {row['seed']}" if "seed" in row else ""
        many = f" ({row['diverged_seeds']} seeds)" if row.get("diverged_seeds") else ""
        yield f"{row.get('method')}{seed_text} diverged at step {row['diverged_at']}{many}."


def _unknown(result: Reported) -> Iterator[str]:
    for field, lacking in (("not_timed", "no time"), ("loss_unknown", "no loss")):
        reasons: dict[str, list[str]] = {}
        for row in result.rows:
            if row.get(field):
                reasons.setdefault(str(row[field]), []).append(str(row.get("method")))
        for reason, methods in reasons.items():
            yield f"{_some(methods)}: {lacking}, as {reason}."
    large = [str(row.get("method")) for row in result.rows if row.get("fits") is False]
    if large:
        yield f"{_some(large)}: more than a worker's memory holds."
    beyond = [str(row.get("method")) for row in result.rows if row.get("extrapolation")]
    if beyond:
        yield f"{_some(beyond)}: the loss is extrapolated, as no fit has seen the like."
    missed: dict[str, list[str]] = {}
    for row in result.rows:
        if row.get("target_loss") is not None and row.get("time_to_target_s", 0) is None:
            missed.setdefault(f"{row['target_loss']:.4g}", []).append(str(row["method"]))
    for target, methods in missed.items():
        yield f"{_some(methods)}: a loss of {target} is not reached."


def _too_few(result: Reported) -> Iterator[str]:
    seeds = result.noted.get("seeds")
    if isinstance(seeds, list) and len(seeds) == 1 and any(row.get("loss") is not None for row in result.rows):
        yield "One seed: nothing says how far apart losses of equal methods would be."


def _not_told_apart(result: Reported) -> Iterator[str]:
    equal: dict[str, list[str]] = {}
    for row in result.rows:
        low, high = row.get("speedup_low"), row.get("speedup_high")
        if low is not None and high is not None and low != high and low <= 1 <= high:
            equal.setdefault(str(row.get("network")), []).append(str(row["method"]))
    for network, methods in equal.items():
        yield f"{_some(methods)} on {network}: by its bounds a step may be longer or shorter than the first method's."


def _made_by(result: Reported) -> Iterator[str]:
    commit, version = result.noted.get("git_commit"), result.noted.get("syncline")
    if isinstance(commit, str) and commit.endswith("+"):
        yield "It was made by code that differs from its commit."
    if version is not None and version != __version__:
        yield f"It was made by Syncline {version}, and this page by {__version__}."


def _some(methods: list[str]) -> str:
    names = list(dict.fromkeys(methods))
    if len(names) <= MOST_NAMED:
        return in_a_sentence(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
