"""Recording of a script by shapes alone: fake tensors, groups without processes, one rank for many equivalent ranks.

The ranks compute nothing and send nothing, so hundreds of ranks with billions of parameters fit onto one machine, and
losses are unknown. See also ``shaped_rank`` (one rank), ``shaped_ddp`` and ``rank_equivalence`` (the rank that stands
for another).
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

from torch._subclasses.fake_tensor import FakeTensorMode

from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.interrupts import raise_if_interrupted
from syncline.measure.recording import clocks, cuda, eager, operations, shaped_rank
from syncline.measure.recording.forks import fork_process, reset_child_state, set_up_child
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
from syncline.measure.recording.record import RankRecord, print_notes
from syncline.measure.recording.recorder import RECORDER

POLL_S = 0.02

MOST_LISTED = 16
"""Maximum number of recorded ranks that the note lists."""


@dataclass
class ShapedRecord:
    """The record of a script by shapes.

    Args:
        recorded: the records of the recorded ranks, by rank.
        stands_for: for each of the P ranks the recorded rank that stands for it.
        groups: name and ranks of each group of the script, in the order of creation.
    """

    recorded: dict[int, RankRecord]
    stands_for: list[int]
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def expanded(self) -> list[RankRecord]:
        """Return the records of all ranks."""
        families = Families(self.groups)
        return [
            self.recorded[stand_in] if stand_in == rank else families.as_if(self.recorded[stand_in], rank)
            for rank, stand_in in enumerate(self.stands_for)
        ]


def shaped(
    program: ForeignScript, workers: int, ranks: Sequence[int] = (), options: TraceOptions = DEFAULT_OPTIONS
) -> ShapedRecord:
    """Record a script by shapes.

    Args:
        workers: P, the number of ranks.
        ranks: the ranks to record; each stands for the ranks of its place up to the next rank in this list. If empty,
            the function finds them.

    Raises:
        SynclineError: if the script reads values, a rank fails, or no rank in ``ranks`` can stand for another rank.
    """
    if ranks and not all(0 <= rank < workers for rank in ranks):
        raise SpecError("--ranks", ",".join(map(str, ranks)), f"ranks from 0 to {workers - 1}")
    import_before_forking()
    recorded: dict[int, RankRecord] = {}
    groups: list[tuple[str, tuple[int, ...]]] = []
    with temporary_folder() as folder:

        def record(new_ranks: Sequence[int]) -> None:
            for rank in recorded_ranks(program, workers, new_ranks, folder, set(recorded), options):
                if not (folder / f"{rank}").exists():
                    raise SynclineError(f"rank {rank} of {workers} {NO_RECORD}")
                rank_record, rank_groups = pickle.loads((folder / f"{rank}").read_bytes())
                recorded[rank] = rank_record
                if rank_groups != groups and groups:
                    raise SynclineError(f"rank {rank} makes other groups than the ranks before it")
                groups[:] = rank_groups

        record(ranks or [0])
        families = Families(groups)
        if not ranks:
            return ShapedRecord(recorded, stand_ins(families, workers, recorded, record), groups)
    numbered = families.with_messages(recorded.values())
    places = {rank: families.place(rank, numbered) for rank in range(workers)}
    stand_in_of = []
    for rank in range(workers):
        candidates = [candidate for candidate in sorted(recorded) if places[candidate] == places[rank]]
        if not candidates:
            raise SpecError("--ranks", ",".join(map(str, ranks)), f"also a rank that stands for rank {rank}")
        stand_in_of.append(max((candidate for candidate in candidates if candidate <= rank), default=candidates[0]))
    return ShapedRecord(recorded, stand_in_of, groups)


def trace_by_shapes(
    program: ForeignScript, workers: int, options: TraceOptions, ranks: Sequence[int] = ()
) -> list[RankRecord]:
    """Return the records of all ranks of a program by shapes, in place of `traced`; see `shaped` for ``ranks``."""
    record = shaped(program, workers, ranks, options)
    counts = Counter(record.stands_for)
    listed = ", ".join(f"rank {rank} for {count}" for rank, count in sorted(counts.items())[:MOST_LISTED])
    more = f" and {len(counts) - MOST_LISTED} more" if len(counts) > MOST_LISTED else ""
    first, *others = record.expanded()
    first = replace(first, notes=[*first.notes, f"{program.name}, by shapes: {listed}{more}"])
    return print_notes([first, *others])


def parse_ranks(text: str | None) -> tuple[int, ...]:
    """Return the ranks in a comma-separated list of a command line, sorted and without duplicates.

    Raises:
        SpecError: if the text is not a list of numbers.
    """
    try:
        return tuple(sorted({int(word) for word in text.split(",")})) if text is not None else ()
    except ValueError:
        raise SpecError("--ranks", text, "numbers with commas between, as 0,8") from None


def recorded_ranks(
    program: ForeignScript, workers: int, ranks: Sequence[int], folder: Path, recorded: set[int], options: TraceOptions
) -> list[int]:
    """Record ranks, and the ranks with which they exchange objects, in parallel; each rank writes a file.

    Returns:
        The ranks that were recorded.

    Raises:
        SynclineError: if a rank fails.
    """
    running: dict[int, int] = {}
    started: list[int] = []
    requested = list(ranks)
    try:
        while True:
            for rank in requested:
                if rank not in started and rank not in recorded:
                    started.append(rank)
                    running[_forked(program, rank, workers, folder, options)] = rank
            if not running:
                return started
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                time.sleep(POLL_S)
            raise_if_interrupted()
            rank = running.pop(pid, -1)
            if status and rank >= 0:
                refusal = folder / f"refused-{rank}"
                raise SynclineError(refusal.read_text() if refusal.exists() else f"rank {rank} of {workers} failed")
            requested = [int(file.name.removeprefix("want-")) for file in folder.glob("want-*")]
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _forked(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> int:
    """Fork a process that runs one rank, writes its record or error, and ends; return its process id."""
    pid = fork_process()
    if pid:
        return pid
    code = 1
    try:
        set_up_child()
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
    """Run and record a script as one of its ranks, and write the record and the groups to a file."""
    reset_child_state(threads=1, seed=0)  # a fixed seed, because the equivalence of ranks must not depend on chance
    groups = shaped_rank.install_shapes(rank, workers, folder)
    eager.install_eager()
    clocks.install_clocks(options.clock == "allow")
    operations.register_attention()
    counter = shaped_rank.ShapedCounter(RECORDER.operation, RECORDER.is_counting)

    def keep() -> None:
        (folder / f"{rank}").write_bytes(pickle.dumps((finished_record(), groups.made)))

    keep_at_exit(keep)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)  # constants that a script writes down keep their values
    with fake_mode, counter, cuda.install_cuda():
        run_script(program)
    keep()
