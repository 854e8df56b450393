"""The question of ``syncline explore``."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.questions import shared
from syncline.questions.declare import Question, option


@dataclass(frozen=True, repr=False, eq=False)
class Explore(
    Question,
    command="explore",
    panel=shared.CLOCK,
    examples=(
        "syncline explore",
        "syncline explore --port 8080 --open",
        "syncline explore 'model=gpt-1.3b&sites=4&workers=8&bandwidth=10 Gbit/s'",
    ),
):
    """Serve a local page that projects while you move settings: ranking, curves over bandwidth, one round.

    The page is reachable from this machine only (127.0.0.1) and needs no network. Ctrl-C ends the server.
    """

    link: str = option(
        "Initial settings: a link of the page, or its part after '?'.", "", metavar="[LINK]", positional=True
    )
    port: int = option("TCP port on this machine; by default any free port.", 0, metavar="N")
    open: bool = option("Open the page in the browser.", False)
