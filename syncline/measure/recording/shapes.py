"""Recording of a script by shapes alone: fake tensors, groups without processes, one rank for many equivalent ranks.

The ranks compute nothing and send nothing, so hundreds of ranks with billions of parameters fit onto one machine, and
losses are unknown. See also ``shaped_rank`` (one rank) and ``shaped_ddp``.

Every rank of a script creates all groups, including those that it is not in. Groups that are created one after another
and have no rank in common are a *family*, for example the rows of a mesh. The *place* of a rank has an entry for each
family: the size of the rank's group, if it is in one; and, if messages travel in the family (the stages of a
pipeline), the rank's number in its group. Ranks with the same place differ only in the groups that they are in, as long
as the script does not depend on its rank. To detect such a dependence, the trace records the first and the last rank of
a place and, if these differ, ranks between them.
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
from syncline.measure.recording import hooks as cuda
from syncline.measure.recording import hooks as eager
from syncline.measure.recording import operations, shaped_rank
from syncline.measure.recording import streams as clocks
from syncline.measure.recording.rank_processes import fork_process, reset_child_state, set_up_child
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
from syncline.measure.recording.record import Event, MessageAwaited, MessageSent, RankRecord, Started, print_notes
from syncline.measure.recording.recorder import RECORDER

RankPlace: TypeAlias = tuple[Any, ...]


class Group(NamedTuple):
    """A process group with its name and its ranks."""

    name: str
    ranks: tuple[int, ...]


class Families:
    """The process groups of a script, sorted by family: groups created one after another without a rank in common.

    Args:
        groups: name and ranks of every group, in the order of creation.
    """

    def __init__(self, groups: Iterable[tuple[str, Sequence[int]]]) -> None:
        """Collect groups, in the order of their creation, in families: groups of a family have no rank in common."""
        self.families: list[list[Group]] = []
        ranks_in_family: set[int] = set()
        for name, ranks in groups:
            if not self.families or ranks_in_family & set(ranks):
                self.families.append([])
                ranks_in_family = set()
            self.families[-1].append(Group(name, tuple(ranks)))
            ranks_in_family |= set(ranks)
        # The number of each group's family, and for each family the group of each rank.
        self._family = {group.name: index for index, family in enumerate(self.families) for group in family}
        self._groups_of = [{rank: group for group in family for rank in group.ranks} for family in self.families]

    def place(self, rank: int, messages: Iterable[int]) -> RankPlace:
        """Return what decides a rank's work: its group's size in each family; None where it is in no group.

        Args:
            rank: the rank.
            messages: families in which ranks send messages; there the place includes the rank's number in its group.
        """
        numbered_messages = set(messages)
        groups = [group_of_rank.get(rank) for group_of_rank in self._groups_of]
        return tuple(
            group and (len(group.ranks), group.ranks.index(rank) if index in numbered_messages else None)
            for index, group in enumerate(groups)
        )

    def with_messages(self, records: Iterable[RankRecord]) -> set[int]:
        """Return the families in which a rank sends or awaits a message."""
        return {
            self._family[event.tag[0]]
            for record in records
            for event in record.events
            if isinstance(event, MessageSent | MessageAwaited)
        }

    def as_if(self, record: RankRecord, rank: int) -> RankRecord:
        """Return a record with the groups and neighbours of another rank that does the same work."""
        groups: dict[str, Group] = {}

        def target_group(name: str) -> Group:
            """Return the group of ``rank`` that corresponds to the recorded rank's group ``name``."""
            if name not in groups:
                group = self._groups_of[self._family[name]].get(rank)
                if group is None:
                    raise SynclineError(f"rank {rank} is in no group like {name!r}, of the rank that stands for it")
                groups[name] = group
            return groups[name]

        def neighbour(name: str, member: int) -> int:
            own_group = next(group for group in self.families[self._family[name]] if group.name == name)
            return target_group(name).ranks[own_group.ranks.index(member)]

        def translated(event: Event) -> Event:
            """Return an event with the groups, neighbours and tags of ``rank``."""
            if isinstance(event, Started):
                name, number = event.key
                group = target_group(name)
                return event._replace(ranks=group.ranks, key=(group.name, number))
            if isinstance(event, MessageSent | MessageAwaited):
                name, source, receiver, number = event.tag
                source, receiver = neighbour(name, source), neighbour(name, receiver)
                tag = target_group(name).name, source, receiver, number
                if isinstance(event, MessageSent):
                    return event._replace(to=receiver, tag=tag)
                return event._replace(source=source, tag=tag)
            return event

        return replace(record, events=[translated(event) for event in record.events])


