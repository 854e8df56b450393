"""Messages between a server and its workers over encrypted sockets: a JSON head, and tensors as raw frames.

The server and each worker have a pair of CURVE keys that is generated for one run. The server admits only the keys of
its workers. The key of a connection identifies the worker that sent a message, whatever the message claims. The server
and the workers never unpickle a message.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import zmq
from torch import Tensor
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from syncline.errors import SynclineError
from syncline.measure.processes.rendezvous import LOOPBACK

HANDSHAKE_S = 5.0
"""Seconds after which the server closes a connection that has not presented an admitted key."""

QUEUED_MESSAGES = 8
"""Maximum number of queued messages in each direction of a connection; the two ends exchange one at a time."""

OVERHEAD_BYTES = 256
"""Maximum number of bytes that encryption adds to a frame."""

LONGEST_HEARTBEAT_S = 6000.0
"""Seconds, just below the longest lifetime that a heartbeat can carry."""

SENDER = "User-Id"
"""The property of a received frame in which libzmq keeps the identity that the authenticator gave its connection."""


class ConnectionLost(Exception):
    """An error for a connection whose other end is gone or accepts no further message."""


class MalformedMessage(Exception):
    """An error for a message that its sender may not send."""


@dataclass(frozen=True)
class CurveKeys:
    """The CURVE keys of a server or of a worker, in Z85 encoding.

    Args:
        peers: the public keys of the other ends: of each worker for the server, of the server for a worker.
    """

    public: bytes
    secret: bytes = field(repr=False)
    peers: tuple[bytes, ...]


class Message(NamedTuple):
    """A message of a worker as the server receives it.

    Attributes:
        worker: the worker whose key the connection has.
        connection: the name of the connection, which is the address for an answer.
        head: the head as JSON.
        frames: the frames that follow the head, one for each tensor.
    """

    worker: int
    connection: bytes
    head: bytes
    frames: list[zmq.Frame]


def check_encryption() -> None:
    """Raise an error if the installed libzmq was built without encryption."""
    if not zmq.has("curve"):
        raise SynclineError(f"pyzmq: got libzmq {zmq.zmq_version()} without CURVE; expected one that is built with it")


def make_keys(workers: int) -> tuple[CurveKeys, list[CurveKeys]]:
    """Return new encryption keys for a run, the server's and each worker's."""
    (server_public, server_secret), *worker_pairs = (zmq.curve_keypair() for _ in range(workers + 1))
    server_keys = CurveKeys(server_public, server_secret, peers=tuple(public for public, _ in worker_pairs))
    return server_keys, [CurveKeys(public, secret, peers=(server_public,)) for public, secret in worker_pairs]


class ServerSocket:
    """The server's end of the connections to its workers.

    Args:
        listener: a socket of `syncline.measure.processes.rendezvous.open_listener`, which this class takes over.
        longest_bytes: bytes of the longest frame that a worker may send; libzmq closes a connection that sends more.
        timeout_s: seconds without a heartbeat after which libzmq closes a connection.
    """

    def __init__(self, listener: socket.socket, keys: CurveKeys, longest_bytes: int, timeout_s: float) -> None:
        self._workers = len(keys.peers)
        self._context = zmq.Context()
        self._authenticator = _Authenticator(self._context, keys.peers)
        self._authenticator.start()
        listener.setblocking(False)
        _, port = listener.getsockname()
        self._socket = self._context.socket(zmq.ROUTER)
        _configure(self._socket, keys, timeout_s)
        self._socket.curve_server = True
        self._socket.handshake_ivl = int(1000 * HANDSHAKE_S)  # the longest time of a handshake
        self._socket.maxmsgsize = longest_bytes + OVERHEAD_BYTES
        self._socket.router_mandatory = True  # a message to a lost connection is an error
        self._socket.use_fd = listener.detach()
        self._socket.bind(f"tcp://{LOOPBACK}:{port}")

    def receive(self, timeout_s: float) -> list[Message]:
        """Return the queued messages, at most as many as there are workers; wait for the first up to ``timeout_s``."""
        messages: list[Message] = []
        if not self._socket.poll(math.ceil(1000 * timeout_s)):
            return messages
        while len(messages) < self._workers:
            try:
                connection, head, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            messages.append(Message(int(head.get(SENDER)), connection.bytes, head=head.bytes, frames=frames))
        return messages

    def send(self, connection: bytes, head: dict[str, Any], tensors: Sequence[Tensor] = ()) -> None:
        """Send a message to a worker; the tensors are copied.

        Raises:
            ConnectionLost: if the connection is gone, or too many messages are queued in it.
        """
        try:
            self._socket.send_multipart([connection, *_frames(head, tensors)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise ConnectionLost(str(error)) from None

    def close(self) -> None:
        """Send the queued messages, for two seconds at most, and close all connections."""
        self._socket.close(linger=2000)
        self._authenticator.stop()
        self._context.term()


class WorkerSocket:
    """A worker's end of its connection to the server.

    Args:
        timeout_s: seconds without a heartbeat after which the connection counts as lost.
    """

    def __init__(self, port: int, keys: CurveKeys, timeout_s: float) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        _configure(self._socket, keys, timeout_s)
        (self._socket.curve_serverkey,) = keys.peers  # a worker's only peer is the server
        self._socket.handshake_ivl = 0  # no limit: the server may open its port long before it answers
        failures = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | failures
        self._monitor = self._socket.get_monitor_socket(events)  # a socket on which libzmq reports these events
        self._is_admitted = False  # whether the server has accepted this worker's key
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._socket.connect(f"tcp://{LOOPBACK}:{port}")

    def send(self, head: dict[str, Any], tensors: Sequence[Tensor] = ()) -> None:
        """Send a message to the server; the tensors must not change before the server answers."""
        self._socket.send_multipart(_frames(head, tensors), copy=False)

    def receive(self) -> tuple[dict[str, Any], list[zmq.Frame]]:
        """Wait for the server's next message, and return its head and its tensor frames.

        Raises:
            ConnectionLost: if the server is gone or does not admit the worker.
        """
        while True:
            ready = dict(self._poller.poll())
            if self._socket in ready:
                head, *frames = self._socket.recv_multipart(copy=False)
                return json.loads(head.bytes), frames
            event = zmq.Event(recv_monitor_message(self._monitor)["event"])
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_admitted = True
            elif event != zmq.EVENT_DISCONNECTED or self._is_admitted:  # before the handshake, libzmq connects again
                raise ConnectionLost(f"the server's socket: {event.name}")

    def close(self) -> None:
        """Close the connection; queued messages are not sent."""
        self._context.destroy(linger=0)


class _Authenticator(ThreadAuthenticator):
    """An authenticator that admits workers by their public keys and identifies each worker by its number."""

    def __init__(self, context: zmq.Context, workers: Sequence[bytes]) -> None:
        super().__init__(context)
        self._numbers = {key: worker for worker, key in enumerate(workers)}
        self.configure_curve_callback("*", self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a public key belongs to a worker."""
        return key in self._numbers

    def curve_user_id(self, client_public_key: bytes) -> str:
        """Return the number of the worker with the key."""
        return str(self._numbers[z85.encode(client_public_key)])


