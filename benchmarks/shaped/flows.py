"""TCP over a shaped line, as it is: windows, several connections, windows that open; measured beside `Tcp`.

    python -m benchmarks.shaped run --hosts 2 --rate 500Mbit/s --delay 50ms -- \
        python -m benchmarks.shaped.flows --rate 500Mbit/s --delay 50ms

The second host sends, the first one says when all has arrived: a round trip, and the time that
`Tcp.transfer_after_idling_s` gives. Connections are new for each transfer, and begin with 10 segments where they are to
open. Where receivers bound their windows, what a window then is (kernels count their own overheads) is learned from one
row: one open connection and 64 MiB.

With ``--idle`` a connection that has carried 64 MiB sends nothing for so long, then 16 MiB, beside `Tcp.opening_s`.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from syncline.costmodel.network.tcp import INITIAL_SEGMENTS, Tcp
from syncline.units import parse_bandwidth, parse_seconds

MIB = 2**20
SEGMENT_BYTES, PACKET_BYTES = 8948, 9000
"""Of the hosts' devices."""

RECEIVE_BYTES = MIB
"""Of a receiver's buffer, where it bounds the window."""

WIDE = 1e9
SIZES = (64 * MIB, 16 * MIB)
REPEATS = 3
PORT = 29871


def main() -> None:
    """Measure all cases; the sender prints them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", required=True)
    parser.add_argument("--delay", required=True)
    parser.add_argument(
        "--idle", default="", metavar="TIMES", help="of a connection between transfers, with commas between"
    )
    given = parser.parse_args()
    rate = parse_bandwidth(given.rate) * SEGMENT_BYTES / PACKET_BYTES
    round_trip_s = 2 * parse_seconds(given.delay)
    if given.idle:
        _idling(given.delay, [parse_seconds(one) for one in given.idle.split(",")], rate, round_trip_s)
        return
    initial, port, learned = _initial_segments(), PORT, 0.0
    for opening in (False, True):
        _begin_with(INITIAL_SEGMENTS if opening else int(initial))
        for connections in (1, 4):
            for bounded in (False, True):
                for nbytes in SIZES:
                    port += 1
                    seconds = _transfers(connections, bounded, nbytes, port)
                    if bounded and seconds and not learned:
                        learned = nbytes * round_trip_s / (statistics.median(seconds) - round_trip_s)
                    window = learned if bounded and seconds else WIDE
                    tcp = Tcp(window, connections, opening, segment_bytes=SEGMENT_BYTES)
                    told = round_trip_s + float(tcp.transfer_after_idling_s(nbytes, rate, round_trip_s))
                    if seconds:
                        took = statistics.median(seconds)
                        begins = "10 segments" if opening else "open"
                        bound = f"{window / MIB:.2f} MiB" if bounded else "wide"
                        print(
                            f"| {given.delay} | {begins} | {connections} | {bound} | {nbytes // MIB} MiB "
                            f"| {1e3 * took:.0f} ms | {1e3 * told:.0f} ms | {100 * (told / took - 1):+.1f}% |",
                            flush=True,
                        )


def _idling(delay: str, idle_s: Sequence[float], rate: float, round_trip_s: float) -> None:
    """Measure one connection that idles between transfers; the sender prints it."""
    _begin_with(INITIAL_SEGMENTS)
    Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").write_text("1")
    address, (before, after) = (os.environ["MASTER_ADDR"], PORT), SIZES
    if os.environ["RANK"] == "0":
        with socket.create_server(address) as server:
            end = server.accept()[0]
            for nbytes in (before, after) * REPEATS * len(idle_s):
                _drain(end, nbytes)
                end.sendall(b"k")
            end.recv(1)
        return
    end, part, tcp = _connected(address), memoryview(bytes(before)), Tcp(WIDE, segment_bytes=SEGMENT_BYTES)
    for seconds in idle_s:
        took = []
        for _ in range(REPEATS):
            end.sendall(part)
            end.recv(1)
            time.sleep(seconds)
            begin_s = time.perf_counter()
            end.sendall(part[:after])
            end.recv(1)
            took.append(time.perf_counter() - begin_s)
        # The last segment left a round trip before the receiver's word of it came.
        told = round_trip_s + after / rate + tcp.opening_s(after, rate, round_trip_s, seconds + round_trip_s)
        measured = statistics.median(took)
        print(
            f"| {delay} | {seconds:.3g} s | {1e3 * measured:.0f} ms | {1e3 * told:.0f} ms "
            f"| {100 * (told / measured - 1):+.1f}% |",
            flush=True,
        )
    end.sendall(b"d")


def _transfers(connections: int, bounded: bool, nbytes: int, port: int) -> list[float]:
    """Seconds of each transfer, where this host sends."""
    address = (os.environ["MASTER_ADDR"], port)
    took = []
    if os.environ["RANK"] == "0":
        with socket.create_server(address, backlog=16) as server:
            if bounded:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            for _ in range(REPEATS):
                ends = [server.accept()[0] for _ in range(connections)]
                for end in ends:  # the first window that is told is of 64 KiB at most; this tells the true one
                    end.sendall(b"g")
                _each(_drain, ends, nbytes // connections)
                ends[0].sendall(b"k")
                ends[0].recv(1)
                _close(ends)
        return []
    part = memoryview(bytes(nbytes // connections))
    for _ in range(REPEATS):
        ends = [_connected(address) for _ in range(connections)]
        for end in ends:
            end.recv(1)
        begin_s = time.perf_counter()
        _each(lambda end, _: end.sendall(part), ends, 0)
        ends[0].recv(1)
        took.append(time.perf_counter() - begin_s)
        ends[0].sendall(b"d")
        _close(ends)
    return took


def _drain(end: socket.socket, nbytes: int) -> None:
    into = bytearray(MIB)
    while nbytes:
        nbytes -= end.recv_into(into, min(len(into), nbytes))


def _each(does, ends: Sequence[socket.socket], nbytes: int) -> None:  # type: ignore[no-untyped-def]
    threads = [threading.Thread(target=does, args=(end, nbytes)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _close(ends: Sequence[socket.socket]) -> None:
    for end in ends:
        end.close()


def _connected(address: tuple[str, int]) -> socket.socket:
    for _ in range(200):
        try:
            end = socket.create_connection(address, timeout=60)
        except OSError:
            time.sleep(0.1)
        else:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return end
    raise SystemExit(f"nobody listens at {address}")


def _route() -> list[str]:
    shown = subprocess.run(["ip", "route", "show"], capture_output=True, text=True, check=True).stdout
    return next(line.split() for line in shown.splitlines() if "initcwnd" in line)


def _initial_segments() -> str:
    route = _route()
    return route[route.index("initcwnd") + 1]


def _begin_with(segments: int) -> None:
    route = _route()
    route[route.index("initcwnd") + 1] = str(segments)
    subprocess.run(["ip", "route", "replace", *route], check=True)


if __name__ == "__main__":
    main()
