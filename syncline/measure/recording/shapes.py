"""Recording of a script by shapes alone: fake tensors, groups without processes, one rank for many equivalent ranks.

The ranks compute nothing and send nothing, so hundreds of ranks with billions of parameters fit onto one machine, and
losses are unknown. See also ``shaped_rank`` (one rank) and ``shaped_ddp``.

Every rank of a script creates all groups, including those that it is not in. Groups that are created one after another
and have no rank in common are a *family*, for example the rows of a mesh. The *role* of a rank has an entry for each
family: the size of the rank's group, if it is in one; and, if messages travel in the family (the stages of a
pipeline), the rank's number in its group. Ranks with the same role differ only in the groups that they are in, as long
as the script does not depend on its rank. To detect such a dependence, the trace records the first and the last rank of
a role and, if these differ, ranks between them.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from torch._subclasses.fake_tensor import FakeTensorMode

from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.interrupts import raise_if_interrupted
from syncline.measure.recording import hooks, operations, shaped_rank, streams
from syncline.measure.recording.rank_processes import fork_process, reset_child_state, set_up_child
from syncline.measure.recording.ranks import (
    DEFAULT_OPTIONS,
    NO_RECORD,
    ForeignScript,
    TraceOptions,
    call_before_exit,
    finish_record,
    import_before_forking,
    run_script,
    set_rank_environment,
)
from syncline.measure.recording.record import Event, MessageAwaited, MessageSent, RankRecord, Started, print_notes
from syncline.measure.recording.recorder import RECORDER

RankRole: TypeAlias = tuple[Any, ...]


class Group(NamedTuple):
    """A process group with its name and its ranks."""

    name: str
    ranks: tuple[int, ...]


class Families:
    """The process groups of a script, in families: groups created one after another without a rank in common.

    ``groups`` are in the order of creation.
    """

    def __init__(self, groups: Iterable[tuple[str, Sequence[int]]]) -> None:
        self._groups: dict[str, Group] = {}
        self._family_of: dict[str, int] = {}  # index of each group's family, by the group's name
        self._group_of_rank: list[dict[int, Group]] = []  # for each family, the group of each rank
        for name, ranks in groups:
            if not self._group_of_rank or self._group_of_rank[-1].keys() & set(ranks):
                self._group_of_rank.append({})  # a new family
            self._groups[name] = Group(name, tuple(ranks))
            self._family_of[name] = len(self._group_of_rank) - 1
            self._group_of_rank[-1].update(dict.fromkeys(ranks, self._groups[name]))

    def role(self, rank: int, families_with_messages: set[int]) -> RankRole:
        """Return the role of a rank; ranks with equal roles probably do the same work.

        Args:
            families_with_messages: indices of families in which ranks send messages.

        Returns:
            For each family the size of the rank's group, and the rank's number in the group if the family has messages.
            None for a family in which the rank has no group.
        """
        role: list[tuple[int, int | None] | None] = []
        for family, group_of_rank in enumerate(self._group_of_rank):
            group = group_of_rank.get(rank)
            if group is None:
                role.append(None)
            else:
                number = group.ranks.index(rank) if family in families_with_messages else None
                role.append((len(group.ranks), number))
        return tuple(role)

    def families_with_messages(self, records: Iterable[RankRecord]) -> set[int]:
        """Return the indices of the families in which a rank sends or awaits a message."""
        families = set()
        for record in records:
            for event in record.events:
                if isinstance(event, MessageSent | MessageAwaited):
                    group_name, *_ = event.tag
                    families.add(self._family_of[group_name])
        return families

    def translate(self, record: RankRecord, rank: int) -> RankRecord:
        """Return a recorded rank's record as that of ``rank``, with the groups of ``rank`` in place of its own."""

        def group_of_rank(recorded_name: str) -> Group:
            """Return the group of ``rank`` that corresponds to a group of the recorded rank."""
            group = self._group_of_rank[self._family_of[recorded_name]].get(rank)
            if group is None:
                raise SynclineError(
                    f"rank {rank} is in no group like {recorded_name!r}, of the rank that stands for it"
                )
            return group

        def translate_event(event: Event) -> Event:
            if isinstance(event, Started):
                recorded_name, number = event.key
                group = group_of_rank(recorded_name)
                return event._replace(ranks=group.ranks, key=(group.name, number))
            if isinstance(event, MessageSent | MessageAwaited):
                recorded_name, recorded_sender, recorded_receiver, number = event.tag
                group, recorded_ranks = group_of_rank(recorded_name), self._groups[recorded_name].ranks
                sender = group.ranks[recorded_ranks.index(recorded_sender)]
                receiver = group.ranks[recorded_ranks.index(recorded_receiver)]
                tag = group.name, sender, receiver, number
                if isinstance(event, MessageSent):
                    return event._replace(to=receiver, tag=tag)
                return event._replace(source=sender, tag=tag)
            return event

        return replace(record, events=[translate_event(event) for event in record.events])


