"""The server of the page, for this machine only, until Ctrl-C."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import ui
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from syncline.errors import SpecError, SynclineError
from syncline.planner.explore import page
from syncline.planner.explore.settings import from_query
from syncline.planner.explore.settings_spec import spec_text
from syncline.questions.explore import PageSettings

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
        return respond(request, "image/svg+xml", lambda settings: page.picture(settings, dark))

    ui.run_with(
        app, title="Syncline: explore", dark=None, tailwind=False, language="en-US", favicon=ICON,
        show_welcome_message=False, binding_refresh_interval=None,
    )  # fmt: skip
    return app


def bound_socket(port: int) -> socket.socket:
    """Return a socket bound on this machine only, to a free port if ``port`` is 0.

    Raises:
        SpecError: the port is not available.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
    except OSError as error:
        listening.close()
        raise SpecError("--port", port, f"a port that is free ({error.strerror})") from None
    return listening


def _warmed(query: str) -> None:
    """Load the modules that the first answer needs, while a browser opens."""
    with suppress(SynclineError):
        page.ranking_of(from_query(query)[0])


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
    threading.Thread(target=_warmed, args=(query,), daemon=True).start()
    server.run(sockets=[listening])
