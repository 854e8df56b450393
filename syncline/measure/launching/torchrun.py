"""The command ``python -m syncline.torchrun``: a process of a run that torchrun started, perhaps on several machines.

Rank 0 writes the run folder. Processes on its machine write their lines there; others send their lines when they end.

Ctrl-C reaches torchrun, which passes it to all processes; so does a SIGTERM to torchrun. But torchrun also sends
SIGTERM to the remaining processes when one has died. A process that gets a signal therefore says so, and a rank that
never does is the dead one.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import tempfile
import threading
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from torch.distributed import PrefixStore, Store

from syncline.errors import SynclineError
from syncline.measure.launching.launch import Ended, check_launch, write_launch
from syncline.measure.launching.process import Launch, agree_on_spec, train_as_rank
from syncline.measure.launching.rank_files import last_step
from syncline.measure.processes.rendezvous import Place, store_of_environment
from syncline.measure.processes.watchdog import GRACE_S, NUM_CHANGES, START_S, Failure, Progress, line_of_error
from syncline.runs.folders.folder import RunFolder
from syncline.runs.training.trained import with_measured_step, with_seconds
from syncline.specs import RunSpec

MAX_VALUE_BYTES = 4 * 2**20
"""Bytes of a store's value: the store refuses values of more than 8 MiB."""

REPORT_PERIOD_S = 0.5
"""Seconds between two reports of a rank's progress, and between two readings of all reports by rank 0."""

ignore_lost_store = suppress(RuntimeError)
"""A context that ignores the error of a store whose process is gone, or of a key that nobody sets in time."""


def run_under_torchrun(spec: RunSpec, out: Path, options: Launch, *, exact: bool = False) -> dict[str, Any]:
    """Train as one of the processes that torchrun started; rank 0 writes the run folder.

    Args:
        out: the folder that rank 0 writes; see ``RunFolder`` for ``exact``.

    Returns:
        On rank 0 the result of `syncline.measure.launching.launch.launch`; on the others only ``failed``, a failure of
        rank 0 or None.

    Raises:
        SynclineError: the training cannot start.
        SystemExit: the training failed; on ranks other than 0.
    """
    check_launch(spec)
    options = options.for_spec(spec)
    store, place = store_of_environment(options.meeting_s)
    machines = agree_on_spec(spec, options, store, place)
    run_store = PrefixStore("syncline", store)
    if place.rank != 0:
        if spec.compute.measure:  # the seconds must be equal on all ranks, so that rank 0 measures for them
            spec = with_seconds(spec, float(run_store.get("step_s")))
        return {"failed": _run_follower(spec, options, store, run_store, place, machines)}
    spec, step_s = with_measured_step(spec)  # the other ranks wait for the seconds
    run_store.set("step_s", repr(step_s))  # "None" if the spec asks for no measurement
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        ranks_folder = folder.working / "ranks"
        ranks_folder.mkdir()
        run_store.set("folder", str(ranks_folder.absolute()))
        leader = _Leader(run_store, place, options.timeout_s, ranks_folder)
        started_s = time.perf_counter()
        failure = leader.run(
            lambda: train_as_rank(spec, options, store, place, machines, leader.progress, folder=ranks_folder)
        )
        run_store.set("cause known", "1")  # `_wait_for_cause` waits for it after a failure
        if failure is not None and failure.mistake:
            raise SynclineError(str(failure))
        # Ranks on the machine of rank 0 write into its folder; the others send their files.
        remote_ranks = [rank for rank in range(place.processes) if machines[rank] != machines[0]]
        ended_early = failure is not None or leader.interrupted
        _receive_files(run_store, remote_ranks, ranks_folder, timeout_s=GRACE_S if ended_early else options.timeout_s)
        ended = Ended(failure, leader.interrupted, wall_s=time.perf_counter() - started_s)
        result = write_launch(folder, spec, options, ranks_folder, ended, step_s)
    run_store.set("written", "1")  # the other ranks wait for this
    return result | {"folder": str(folder.path)}


