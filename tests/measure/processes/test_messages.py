"""Messages over encrypted sockets: who is admitted, who a message is from, and what strangers send."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
import zmq

from syncline.errors import SpecError, SynclineError
from syncline.measure.processes import messages
from syncline.measure.processes.messages import (
    ConnectionLost,
    CurveKeys,
    MalformedMessage,
    Message,
    ServerSocket,
    WorkerSocket,
    check_encryption,
    make_keys,
    unpack_tensors,
)
from syncline.measure.processes.rendezvous import open_listener

WAIT_S = 60.0
LONGEST_BYTES = 10_000

NULL_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
CURVE_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)

BABBLE = {
    "a lone surrogate": struct.pack("!i", 20) + b'{"secret": "\\ud800"}',
    "brackets": struct.pack("!i", 4090) + b"[" * 4090,
    "noise": bytes(range(256)) * 100,
    "HTTP": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "no encryption": NULL_GREETING + b"\x04\x06\x05READY",
    "no handshake": CURVE_GREETING + b"\x00\x04" + b"[[[[",
    "a frame too long": CURVE_GREETING + b"\x02" + struct.pack("!Q", 1 << 62) + b"x",
}


class Pair:
    """A server's socket, and what its workers need."""

    def __init__(self) -> None:
        self.server_keys, self.worker_keys = make_keys(2)
        listener = open_listener(0)
        self.port = listener.getsockname()[1]
        self.server = ServerSocket(listener, self.server_keys, LONGEST_BYTES, WAIT_S)

    def worker(self, keys: CurveKeys) -> WorkerSocket:
        return WorkerSocket(self.port, keys, WAIT_S)

    def receive(self) -> Message:
        """The next message."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            received = self.server.receive(0.1)
            if received:
                return received[0]
        raise TimeoutError

    def round_trip(self, worker: WorkerSocket) -> None:
        worker.send({"question": 1})
        self.server.send(self.receive().connection, {"answer": 2})
        assert worker.receive() == ({"answer": 2}, [])


@pytest.fixture
def pair() -> Iterator[Pair]:
    out = Pair()
    yield out
    out.server.close()


def test_a_message_has_a_head_and_tensors(pair: Pair) -> None:
    worker = pair.worker(pair.worker_keys[1])
    tensors = [torch.arange(6.0).reshape(2, 3), torch.tensor(3, dtype=torch.int16), torch.zeros(0), torch.ones(3, 2).T]
    worker.send({"pid": 7}, tensors)
    message = pair.receive()
    assert message.worker == 1 and message.head == b'{"pid":7}'
    for tensor, sent in zip(unpack_tensors(message.frames, tensors), tensors, strict=True):
        assert torch.equal(tensor, sent) and tensor.dtype == sent.dtype
    for like in (tensors[:3], [*tensors[:3], torch.ones(3)], []):
        with pytest.raises(MalformedMessage):
            unpack_tensors(message.frames, like)
    worker.close()


@pytest.mark.parametrize("sent", BABBLE.values(), ids=BABBLE)
def test_babble_ends_no_server(pair: Pair, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", pair.port)) as stranger:
        stranger.sendall(sent)
        worker = pair.worker(pair.worker_keys[0])
        pair.round_trip(worker)
        worker.close()


def test_silent_connections_keep_nobody_waiting(pair: Pair) -> None:
    """Read one after another, each for as long as a handshake may take, they would do so for minutes."""
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", pair.port)))
        worker = pair.worker(pair.worker_keys[0])
        for _ in range(20):
            pair.round_trip(worker)
        worker.close()


def test_an_unknown_key_is_not_admitted(pair: Pair) -> None:
    _, (unknown, _) = make_keys(2)
    stranger = pair.worker(replace(unknown, peers=(pair.server_keys.public,)))
    stranger.send({"pid": 1})
    with pytest.raises(ConnectionLost, match="AUTH"):
        stranger.receive()
    assert pair.server.receive(0.0) == []
    stranger.close()


def test_without_encryption_nothing_is_heard(pair: Pair) -> None:
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.connect(f"tcp://127.0.0.1:{pair.port}")
    stranger.send(b"{}")
    worker = pair.worker(pair.worker_keys[0])
    worker.send({"pid": 2})
    assert pair.receive().head == b'{"pid":2}' and pair.server.receive(0.0) == []
    worker.close()
    context.destroy(linger=0)


def test_a_worker_cannot_speak_for_another(pair: Pair) -> None:
    """Neither by what its message says nor by the name of its connection."""
    first = pair.worker(pair.worker_keys[0])
    first.send({})
    connection = pair.receive().connection
    context, keys = zmq.Context(), pair.worker_keys[1]
    second = context.socket(zmq.DEALER)
    second.curve_publickey, second.curve_secretkey, second.curve_serverkey = keys.public, keys.secret, *keys.peers
    second.routing_id = b"worker 0"
    second.connect(f"tcp://127.0.0.1:{pair.port}")
    second.send(b'{"worker": 0}')
    message = pair.receive()
    assert message.worker == 1 and message.connection == b"worker 0" != connection
    first.close()
    context.destroy(linger=0)


def test_a_message_that_is_too_long_ends_its_connection(pair: Pair) -> None:
    worker = pair.worker(pair.worker_keys[0])
    pair.round_trip(worker)
    worker.send({}, [torch.zeros(LONGEST_BYTES)])
    with pytest.raises(ConnectionLost):
        worker.receive()
    assert pair.server.receive(0.0) == []
    worker.close()


def test_a_message_to_nobody_is_an_error(pair: Pair) -> None:
    with pytest.raises(ConnectionLost):
        pair.server.send(b"nobody", {})


def test_a_port_in_use_and_a_libzmq_without_encryption_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_listener(0) as listener:
        with pytest.raises(SpecError, match=r"^port: .*; expected a free port"):
            open_listener(listener.getsockname()[1])
        assert listener.getsockname()[0] == "127.0.0.1"
    monkeypatch.setattr(messages.zmq, "has", lambda capability: False)
    with pytest.raises(SynclineError, match=r"^pyzmq: got libzmq .* without CURVE"):
        check_encryption()


def test_keys_are_not_printed() -> None:
    server, workers = make_keys(1)
    assert isinstance(server, CurveKeys)
    for keys in (server, workers[0]):
        assert keys.secret.decode() not in repr(keys)
