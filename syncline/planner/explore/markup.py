"""Parts of the page as HTML, by the macros of ``explore.html``: every text from outside the package is escaped.

One part has all plans for the page's cluster and training, by the functions of ``syncline advise``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import Any

import yaml
from markupsafe import Markup

from syncline.columns import column_of, share_text
from syncline.planner.advice.advice import Advice, compute_advice
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.ranking_changes import fastest_by_loss
from syncline.planner.advice.sentences import fastest_of_each_kind, layout_words, method_words, period_words
from syncline.planner.advice.tables import not_computing
from syncline.planner.explore.answers import Ranking, ties
from syncline.planner.explore.pictures import interval_picture, swatch
from syncline.planner.explore.settings import BASELINE, BY_NAME, described_network, failures_of_settings, sizes_of_sites
from syncline.planner.pages import templates
from syncline.planner.tables.table import cell_text, range_text, waiting
from syncline.questions.explore import OFFERED, OWN, PageSettings
from syncline.questions.projections import Advise
from syncline.specs.cluster.networks import network

GROUPS = (
    ("Cluster", ("network", "sites", "workers", "hardware", "inside", "bandwidth", "latency")),
    ("Training", ("model", "replica", "batch", "tokens", "losses")),
    ("Methods", ("methods", "period", "compression")),
    ("Failures", ("mtbf", "restart", "storage")),
)

SLIDERS = ("sites", "workers", "bandwidth", "latency", "batch", "tokens", "period", "mtbf", "restart", "storage")
"""Settings with a slider along their stops and a text field."""

SITE_SETTINGS = ("sites", "workers", "inside")
"""Settings that a network of the command has itself; the style sheet hides them beside it."""


def render(macro: str, *values: Any) -> str:
    """Return the HTML that a macro of ``explore.html`` makes of these values."""
    functions = {"swatch": lambda method: Markup(swatch(method))}
    template = templates("syncline.planner.explore").get_template("explore.html", globals=functions)
    return str(getattr(template.module, macro)(*values)).strip()


def form(settings: PageSettings) -> str:
    """Return all controls, with the settings' values."""
    groups = [(title, [BY_NAME[name] for name in names]) for title, names in GROUPS]
    further_methods = (name for name in settings.methods if name not in OFFERED)
    return render("form", groups, settings, SLIDERS, [*OFFERED, *further_methods], BASELINE, SITE_SETTINGS)


def ranking_table(ranking: Ranking, drawn: str = "") -> str:
    """Return the table of methods by the time of the training, with bounds; methods that do not fit come last."""
    timed_rows = [row for row in ranking.rows if row["wall_clock_s"] is not None]
    untimed_rows = [row for row in ranking.rows if row["wall_clock_s"] is None]
    lows_s, highs_s = ([row[f"wall_clock_{bound}_s"] for row in timed_rows] for bound in ("low", "high"))
    time_range_s = min(lows_s, default=1.0), max(highs_s, default=1.0)
    tied_methods = ties(ranking.rows)
    ranked_cells, misfit_cells = [], []
    for rank, row in enumerate(timed_rows, start=1):  # rows that fit come first
        if row["fits"] is False:
            misfit_cells.append(_ranking_cells(row, "", time_range_s, tied=False))
        else:
            ranked_cells.append(_ranking_cells(row, str(rank), time_range_s, tied=row["method"] in tied_methods))
    heads = [("", "rank"), *((column_of(name).header, css_class) for name, css_class in RANKED.items())]
    if ranking.settings.mtbf:
        heads.append((column_of("goodput").header, "number wide"))
    sections = [("", ranked_cells), ("Does not fit into a worker's memory", misfit_cells)]
    return render("ranking_table", heads, sections, untimed_rows, drawn)


RANKED = {
    "method": "", "wall_clock_s": "number", "between": "between", "speedup": "number", "waiting": "number",
    "bytes_per_worker": "number wide", "memory_bytes": "number wide", "loss": "number wide",
}  # fmt: skip
"""Columns of the ranking, with the class of their heading in the style sheet."""


def _ranking_cells(row: dict[str, Any], rank: str, time_range_s: tuple[float, float], tied: bool) -> dict[str, Any]:
    """Return the texts of a row of the ranking, by the names of cells in the template ``explore.html``.

    Args:
        rank: rank of the row; empty for a method that does not fit.
        time_range_s: shortest and longest time of all rows.
        tied: whether the method ties with the first.
    """
    low_s, time_s, high_s = row["wall_clock_low_s"], row["wall_clock_s"], row["wall_clock_high_s"]
    wide_columns = ["bytes_per_worker", "memory_bytes", "loss"]
    if row.get("goodput") is not None:
        wide_columns.append("goodput")
    speedup_range = "" if row["speedup"] is None else range_text(row, "speedup")
    return {
        "method": row["method"],
        "rank": rank,
        "tied": tied,
        "seconds": repr(time_s),  # all digits, as an attribute of the cell
        "time": cell_text(row, "wall_clock_s"),
        "interval": Markup(interval_picture(low_s, time_s, high_s, time_range_s, method=row["method"])),
        "between": range_text(row, "wall_clock_s"),
        "speedup": cell_text(row, "speedup"),
        "speedup_note": "baseline" if row["method"] == BASELINE else speedup_range,
        "waits": column_of("waiting").text(waiting(row)),
        "wide": [cell_text(row, name) for name in wide_columns],  # cells that a narrow window hides
    }