def _run_follower(
    spec: RunSpec, options: Launch, store: Store, run_store: Store, place: Place, machines: dict[int, str]
) -> str | None:  # fmt: skip
    """Train as a rank other than 0, and report the end to rank 0.

    Args:
        run_store: the part of the store for the messages between rank 0 and the others.

    Returns:
        None; but if rank 0 has died, rank 1 returns a line about it, because one rank has to report it.

    Raises:
        SystemExit: the training failed.
    """
    with tempfile.TemporaryDirectory(prefix="syncline-") as temporary:
        ranks_folder = Path(run_store.get("folder").decode())
        # Containers of one machine may have separate files.
        shares_files = machines[place.rank] == machines[0] and ranks_folder.is_dir()
        folder_to_send = None
        if not shares_files:
            folder_to_send = ranks_folder = Path(temporary)
        # Signals are handled in a thread, because the main thread may hang in a collective, or hold the store.
        ending_thread = threading.Thread(
            target=_end_on_request, args=(run_store, place.rank, folder_to_send), daemon=True
        )

        def end(*_: Any) -> None:
            if ending_thread.ident is None:  # a second signal has no effect
                ending_thread.start()

        for signal_number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signal_number, end)
        progress = Progress.private(place.processes, place.rank)
        is_over = threading.Event()
        threading.Thread(target=_publish_progress, args=(run_store, place.rank, progress, is_over), daemon=True).start()
        try:
            train_as_rank(spec, options, store, place, machines, progress, folder=ranks_folder)
            _report_end(run_store, place.rank, error=None)
        except Exception as error:
            if ending_thread.ident is not None:  # the peers were asked to end too, so that the error is no failure
                ending_thread.join()  # never returns, because `_end_on_request` ends the process
            _report_end(run_store, place.rank, error)
            is_mistake = isinstance(error, SynclineError)
            if not is_mistake and place.rank == 1 and not _wait_for_cause(run_store):
                # The step of rank 0 is unknown; the line has the step in which this rank lost it.
                return f"rank 0 died in step {progress.step_of(1)}; its lines are in {ranks_folder}"
            raise SystemExit(2 if is_mistake else 1) from None
        finally:
            is_over.set()
            if folder_to_send is not None:
                _send_files(run_store, place.rank, folder_to_send)
        # torchrun ends all processes when one fails, so this one stays until rank 0 has written the run folder.
        with ignore_lost_store:
            run_store.wait(["written"], timedelta(seconds=options.timeout_s))
    return None


def _end_on_request(store: Store, rank: int, folder_to_send: Path | None) -> None:
    """Report the request to end, send this rank's files if any, give rank 0 time to read the report, and end."""
    with ignore_lost_store:
        store.set(f"signalled/{rank}", "1")
    if folder_to_send is not None:
        _send_files(store, rank, folder_to_send)
    time.sleep(3 * GRACE_S)  # longer than rank 0 waits for reports
    os._exit(1)


def _wait_for_cause(store: Store) -> bool:
    """Wait until rank 0 knows the cause of a failure, which it reports; return False if rank 0 has died."""
    try:
        store.wait(["cause known"], timedelta(seconds=2 * GRACE_S))  # rank 0 itself waits for `GRACE_S`
    except RuntimeError:
        return False
    return True


def _publish_progress(store: Store, rank: int, progress: Progress, is_over: threading.Event) -> None:
    """Publish the progress of this rank with a heartbeat: a number that grows as long as the process is not stopped."""
    with ignore_lost_store:
        for heartbeat in itertools.count():
            if is_over.wait(REPORT_PERIOD_S):
                return
            store.set(f"progress/{rank}", json.dumps([heartbeat, *progress.counters[rank].tolist()]))


