"""Hosts on one machine, each a network namespace, joined by lines of one rate and one-way delay.

Every host has one device, ``shaped0``, with the address 198.18.0.(i + 1), and no way to anywhere else. A relay (C,
built with the system's compiler at use) stands for the lines between them. TCP inside is set to take what the lines
give: no slow start, windows larger than what is under way, Reno.

Needs Linux, root, `ip`, TUN and a C compiler; `missing` names what is not there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.measure.processes.hosts import run_commands

HOSTS = 16
"""The most that the relay joins."""

DEVICE = "shaped0"
TUN = Path("/dev/net/tun")
SOURCE = Path(__file__).with_name("relay.c")
NAME = re.compile(r"syncline-(\d+)-\d+")
"""Of a namespace: the process that owns it, and a number of its own."""

MTU = 9000
HEADER_BYTES = 52
"""IP, TCP and its time stamps."""

PAYLOAD = (MTU - HEADER_BYTES) / MTU
"""The part of a line that payload gets."""

UNDER_WAY = 2**25
"""Bytes that TCP may have under way from the start."""

NETWORKS = itertools.count()
"""Of this process, so that each has names of its own."""

Counts = NDArray[np.uint64]


class Unavailable(RuntimeError):
    """What this machine lacks, one line."""


class Traffic(NamedTuple):
    """What a host's device has counted.

    Attributes:
        sent_bytes: IP packets out.
        received_bytes: IP packets in.
        sent_packets: as the device sees them: several segments at once may be one.
        received_packets: likewise.
    """

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int


class Wire(NamedTuple):
    """What the relay has counted, from each host to each, ``(hosts, hosts)``, and how late it was.

    Attributes:
        packets: segments.
        wire: bytes of IP packets, each segment with its headers.
        payload: bytes in TCP segments.
        late_mean_s: after its time that a packet was handed over, mean.
        late_most_s: the most.
        lost: packets that could not be handed over.
    """

    packets: Counts
    wire: Counts
    payload: Counts
    late_mean_s: float
    late_most_s: float
    lost: int


def packet_bytes(bytes_per_s: float) -> int:
    """The most that the kernel hands over at once: half a millisecond of the line, so that sharing stays fine."""
    return int(min(65536, max(2 * MTU, 5e-4 * bytes_per_s)))


def compiler() -> str | None:
    """The C compiler."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def missing() -> str | None:
    """What this machine lacks for shaped links, or None."""
    lacks = []
    if sys.platform != "linux":
        return f"shaped links need Linux (this is {sys.platform})"
    if os.geteuid() != 0:
        lacks.append("root (to make network namespaces)")
    if not shutil.which("ip"):
        lacks.append("the command `ip` (package iproute2)")
    if not TUN.exists():
        lacks.append(f"TUN ({TUN} is missing)")
    if not compiler():
        lacks.append("a C compiler (cc, gcc or clang)")
    if lacks:
        return f"shaped links need {', '.join(lacks)}"
    probe = f"syncline-{os.getpid()}-999999"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "-n", probe, "tuntap", "add", "dev", DEVICE, "mode", "tun")
    except Unavailable as error:
        return f"shaped links cannot be made here: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {(done.stderr or done.stdout).strip() or done.returncode}")
    return done.stdout


def sweep() -> list[str]:
    """Remove the namespaces of processes that are no more; their names."""
    if not shutil.which("ip") or os.geteuid() != 0:
        return []
    removed = []
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line.strip() else ""
        found = NAME.fullmatch(name)
        if found and not Path(f"/proc/{found[1]}").exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            removed.append(name)
    return removed