def have_same_events(record: RankRecord, other: RankRecord) -> bool:
    """Return whether two ranks have the same events and operations."""
    return record.events == other.events and record.segments == other.segments


def stand_ins(
    families: Families, workers: int, records: dict[int, RankRecord], record_more: Callable[[Sequence[int]], None]
) -> list[int]:
    """Return, for each of the ``workers`` ranks, the recorded rank that stands for it.

    Args:
        families: the groups of the script.
        workers: number of ranks P.
        records: the records by rank.
        record_more: a function that records further ranks and adds them to ``records``.
    """
    places: dict[RankPlace, list[int]] = {}
    while True:
        numbered_messages = families.with_messages(records.values())
        places.clear()
        for rank in range(workers):
            places.setdefault(families.place(rank, numbered_messages), []).append(rank)
        unrecorded = sorted({end for ranks in places.values() for end in (ranks[0], ranks[-1])} - set(records))
        if not unrecorded:
            break
        record_more(unrecorded)
    substitutes = list(range(workers))

    def substitute(ranks: Sequence[int]) -> None:
        """Let the first rank stand for ranks of one place if the last does the same; else split the ranks."""
        first, last = ranks[0], ranks[-1]
        record_more([rank for rank in (first, last) if rank not in records])
        if have_same_events(families.as_if(records[first], last), records[last]):
            for rank in ranks:
                substitutes[rank] = first
        elif len(ranks) > 2:
            # Usually only the first rank differs, because it writes the log; else split the ranks in halves.
            if ranks[1] not in records:
                record_more([ranks[1]])
            first_differs_alone = have_same_events(families.as_if(records[ranks[1]], last), records[last])
            boundary = 1 if first_differs_alone else len(ranks) // 2
            substitute(ranks[:boundary])
            substitute(ranks[boundary:])

    for ranks in places.values():
        substitute(ranks)
    return substitutes


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
        """Return a record for each rank, made of the records of those that were run."""
        families = Families(self.groups)
        return [
            self.recorded[stand_in] if stand_in == rank else families.as_if(self.recorded[stand_in], rank)
            for rank, stand_in in enumerate(self.stands_for)
        ]


