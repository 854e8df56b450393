"""``python -m syncline.torchrun``: a process of a run that torchrun started, perhaps on several machines.

Rank 0 writes the run folder. Processes on its machine write their lines there; others send theirs when they end.

Ctrl-C reaches torchrun, which hands it on to all processes; so does a SIGTERM to torchrun. But it also sends SIGTERM to
those that are left when one has died: whoever is asked to end says so, and a rank that never does is the dead one.
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
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from torch.distributed import PrefixStore, Store

from syncline.backend.meeting import Place, machine, store_of_environment
from syncline.backend.progress import COUNT, PROGRESS_WORDS, Progress
from syncline.backend.watchdog import GRACE_S, START_S, Failure
from syncline.errors import SynclineError
from syncline.experiments.folder import RunFolder
from syncline.experiments.launching.launch import check, write_launch
from syncline.experiments.launching.parts import last_step
from syncline.experiments.launching.process import Launch, meet, take_part
from syncline.experiments.measured_step import with_measured_step, with_seconds
from syncline.specs import RunSpec

PIECE = 4 * 2**20
"""Bytes of a store's value: it refuses those of more than 8 MiB."""

TELL_S = 0.5
"""Seconds between looks at the others."""


def run_under_torchrun(spec: RunSpec, out: Path, how: Launch, *, exact: bool = False) -> dict[str, Any]:
    """Take part in a run whose processes torchrun started.

    Args:
        spec: what to run; its workers live in torchrun's processes.
        out: the folder that rank 0 writes.
        how: device, backend, timeout.
        exact: see ``RunFolder``.

    Returns:
        Of rank 0 what `syncline.experiments.launching.launch.launch` does; of the others ``failed`` alone, where rank 0
        cannot tell it.

    Raises:
        SynclineError: what is found before training.
        SystemExit: of other ranks than 0, if the training failed.
    """
    check(spec)
    how = how.of(spec)
    store, place = store_of_environment(how.meeting_s)
    machines = meet(spec, how, store, place)
    own = PrefixStore("syncline", store)
    if place.rank:
        if spec.compute.measure:
            spec = with_seconds(spec, float(own.get("step_s")))
        return {"failed": _follow(spec, how, store, own, place, machines)}
    spec, step_s = with_measured_step(spec)  # on this machine, while the others wait
    own.set("step_s", repr(step_s))
    with RunFolder(out, exact) as folder:
        folder.spec(spec)
        parts = folder.working / "ranks"
        parts.mkdir()
        own.set("folder", str(parts.absolute()))
        lead = _Lead(own, place, how.timeout_s, parts)
        started_s = time.perf_counter()
        failure = lead.run(lambda: take_part(spec, how, store, place, machines, lead.progress, parts))
        asked = lead.interrupted
        own.set("blamed", "1")
        if failure is not None and failure.mistake:
            raise SynclineError(str(failure))
        away = [rank for rank in range(place.processes) if machines[rank] != machines[0]]
        _receive(own, away, parts, GRACE_S if failure or asked else how.timeout_s)
        wall_s = time.perf_counter() - started_s
        told = write_launch(folder, spec, how, parts, wall_s, failure, interrupted=asked, measured_step_s=step_s)
    own.set("written", "1")
    return told | {"folder": str(folder.path)}