class Network:
    """Hosts joined by shaped lines, from ``with`` to its end.

    Args:
        hosts: how many, 2 to 16.
        bytes_per_s: of each host's line, out and in, headers included.
        delay_s: one way.
        whole_segments: let the kernel cut data into segments itself, so that the devices' counters see every one.

    Raises:
        Unavailable: on entering, what is missing here.
    """

    def __init__(self, hosts: int, bytes_per_s: float, delay_s: float, whole_segments: bool = False) -> None:
        if not 2 <= hosts <= HOSTS:
            raise ValueError(f"hosts: got {hosts}; expected 2 to {HOSTS}")
        self.hosts, self.bytes_per_s, self.delay_s, self.whole_segments = hosts, bytes_per_s, delay_s, whole_segments
        self._relay: subprocess.Popen[bytes] | None = None
        self._made: list[str] = []
        self._first = HOSTS * next(NETWORKS)
        self._folder: Path | None = None

    @property
    def addresses(self) -> list[str]:
        """Of the hosts."""
        return [f"198.18.0.{host + 1}" for host in range(self.hosts)]

    def name(self, host: int) -> str:
        """Of a host's namespace."""
        return f"syncline-{os.getpid()}-{self._first + host}"

    def __enter__(self) -> Network:
        lacks = missing()
        if lacks:
            raise Unavailable(lacks)
        sweep()
        try:
            self._up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _up(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="syncline-shaped-"))
        relay = self._folder / "relay"
        _run(str(compiler()), "-O2", "-o", str(relay), str(SOURCE))
        for host in range(self.hosts):
            _run("ip", "netns", "add", self.name(host))
            self._made.append(self.name(host))
            self._settings(host)
        environment = {**os.environ, **({"RELAY_WHOLE_SEGMENTS": "1"} if self.whole_segments else {})}
        self._relay = subprocess.Popen(
            [
                str(relay), str(self._folder / "counters"), DEVICE, repr(self.bytes_per_s),
                str(round(self.delay_s * 1e9)), *(f"/run/netns/{name}" for name in self._made),
            ],
            env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._wait_for_relay(self._relay)
        for host, address in enumerate(self.addresses):
            at = ("ip", "-n", self.name(host))
            _run(*at, "link", "set", "lo", "up")
            _run(*at, "link", "set", DEVICE, "mtu", str(MTU), "txqueuelen", "10000",
                 "gso_max_size", str(packet_bytes(self.bytes_per_s)), "up")  # fmt: skip
            _run(*at, "addr", "add", f"{address}/24", "dev", DEVICE)
            segments = str(UNDER_WAY // (MTU - HEADER_BYTES))
            _run(*at, "route", "replace", "198.18.0.0/24", "dev", DEVICE, "src", address,
                 "initcwnd", segments, "initrwnd", segments)  # fmt: skip

    def _wait_for_relay(self, relay: subprocess.Popen[bytes]) -> None:
        end_s = time.monotonic() + 5
        while not self._ready():
            if relay.poll() is not None or time.monotonic() > end_s:
                raise Unavailable("the relay did not start")
            time.sleep(0.01)

    def _ready(self) -> bool:
        counters = Path(str(self._folder)) / "counters"
        size = 8 * (5 + 3 * HOSTS**2)
        return counters.exists() and counters.stat().st_size == size and bool(np.fromfile(counters, np.uint64, 1)[0])

    def _settings(self, host: int) -> None:
        under_way = 2 * self.delay_s * self.bytes_per_s
        receive = int(min(2**28, max(2**25, 4 * under_way)))
        send = int(min(2**28, 2**18 + 1.5 * under_way))  # more would only pile up before the line
        values = {
            "net.ipv4.tcp_congestion_control": "reno",
            "net.ipv4.tcp_rmem": f"4096 {receive} {receive}",
            "net.ipv4.tcp_wmem": f"4096 {send} {send}",
            "net.ipv4.tcp_slow_start_after_idle": "0",
            "net.ipv4.tcp_no_metrics_save": "1",
            "net.ipv4.tcp_autocorking": "0",
            "net.ipv6.conf.all.disable_ipv6": "1",
            "net.ipv6.conf.default.disable_ipv6": "1",
        }
        script = "; ".join(
            f"echo {value} > /proc/sys/{key.replace('.', '/')}" if " " not in value
            else f"echo '{value}' > /proc/sys/{key.replace('.', '/')}" for key, value in values.items()
        )  # fmt: skip
        # Without IPv6, or with one congestion control only, a setting may not be there.
        subprocess.run(["ip", "netns", "exec", self.name(host), "sh", "-c", script], capture_output=True, check=False)

    def close(self) -> None:
        """Take everything away that was made."""
        if self._relay is not None:
            self._relay.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._relay.wait(5)
            if self._relay.poll() is None:
                self._relay.kill()
                self._relay.wait()
            self._relay = None
        while self._made:
            subprocess.run(["ip", "netns", "del", self._made.pop()], capture_output=True, check=False)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def relay_pid(self) -> int:
        """The relay's process."""
        if self._relay is None:
            raise RuntimeError("the network is not up")
        return self._relay.pid

    def wire(self) -> Wire:
        """What the relay has counted so far."""
        of = np.fromfile(Path(str(self._folder)) / "counters", np.uint64)
        _, late, late_sum, late_most, lost = of[:5].tolist()
        tables = of[5:].reshape(3, HOSTS, HOSTS)[:, : self.hosts, : self.hosts]
        return Wire(*tables, 1e-9 * late_sum / max(late, 1), 1e-9 * late_most, int(lost))

    def traffic(self) -> list[Traffic]:
        """What the kernel has counted on each host's device so far."""
        found = []
        for host in range(self.hosts):
            text = _run("ip", "netns", "exec", self.name(host), "cat", "/proc/net/dev")
            (row,) = (line.split(":", 1)[1].split() for line in text.splitlines() if line.strip().startswith(DEVICE))
            found.append(Traffic(int(row[8]), int(row[0]), int(row[9]), int(row[1])))
        return found

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """What runs a command on a host."""
        return ["ip", "netns", "exec", self.name(host), *command]

    def environment(self, host: int, port: int = 29500) -> dict[str, str]:
        """What a process on a host needs to find the others, as torchrun says it."""
        return {
            "RANK": str(host),
            "WORLD_SIZE": str(self.hosts),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": DEVICE,
        }


PRIORITIES = {
    "none": [],
    "nice": ["nice", "-n", "-10"],
    "rr": ["chrt", "-r", "5"],
    "network": [],
    "both": ["chrt", "-r", "1"],
}
"""How the hosts' processes run: like others, before them, in real time (below the relay, and it only), with gloo's
threads alone in real time, so that computing does not hold them up where hosts share cores, or with those first and
computing before all others, where the machine has something else to do."""

OF_NETWORKS = ("network", "both")
"""Those where gloo's threads go before computing."""


def possible_priority(priority: str) -> str:
    """The priority, or ``none`` where this machine does not grant real time."""
    if priority in ("rr", *OF_NETWORKS):
        probe = ["chrt", "-r", str(REAL_TIME), "true"]
        if not shutil.which("chrt") or subprocess.run(probe, capture_output=True, check=False).returncode:
            return "none"
    return priority


REAL_TIME = 5
NETWORK_THREADS = "gloo"
"""What is in the names of the threads that send and receive: gloo_tcp_loop, pt_gloo_runloop."""


def run_on_hosts(
    network: Network,
    command: Sequence[str],
    priority: str = "none",
    timeout_s: float = 600.0,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> list[int]:
    """Run a command on every host at once; the exit codes. One that fails, or the time's end, ends the others."""
    priority = possible_priority(priority)
    environments = [
        {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **os.environ, **(environment or {}),
         **network.environment(host)} for host in range(network.hosts)
    ]  # fmt: skip
    commands = [[*PRIORITIES[priority], *network.command(host, command)] for host in range(network.hosts)]
    on_poll = hurry_networks if priority in OF_NETWORKS else None
    return run_commands(commands, environments, timeout_s, on_poll, [options] * network.hosts)


def hurry_networks(processes: Sequence[int]) -> None:
    """Give the threads that send and receive, of these processes and of what they have started, their priority."""
    for process in processes:
        _hurry_network(process)


def _hurry_network(process: int) -> None:
    with contextlib.suppress(OSError):  # threads come and go
        for thread in Path(f"/proc/{process}/task").iterdir():
            if NETWORK_THREADS in (thread / "comm").read_text():
                number = int(thread.name)
                if os.sched_getparam(number).sched_priority < REAL_TIME:
                    os.sched_setscheduler(number, os.SCHED_RR, os.sched_param(REAL_TIME))
            for child in (thread / "children").read_text().split():
                _hurry_network(int(child))


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and a closed terminal end what runs as Ctrl-C does, so that everything is taken away."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {kind: signal.signal(kind, interrupt) for kind in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