def figure(pictures: Sequence[str]) -> str:
    """Return one picture in several widths, broad to narrow; the style sheet shows the width that fits."""
    names = ("broad", "middle", "small", "narrow")
    return "".join(f'<div class="only-{name}">{picture}</div>' for name, picture in zip(names, pictures, strict=True))


def paragraph(text: str, css_class: str = "") -> str:
    """Return escaped text as an HTML paragraph."""
    return f'<p class="{css_class}">{escape(text)}</p>'


MOST_SHOWN = 6
"""Largest number of plans in a list; ``syncline advise --json`` has all."""


def question_settings(settings: PageSettings) -> PageSettings:
    """Return the settings with defaults in place of the values that a search of plans does not use."""
    return replace(settings, methods=(), period=0, compression=OWN, replica="worker", shown="")


def question_of(settings: PageSettings) -> AdviceQuestion:
    """Return the settings as a question for advice."""
    workers = sum(sizes_of_sites(settings))
    question = Advise(
        model=settings.model, network=network(described_network(settings)), hardware=settings.hardware, workers=workers,
        tokens=settings.tokens, batch_tokens=settings.batch * workers or None,
        extrapolate=settings.losses == "extrapolated", failures=failures_of_settings(settings),
    )  # fmt: skip
    return advice_question(question)


def advice_on(settings: PageSettings) -> Advice:
    """Return all plans for the settings' cluster, model, batch and tokens, from a cache."""
    return _cached_advice(question_settings(settings))


@lru_cache(maxsize=16)
def _cached_advice(settings: PageSettings) -> Advice:
    return compute_advice(question_of(settings))


def advise_line(settings: PageSettings) -> str:
    """Return the ``syncline advise`` command for the settings."""
    network_text, workers = described_network(settings), sum(sizes_of_sites(settings))
    if not isinstance(network_text, str):
        network_text = yaml.safe_dump(network_text, default_flow_style=True, width=10_000).strip()
    command = [
        "syncline", "advise", "--model", settings.model, "--network", network_text, "--hardware", settings.hardware,
        "--workers", str(workers), "--tokens", BY_NAME["tokens"].write(settings.tokens),
        *(["--batch-tokens", str(settings.batch * workers)] if settings.batch else []),
        *(["--extrapolate"] if settings.losses == "extrapolated" else []),
    ]  # fmt: skip
    failures = failures_of_settings(settings)
    if failures is not None:
        bandwidth = failures["checkpoint"]["bandwidth"]
        command += ["--failures", failures["rates"], "--restart", failures["restart_time"], "--bandwidth", bandwidth]
    return shlex.join(command)


SEARCH_PROMPT = (
    "<h2>All plans</h2><p>Methods, periods, compression and layouts of a replica, searched for this cluster, model "
    'and batch; ranked by time to the same loss.</p><p><button type="button" id="advise">'
    "Search plans</button> <small>some seconds</small></p>"
)
SEARCH_NOTICE = '<h2>All plans</h2><p class="caveat" role="status">Searching…</p>'


def advice_part(settings: PageSettings, advice: Advice) -> str:
    """Return the lists of plans, the reasons for their order, and the equivalent command."""
    lists = []
    if advice.ranked:
        lists.append(_plan_list("By time to the same loss", advice.ranked, fastest_by_loss(advice.ranked)))
    if advice.loss_unknown:
        title = f"Loss unknown: by time for the tokens, the fastest of each kind, {period_words(advice.question)}"
        lists.append(_plan_list(title, advice.loss_unknown, fastest_of_each_kind(advice.question, advice.loss_unknown)))
    refusals = [
        f"{method_words(row)}, {layout_words(row)}: {row['infeasible']}" for row in advice.infeasible[:MOST_SHOWN]
    ]
    num_hidden = len(advice.infeasible) - len(refusals)
    if num_hidden:
        refusals.append(f"{num_hidden} more")
    reasons = [
        ("What decides", advice.decides),
        ("What would change it", advice.changes),
        ("What is unknown", advice.unknown),
    ]
    return render("advice_part", advice, lists, refusals, reasons, advise_line(settings))


def _plan_list(title: str, rows: Sequence[dict[str, Any]], chosen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a list of plans for the page: the cells of the first chosen rows, each with its rank among all rows."""
    shown = chosen[:MOST_SHOWN]
    css_classes = {"plan": "", "time_s": "number", "waiting": "number"}
    if rows[0]["goodput"] is not None:
        css_classes["goodput"] = "number"
    css_classes |= {"memory_bytes": "number rest", "energy_j": "number rest"}  # a narrow window hides the rest
    heads = [("", "rank"), *((column_of(name).header, css_class) for name, css_class in css_classes.items())]
    rank_by_id = {id(row): rank for rank, row in enumerate(rows, start=1)}
    cells = [_plan_cells(row, rank_by_id[id(row)]) for row in shown]
    return {"title": title, "heads": heads, "rows": cells, "remaining": len(rows) - len(shown)}


def _plan_cells(row: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the texts of a plan's row, by the names that the template ``explore.html`` has for its cells."""
    other_cells = [("number", share_text(not_computing(row)))]  # each with its CSS class
    if row["goodput"] is not None:
        other_cells.append(("number", cell_text(row, "goodput")))
    other_cells += [("number rest", cell_text(row, name)) for name in ("memory_bytes", "energy_j")]
    return {
        "rank": rank,
        "method": method_words(row),
        "tied": row["tied"],
        "layout": layout_words(row),
        "seconds": repr(row["time_s"]),
        "time": cell_text(row, "time_s"),
        "between": "unknown" if row["low_s"] is None else range_text(row, "_s"),
        "others": other_cells,
    }