def unpack_tensors(frames: Sequence[zmq.Frame], like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of a message's frames, with the shapes, types and devices of the tensors ``like``."""
    if len(frames) != len(like):
        raise MalformedMessage(f"{len(frames)} tensors in place of {len(like)}")
    tensors = []
    for frame, template in zip(frames, like, strict=True):
        tensor = torch.empty(template.shape, dtype=template.dtype)
        memory, content = _memory(tensor), frame.buffer
        if content.nbytes != memory.nbytes:
            raise MalformedMessage(f"a tensor of {content.nbytes} bytes in place of {memory.nbytes}")
        memory[:] = content
        tensors.append(tensor.to(template.device))
    return tensors


def _configure(zmq_socket: zmq.Socket, keys: CurveKeys, timeout_s: float) -> None:
    """Set the socket options that the server and the workers share."""
    zmq_socket.curve_publickey, zmq_socket.curve_secretkey = keys.public, keys.secret
    zmq_socket.sndhwm = zmq_socket.rcvhwm = QUEUED_MESSAGES
    silence_ms = int(1000 * min(timeout_s, LONGEST_HEARTBEAT_S))
    zmq_socket.heartbeat_ivl = silence_ms // 4  # several heartbeats in that time
    zmq_socket.heartbeat_timeout = zmq_socket.heartbeat_ttl = silence_ms


def _frames(head: dict[str, Any], tensors: Sequence[Tensor]) -> list[Any]:
    """Return the frames of a message: its head as JSON, and the bytes of each tensor."""
    content = json.dumps(head, separators=(",", ":"), default=list).encode()
    return [content, *(_memory(tensor.detach().cpu().contiguous()) for tensor in tensors)]


def _memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor as a memoryview, without a copy."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