def _report_end(store: Store, rank: int, error: BaseException | None) -> None:
    """Write to the store that this process has ended, with the error in one line, or an empty text if it succeeded."""
    with ignore_lost_store:
        store.set(f"ended/{rank}", json.dumps("" if error is None else line_of_error(error)))


class _Leader:
    """Rank 0, which watches the others in its main thread, because the thread that trains may hang in a collective."""

    def __init__(self, store: Store, place: Place, timeout_s: float, ranks_folder: Path) -> None:
        self._store, self._place, self._timeout_s, self._ranks_folder = store, place, timeout_s, ranks_folder
        self.progress = Progress.private(place.processes, rank=0)
        self._is_over = threading.Event()
        # For each other rank: its last heartbeat, which is a growing number, and the time when rank 0 first read it.
        self._heartbeats = dict.fromkeys(range(1, place.processes), (-1, time.monotonic()))
        self.interrupted = False  # whether the user has ended the run

    def run(self, train: Callable[[], None]) -> Failure | None:
        """Run ``train`` in a thread while this thread watches all ranks; return the failure or None."""
        errors: list[BaseException] = []

        def train_in_thread() -> None:
            try:
                train()
            except Exception as error:
                errors.append(error)
            finally:
                self._is_over.set()

        # A signal only ends the watch, so that the measurements are written before the process ends.
        signals: list[int] = []  # received signals

        def note_signal(number: int, _: Any) -> None:
            signals.append(number)
            self._is_over.set()

        for ending_signal in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending_signal, note_signal)
        threading.Thread(target=train_in_thread, daemon=True).start()
        failure = self._watch()
        if failure is not None:
            return failure
        if errors and isinstance(errors[0], SynclineError):
            return Failure(rank=0, step=None, reason=str(errors[0]), mistake=True)
        self.interrupted = signal.SIGINT in signals
        if signals and not self.interrupted:
            # torchrun sends SIGTERM either to all ranks, for the user, or to the ranks that are left when one has died.
            with ignore_lost_store:
                self._store.wait([f"signalled/{rank}" for rank in self._heartbeats], timedelta(seconds=GRACE_S))
                self.interrupted = True
        has_failed = not self.interrupted and (errors or signals)
        return self._failure_after_end(errors) if has_failed else None

    def _watch(self) -> Failure | None:
        """Watch until training ends, and return None; return a failure if no rank makes progress for too long."""
        begun_s = changed_s = time.monotonic()
        previous_counts = self.progress.counters[:, NUM_CHANGES].copy()
        while not self._is_over.wait(REPORT_PERIOD_S):
            self._read_progress()
            now_s, counts = time.monotonic(), self.progress.counters[:, NUM_CHANGES].copy()
            if (counts != previous_counts).any():
                previous_counts, changed_s = counts, now_s
            all_started = len(self.progress.started()) == self._place.processes
            if not all_started and now_s - begun_s > max(START_S, self._timeout_s):
                return Failure(rank=int(np.argmin(counts)), step=None, reason="did not begin")
            if all_started and now_s - changed_s > self._timeout_s:
                hanging_ranks = self._silent_ranks() or self.progress.lagging_ranks()
                return self._no_progress(hanging_ranks[0])
        self._read_progress()
        return None

    def _no_progress(self, rank: int) -> Failure:
        """Return the failure of a rank that made no progress until the timeout."""
        return Failure(rank, self._step(rank), f"did nothing for {self._timeout_s:g} s")

    def _read_progress(self) -> None:
        """Read the progress of all other ranks from the store."""
        for rank in range(1, self._place.processes):
            key = f"progress/{rank}"
            with ignore_lost_store:
                if self._store.check([key]):
                    heartbeat, *counters = json.loads(self._store.get(key))
                    self.progress.counters[rank] = counters
                    previous_heartbeat, _ = self._heartbeats[rank]
                    if heartbeat != previous_heartbeat:
                        self._heartbeats[rank] = heartbeat, time.monotonic()

    def _silent_ranks(self) -> list[int]:
        """Return the ranks that gave no sign of life for half of the timeout, the longest silent first."""
        earliest_s = time.monotonic() - max(self._timeout_s / 2, 2 * REPORT_PERIOD_S)
        silent = sorted((heard_s, rank) for rank, (_, heard_s) in self._heartbeats.items() if heard_s < earliest_s)
        # A rank that has ended is silent too, but it does not hang.
        return [rank for _, rank in silent if not self._store.check([f"ended/{rank}"])]

    def _step(self, rank: int) -> int:
        """Return the current step of a rank: the step of its last report, or the step after the last in its file."""
        return max(self.progress.step_of(rank), last_step(self._ranks_folder, rank) + 1)

    def _failure_after_end(self, errors: Sequence[BaseException]) -> Failure:
        """Return the failure of a rank that hangs or died; else of a rank with its own error; else of this rank."""
        self._read_progress()
        hanging = self._silent_ranks()
        if hanging:
            return self._no_progress(hanging[0])

        # Give the other ranks time to report their ends; a rank without a report has died.
        other_ranks = range(1, self._place.processes)
        deadline_s = time.monotonic() + GRACE_S
        while time.monotonic() < deadline_s and not self._store.check([f"ended/{rank}" for rank in other_ranks]):
            time.sleep(0.05)
        error_texts = {0: line_of_error(errors[0])} if errors else {}  # by rank; empty without an error
        dead = []
        for rank in other_ranks:
            if self._store.check([f"ended/{rank}"]):
                error_texts[rank] = json.loads(self._store.get(f"ended/{rank}"))
            else:
                dead.append(rank)
        if dead:
            # Of several dead ranks, the one with the least progress has died first.
            rank = min(dead, key=lambda dead_rank: int(self.progress.counters[dead_rank, NUM_CHANGES]))
            return Failure(rank, self._step(rank), "died")

        failed_ranks = [rank for rank, text in error_texts.items() if text]
        if not failed_ranks:  # torchrun has ended this rank, and no rank reports an error
            return Failure(0, self._step(0), "failed (ended by torchrun)")
        lost_peer_errors = ("RuntimeError", "DistBackendError")  # torch's errors for a lost peer
        with_own_error = [rank for rank in failed_ranks if not error_texts[rank].startswith(lost_peer_errors)]
        rank, *_ = with_own_error or failed_ranks
        return Failure(rank, self._step(rank), f"failed ({error_texts[rank]})")


