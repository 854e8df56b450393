"""The page in its framework, NiceGUI, and its server, for this machine only; only this module uses the framework."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import run, ui
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from syncline.columns import share_text
from syncline.errors import SpecError, SynclineError
from syncline.planner.explore import answers, markup
from syncline.planner.explore.markup import advice_on, advice_part, question_settings
from syncline.planner.explore.pictures import RoundRow, round_picture, standalone_svg, utilisation_picture
from syncline.planner.explore.settings import (
    BASELINE,
    BY_NAME,
    from_query,
    offer_network,
    spec_text,
    to_query,
    with_text,
)
from syncline.questions.explore import Explore, PageSettings
from syncline.units import format_seconds

A = TypeVar("A")
B = TypeVar("B")

HERE = Path(__file__).parent
WIDTHS = (940, 640, 490, 330)
"""Widths of a picture in pixels, from a wide window to a telephone."""


class Page:
    """One visitor's page: the settings and their results."""

    def __init__(self, settings: PageSettings, problems: list[str]) -> None:
        """Lay out the page with the visitor's settings."""
        self.settings = self.wanted = settings
        self.problems = {str(index): line for index, line in enumerate(problems)}
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
                    self.problem_list = _html("").props('role="alert"')
                    with ui.element("section").classes("panel") as self.panel:
                        self.head = _html('<p class="headline">…</p>').props('aria-live="polite"')
                        self.ranking = _html("")
                    self.curves, self.round, self.thresholds, self.plans = (_empty_panel() for _ in range(4))
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
            ui.run_javascript(f"exploreSet({json.dumps(str(name))}, '', 0, true)")
            return
        self.problems = {}
        # Move the slider of the setting; a network sets the sliders of its line.
        for changed in ("bandwidth", "latency") if name == "network" else (name,):
            if changed in markup.SLIDERS:
                field, value = BY_NAME[changed], getattr(self.wanted, changed)
                name_and_text = f"{json.dumps(changed)}, {json.dumps(field.text(value))}"
                ui.run_javascript(f"exploreSet({name_and_text}, {field.stop_index(value)}, false)")
        await self.show()

    async def advise(self) -> None:
        """Search and show all plans for the present settings, which takes seconds."""
        settings = self.wanted
        self.advised = question_settings(settings)
        self.plans.set_content(markup.SEARCH_NOTICE)
        try:
            advice = await _run_in_thread(advice_on, settings)
        except SynclineError as error:
            self.advised = None
            self.plans.set_content(markup.SEARCH_PROMPT + markup.paragraph(str(error), "problems"))
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
            ranked = await _run_in_thread(answers.ranking_of, settings)
            rows = await _run_in_thread(_rounds, ranked)
        except SynclineError as error:
            self.problems = {"": str(error)}
            self.show_problems()
            return
        self.show_problems()
        query = to_query(settings)
        self.links.set_content(markup.render("download_links", query))
        ui.run_javascript(f"history.replaceState(null, '', {json.dumps('?' + query)})")
        self.head.set_content(
            "".join(markup.paragraph(transfer.line, "caveat") for transfer in ranked.transferred)
            + markup.render("assumption_list", ranked.assumptions)
            + markup.paragraph(answers.headline(ranked), "headline")
            + markup.paragraph(answers.settings_in_words(settings), "asked")
            + markup.paragraph(answers.caveat(ranked), "caveat")
        )
        notes = markup.render("bulleted", ranked.notes, "notes")
        self.ranking.set_content(markup.ranking_table(ranked, drawn=rows[0].method) + notes)
        pictures = [round_picture(rows, width) for width in WIDTHS]
        self.round.set_content(_heading(_round_title(rows)) + markup.figure(pictures))
        if settings.shown:
            ui.run_javascript(f"exploreFocus({json.dumps(settings.shown)})")
        if self.advised is None or self.advised != question_settings(settings):
            self.advised = None
            self.plans.set_content(markup.SEARCH_PROMPT)
        if not answers.curves_cached(settings) and self.wanted != settings:
            return  # newer settings already wait
        if not answers.curves_cached(settings):
            self.curves.classes("busy")
        times = await _run_in_thread(answers.curves, settings)
        self.curves.classes(remove="busy")
        shares, line = answers.computing_shares(ranked), answers.line_name(settings)
        pictures = [utilisation_picture(times, settings.bandwidth, shares, width, line) for width in WIDTHS]
        key = markup.render("key", [(method, share_text(share)) for method, share in shares.items()])
        self.curves.set_content(_heading(COMPUTES) + markup.figure(pictures) + key)
        table = markup.render("threshold_table", answers.threshold_rows(ranked, times), BASELINE)
        self.thresholds.set_content(
            _heading(THRESHOLDS) + markup.paragraph(answers.leading_methods(ranked, times)) + table
        )

    def show_problems(self) -> None:
        """Show the lines about values that cannot be used."""
        self.problem_list.set_content(markup.render("bulleted", list(self.problems.values()), "problems"))


async def _run_in_thread(function: Callable[[A], B], argument: A) -> B:
    """Return the result of a function that runs in a thread, so that the page stays responsive."""
    return cast(B, await run.io_bound(function, argument))


def _html(content: str, tag: str = "div") -> ui.html:
    """Return an element of our own markup, in which every text from outside is escaped."""
    return ui.html(content, sanitize=False, tag=tag)


def _empty_panel() -> ui.html:
    """Add a panel to the page, and return the element that its content replaces."""
    with ui.element("section").classes("panel"):
        return _html("")


