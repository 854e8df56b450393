"""The page in its framework, NiceGUI; only this module and ``server`` use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TypeVar, cast

from fastapi import Request
from nicegui import run, ui

from syncline.errors import SynclineError
from syncline.planner.explore import markup
from syncline.planner.explore.advice import advice_on, advice_part, question_settings, search_notice, search_prompt
from syncline.planner.explore.answers import Curves, Ranking, curves, curves_cached, ranking_of, round_of, shown_method
from syncline.planner.explore.pictures import Lane, round_picture, standalone_svg, utilisation_picture
from syncline.planner.explore.settings import BASELINE, BY_NAME, from_query, to_query, with_text
from syncline.planner.explore.words import (
    caveat,
    computing_now,
    duration_text,
    headline,
    leading_methods,
    line_name,
    percent,
    setting_line,
    threshold_rows,
)
from syncline.questions.explore import PageSettings

A = TypeVar("A")
B = TypeVar("B")

HERE = Path(__file__).parent
WIDTHS = (940, 640, 490, 330)
"""Widths of a picture in pixels, from a wide window to a telephone."""


class Page:
    """One visitor's page: the settings and their results."""

    def __init__(self, settings: PageSettings, problems: list[str]) -> None:
        self.settings = self.wanted = settings
        self.problems = {str(number): line for number, line in enumerate(problems)}
        self.busy = False
        self.advised: PageSettings | None = None
        with ui.element("div").classes("explore"):
            with ui.element("header"):
                _html("<h1>Syncline <span>which method, on which network</span></h1>", "div").style("margin-right:auto")
                with ui.element("div").classes("tools"):
                    self.links = _html("")
                    _html('<button type="button" id="theme" aria-label="Light or dark">Light / dark</button>')
            with ui.element("div").classes("layout"):
                with ui.element("aside").classes("panel settings"):
                    _html(markup.form(settings))
                with ui.element("main"):
                    self.told_wrong = _html("").props('role="alert"')
                    with ui.element("section").classes("panel") as self.panel:
                        self.head = _html('<p class="headline">…</p>').props('aria-live="polite"')
                        self.ranking = _html("")
                    with ui.element("section").classes("panel"):
                        self.curves = _html("")
                    with ui.element("section").classes("panel"):
                        self.round = _html("")
                    with ui.element("section").classes("panel"):
                        self.thresholds = _html("")
                    with ui.element("section").classes("panel"):
                        self.plans = _html("")
        ui.on("moved", lambda event: self.moved(event.args["name"], event.args["text"]))
        ui.on("advise", self.advise)
        self.show_problems()

    async def moved(self, name: str, text: str) -> None:
        """Apply the move of a control, or a typed text."""
        try:
            self.wanted = with_text(self.wanted, str(name), str(text))
        except SynclineError as error:
            self.problems = {str(name): str(error)}
            self.show_problems()
            _run(f"exploreSet({json.dumps(str(name))}, '', 0, true)")
            return
        self.problems = {}
        for changed in ("bandwidth", "latency") if name == "network" else (name,):
            if changed in markup.SLIDERS:
                field, value = BY_NAME[changed], getattr(self.wanted, changed)
                _run(f"exploreSet({json.dumps(changed)}, {json.dumps(field.text(value))}, {field.place(value)}, false)")
        await self.show()

    async def advise(self) -> None:
        """Search and show all plans for the present settings, which takes seconds."""
        settings = self.wanted
        self.advised = question_settings(settings)
        self.plans.set_content(search_notice())
        try:
            advice = await _run_in_thread(advice_on, settings)
        except SynclineError as error:
            self.advised = None
            self.plans.set_content(search_prompt() + markup.paragraph(str(error), "problems"))
            return
        if self.advised == question_settings(settings):  # otherwise a control has moved in the meantime
            self.plans.set_content(advice_part(settings, advice))

    async def show(self) -> None:
        """Show the results of the wanted settings until they no longer change; intermediate moves are skipped."""
        if self.busy:
            return
        self.busy = True
        try:
            while True:
                self.settings = self.wanted
                await self.show_settings(self.settings)
                if self.wanted == self.settings:
                    return
        finally:
            self.busy = False

    async def show_settings(self, settings: PageSettings) -> None:
        """Show the results of settings: first rows and a round, then curves, which take longer if not cached."""
        try:
            ranked = await _run_in_thread(ranking_of, settings)
            rows = await _run_in_thread(_rounds, ranked)
        except SynclineError as error:
            self.problems = {"": str(error)}
            self.show_problems()
            return
        self.show_problems()
        self.links.set_content(markup.download_links(settings))
        _run(f"history.replaceState(null, '', {json.dumps('?' + to_query(settings))})")
        self.head.set_content(
            "".join(markup.paragraph(transfer.line, "caveat") for transfer in ranked.transferred)
            + markup.assumption_list(ranked.assumptions)
            + markup.paragraph(headline(ranked), "headline")
            + markup.paragraph(setting_line(settings), "asked")
            + markup.paragraph(caveat(ranked), "caveat")
        )
        self.ranking.set_content(markup.ranking_table(ranked, rows[0].method) + markup.bulleted(ranked.notes, "notes"))
        self.round.set_content(_round_part(rows))
        if settings.shown:
            _run(f"exploreFocus({json.dumps(settings.shown)})")
        if self.advised is None or self.advised != question_settings(settings):
            self.advised = None
            self.plans.set_content(search_prompt())
        if not curves_cached(settings) and self.wanted != settings:
            return  # newer settings already wait
        if not curves_cached(settings):
            self.curves.classes("busy")
        times = await _run_in_thread(curves, settings)
        self.curves.classes(remove="busy")
        self.curves.set_content(_curves_part(ranked, times))
        table = markup.threshold_table(threshold_rows(ranked, times))
        self.thresholds.set_content(_heading(THRESHOLDS) + markup.paragraph(leading_methods(ranked, times)) + table)

    def show_problems(self) -> None:
        """Show the lines about values that cannot be used."""
        self.told_wrong.set_content(markup.bulleted(self.problems.values(), "problems"))


