"""The page's server answers its own page alone: neither pages of other origins nor names that lead to this machine."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("nicegui", reason="the extra 'explore' is not installed")

import uvicorn

from syncline.planner.explore.server import application, bound_socket

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport="
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}

FOREIGN = [
    {"Origin": "https://example.org"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "https://127.0.0.1:PORT"},
    {"Origin": "http://127.0.0.1:PORT.example.org"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Host": "example.org:PORT", "Origin": "http://example.org:PORT"},
    {"Host": "example.org"},
]
OWN = [{}, {"Origin": "http://127.0.0.1:PORT"}, {"Host": "localhost:PORT", "Origin": "http://localhost:PORT"}]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with bound_socket(0) as listening:
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(application(), log_level="critical", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def statuses(port: int, headers: dict[str, str]) -> list[int]:
    """The answers to the page, to a handshake of polling, to a message by polling, and to one of a WebSocket."""
    requests = [("GET", "/"), ("GET", f"{SOCKET}polling"), ("POST", f"{SOCKET}polling"), ("GET", f"{SOCKET}websocket")]
    found = []
    for method, path in requests:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        sent = {name: value.replace("PORT", str(port)) for name, value in headers.items()}
        connection.request(method, path, headers=sent | (UPGRADE if path.endswith("websocket") else {}))
        found.append(connection.getresponse().status)
        connection.close()
    return found


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_other_pages_and_other_names_are_refused(port: int, headers: dict[str, str]) -> None:
    assert set(statuses(port, headers)) <= {400, 403}


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_the_page_itself_is_answered(port: int, headers: dict[str, str]) -> None:
    page, polling, _, websocket = statuses(port, headers)
    assert (page, polling, websocket) == (200, 200, 101)