def have_same_events(record: RankRecord, other: RankRecord) -> bool:
    """Return whether two ranks have the same events and operations."""
    return record.events == other.events and record.segments == other.segments


def find_representatives(
    families: Families, workers: int, records: dict[int, RankRecord], record_more: Callable[[Sequence[int]], None]
) -> list[int]:
    """Return, for each of the ``workers`` ranks, the recorded rank that stands for it.

    ``record_more`` records further ranks and adds them to ``records``.
    """
    # Roles depend on the families with messages, which only records show. Each round records the first and the last
    # rank of each role, until no role has changed.
    while True:
        families_with_messages = families.families_with_messages(records.values())
        ranks_by_role: dict[RankRole, list[int]] = {}
        for rank in range(workers):
            ranks_by_role.setdefault(families.role(rank, families_with_messages), []).append(rank)
        unrecorded = set()
        for ranks in ranks_by_role.values():
            unrecorded |= {ranks[0], ranks[-1]} - set(records)
        if not unrecorded:
            break
        record_more(sorted(unrecorded))
    representatives = list(range(workers))

    def represent(ranks: Sequence[int]) -> None:
        """Let the first rank stand for ranks of one role if the last does the same; else split the ranks."""
        first, last = ranks[0], ranks[-1]
        record_more([rank for rank in (first, last) if rank not in records])
        if have_same_events(families.translate(records[first], last), records[last]):
            for rank in ranks:
                representatives[rank] = first
        elif len(ranks) > 2:
            # Usually only the first rank differs, because it writes the log; otherwise split the ranks in halves.
            if ranks[1] not in records:
                record_more([ranks[1]])
            first_differs_alone = have_same_events(families.translate(records[ranks[1]], last), records[last])
            boundary = 1 if first_differs_alone else len(ranks) // 2
            represent(ranks[:boundary])
            represent(ranks[boundary:])

    for ranks in ranks_by_role.values():
        represent(ranks)
    return representatives


POLL_S = 0.02

MAX_LISTED = 16
"""Maximum number of recorded ranks that the note lists."""


@dataclass
class ShapedRecord:
    """The record of a script by shapes, in which recorded ranks stand for equivalent ones.

    Args:
        representatives: for each of the P ranks the recorded rank that stands for it.
        groups: name and ranks of each group of the script, in the order of creation.
    """

    recorded: dict[int, RankRecord]
    representatives: list[int]
    groups: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def expand(self) -> list[RankRecord]:
        """Return a record for each rank, translated from the record of the rank that stands for it."""
        families = Families(self.groups)
        return [
            self.recorded[rank] if representative == rank else families.translate(self.recorded[representative], rank)
            for rank, representative in enumerate(self.representatives)
        ]


def record_by_shapes(
    program: ForeignScript, workers: int, ranks: Sequence[int] = (), options: TraceOptions = DEFAULT_OPTIONS
) -> ShapedRecord:
    """Run a script on tensors that have shapes and no values, and return its record.

    Args:
        ranks: the ranks to record; if empty, the function chooses them. A rank that is not recorded is taken to be like
            the last recorded rank of its role before it, or else the first one after it, see `Families.role`.
        options: whether the script sees GPUs and may branch on clocks.

    Raises:
        SynclineError: if the script reads values, a rank fails, or no rank in ``ranks`` can stand for another rank.
    """
    if ranks and not all(0 <= rank < workers for rank in ranks):
        raise SpecError("--ranks", ",".join(map(str, ranks)), f"ranks from 0 to {workers - 1}")
    import_before_forking()
    records: dict[int, RankRecord] = {}
    groups: list[tuple[str, tuple[int, ...]]] = []
    with temporary_folder() as folder:

        def record_more(new_ranks: Sequence[int]) -> None:
            """Record further ranks, and check that they create the same groups."""
            for rank in run_ranks(program, workers, new_ranks, folder, recorded=set(records), options=options):
                if not (folder / f"{rank}").exists():
                    raise SynclineError(f"rank {rank} of {workers} {NO_RECORD}")
                records[rank], rank_groups = pickle.loads((folder / f"{rank}").read_bytes())
                if groups and rank_groups != groups:
                    raise SynclineError(f"rank {rank} makes different groups from the ranks before it")
                groups[:] = rank_groups

        record_more(ranks or [0])  # one rank suffices to show all groups
        families = Families(groups)
        if not ranks:
            representatives = find_representatives(families, workers, records, record_more)
            return ShapedRecord(records, representatives, groups)
    families_with_messages = families.families_with_messages(records.values())
    roles = [families.role(rank, families_with_messages) for rank in range(workers)]
    representatives = []
    for rank in range(workers):
        candidates = [candidate for candidate in sorted(records) if roles[candidate] == roles[rank]]
        if not candidates:
            raise SpecError("--ranks", ",".join(map(str, ranks)), f"also a rank that stands for rank {rank}")
        representatives.append(max((c for c in candidates if c <= rank), default=candidates[0]))
    return ShapedRecord(records, representatives, groups)


