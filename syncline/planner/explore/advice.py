"""All plans for the page's cluster and training, by the functions of ``syncline advise``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import Any

import yaml

from syncline.planner.advice.advice import Advice, compute_advice
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.significance import fastest_by_loss
from syncline.planner.advice.verdict import compared
from syncline.planner.advice.words import layout_words, method_words
from syncline.planner.explore.markup import bulleted, paragraph
from syncline.planner.explore.settings import BY_NAME
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
    question = Advise(
        model=settings.model,
        network=network(network_of(settings)),
        hardware=settings.hardware,
        workers=settings.total,
        tokens=settings.tokens,
        batch_tokens=settings.batch * settings.total or None,
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
    joined = network_of(settings)
    network_text = (
        joined if isinstance(joined, str) else yaml.safe_dump(joined, default_flow_style=True, width=10_000).strip()
    )
    words = [
        "syncline", "advise", "--model", settings.model, "--network", network_text, "--hardware", settings.hardware,
        "--workers", str(settings.total), "--tokens", BY_NAME["tokens"].write(settings.tokens),
        *(["--batch-tokens", str(settings.batch * settings.total)] if settings.batch else []),
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
    parts = ["<h2>All plans</h2>"]
    parts += [paragraph(line) for line in advice.verdict]
    if advice.ranked:
        parts.append(_list("By time to the same loss", advice.ranked, fastest_by_loss(advice.ranked)))
    else:
        parts.append(paragraph("No plan whose loss is known can be."))
    if advice.loss_unknown:
        period = advice.question.compared_period
        title = (
            f"Loss unknown: by time for the tokens, the fastest of each kind, methods with a period at {period} steps"
        )
        parts.append(_list(title, advice.loss_unknown, compared(advice.question, advice.loss_unknown)))
    if advice.infeasible:
        parts.append(_refused(advice.infeasible))
    for title, lines in (
        ("What decides", advice.decides),
        ("What would change it", advice.changes),
        ("What nobody knows", advice.unknown),
    ):
        if lines:
            parts.append(f"<h3>{title}</h3>{bulleted(lines, 'bullets')}")
    parts.append(f'<h3>As a command</h3><pre tabindex="0">{escape(advise_line(settings))}</pre>')
    return "".join(parts)


def _list(title: str, rows: Sequence[dict[str, Any]], chosen: Sequence[dict[str, Any]]) -> str:
    shown = list(chosen)[:MOST_SHOWN]
    heads = {"": "place", "plan": "", "time": "number", "waits": "number"}
    heads |= {"goodput": "number"} if rows[0]["goodput"] is not None else {}
    heads |= dict.fromkeys(("memory", "energy"), "number rest")
    head = "".join(f'<th scope="col" class="{kind}">{entry}</th>' for entry, kind in heads.items())
    body = "".join(_row(row, 1 + next(place for place, entry in enumerate(rows) if entry is row)) for row in shown)
    remaining = len(rows) - len(shown)
    more = f'<p class="caveat">{remaining} more are in the command\'s --json.</p>' if remaining else ""
    table = f'<table class="ranking plans"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f"<h3>{title}</h3>{table}{more}"


def _row(row: dict[str, Any], place: int) -> str:
    low, high = row["low_s"], row["high_s"]
    between = (
        "unknown"
        if low is None
        else f"{duration_text(low)} {'or more' if high is None else f'to {duration_text(high)}'}"
    )
    tie = ' <span class="tie">tie</span>' if row["tied"] else ""
    name = f"{escape(method_words(row))}{tie}<small>{escape(layout_words(row))}</small>"
    energy = "-" if row["energy_j"] is None else f"{row['energy_j'] / 3.6e9:,.3g} MWh"
    cells = (
        ("place", str(place)),
        ("plan", name),
        ("number", f'<b data-seconds="{row["time_s"]!r}">{duration_text(row["time_s"])}</b><small>{between}</small>'),
        ("number", percent(1 - row["compute_s"] / row["step_time_s"])),
        *([] if row["goodput"] is None else [("number", percent(row["goodput"]))]),
        ("number rest", format_bytes(row["memory_bytes"])),
        ("number rest", energy),
    )
    shown = "".join(f'<td class="{kind}">{text}</td>' for kind, text in cells)
    return f"<tr>{shown}</tr>"


def _refused(rows: Sequence[dict[str, Any]]) -> str:
    lines = [f"{method_words(row)}, {layout_words(row)}: {row['infeasible']}" for row in rows[:MOST_SHOWN]]
    more = [f"{len(rows) - MOST_SHOWN} more"] if len(rows) > MOST_SHOWN else []
    return f"<h3>Cannot be</h3>{bulleted([*lines, *more], 'bullets')}"
