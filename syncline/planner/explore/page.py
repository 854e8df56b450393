"""The page in its framework: NiceGUI, which alone this module and ``serving`` know."""

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
from syncline.planner.explore.advice import advice_on, advice_part, offered, question_settings, searching
from syncline.planner.explore.answers import Curves, Ranked, curves, curves_known, ranking_of, round_of, shown_method
from syncline.planner.explore.pictures import Lane, by_itself, round_picture, utilisation_picture
from syncline.planner.explore.settings import BASELINE, BY_NAME, PageSettings, from_query, to_query, with_text
from syncline.planner.explore.words import (
    caveat,
    computing_now,
    headline,
    lasting,
    leading,
    percent,
    setting_line,
    threshold_rows,
)

A = TypeVar("A")
B = TypeVar("B")

HERE = Path(__file__).parent
WIDTHS = (940, 640, 490, 330)
"""Pixels of a picture, from a wide window to a telephone."""


class Page:
    """One visitor's page: settings, and what is shown of them."""

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
        """A control was moved, or something was typed."""
        try:
            self.wanted = with_text(self.wanted, str(name), str(text))
        except SynclineError as error:
            self.problems = {str(name): str(error)}
            self.show_problems()
            _run(f"exploreSet({json.dumps(str(name))}, '', 0, true)")
            return
        self.problems = {}
        if name in BY_NAME and name in markup.SLIDERS:
            field, value = BY_NAME[name], getattr(self.wanted, name)
            _run(f"exploreSet({json.dumps(name)}, {json.dumps(field.text(value))}, {field.place(value)}, false)")
        await self.show()

    async def advise(self) -> None:
        """All plans for what is set now, which takes seconds."""
        settings = self.wanted
        self.advised = question_settings(settings)
        self.plans.set_content(searching())
        try:
            found = await _beside(advice_on, settings)
        except SynclineError as error:
            self.advised = None
            self.plans.set_content(offered() + markup.paragraph(str(error), "problems"))
            return
        if self.advised == question_settings(settings):  # else something was moved meanwhile
            self.plans.set_content(advice_part(settings, found))

    async def show(self) -> None:
        """Ranked what is wanted, and what is wanted meanwhile after it; only the last of many moves."""
        if self.busy:
            return
        self.busy = True
        try:
            while True:
                self.settings = self.wanted
                await self.show_one(self.settings)
                if self.wanted == self.settings:
                    return
        finally:
            self.busy = False

    async def show_one(self, settings: PageSettings) -> None:
        """What is told of settings: first rows and a round, then curves, which take longer where they are not known."""
        try:
            found = await _beside(ranking_of, settings)
            rows = await _beside(_rounds, found)
        except SynclineError as error:
            self.problems = {"": str(error)}
            self.show_problems()
            return
        self.show_problems()
        self.links.set_content(markup.to_take(settings))
        _run(f"history.replaceState(null, '', {json.dumps('?' + to_query(settings))})")
        self.head.set_content(
            markup.paragraph(headline(found), "headline")
            + markup.paragraph(setting_line(settings), "asked")
            + markup.paragraph(caveat(found), "caveat")
        )
        self.ranking.set_content(markup.ranking(found, rows[0].method) + markup.bulleted(found.notes, "notes"))
        self.round.set_content(_round_part(rows))
        if settings.shown:
            _run(f"exploreFocus({json.dumps(settings.shown)})")
        if self.advised is None or self.advised != question_settings(settings):
            self.advised = None
            self.plans.set_content(offered())
        if not curves_known(settings) and self.wanted != settings:
            return  # there is more to do already
        if not curves_known(settings):
            self.curves.classes("busy")
        over = await _beside(curves, settings)
        self.curves.classes(remove="busy")
        self.curves.set_content(_curves_part(found, over))
        table = markup.threshold_table(threshold_rows(found, over))
        self.thresholds.set_content(_heading(THRESHOLDS) + markup.paragraph(leading(found, over)) + table)

    def show_problems(self) -> None:
        """Lines about what cannot be used."""
        self.told_wrong.set_content(markup.bulleted(self.problems.values(), "problems"))


async def _beside(of: Callable[[A], B], given: A) -> B:
    """What a function says, while the page goes on."""
    return cast(B, await run.io_bound(of, given))


def _html(content: str, tag: str = "div") -> ui.html:
    """Our own markup, in which every text of others is escaped."""
    return ui.html(content, sanitize=False, tag=tag)


def _run(code: str) -> None:
    ui.run_javascript(code)


def _rounds(found: Ranked) -> list[Lane]:
    method = shown_method(found)
    names = [method] if method == BASELINE or found.baseline["wall_clock_s"] is None else [method, BASELINE]
    return [Lane(name, round_of(found.settings, name)) for name in names]


def _round_title(rows: list[Lane]) -> str:
    first = rows[0]
    return f"One round of {first.method}: {_steps(first.round.steps)} in {lasting(first.round.seconds)}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _round_part(rows: list[Lane]) -> str:
    return _heading(_round_title(rows)) + markup.figure([round_picture(rows, width) for width in WIDTHS])


def _curves_part(found: Ranked, over: Curves) -> str:
    now = computing_now(found)
    pictures = [utilisation_picture(over, found.settings.bandwidth, now, width) for width in WIDTHS]
    return _heading(COMPUTES) + markup.figure(pictures) + markup.key(now, map(percent, now.values()))


COMPUTES = "How much of the time computes, over bandwidth"


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


THRESHOLDS = "Thresholds of the bandwidth"


def picture(settings: PageSettings, dark: bool) -> str:
    """All pictures of settings as one SVG."""
    found = ranking_of(settings)
    rows, over = _rounds(found), curves(settings)
    used = utilisation_picture(over, settings.bandwidth, computing_now(found))
    pictures = [(COMPUTES, used), (_round_title(rows), round_picture(rows))]
    return by_itself(pictures, headline(found), [setting_line(settings), caveat(found)], dark)


@ui.page("/", title="Syncline: explore")
def index(request: Request) -> None:
    """The page of a link."""
    settings, problems = from_query(dict(request.query_params))
    ui.add_css(HERE / "explore.css")
    ui.add_body_html(f"<script>{(HERE / 'explore.js').read_text(encoding='utf-8')}</script>")
    page = Page(settings, problems)
    # The page is there before its answers are: the first ones load what others have loaded already.
    ui.timer(0, page.show, once=True)