def _follow(
    spec: RunSpec, how: Launch, store: Store, own: Store, place: Place, machines: dict[int, str]
) -> str | None:  # fmt: skip
    """What another rank than 0 does; rank 1 says so if rank 0 has died."""
    with tempfile.TemporaryDirectory(prefix="syncline-") as here:
        parts = Path(own.get("folder").decode()) if machines[place.rank] == machine() == machines[0] else Path(here)
        shared = parts.is_dir()  # containers of one machine may not share their files
        parts = parts if shared else Path(here)
        to_end = threading.Thread(target=_asked, args=(own, place.rank, None if shared else parts), daemon=True)

        def end(*_: Any) -> None:
            if to_end.ident is None:  # a second signal changes nothing
                to_end.start()

        for kind in (signal.SIGTERM, signal.SIGINT):  # whose thread may be stuck in a collective, or hold the store
            signal.signal(kind, end)
        progress = Progress(np.zeros((place.processes, PROGRESS_WORDS), dtype=np.int64), place.rank)
        over = threading.Event()
        threading.Thread(target=_publish, args=(own, place.rank, progress, over), daemon=True).start()
        try:
            take_part(spec, how, store, place, machines, progress, parts)
            _note(own, place.rank, None)
        except Exception as error:
            if to_end.ident is not None:
                to_end.join()  # which ends this process: others have ended before it, as they were asked to
            _note(own, place.rank, error)
            mistake = isinstance(error, SynclineError)
            if not mistake and place.rank == 1 and not _leads(own):
                return f"rank 0 died in step {progress.step_of(1)}; its lines are in {parts}"
            raise SystemExit(2 if mistake else 1) from None
        finally:
            over.set()
            if not shared or machines[place.rank] != machines[0]:
                _send(own, place.rank, parts)
        # torchrun ends everybody when one process fails, so this one stays until what it is asked for is safe.
        with suppress(RuntimeError):
            own.wait(["written"], timedelta(seconds=how.timeout_s))
    return None


def _asked(store: Store, rank: int, parts: Path | None) -> None:
    """Say that this rank was asked to end, send what it has, and end when rank 0 has had time to hear of it."""
    with suppress(RuntimeError):
        store.set(f"asked/{rank}", "1")
    if parts is not None:
        _send(store, rank, parts)
    # A peer that is lost is an error here, which rank 0 is to hear of before torchrun ends this process.
    time.sleep(3 * GRACE_S)
    os._exit(1)


def _leads(store: Store) -> bool:
    """Whether rank 0 is there to say what went wrong."""
    try:
        store.wait(["blamed"], timedelta(seconds=2 * GRACE_S))
    except RuntimeError:
        return False
    return True


def _publish(store: Store, rank: int, progress: Progress, over: threading.Event) -> None:
    """Tell how far this rank is, and, by a number that grows, that it is alive: a stopped process tells nothing."""
    with suppress(RuntimeError):
        for beat in itertools.count():
            if over.wait(TELL_S):
                return
            store.set(f"progress/{rank}", json.dumps([beat, *progress.words[rank].tolist()]))


def _note(store: Store, rank: int, error: BaseException | None) -> None:
    """Say how this rank ended."""
    mistake = isinstance(error, SynclineError)
    text = "" if error is None else str(error) if mistake else f"{type(error).__name__}: {_line(error)}"
    with suppress(RuntimeError):
        store.set(f"ended/{rank}", json.dumps([text, mistake]))


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