def _rounds(ranked: answers.Ranking) -> list[RoundRow]:
    """Return the rounds to draw: of the shown method, and of the baseline if it is another one and has a time."""
    method = answers.shown_method(ranked)
    names = [method] if method == BASELINE or ranked.baseline["wall_clock_s"] is None else [method, BASELINE]
    return [RoundRow(name, answers.round_of(ranked.settings, name)) for name in names]


def _round_title(rows: list[RoundRow]) -> str:
    first = rows[0].round
    steps = "1 step" if first.steps == 1 else f"{first.steps:,} steps"
    return f"One round of {rows[0].method}: {steps} in {format_seconds(first.seconds)}"


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


COMPUTES = "How much of the time computes, over bandwidth"
THRESHOLDS = "Thresholds of the bandwidth"


def picture_svg(settings: PageSettings, dark: bool) -> str:
    """Return all pictures of settings as one SVG."""
    ranking = answers.ranking_of(settings)
    rows, times = _rounds(ranking), answers.curves(settings)
    picture = utilisation_picture(
        times, settings.bandwidth, answers.computing_shares(ranking), line=answers.line_name(settings)
    )
    pictures = [(COMPUTES, picture), (_round_title(rows), round_picture(rows))]
    lines = [answers.settings_in_words(settings), answers.caveat(ranking)]
    return standalone_svg(pictures, answers.headline(ranking), lines, dark)


@ui.page("/", title="Syncline: explore")
def index(request: Request) -> None:
    """Build the page for the settings in a link."""
    settings, problems = from_query(dict(request.query_params))
    ui.add_css(HERE / "explore.css")
    ui.add_body_html(f"<script>{(HERE / 'explore.js').read_text(encoding='utf-8')}</script>")
    page = Page(settings, problems)
    # Show the page before its results: the first results take longer, because they load modules.
    ui.timer(0, page.show, once=True)


HOST = "127.0.0.1"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0072b2"/>'
    '<path d="M3 6h6M3 10h10" stroke="#fff" stroke-width="2"/></svg>'
)


class SameOriginMiddleware:
    """Middleware that refuses requests and WebSocket handshakes that a browser sends for a page of another origin.

    Any page may open a WebSocket to this machine; the browser names that page in ``Origin``. A request without
    ``Origin`` comes from the page itself, from a link to it, or from a program other than a browser.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on to the application."""
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            origins, host = headers.getlist("origin"), headers.get("host", "")
            if any(origin != f"http://{host}" for origin in origins):
                await PlainTextResponse("Origin: not this page\n", status_code=403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def application() -> FastAPI:
    """Return the application that serves the page and its files."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    # A script of another site may use a name that resolves to this machine; its requests have that name as host.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    app.add_middleware(SameOriginMiddleware)

    def respond(request: Request, kind: str, make_text: Callable[[PageSettings], str]) -> Response:
        """Return the response that ``make_text`` makes of the query's settings, or an error line."""
        fields = {name: text for name, text in request.query_params.items() if name != "theme"}
        settings, problems = from_query(fields)
        try:
            if problems:
                return PlainTextResponse("\n".join(problems) + "\n", status_code=400)
            return Response(make_text(settings), media_type=kind)
        except SynclineError as error:
            return PlainTextResponse(f"{error}\n", status_code=400)

    @app.get("/spec.yaml")
    def spec(request: Request) -> Response:
        return respond(request, "application/yaml", spec_text)

    @app.get("/picture.svg")
    def picture(request: Request) -> Response:
        dark = request.query_params.get("theme") == "dark"
        return respond(request, "image/svg+xml", lambda settings: picture_svg(settings, dark))

    ui.run_with(
        app, title="Syncline: explore", dark=None, tailwind=False, language="en-US", favicon=ICON,
        show_welcome_message=False, binding_refresh_interval=None,
    )  # fmt: skip
    return app


def bound_socket(port: int) -> socket.socket:
    """Return a socket bound on this machine only, to a free port if ``port`` is 0."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise SpecError("--port", port, f"a port that is free ({error.strerror})") from None
    return listening


def _compute_first_answer(query: str) -> None:
    """Compute the answer of a query while a browser opens; this loads the modules."""
    with suppress(SynclineError):
        answers.ranking_of(from_query(query)[0])


def serve_page(query: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C.

    Args:
        query: query of the first settings; may be empty.
        port: port of the server; 0 takes a free one.
        ready: function called with the address when a browser can open it.
    """
    listening = bound_socket(port)
    config = uvicorn.Config(application(), log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
    server = uvicorn.Server(config)
    address = f"http://{HOST}:{listening.getsockname()[1]}/{f'?{query}' if query else ''}"
    listening.listen()  # the server answers requests from now on as soon as it runs
    ready(address)
    threading.Thread(target=_compute_first_answer, args=(query,), daemon=True).start()
    server.run(sockets=[listening])


def serve_question(question: Explore, ready: Callable[[str], None]) -> None:
    """Serve the page with the settings of a question until Ctrl-C."""
    if not 0 <= question.port < 2**16:
        raise SpecError("--port", question.port, "0 for a free one, or a number up to 65,535")
    query = urlsplit(question.link).query if "?" in question.link else question.link
    fields = dict(parse_qsl(query, keep_blank_values=True))
    if question.network is not None:
        fields = {"network": offer_network(question.network)} | fields
    page_settings, problems = from_query(fields)
    if problems:  # one line for the user, about the first value that cannot be used
        raise SynclineError(problems[0])
    serve_page(to_query(page_settings) if fields else "", question.port, ready)
