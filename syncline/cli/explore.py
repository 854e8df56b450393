"""The command that serves the page of explore."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

import typer

from syncline.cli.shell import FLAG, app, examples, say
from syncline.errors import SpecError, SynclineError

FRAMEWORK = "nicegui"


@app.command(
    "explore",
    rich_help_panel="The clock alone",
    epilog=examples(
        "syncline explore",
        "syncline explore --port 8080 --open",
        "syncline explore 'model=gpt-1.3b&sites=4&workers=8&bandwidth=10 Gbit/s'",
    ),
)
def explore_command(
    link: Annotated[
        str,
        typer.Argument(metavar="[LINK]", help="Settings to begin with: a link of the page, or its part behind '?'."),
    ] = "",
    port: Annotated[int, typer.Option("--port", metavar="N", help="Of this machine; by default one that is free.")] = 0,
    opened: Annotated[bool, typer.Option("--open", metavar=FLAG, help="Open it in the browser.")] = False,
) -> None:
    """Serve a local page that projects while settings are moved: ranking, curves over bandwidth, one round.

    For this machine alone (127.0.0.1), without a network. Ctrl-C ends it.
    """
    if find_spec(FRAMEWORK) is None:
        raise SynclineError("explore: needs packages that are not installed; pip install 'syncline[explore]' adds them")
    if not 0 <= port < 2**16:
        raise SpecError("--port", port, "0 for a free one, or a number up to 65,535")
    from syncline.planner.explore.server import serve_page
    from syncline.planner.explore.settings import from_query, to_query

    query = urlsplit(link).query if "?" in link else link
    settings, problems = from_query(query)
    if problems:
        raise SynclineError(problems[0])

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if opened:
            import webbrowser

            webbrowser.open(address)

    serve_page(to_query(settings) if query else "", port, ready)
