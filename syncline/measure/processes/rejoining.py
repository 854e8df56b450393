"""A server and its workers under watch: a worker that dies is started again, or is gone; the others go on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from syncline.interrupts import children_without_signals, fork_server, raise_if_interrupted
from syncline.measure.processes.launch import PRELOAD
from syncline.measure.processes.progress import CHANGED_NS, COUNT, INSIDE, Progress
from syncline.measure.processes.register import Register
from syncline.measure.processes.watchdog import POLL_S, START_S, Failure, guarded, how_it_ended, left_early

ENDING_S = 10.0
"""How long workers may take to end once their server has."""

SERVER = "the server"


@dataclass(frozen=True)
class Departure:
    """The end of a worker's process before that of the training.

    Args:
        worker: whose.
        at_s: seconds from the start of the first process.
        how: that it ended.
        returns: whether its process was started again.
    """

    worker: int
    at_s: float
    how: str
    returns: bool


@dataclass
class ServedEnd:
    """How a server and its workers ended.

    Args:
        failure: why the training ended early, if it did.
        departures: of workers, in order.
    """

    failure: Failure | None = None
    departures: list[Departure] = field(default_factory=list)


class ServedProcesses:
    """A server's process and those of its workers.

    Args:
        server: an importable function; called as ``server(P, *server_args)``.
        worker: likewise, as ``worker(rank, *worker_args[rank])``.
        server_args: of the server.
        worker_args: likewise, of each worker.
        progress: of P + 1, the server last.
        register: of the workers.
        folder: where processes leave word of a failure.
        timeout_s: for how long one may come to nothing new before it is ended.
        rejoins: how often each worker's process is started again.
        preload: modules that are loaded once for all processes.
    """

    def __init__(
        self,
        server: Callable[..., Any],
        worker: Callable[..., Any],
        server_args: tuple,
        worker_args: Sequence[tuple],
        progress: Progress,
        register: Register,
        folder: Path,
        timeout_s: float,
        rejoins: int,
        preload: Sequence[str] = (),
    ) -> None:
        self.targets = [*((worker, args) for args in worker_args), (server, server_args)]
        self.workers, self.progress, self.register, self.folder = len(worker_args), progress, register, folder
        self.timeout_s, self.rejoins = timeout_s, rejoins
        self.context = fork_server([*PRELOAD, *preload])
        self.processes: dict[int, BaseProcess] = {}
        self.over: set[int] = set()  # workers that have ended for good, or as they were told
        self.since: dict[int, tuple[float, int]] = {}  # when each was started, and how many changes it had made then
        self.ended = ServedEnd()

    def run(self, on_start: Callable[[], object], on_poll: Callable[[Progress], object]) -> ServedEnd:
        """Until the server ends, or cannot; whatever happens, every process has ended then.

        Args:
            on_start: called when the server's process has been started.
            on_poll: called a few times per second. It may raise: then the processes are ended.
        """
        self.begun_s = time.monotonic()
        try:
            self._start(self.workers)
            on_start()
            for worker in range(self.workers):
                self._start(worker)
            self.ended.failure = self._watch(on_poll)
        finally:
            for process in self.processes.values():
                if process.is_alive():
                    process.kill()  # SIGTERM would wait for ever in a stopped process
            for process in self.processes.values():
                process.join()
        return self.ended

    def _start(self, rank: int) -> None:
        target, args = self.targets[rank]
        process: BaseProcess = self.context.Process(target=guarded, args=(rank, target, args, self.folder), daemon=True)
        changes = int(self.progress.words[rank, COUNT])
        with children_without_signals():
            process.start()  # the first one waits until the server that they are forked from has imported everything
        self.since[rank] = time.monotonic(), changes
        self.processes[rank] = process

    def _watch(self, on_poll: Callable[[Progress], object]) -> Failure | None:
        while True:
            raise_if_interrupted()
            on_poll(self.progress)
            server = self.processes[self.workers]
            if server.exitcode is not None:
                if left_early(self.workers, server, self.folder):
                    return self._last_words()
                self._end()
                return None
            for rank in range(self.workers):
                process = self.processes[rank]
                if rank in self.over or process.exitcode is None:
                    continue
                if (self.folder / f"{rank}.failed").exists():
                    return self._said(rank)
                if left_early(rank, process, self.folder):
                    self._left(rank)
                else:
                    self.over.add(rank)
            failure = self._still()
            if failure is not None:
                return failure
            running = [process.sentinel for process in self.processes.values() if process.is_alive()]
            connection.wait(running, POLL_S)

    def _left(self, rank: int) -> None:
        """A worker died: tell the server, and start the worker again unless it is gone for good."""
        before = sum(one.worker == rank for one in self.ended.departures)
        returns = before < self.rejoins
        how = how_it_ended(self.processes[rank].exitcode)
        self.ended.departures.append(Departure(rank, time.monotonic() - self.begun_s, how, returns))
        if not returns:
            self.over.add(rank)
            self.register.leave(rank)
        self.register.end(rank)  # the server looks for this
        if returns:
            self._start(rank)

    def _still(self) -> Failure | None:
        """End the process of a worker that stands still; it is a failure where the server does, or all wait."""
        now_ns, begun = time.monotonic_ns(), True
        for rank, process in self.processes.items():
            if rank in self.over or process.exitcode is not None:
                continue
            began_s, count = self.since[rank]
            if self.progress.words[rank, COUNT] == count:  # it has not begun
                begun, allowed_s = False, self._start_s
                still = time.monotonic() - began_s > allowed_s
            else:
                allowed_s = self.timeout_s
                quiet_s = (now_ns - int(self.progress.words[rank, CHANGED_NS])) / 1e9
                still = quiet_s > allowed_s and not self.progress.words[rank, INSIDE]
            if still and rank == self.workers:
                return Failure(rank, self.progress.step_of(rank), f"did nothing for {allowed_s:g} s", who=SERVER)
            if still:
                process.kill()
                process.join()
        if begun and self.progress.quiet_s(now_ns) > self.timeout_s:
            return Failure(None, self.progress.step_of(self.workers), f"did nothing for {self.timeout_s:g} s")
        return None

    @property
    def _start_s(self) -> float:
        return max(START_S, self.timeout_s)

    def _last_words(self) -> Failure:
        """Of a server that has failed; else of the worker that made it so."""
        notes = [json.loads(path.read_text()) for path in self.folder.glob("*.failed")]
        if not notes:
            how = how_it_ended(self.processes[self.workers].exitcode)
            return Failure(self.workers, self.progress.step_of(self.workers), f"died ({how})", who=SERVER)
        return self._said(min(notes)[1])

    def _said(self, rank: int) -> Failure:
        _, _, mistake, text, _ = json.loads((self.folder / f"{rank}.failed").read_text())
        if mistake:
            return Failure(rank, None, text, mistake=True)
        return Failure(rank, self.progress.step_of(rank), f"failed ({text})", who="" if rank < self.workers else SERVER)

    def _end(self) -> None:
        """The server is through: the workers end, as they were told."""
        until = time.monotonic() + ENDING_S
        for rank in range(self.workers):
            self.processes[rank].join(max(0.0, until - time.monotonic()))
