"""How processes find each other: one store, one spec, one version, one clock; then one group."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import Store
from torch.distributed.rendezvous import rendezvous

from syncline.errors import SpecError, SynclineError
from syncline.measure.processes.watchdog import FAILED_NS
from syncline.version import __version__

LOOPBACK = "127.0.0.1"

HEARD_S = 5.0
"""How long rank 0 stays for the others to hear why nobody trains."""

PINGS = 50
"""Questions about the time; the quickest answer counts."""


class Place(NamedTuple):
    """Where a process stands."""

    rank: int
    processes: int
    local_rank: int = 0
    local_processes: int = 1


def host_store(port: int = 0) -> dist.TCPStore:
    """Return a store in this process that only this machine reaches; port 0 is any free one.

    Raises:
        SpecError: a port that is in use, or may not be used.
    """
    with open_listener(port) as listener:
        # A store that opens its own socket listens on every interface, whatever its address says. Torch's other
        # implementation, libuv, takes no open socket in all versions.
        port = listener.getsockname()[1]
        return dist.TCPStore(
            LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=False
        )


def open_listener(port: int) -> socket.socket:
    """Return a socket that listens on this machine's loopback address; 0 is any free port.

    Raises:
        SpecError: a port that is in use, or may not be used.
    """
    try:
        return socket.create_server((LOOPBACK, port), backlog=128)
    except (OSError, OverflowError) as error:
        raise SpecError("port", port, f"a free port ({reason_of(error)})") from None


def join_store(port: int, timeout_s: float) -> Store:
    """The store of a process on this machine."""
    return dist.TCPStore(LOOPBACK, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def store_of_environment(timeout_s: float) -> tuple[Store, Place]:
    """Return the store and the place that torchrun's environment tells.

    If rank 0 hosts the store and all ranks are on its machine, only this machine reaches the store.

    Raises:
        SpecError: without such an environment, or with a port that is in use.
        SynclineError: if the store cannot be reached.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in names:
        if name not in os.environ:
            raise SpecError(name, None, "torchrun's environment: torchrun --nproc-per-node 4 -m syncline.torchrun SPEC")
    try:
        if _hosts_local_store():
            store: Store = host_store(int(os.environ["MASTER_PORT"]))
            store.set_timeout(timedelta(seconds=timeout_s))
            rank, processes = 0, int(os.environ["WORLD_SIZE"])
        else:
            store, rank, processes = next(iter(rendezvous("env://", timeout=timedelta(seconds=timeout_s))))
    except SpecError as error:
        raise SpecError("MASTER_PORT", os.environ["MASTER_PORT"], error.expected) from None
    except ValueError as error:
        raise SynclineError(f"torchrun's environment: {error}") from None
    except (dist.DistError, RuntimeError) as error:
        port, reason = os.environ["MASTER_PORT"], reason_of(error)
        if "in use" in reason:
            raise SpecError("MASTER_PORT", port, f"a free port ({reason})") from None
        raise SynclineError(f"no store at {os.environ['MASTER_ADDR']}:{port}: {reason}") from None
    local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return store, Place(rank, processes, *local)


def _hosts_local_store() -> bool:
    """Return whether this process hosts the store, for processes of its machine alone."""
    is_hosted_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return os.environ["RANK"] == "0" and os.environ["MASTER_ADDR"] in (LOOPBACK, "localhost") and not is_hosted_by_agent


def reason_of(error: Exception) -> str:
    """Torch's complaint in a few words."""
    text = str(error)
    known = ("address already in use", "permission denied", "timed out", "refused")
    return next((one for one in known if one in text.lower()), text.splitlines()[0][:200])


def identity(spec: Mapping[str, Any]) -> dict[str, str]:
    """What must be equal on all ranks: the spec, and the versions of what computes."""
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return {"spec": digest, "syncline": __version__, "torch": torch.__version__}


