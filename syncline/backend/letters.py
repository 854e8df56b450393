"""Letters between a server and its workers: a head of JSON, and tensors as their bytes, over a socket.

Nothing that arrives is run, as unpickling would do, and who does not know the secret of the run is not heard.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from syncline.backend.meeting import LOOPBACK, reason_of
from syncline.errors import SpecError

HELLO_S = 5.0
"""How long somebody who has come to the door may take to say who it is."""

HELLO_BYTES = 4096

BROKEN = (EOFError, OSError, ValueError)
"""What a line raises whose other end is gone, silent for too long, or talks nonsense."""


class LineLost(Exception):
    """The other end of a line is gone."""


class Line:
    """One end of a connection between a server and a worker.

    Args:
        connected: a socket, which becomes this one's.
        patience_s: after how long without a byte, in the middle of a letter, the other end counts as gone.
    """

    def __init__(self, connected: socket.socket, patience_s: float) -> None:
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connected.setsockopt(socket.SOL_SOCKET, side, _timeval(patience_s))
        self._connection = Connection(connected.detach())

    def fileno(self) -> int:
        """What can be waited for."""
        return self._connection.fileno()

    def wait(self) -> None:
        """Until a letter begins to come, or the other end is gone, however long that takes."""
        self._connection.poll(None)

    def send(self, head: dict[str, Any], tensors: Sequence[Tensor] = ()) -> None:
        """Send a letter.

        Raises:
            LineLost: the other end is gone.
        """
        try:
            self._connection.send_bytes(json.dumps(head, separators=(",", ":"), default=list).encode())
            for tensor in tensors:
                self._connection.send_bytes(memoryview(_bytes_of(tensor.detach().cpu().contiguous())))
        except BROKEN as error:
            raise LineLost(str(error)) from None

    def head(self, most_bytes: int | None = None) -> dict[str, Any]:
        """The head of the next letter.

        Raises:
            LineLost: the other end is gone.
        """
        try:
            head = json.loads(self._connection.recv_bytes(most_bytes))
        except BROKEN as error:
            raise LineLost(str(error)) from None
        if not isinstance(head, dict):
            raise LineLost("a letter without a head")
        return head

    def tensors(self, like: Sequence[Tensor]) -> list[Tensor]:
        """The tensors of a letter whose head was read, in the shapes, types and places of others.

        Raises:
            LineLost: the other end is gone, or has sent others.
        """
        out = []
        for one in like:
            here = torch.empty(one.shape, dtype=one.dtype)
            room = memoryview(_bytes_of(here))
            try:
                got = self._connection.recv_bytes_into(room)
            except BROKEN as error:
                raise LineLost(str(error)) from None
            except Exception as error:  # BufferTooShort, a ProcessError of multiprocessing
                raise LineLost(f"a tensor of another size ({type(error).__name__})") from None
            if got != room.nbytes:
                raise LineLost(f"a tensor of {got} bytes in place of {room.nbytes}")
            out.append(here.to(one.device))
        return out

    def close(self) -> None:
        """No more letters."""
        self._connection.close()


def opened_door(port: int) -> socket.socket:
    """A socket where workers can come, at a port of this machine or one that the system gives.

    Raises:
        SpecError: a port that is in use, or may not be used.
    """
    try:
        return socket.create_server((LOOPBACK, port), backlog=128)
    except OSError as error:
        raise SpecError("port", port, f"a free port ({reason_of(error)})") from None


def admitted(door: socket.socket, secret: str, patience_s: float) -> tuple[Line, dict[str, Any]] | None:
    """Whoever has come, with what it says of itself; None if it does not know the secret or is gone again."""
    try:
        came, _ = door.accept()
    except OSError:
        return None
    line = Line(came, HELLO_S)
    try:
        hello = line.head(HELLO_BYTES)
    except LineLost:
        line.close()
        return None
    if not hmac.compare_digest(str(hello.get("secret", "")).encode(), secret.encode()):
        line.close()
        return None
    for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        _set(line.fileno(), side, patience_s)
    return line, hello


def knock(port: int, secret: str, hello: dict[str, Any], patience_s: float) -> Line:
    """A worker's line to its server.

    Raises:
        LineLost: there is none.
    """
    try:
        line = Line(socket.create_connection((LOOPBACK, port), timeout=patience_s), patience_s)
    except OSError as error:
        raise LineLost(str(error)) from None
    line.send({"secret": secret, **hello})
    return line


def _set(fileno: int, side: int, seconds: float) -> None:
    held = socket.socket(fileno=fileno)
    try:
        held.setsockopt(socket.SOL_SOCKET, side, _timeval(seconds))
    finally:
        held.detach()


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()
