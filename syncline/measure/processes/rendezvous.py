"""The rendezvous of processes: they share a store, agree on spec, versions and clock, and then form one group."""

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
"""Seconds that rank 0 waits for the other ranks to read why the training does not start."""

PINGS = 50
"""Number of clock requests to rank 0; the fastest answer counts."""


class Place(NamedTuple):
    """The position of a process in a training: its rank among all processes, and among those of its machine."""

    rank: int
    processes: int
    local_rank: int = 0
    local_processes: int = 1


def host_store(port: int = 0) -> dist.TCPStore:
    """Return a store in this process that only this machine can reach; port 0 means any free port."""
    with open_listener(port) as listener:
        # A store that opens a socket by itself listens on every interface, whatever its address is. Torch's other
        # implementation, libuv, accepts an open socket only in some versions of torch.
        _, port = listener.getsockname()
        return dist.TCPStore(
            LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=False
        )


def open_listener(port: int) -> socket.socket:
    """Return a socket that listens on this machine's loopback address; port 0 means any free port."""
    try:
        return socket.create_server((LOOPBACK, port), backlog=128)
    except (OSError, OverflowError) as error:
        raise SpecError("port", port, f"a free port ({reason_of(error)})") from None


def join_store(port: int, timeout_s: float) -> Store:
    """Return a client of the store that a process of this machine hosts."""
    return dist.TCPStore(LOOPBACK, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def store_of_environment(timeout_s: float) -> tuple[Store, Place]:
    """Return the store and the place of a process that torchrun started, from its environment variables.

    The store of a training on one machine is on its loopback address, which no other machine can reach.

    Raises:
        SpecError: if the environment variables are missing, or the port is in use.
        SynclineError: if the store cannot be reached.
    """
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise SpecError(name, None, "torchrun's environment: torchrun --nproc-per-node 4 -m syncline.torchrun SPEC")
    is_on_one_machine = os.environ["MASTER_ADDR"] in (LOOPBACK, "localhost")
    is_host = os.environ["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        if is_host and is_on_one_machine:
            store: Store = host_store(int(os.environ["MASTER_PORT"]))
            store.set_timeout(timedelta(seconds=timeout_s))
            rank, processes = 0, int(os.environ["WORLD_SIZE"])
        else:
            meetings = rendezvous("env://", timeout=timedelta(seconds=timeout_s))  # an iterator that yields once
            store, rank, processes = next(iter(meetings))
    except SpecError as error:  # `host_store` calls the variable "port"
        raise SpecError("MASTER_PORT", os.environ["MASTER_PORT"], error.expected) from None
    except ValueError as error:
        raise SynclineError(f"torchrun's environment: {error}") from None
    except (dist.DistError, RuntimeError) as error:
        port, reason = os.environ["MASTER_PORT"], reason_of(error)
        if "in use" in reason:
            raise SpecError("MASTER_PORT", port, f"a free port ({reason})") from None
        raise SynclineError(f"no store at {os.environ['MASTER_ADDR']}:{port}: {reason}") from None
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return store, Place(rank, processes, local_rank, local_processes)


def reason_of(error: Exception) -> str:
    """Return the reason of one of torch's network errors in a few words."""
    text = str(error)
    for phrase in ("address already in use", "permission denied", "timed out", "refused"):
        if phrase in text.lower():
            return phrase
    return text.splitlines()[0][:200]


def identity(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that must be equal on all ranks: a digest of the spec, and the versions of the software."""
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    return {"spec": digest, "syncline": __version__, "torch": torch.__version__}


def agree(
    store: Store, place: Place, values: Mapping[str, str], timeout_s: float, mistake: str | None = None
) -> dict[int, str]:
    """Check that all ranks are there and have equal values, and return the machine of each rank.

    Args:
        values: this rank's values that must be equal on all ranks.
        timeout_s: seconds to wait for the other ranks.
        mistake: why this rank cannot take part; None if it can.

    Raises:
        SynclineError: if a rank is missing, cannot take part, or differs from rank 0; the same error on every rank.
    """
    store.set(f"identity/{place.rank}", json.dumps({**values, "machine": machine(), "mistake": mistake}))
    identities = []
    deadline_s = time.monotonic() + timeout_s
    for rank in range(place.processes):
        key = f"identity/{rank}"
        remaining_s = max(0.001, deadline_s - time.monotonic())  # 0 would mean no limit
        try:
            store.wait([key], timedelta(seconds=remaining_s))
        except (dist.DistError, RuntimeError):
            raise SynclineError(f"rank {rank} did not join within {timeout_s:g} s") from None
        identities.append(json.loads(store.get(key)))
    store.set(f"heard/{place.rank}", "1")  # this rank has read all identities
    reason = _disagreement(identities, names=list(values))
    if reason is None:
        return {rank: rank_identity["machine"] for rank, rank_identity in enumerate(identities)}
    if place.rank == 0:  # its process may host the store, which must live until the others have read it
        with suppress(dist.DistError, RuntimeError):
            store.wait([f"heard/{rank}" for rank in range(place.processes)], timedelta(seconds=HEARD_S))
    raise SynclineError(reason)


def _disagreement(identities: list[dict[str, Any]], names: list[str]) -> str | None:
    """Return a sentence on the first rank whose identity in `agree` has a mistake or differs from rank 0's, or None."""
    for rank, rank_identity in enumerate(identities):
        mistake: str | None = rank_identity["mistake"]
        if mistake:
            return mistake if rank == 0 else f"rank {rank}: {mistake}"
    for rank, rank_identity in enumerate(identities):
        for name in names:
            value, first_value = rank_identity[name], identities[0][name]
            if value != first_value:
                return f"rank {rank}: {name} is {value}, and rank 0 has {first_value}; all ranks need the same"
    return None


def machine() -> str:
    """Return an identifier of the machine, equal for processes with the same monotonic clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return platform.node()


def clock_offset_ns(
    place: Place, machines: Mapping[int, str], clock: Callable[[], int] = time.monotonic_ns
) -> int:  # fmt: skip
    """Return the nanoseconds by which this rank's clock is ahead of rank 0's: 0 on the same machine, else an estimate.

    Rank 0 answers the requests of each rank in turn. If a rank sends a request at ``a``, rank 0 answers at ``s``, and
    the answer arrives at ``b``, then the estimate is ``(a + b) / 2 - s``, with an error of at most half of ``b - a``.
    The fastest of ``PINGS`` requests counts. The estimate ignores drift.
    """
    remote_ranks = [rank for rank in range(place.processes) if machines[rank] != machines[0]]
    if not remote_ranks:
        return 0
    group = dist.new_group(backend="gloo")
    time_of_rank_0 = torch.zeros(1, dtype=torch.int64)
    offset_ns = 0
    for rank in remote_ranks:
        if place.rank == 0:
            for _ in range(PINGS):
                dist.recv(time_of_rank_0, rank, group=group)
                time_of_rank_0[0] = clock()
                dist.send(time_of_rank_0, rank, group=group)
        elif place.rank == rank:
            estimates = []
            for _ in range(PINGS):
                start_ns = clock()
                dist.send(time_of_rank_0, 0, group=group)  # the request; rank 0 ignores its value
                dist.recv(time_of_rank_0, 0, group=group)
                end_ns = clock()
                estimate_ns = (start_ns + end_ns) // 2 - int(time_of_rank_0)
                estimates.append((end_ns - start_ns, estimate_ns))
            _, offset_ns = min(estimates)  # the fastest request has the most exact estimate
    return offset_ns


@contextmanager
def group(store: Store, place: Place, backend: str, timeout_s: float) -> Iterator[None]:
    """Create the default group of ``torch.distributed`` for the duration of a ``with`` block.

    If an error ends the block, the group closes, and the other ranks fail, too. So the error gets its time as an
    attribute: the watching process reports the first error (`syncline.measure.processes.watchdog.write_failure`).
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
