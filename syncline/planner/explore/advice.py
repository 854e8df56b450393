"""All plans for the page's cluster and training, by the functions of ``syncline advise``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import yaml

from syncline.planner.advice.advice import Advice, compute_advice
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.significance import fastest_by_loss
from syncline.planner.advice.verdict import compared
from syncline.planner.advice.words import layout_words, method_words
from syncline.planner.explore.markup import filled
from syncline.planner.explore.settings import BY_NAME, sizes_of_sites
from syncline.planner.explore.settings_spec import failure_options, failures_of_settings, network_of
from syncline.planner.explore.words import duration_text, percent
from syncline.questions.advise import Advise
from syncline.questions.explore import OWN, PageSettings
from syncline.specs.cluster.networks import network
from syncline.units import format_bytes

MOST_SHOWN = 6
"""Largest number of plans in a list; ``syncline advise --json`` has all."""


def question_settings(settings: PageSettings) -> PageSettings:
    """Return the settings without those that advice chooses itself and those of the page alone."""
    return replace(settings, methods=(), period=0, compression=OWN, replica="worker", shown="")


def question_of(settings: PageSettings) -> AdviceQuestion:
    """Return the question to advice that the settings make.

    Raises:
        SpecError: settings that do not go together.
    """
    workers = sum(sizes_of_sites(settings))
    question = Advise(
        model=settings.model,
        network=network(network_of(settings)),
        hardware=settings.hardware,
        workers=workers,
        tokens=settings.tokens,
        batch_tokens=settings.batch * workers or None,
        extrapolate=settings.losses == "extrapolated",
        failures=failures_of_settings(settings),
    )
    return advice_question(question)


def advice_on(settings: PageSettings) -> Advice:
    """Return all plans for the settings' cluster, model, batch and tokens.

    Raises:
        SpecError: settings that do not go together.
    """
    return _advice(question_settings(settings))


@lru_cache(maxsize=16)
def _advice(settings: PageSettings) -> Advice:
    return compute_advice(question_of(settings))


def advise_line(settings: PageSettings) -> str:
    """Return the ``syncline advise`` command for the settings."""
    joined, workers = network_of(settings), sum(sizes_of_sites(settings))
    network_text = (
        joined if isinstance(joined, str) else yaml.safe_dump(joined, default_flow_style=True, width=10_000).strip()
    )
    words = [
        "syncline", "advise", "--model", settings.model, "--network", network_text, "--hardware", settings.hardware,
        "--workers", str(workers), "--tokens", BY_NAME["tokens"].write(settings.tokens),
        *(["--batch-tokens", str(settings.batch * workers)] if settings.batch else []),
        *(["--extrapolate"] if settings.losses == "extrapolated" else []),
        *failure_options(settings),
    ]  # fmt: skip
    return shlex.join(words)


def search_prompt() -> str:
    """Return the part of the page with the button that starts the search."""
    return (
        "<h2>All plans</h2><p>Methods, periods, compression and layouts of a replica, searched for this cluster, model "
        'and batch; ranked by time to the same loss.</p><p><button type="button" id="advise">'
        "Search plans</button> <small>some seconds</small></p>"
    )


def search_notice() -> str:
    """Return the part of the page shown during the search."""
    return '<h2>All plans</h2><p class="caveat" role="status">Searching…</p>'


def advice_part(settings: PageSettings, advice: Advice) -> str:
    """Return the lists of plans, the reasons for their order, and the equivalent command."""
    lists = []
    if advice.ranked:
        lists.append(_list("By time to the same loss", advice.ranked, fastest_by_loss(advice.ranked)))
    if advice.loss_unknown:
        period = advice.question.compared_period
        title = (
            f"Loss unknown: by time for the tokens, the fastest of each kind, methods with a period at {period} steps"
        )
        lists.append(_list(title, advice.loss_unknown, compared(advice.question, advice.loss_unknown)))
    num_hidden = len(advice.infeasible) - MOST_SHOWN
    refused = [
        f"{method_words(row)}, {layout_words(row)}: {row['infeasible']}" for row in advice.infeasible[:MOST_SHOWN]
    ]
    reasons = [
        ("What decides", advice.decides),
        ("What would change it", advice.changes),
        ("What nobody knows", advice.unknown),
    ]
    refused += [f"{num_hidden} more"] if num_hidden > 0 else []
    return filled("advice_part", advice, lists, refused, reasons, advise_line(settings))


def _list(title: str, rows: Sequence[dict[str, Any]], chosen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the first chosen rows of a list, each with its place among all rows."""
    shown = list(chosen)[:MOST_SHOWN]
    heads = [("", "place"), ("plan", ""), ("time", "number"), ("waits", "number")]
    heads += [("goodput", "number")] if rows[0]["goodput"] is not None else []
    heads += [("memory", "number rest"), ("energy", "number rest")]
    cells = [_cells(row, 1 + next(place for place, other in enumerate(rows) if other is row)) for row in shown]
    return {"title": title, "heads": heads, "rows": cells, "remaining": len(rows) - len(shown)}


def _cells(row: dict[str, Any], place: int) -> dict[str, Any]:
    """Return the texts of a plan's row."""
    low, high = row["low_s"], row["high_s"]
    between = "unknown"
    if low is not None:
        between = f"{duration_text(low)} {'or more' if high is None else f'to {duration_text(high)}'}"
    others = [("number", percent(1 - row["compute_s"] / row["step_time_s"]))]
    others += [] if row["goodput"] is None else [("number", percent(row["goodput"]))]
    energy = "-" if row["energy_j"] is None else f"{row['energy_j'] / 3.6e9:,.3g} MWh"
    return {
        "place": place,
        "method": method_words(row),
        "tied": row["tied"],
        "layout": layout_words(row),
        "seconds": repr(row["time_s"]),
        "time": duration_text(row["time_s"]),
        "between": between,
        "others": [*others, ("number rest", format_bytes(row["memory_bytes"])), ("number rest", energy)],
    }
