"""Messages between a server and a worker of an asynchronous launch: round trips, throughput, strangers at the port.

    python -m benchmarks.messages [--seconds 2] [--repeats 5] [--strangers 200] [--json]

A server sends a tensor to a worker in another process, which sends it back; one round trip at a time. *encrypted* is
what ``launch`` uses; *plain* is ``multiprocessing.connection``, which neither encrypts nor admits by key. Transports,
sizes and strangers take turns; medians of the repeats. Strangers are connections that a third process opens to the
encrypted server's port, and opens again when the server closes them: *silent* ones send nothing, *babbling* ones send
noise. The third process shares the CPUs. CPU time is that of both ends, for each round trip.
"""

from __future__ import annotations

import multiprocessing
import resource
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import product
from multiprocessing.connection import Client, Connection, Listener
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.command import parser_of, show
from syncline.measure.processes.messages import CurveKeys, ServerSocket, WorkerSocket, make_keys, unpack_tensors
from syncline.measure.processes.rendezvous import LOOPBACK, open_listener

TIMEOUT_S = 120.0
SIZES = (1_000, 1_000_000)
CONTEXT = multiprocessing.get_context("fork")
NOISE = bytes(range(256)) * 16


class Server(NamedTuple):
    """A server with one worker: its port, and a call that exchanges one message each way."""

    port: int
    round_trip: Callable[[], None]


class Measured(NamedTuple):
    """Medians over the repeats."""

    transport: str
    strangers: str
    nbytes: int
    round_trips_per_s: float
    mb_per_s: float
    cpu_ms: float


@contextmanager
def encrypted(nbytes: int) -> Iterator[Server]:
    """Yield a server of the transport of ``launch``."""
    server_keys, (worker_keys,) = make_keys(1)
    listener, tensor = open_listener(0), torch.zeros(nbytes, dtype=torch.uint8)
    port = listener.getsockname()[1]
    process = CONTEXT.Process(target=encrypted_worker, args=(port, worker_keys, tensor), daemon=True)
    process.start()
    server = ServerSocket(listener, server_keys, nbytes + 1000, TIMEOUT_S)

    def receive(tensors: Sequence[Tensor]) -> bytes:
        while not (messages := server.receive(0.01)):
            pass
        unpack_tensors(messages[0].frames, tensors)
        return messages[0].connection

    connection = receive([])

    def round_trip() -> None:
        server.send(connection, {"steps": 1}, [tensor])
        receive([tensor])

    yield Server(port, round_trip)
    server.send(connection, {"end": True})
    process.join()
    server.close()


def encrypted_worker(port: int, keys: CurveKeys, tensor: Tensor) -> None:
    """Send each tensor back."""
    worker = WorkerSocket(port, keys, TIMEOUT_S)
    worker.send({"pid": 1})
    while True:
        head, frames = worker.receive()
        if "end" in head:
            return
        worker.send({"losses": 1}, unpack_tensors(frames, [tensor]))


@contextmanager
def plain(nbytes: int) -> Iterator[Server]:
    """Yield a server of ``multiprocessing.connection``."""
    content = bytes(nbytes)
    with Listener((LOOPBACK, 0)) as listener:
        process = CONTEXT.Process(target=plain_worker, args=(listener.address,), daemon=True)
        process.start()
        connection: Connection = listener.accept()

        def round_trip() -> None:
            connection.send_bytes(content)
            connection.recv_bytes()

        yield Server(listener.address[1], round_trip)
        connection.send_bytes(b"")
        process.join()
        connection.close()


def plain_worker(address: tuple[str, int]) -> None:
    """Send each message back."""
    connection = Client(address)
    while content := connection.recv_bytes():
        connection.send_bytes(content)


@contextmanager
def strangers(port: int, silent: int, babbling: int) -> Iterator[None]:
    """Keep connections of another process to a port, for as long as the block lasts."""
    if not silent + babbling:
        yield
        return
    process = CONTEXT.Process(target=disturb, args=(port, silent, babbling), daemon=True)
    process.start()
    time.sleep(0.5)
    yield
    process.kill()
    process.join()


def disturb(port: int, silent: int, babbling: int) -> None:
    """Hold connections, send noise by some of them, and replace those that the server closes."""
    opened: dict[int, tuple[socket.socket, bool]] = {}
    poll, missing = select.poll(), [False] * silent + [True] * babbling
    while True:
        for babbles in missing:
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex((LOOPBACK, port))
            opened[stranger.fileno()] = stranger, babbles
            poll.register(stranger, select.POLLIN | select.POLLHUP)
        missing = []
        for stranger, babbles in opened.values():
            if babbles:
                try:
                    stranger.send(NOISE)
                except OSError:
                    continue
        for fileno, _ in poll.poll(20):
            if not _is_closed(opened[fileno][0]):
                continue  # the server has said which protocol it speaks
            poll.unregister(fileno)
            stranger, babbles = opened.pop(fileno)
            stranger.close()
            missing.append(babbles)


def _is_closed(stranger: socket.socket) -> bool:
    try:
        return not stranger.recv(4096)
    except OSError:
        return True


def measure(
    connected: AbstractContextManager[Server], silent: int, babbling: int, seconds: float
) -> tuple[float, float]:
    """Return round trips per second, and the CPU seconds of each."""
    before_s = _cpu_s()
    with connected as server, strangers(server.port, silent, babbling):
        start_s, count = time.perf_counter(), 0
        while (took_s := time.perf_counter() - start_s) < seconds:
            server.round_trip()
            count += 1
    return count / took_s, (_cpu_s() - before_s) / count


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in used)


def table(rows: Sequence[Measured]) -> str:
    """Return the rows as a table."""
    lines = [
        "| transport | strangers | bytes | round trips/s | MB/s each way | CPU ms per round trip |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        numbers = f"{row.round_trips_per_s:,.0f} | {row.mb_per_s:,.1f} | {row.cpu_ms:.3f}"
        lines.append(f"| {row.transport} | {row.strangers} | {row.nbytes:,} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = parser_of("benchmarks.messages", __doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--strangers", type=int, default=200)
    options = parser.parse_args()
    crowds = {"none": (0, 0), "silent": (options.strangers, 0), "babbling": (0, options.strangers)}
    settings = [("plain", "none"), *(("encrypted", crowd) for crowd in crowds)]
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for _, (transport, crowd), nbytes in product(range(options.repeats), settings, SIZES):
        connected = {"plain": plain, "encrypted": encrypted}[transport](nbytes)
        found.setdefault((transport, crowd, nbytes), []).append(measure(connected, *crowds[crowd], options.seconds))
    rows = []
    for (transport, crowd, nbytes), repeats in found.items():
        rate, cpu_s = (statistics.median(values) for values in zip(*repeats, strict=True))
        cpu_ms = 1e3 * cpu_s if crowd == "none" else float("nan")  # else the strangers' are in it
        rows.append(Measured(transport, crowd, nbytes, rate, rate * nbytes / 1e6, cpu_ms))
    show(rows, table, options.json)


if __name__ == "__main__":
    main()