def trace_program_by_shapes(
    program: ForeignScript, workers: int, options: TraceOptions, ranks: Sequence[int] = ()
) -> list[RankRecord]:
    """Return the records of all ranks of a program by shapes; see `record_by_shapes` for ``ranks``."""
    shaped = record_by_shapes(program, workers, ranks, options)
    counts = Counter(shaped.representatives)  # number of ranks for which each recorded rank stands
    listed = ", ".join(f"rank {rank} for {count}" for rank, count in sorted(counts.items())[:MAX_LISTED])
    more = f" and {len(counts) - MAX_LISTED} more" if len(counts) > MAX_LISTED else ""
    first, *other_ranks = shaped.expand()
    first = replace(first, notes=[*first.notes, f"{program.name}, by shapes: {listed}{more}"])
    return print_notes([first, *other_ranks])


def parse_ranks(text: str | None) -> tuple[int, ...]:
    """Return the ranks in a comma-separated list of a command line, sorted and without duplicates."""
    if text is None:
        return ()
    try:
        return tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        raise SpecError("--ranks", text, "numbers separated by commas, as 0,8") from None


def run_ranks(
    program: ForeignScript, workers: int, ranks: Sequence[int], folder: Path, recorded: set[int], options: TraceOptions
) -> list[int]:
    """Record ranks in parallel, and the ranks with which they exchange objects; return the ranks that were recorded.

    Args:
        folder: the folder in which each recorded rank writes a file.
        recorded: ranks that were recorded earlier.
    """
    rank_by_pid: dict[int, int] = {}  # of the running processes
    started: list[int] = []
    requested = list(ranks)
    try:
        while True:
            for rank in requested:
                if rank not in started and rank not in recorded:
                    started.append(rank)
                    pid = _fork_rank(program, rank, workers, folder, options)
                    rank_by_pid[pid] = rank
            if not rank_by_pid:
                return started
            pid, status = os.waitpid(-1, os.WNOHANG)  # a child that has ended, if any
            if pid == 0:  # no child has ended
                time.sleep(POLL_S)
            raise_if_interrupted()
            ended_rank = rank_by_pid.pop(pid, None)  # None if no child has ended, or one that is no rank
            if status and ended_rank is not None:
                refusal = folder / f"refused-{ended_rank}"
                failed = f"rank {ended_rank} of {workers} failed"
                raise SynclineError(refusal.read_text() if refusal.exists() else failed)
            # A rank that exchanges objects with another one asks for it by a file.
            requested = [int(file.name.removeprefix("want-")) for file in folder.glob("want-*")]
    finally:
        for pid in rank_by_pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork_rank(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> int:
    """Fork a process that runs a rank and writes the rank's record or error; return the process id."""
    pid = fork_process()
    if pid != 0:
        return pid
    code = 1
    try:
        set_up_child()
        set_rank_environment(rank, workers, port=29500, options=options)  # torch's default port; nothing is sent
        _run_rank(program, rank, workers, folder, options)
        code = 0
    except SynclineError as error:
        (folder / f"refused-{rank}").write_text(str(error))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_rank(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> None:
    """Run a script as a rank on tensors without values; write the record and the groups to a file."""
    reset_child_state(num_threads=1, seed=0)  # a fixed seed, because the equivalence of ranks must not depend on chance
    groups = shaped_rank.install_shapes(rank, workers, folder)
    hooks.replace_compile_and_spawn()
    streams.install_clocks(comparison_allowed=options.clock == "allow")
    operations.register_attention()
    counter = shaped_rank.ShapedCounter(RECORDER.add_operation, RECORDER.is_counting)

    def write_record() -> None:
        (folder / f"{rank}").write_bytes(pickle.dumps((finish_record(by_shapes=True), groups.groups)))

    call_before_exit(write_record)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)  # constants that a script writes down keep their values
    with fake_mode, counter, hooks.install_cuda():
        run_script(program)
    write_record()