class _Lead:
    """Rank 0, which watches the others from a thread, for its own one may be stuck in a collective."""

    def __init__(self, store: Store, place: Place, timeout_s: float, parts: Path) -> None:
        self._store, self._place, self._timeout_s, self._parts = store, place, timeout_s, parts
        self.progress = Progress(np.zeros((place.processes, PROGRESS_WORDS), dtype=np.int64), 0)
        self._over = threading.Event()
        self._beats = dict.fromkeys(range(1, place.processes), (-1, time.monotonic()))  # and when it came
        self.interrupted = False

    def run(self, work: Any) -> Failure | None:
        """Work in a thread, watch in this one."""
        errors: list[BaseException] = []

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                errors.append(error)
            finally:
                self._over.set()

        # What was measured is written first.
        asked: list[int] = []

        def end(number: int, _: Any) -> None:
            asked.append(number)
            self._over.set()

        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, end)
        threading.Thread(target=guarded, daemon=True).start()
        failure = self._watch()
        if failure is not None:
            return failure
        if errors and isinstance(errors[0], SynclineError):
            return Failure(0, None, str(errors[0]), mistake=True)
        if signal.SIGINT in asked or (asked and self._all_asked()):
            self.interrupted = True
            return None
        if errors or asked:
            return self._blame(errors)
        return None

    def _all_asked(self) -> bool:
        """Whether all others were asked to end, too: nobody has died."""
        with suppress(RuntimeError):
            self._store.wait([f"asked/{rank}" for rank in self._beats], timedelta(seconds=GRACE_S))
            return True
        return False

    def _watch(self) -> Failure | None:
        """Until the work is over, or nobody has gone on for too long."""
        counts, changed_s, begun_s = None, time.monotonic(), time.monotonic()
        while not self._over.wait(TELL_S):
            self._look()
            now_s, seen = time.monotonic(), self.progress.words[:, COUNT].copy()
            if counts is None or (seen != counts).any():
                counts, changed_s = seen, now_s
            started = len(self.progress.started()) == self._place.processes
            if not started and now_s - begun_s > max(START_S, self._timeout_s):
                return Failure(int(np.argmin(seen)), None, "did not begin")
            if started and now_s - changed_s > self._timeout_s:
                return self._still((self._stopped() or self.progress.behind())[0])
        self._look()
        return None

    def _still(self, rank: int) -> Failure:
        return Failure(rank, self._step(rank), f"did nothing for {self._timeout_s:g} s")

    def _look(self) -> None:
        for rank in range(1, self._place.processes):
            key = f"progress/{rank}"
            with suppress(RuntimeError):
                if self._store.check([key]):
                    beat, *self.progress.words[rank] = json.loads(self._store.get(key))
                    if beat != self._beats[rank][0]:
                        self._beats[rank] = beat, time.monotonic()

    def _stopped(self) -> list[int]:
        """The ranks that have told nothing for half as long as nobody may go on, the longest silent first."""
        since_s = time.monotonic() - max(self._timeout_s / 2, 2 * TELL_S)
        quiet = sorted((at_s, rank) for rank, (_, at_s) in self._beats.items() if at_s < since_s)
        return [rank for _, rank in quiet if not self._store.check([f"ended/{rank}"])]  # who ended need tell no more

    def _step(self, rank: int) -> int:
        """The step that a rank is in, as far as is known: what it tells over the store is some time old."""
        return max(self.progress.step_of(rank), last_step(self._parts, rank) + 1)

    def _blame(self, errors: Sequence[BaseException]) -> Failure:
        """Whoever stands still or left without a word; else who has an error of its own; else this rank."""
        self._look()
        stopped = self._stopped()
        if stopped:
            return self._still(stopped[0])
        until = time.monotonic() + GRACE_S
        others = range(1, self._place.processes)
        while time.monotonic() < until and not self._store.check([f"ended/{rank}" for rank in others]):
            time.sleep(0.05)
        notes = {r: json.loads(self._store.get(f"ended/{r}")) for r in others if self._store.check([f"ended/{r}"])}
        silent = [rank for rank in others if rank not in notes]
        if silent:
            rank = min(silent, key=lambda r: int(self.progress.words[r, COUNT]))
            return Failure(rank, self._step(rank), "died")
        own = {0: [f"{type(errors[0]).__name__}: {_line(errors[0])}", False]} if errors else {}
        failed = {rank: text for rank, (text, _) in (own | notes).items() if text}
        lost = ("RuntimeError", "DistBackendError")  # what torch says where a peer has gone
        first = [rank for rank, text in failed.items() if not text.startswith(lost)] or list(failed) or [0]
        rank = first[0]
        return Failure(rank, self._step(rank), f"failed ({failed.get(rank, 'ended by torchrun')})")


def _send(store: Store, rank: int, folder: Path) -> None:
    """This rank's files, in pieces."""
    with suppress(RuntimeError):
        for path in sorted(folder.glob(f"{rank}.*")):
            packed = b64encode(zlib.compress(path.read_bytes())).decode()
            pieces = [packed[at : at + PIECE] for at in range(0, len(packed), PIECE)]
            for number, piece in enumerate(pieces):
                store.set(f"file/{path.name}/{number}", piece)
            store.set(f"file/{path.name}", str(len(pieces)))
        store.set(f"sent/{rank}", json.dumps([path.name for path in folder.glob(f"{rank}.*")]))


def _receive(store: Store, ranks: Sequence[int], folder: Path, timeout_s: float) -> None:
    """The files of other machines, as far as they come."""
    for rank in ranks:
        with suppress(RuntimeError):
            store.wait([f"sent/{rank}"], timedelta(seconds=timeout_s))
            for name in json.loads(store.get(f"sent/{rank}")):
                count = int(store.get(f"file/{name}"))
                packed = b"".join(store.get(f"file/{name}/{number}") for number in range(count))
                (folder / name).write_bytes(zlib.decompress(b64decode(packed)))