def _send_files(store: Store, rank: int, folder: Path) -> None:
    """Send the files of this rank through the store, compressed and in pieces."""
    paths = sorted(folder.glob(f"{rank}.*"))
    with ignore_lost_store:
        for path in paths:
            text = b64encode(zlib.compress(path.read_bytes())).decode()
            pieces = [text[start : start + MAX_VALUE_BYTES] for start in range(0, len(text), MAX_VALUE_BYTES)]
            for index, piece in enumerate(pieces):
                store.set(f"file/{path.name}/{index}", piece)
            store.set(f"file/{path.name}", str(len(pieces)))
        store.set(f"sent/{rank}", json.dumps([path.name for path in paths]))  # set last, when all pieces are there


def _receive_files(store: Store, ranks: Sequence[int], folder: Path, timeout_s: float) -> None:
    """Write the files that ranks on other machines have sent through the store into a folder."""
    for rank in ranks:
        with ignore_lost_store:  # a rank that died sends none
            store.wait([f"sent/{rank}"], timedelta(seconds=timeout_s))
            for name in json.loads(store.get(f"sent/{rank}")):
                num_pieces = int(store.get(f"file/{name}"))
                text = b"".join(store.get(f"file/{name}/{index}") for index in range(num_pieces))
                (folder / name).write_bytes(zlib.decompress(b64decode(text)))