async def _run_in_thread(function: Callable[[A], B], argument: A) -> B:
    """Return the result of a function that runs in a thread, so that the page stays responsive."""
    return cast(B, await run.io_bound(function, argument))


def _html(content: str, tag: str = "div") -> ui.html:
    """Return an element of our own markup, in which every text from outside is escaped."""
    return ui.html(content, sanitize=False, tag=tag)


def _run(code: str) -> None:
    ui.run_javascript(code)


def _rounds(ranked: Ranking) -> list[Lane]:
    method = shown_method(ranked)
    names = [method] if method == BASELINE or ranked.baseline["wall_clock_s"] is None else [method, BASELINE]
    return [Lane(name, round_of(ranked.settings, name)) for name in names]


def _round_title(rows: list[Lane]) -> str:
    first = rows[0]
    return f"One round of {first.method}: {_steps(first.round.steps)} in {duration_text(first.round.seconds)}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _round_part(rows: list[Lane]) -> str:
    return _heading(_round_title(rows)) + markup.figure([round_picture(rows, width) for width in WIDTHS])


def _curves_part(ranked: Ranking, times: Curves) -> str:
    now = computing_now(ranked)
    settings = ranked.settings
    pictures = [utilisation_picture(times, settings.bandwidth, now, width, line_name(settings)) for width in WIDTHS]
    return _heading(COMPUTES) + markup.figure(pictures) + markup.key(now, map(percent, now.values()))


COMPUTES = "How much of the time computes, over bandwidth"


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


THRESHOLDS = "Thresholds of the bandwidth"


def picture(settings: PageSettings, dark: bool) -> str:
    """Return all pictures of settings as one SVG."""
    ranked = ranking_of(settings)
    rows, times = _rounds(ranked), curves(settings)
    used = utilisation_picture(times, settings.bandwidth, computing_now(ranked), line=line_name(settings))
    pictures = [(COMPUTES, used), (_round_title(rows), round_picture(rows))]
    return standalone_svg(pictures, headline(ranked), [setting_line(settings), caveat(ranked)], dark)


@ui.page("/", title="Syncline: explore")
def index(request: Request) -> None:
    """Build the page of a link."""
    settings, problems = from_query(dict(request.query_params))
    ui.add_css(HERE / "explore.css")
    ui.add_body_html(f"<script>{(HERE / 'explore.js').read_text(encoding='utf-8')}</script>")
    page = Page(settings, problems)
    # Show the page before its results: the first results load modules that later ones have already.
    ui.timer(0, page.show, once=True)
