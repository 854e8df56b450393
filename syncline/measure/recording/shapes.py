"""A script recorded by shapes alone: fake tensors, groups of ranks that are not there, one rank for many alike.

Nothing is computed and nothing is sent, so hundreds of ranks of billions of parameters fit onto one machine, and no
loss is known. Read on: ``shaped_rank`` (the life of one rank), ``shaped_ddp``, ``alike`` (who stands for whom).
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.interrupts import raise_if_interrupted
from syncline.measure.recording.forks import begin_alike, begin_as_a_process, forked
from syncline.measure.recording.rank_equivalence import Families, stand_ins
from syncline.measure.recording.ranks import (
    DEFAULT_OPTIONS,
    NO_RECORD,
    ForeignScript,
    TraceOptions,
    finished_record,
    import_before_forking,
    keep_at_exit,
    rank_environment,
    run_script,
)
from syncline.measure.recording.record import RankRecord, say_notes

POLL_S = 0.02

MOST_TOLD = 16
"""Ranks whose part is told."""


@dataclass
class ShapedRecord:
    """What was recorded of a script by shapes.

    Args:
        recorded: by rank.
        stands_for: for each of the P ranks the recorded one.
        groups: of the script, in the order in which they were made.
    """

    recorded: dict[int, RankRecord]
    stands_for: list[int]
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def expanded(self) -> list[RankRecord]:
        """What all ranks do."""
        families = Families(self.groups)
        return [
            self.recorded[like] if like == rank else families.as_if(self.recorded[like], rank)
            for rank, like in enumerate(self.stands_for)
        ]


def shaped(
    program: ForeignScript, workers: int, ranks: Sequence[int] = (), options: TraceOptions = DEFAULT_OPTIONS
) -> ShapedRecord:
    """Record a script by shapes.

    Args:
        program: what is run.
        workers: P.
        ranks: that are recorded, each standing for those of its place up to the next one named; found if none.
        options: how they are recorded.

    Raises:
        SynclineError: the script asks for values, a rank failed, or no rank that is named can stand for another.
    """
    if ranks and not all(0 <= rank < workers for rank in ranks):
        raise SpecError("--ranks", ",".join(map(str, ranks)), f"ranks from 0 to {workers - 1}")
    import_before_forking()
    import torch._subclasses.fake_tensor  # noqa: F401 - once for all ranks

    recorded: dict[int, RankRecord] = {}
    groups: list[tuple[str, tuple[int, ...]]] = []
    with temporary_folder() as folder:

        def record(more: Sequence[int]) -> None:
            for rank in recorded_ranks(program, workers, more, folder, set(recorded), options):
                if not (folder / f"{rank}").exists():
                    raise SynclineError(f"rank {rank} of {workers} {NO_RECORD}")
                kept, made = pickle.loads((folder / f"{rank}").read_bytes())
                recorded[rank] = kept
                if made != groups and groups:
                    raise SynclineError(f"rank {rank} makes other groups than the ranks before it")
                groups[:] = made

        record(ranks or [0])
        families = Families(groups)
        if not ranks:
            return ShapedRecord(recorded, stand_ins(families, workers, recorded, record), groups)
    numbered = families.with_messages(recorded.values())
    places = {rank: families.place(rank, numbered) for rank in range(workers)}
    of = []
    for rank in range(workers):
        alike = [one for one in sorted(recorded) if places[one] == places[rank]]
        if not alike:
            raise SpecError("--ranks", ",".join(map(str, ranks)), f"also a rank that stands for rank {rank}")
        of.append(max((one for one in alike if one <= rank), default=alike[0]))
    return ShapedRecord(recorded, of, groups)


class Shaping:
    """What runs programs by shapes, in the place of `traced`.

    Args:
        ranks: that are recorded; found if none.
    """

    def __init__(self, ranks: Sequence[int] = ()) -> None:
        self.ranks = tuple(ranks)

    def __call__(self, program: ForeignScript, workers: int, options: TraceOptions) -> list[RankRecord]:
        """What all ranks do."""
        of = shaped(program, workers, self.ranks, options)
        standing = Counter(of.stands_for)
        told = ", ".join(f"rank {rank} for {count}" for rank, count in sorted(standing.items())[:MOST_TOLD])
        more = f" and {len(standing) - MOST_TOLD} more" if len(standing) > MOST_TOLD else ""
        first, *others = of.expanded()
        first = replace(first, notes=[*first.notes, f"{program.name}, by shapes: {told}{more}"])
        return say_notes([first, *others])


def ranks_named(text: str | None) -> tuple[int, ...]:
    """Ranks as a user types them, with commas between.

    Raises:
        SpecError: other words.
    """
    try:
        return tuple(sorted({int(word) for word in text.split(",")})) if text is not None else ()
    except ValueError:
        raise SpecError("--ranks", text, "numbers with commas between, as 0,8") from None


def recorded_ranks(
    program: ForeignScript, workers: int, ranks: Sequence[int], folder: Path, known: set[int], options: TraceOptions
) -> list[int]:
    """Record ranks, and those that they send objects to, all at the same time; each leaves a file.

    Returns:
        The ranks that were recorded.

    Raises:
        SynclineError: one of them failed.
    """
    running: dict[int, int] = {}
    started: list[int] = []
    todo = list(ranks)
    try:
        while todo or running:
            for rank in todo:
                if rank not in started and rank not in known:
                    started.append(rank)
                    running[_forked(program, rank, workers, folder, options)] = rank
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                rank = running.pop(pid)
                raise_if_interrupted()
                if status:
                    said = folder / f"refused-{rank}"
                    raise SynclineError(said.read_text() if said.exists() else f"rank {rank} of {workers} failed")
            elif not pid:
                time.sleep(POLL_S)
                raise_if_interrupted()
            todo = [int(file.name.removeprefix("want-")) for file in folder.glob("want-*")]
            todo = [rank for rank in todo if rank not in started and rank not in known]
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return started


def _forked(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> int:
    """A process that lives a rank's life, leaves its record or why there is none, and ends."""
    pid = forked()
    if pid:
        return pid
    code = 1
    try:
        begin_as_a_process()
        rank_environment(rank, workers, 29500, options)
        _life(program, rank, workers, folder, options)
        code = 0
    except SynclineError as error:
        (folder / f"refused-{rank}").write_text(str(error))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _life(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> None:
    """Run a script as one of its ranks, listen, and leave the record and the groups in a file of the rank's number."""
    from syncline.measure.recording import clocks, cuda, eager, operations, shaped_rank
    from syncline.measure.recording.recorder import RECORDER

    begin_alike(threads=1, seed=0)  # which ranks are alike must not depend on chance
    groups = shaped_rank.install_shapes(rank, workers, folder)
    eager.install_eager()
    clocks.install_clocks(options.clock == "allow")
    operations.register_attention()
    counter = shaped_rank.ShapedCounter(RECORDER.operation, RECORDER.listens)

    def keep() -> None:
        (folder / f"{rank}").write_bytes(pickle.dumps((finished_record(), groups.made)))

    keep_at_exit(keep)
    with shaped_rank.fake_mode(), counter, cuda.install_cuda():
        run_script(program)
    keep()