def shaped(
    program: ForeignScript, workers: int, ranks: Sequence[int] = (), options: TraceOptions = DEFAULT_OPTIONS
) -> ShapedRecord:
    """Run a script on tensors that have shapes and no values, and return its record.

    Args:
        program: the script.
        workers: number of ranks P.
        ranks: the ranks to record; each stands for the equivalent ranks up to the next rank in this list. If empty,
            the function finds them.
        options: whether the script sees GPUs and may branch on clocks.

    Raises:
        SynclineError: if the script reads values, a rank fails, or no rank in ``ranks`` can stand for another rank.
    """
    if ranks and not all(0 <= rank < workers for rank in ranks):
        raise SpecError("--ranks", ",".join(map(str, ranks)), f"ranks from 0 to {workers - 1}")
    import_before_forking()
    record_of_rank: dict[int, RankRecord] = {}
    groups: list[tuple[str, tuple[int, ...]]] = []
    with temporary_folder() as folder:

        def record(new_ranks: Sequence[int]) -> None:
            """Record further ranks, and check that they create the same groups."""
            for rank in recorded_ranks(
                program, workers, new_ranks, folder, recorded=set(record_of_rank), options=options
            ):
                if not (folder / f"{rank}").exists():
                    raise SynclineError(f"rank {rank} of {workers} {NO_RECORD}")
                rank_record, rank_groups = pickle.loads((folder / f"{rank}").read_bytes())
                record_of_rank[rank] = rank_record
                if rank_groups != groups and groups:
                    raise SynclineError(f"rank {rank} makes other groups than the ranks before it")
                groups[:] = rank_groups

        record(ranks or [0])
        families = Families(groups)
        if not ranks:
            return ShapedRecord(
                record_of_rank, stand_ins(families, workers, records=record_of_rank, record_more=record), groups
            )
    numbered_messages = families.with_messages(record_of_rank.values())
    places = {rank: families.place(rank, numbered_messages) for rank in range(workers)}
    stand_in_of = []
    for rank in range(workers):
        candidates = [candidate for candidate in sorted(record_of_rank) if places[candidate] == places[rank]]
        if not candidates:
            raise SpecError("--ranks", ",".join(map(str, ranks)), f"also a rank that stands for rank {rank}")
        stand_in_of.append(max((candidate for candidate in candidates if candidate <= rank), default=candidates[0]))
    return ShapedRecord(record_of_rank, stand_in_of, groups)


def trace_by_shapes(
    program: ForeignScript, workers: int, options: TraceOptions, ranks: Sequence[int] = ()
) -> list[RankRecord]:
    """Return the records of all ranks of a program by shapes, in place of `traced`; see `shaped` for ``ranks``."""
    record = shaped(program, workers, ranks, options)
    counts = Counter(record.stands_for)
    listed = ", ".join(f"rank {rank} for {count}" for rank, count in sorted(counts.items())[:MOST_LISTED])
    more = f" and {len(counts) - MOST_LISTED} more" if len(counts) > MOST_LISTED else ""
    first, *other_ranks = record.expanded()
    first = replace(first, notes=[*first.notes, f"{program.name}, by shapes: {listed}{more}"])
    return print_notes([first, *other_ranks])


def parse_ranks(text: str | None) -> tuple[int, ...]:
    """Return the ranks in a comma-separated list of a command line, sorted and without duplicates."""
    try:
        return tuple(sorted({int(word) for word in text.split(",")})) if text is not None else ()
    except ValueError:
        raise SpecError("--ranks", text, "numbers with commas between, as 0,8") from None


def recorded_ranks(
    program: ForeignScript, workers: int, ranks: Sequence[int], folder: Path, recorded: set[int], options: TraceOptions
) -> list[int]:
    """Record ranks in parallel, and the ranks with which they exchange objects; return the ranks that were recorded.

    Args:
        program: the script.
        workers: number of ranks P.
        ranks: the ranks to record.
        folder: the folder in which each recorded rank writes a file.
        recorded: ranks that were recorded earlier.
        options: whether the script sees GPUs and may branch on clocks.
    """
    running: dict[int, int] = {}
    child_pids: list[int] = []
    requested = list(ranks)
    try:
        while True:
            for rank in requested:
                if rank not in child_pids and rank not in recorded:
                    child_pids.append(rank)
                    running[_fork_rank(program, rank, workers, folder, options)] = rank
            if not running:
                return child_pids
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


def _fork_rank(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> int:
    """Fork a process that runs a rank and writes the rank's record or error; return the process id."""
    pid = fork_process()
    if pid:
        return pid
    code = 1
    try:
        set_up_child()
        rank_environment(rank, workers, port=29500, options=options)
        _record_by_shapes(program, rank, workers, folder, options)
        code = 0
    except SynclineError as error:
        (folder / f"refused-{rank}").write_text(str(error))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _record_by_shapes(program: ForeignScript, rank: int, workers: int, folder: Path, options: TraceOptions) -> None:
    """Record a script as a rank by the shapes of its tensors; write the record and the groups to a file."""
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