def agree(
    store: Store, place: Place, mine: Mapping[str, str], timeout_s: float, mistake: str | None = None
) -> dict[int, str]:
    """Make sure that all ranks are there and run the same; every rank finds out what any other does.

    Args:
        store: that all ranks reach.
        place: of this one.
        mine: what must be equal on all ranks.
        timeout_s: how long to wait for the others.
        mistake: why this rank cannot take part, if it cannot.

    Returns:
        The machine of each rank.

    Raises:
        SynclineError: which rank is missing, cannot take part, or differs from rank 0 in what.
    """
    store.set(f"identity/{place.rank}", json.dumps({**mine, "machine": machine(), "mistake": mistake}))
    told = []
    until = time.monotonic() + timeout_s
    for rank in range(place.processes):
        key = f"identity/{rank}"
        try:
            store.wait([key], timedelta(seconds=max(0.001, until - time.monotonic())))
        except (dist.DistError, RuntimeError):
            raise SynclineError(f"rank {rank} did not come within {timeout_s:g} s") from None
        told.append(json.loads(store.get(key)))
    store.set(f"heard/{place.rank}", "1")
    wrong = _disagreement(told, list(mine))
    if wrong is None:
        return {rank: other["machine"] for rank, other in enumerate(told)}
    if place.rank == 0:  # whose process may host the store, from which the others have to hear the same
        with suppress(dist.DistError, RuntimeError):
            store.wait([f"heard/{rank}" for rank in range(place.processes)], timedelta(seconds=HEARD_S))
    raise SynclineError(wrong)


def _disagreement(told: list[dict[str, Any]], names: list[str]) -> str | None:
    """Which rank cannot take part, or differs from rank 0 in what."""
    for rank, other in enumerate(told):
        if other["mistake"]:
            return f"rank {rank}: {other['mistake']}" if rank else str(other["mistake"])
    for rank, other in enumerate(told):
        for name in names:
            if other[name] != told[0][name]:
                return f"rank {rank}: {name} is {other[name]}, and rank 0 has {told[0][name]}; all ranks need the same"
    return None


def machine() -> str:
    """What processes share if they share a monotonic clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return platform.node()


def clock_offset_ns(
    place: Place, machines: Mapping[int, str], clock: Callable[[], int] = time.monotonic_ns
) -> int:  # fmt: skip
    """By how much this rank's clock is ahead of rank 0's: 0 on the same machine, else estimated.

    Rank 0 answers each rank's questions in turn. A question sent at ``a``, answered at ``s`` and heard at ``b`` says
    ``(a + b) / 2 - s``, wrong by at most half of ``b - a``; the quickest of so many counts. Drift is not followed.
    """
    away = [rank for rank in range(place.processes) if machines[rank] != machines[0]]
    if not away:
        return 0
    group = dist.new_group(backend="gloo")
    here = torch.zeros(1, dtype=torch.int64)
    offset = 0
    for rank in away:
        if place.rank == 0:
            for _ in range(PINGS):
                dist.recv(here, rank, group=group)
                here[0] = clock()
                dist.send(here, rank, group=group)
        elif place.rank == rank:
            heard = []
            for _ in range(PINGS):
                start = clock()
                dist.send(here, 0, group=group)
                dist.recv(here, 0, group=group)
                end = clock()
                heard.append((end - start, (start + end) // 2 - int(here)))
            offset = min(heard)[1]
    return offset


@contextmanager
def group(store: Store, place: Place, backend: str, timeout_s: float) -> Iterator[None]:
    """The default group of ``torch.distributed``, for as long as the block lasts.

    An error that ends the block is stamped with its time (`syncline.measure.processes.watchdog.tell_failure`): once
    the group closes, the others fail too.
    """
    dist.init_process_group(
        backend, store=dist.PrefixStore("group", store), rank=place.rank, world_size=place.processes,
        timeout=timedelta(seconds=timeout_s),
    )  # fmt: skip
    try:
        yield
    except BaseException as error:
        setattr(error, FAILED_NS, time.monotonic_ns())
        raise
    finally:
        dist.destroy_process_group()
