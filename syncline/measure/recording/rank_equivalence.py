"""Equivalence of ranks: one recorded rank stands for all ranks that do the same.

Every rank of a script creates all groups, including those that it is not in. Groups that are created one after another
and have no rank in common are a *family*, for example the rows of a mesh. The *place* of a rank has an entry for each
family: the size of the rank's group, if it is in one; and, if messages travel in the family (the stages of a
pipeline), the rank's number in its group. Ranks with the same place differ only in the groups that they are in, as long
as the script does not depend on its rank. To detect such a dependence, the trace records the first and the last rank of
a place and, if these differ, ranks between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from syncline.errors import SynclineError
from syncline.measure.recording.record import Event, MessageAwaited, MessageSent, RankRecord, Started

RankPlace: TypeAlias = tuple[Any, ...]


class Group(NamedTuple):
    """A process group with its name and its ranks."""

    name: str
    ranks: tuple[int, ...]


class Families:
    """The groups of a script, sorted by family.

    Args:
        groups: name and ranks of every group, in the order of creation.
    """

    def __init__(self, groups: Iterable[tuple[str, Sequence[int]]]) -> None:
        self.families: list[list[Group]] = []
        seen: set[int] = set()
        for name, ranks in groups:
            if not self.families or seen & set(ranks):
                self.families.append([])
                seen = set()
            self.families[-1].append(Group(name, tuple(ranks)))
            seen |= set(ranks)
        # The number of each group's family, and for each family the group of each rank.
        self._family = {group.name: number for number, family in enumerate(self.families) for group in family}
        self._groups_of = [{rank: group for group in family for rank in group.ranks} for family in self.families]

    def place(self, rank: int, messages: Iterable[int]) -> RankPlace:
        """Return the place of a rank: the size of its group in each family.

        In families with messages the place includes the number of the rank in its group.
        """
        numbered = set(messages)
        groups = [group_of_rank.get(rank) for group_of_rank in self._groups_of]
        return tuple(
            group and (len(group.ranks), group.ranks.index(rank) if number in numbered else None)
            for number, group in enumerate(groups)
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
        """Return a rank's record translated to another rank of its place, with that rank's groups and neighbours."""
        groups: dict[str, Group] = {}

        def target_group(name: str) -> Group:
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
            if isinstance(event, Started):
                group = target_group(event.key[0])
                return event._replace(ranks=group.ranks, key=(group.name, event.key[1]))
            if isinstance(event, MessageSent | MessageAwaited):
                name, source, to, number = event.tag
                ends = neighbour(name, source), neighbour(name, to)
                tag = target_group(name).name, *ends, number
                if isinstance(event, MessageSent):
                    return event._replace(to=ends[1], tag=tag)
                return event._replace(source=ends[0], tag=tag)
            return event

        return replace(record, events=[translated(event) for event in record.events])


def have_same_events(record: RankRecord, other: RankRecord) -> bool:
    """Return whether two ranks have the same events and operations."""
    return record.events == other.events and record.segments == other.segments


def stand_ins(
    families: Families, workers: int, records: dict[int, RankRecord], record_more: Callable[[Sequence[int]], None]
) -> list[int]:
    """Return, for each rank, the recorded rank that stands for it.

    Args:
        workers: P, the number of ranks.
        records: the records by rank; ``record_more`` adds to them.
        record_more: a function that records further ranks and adds them to the records.
    """
    places: dict[RankPlace, list[int]] = {}
    while True:
        numbered = families.with_messages(records.values())
        places.clear()
        for rank in range(workers):
            places.setdefault(families.place(rank, numbered), []).append(rank)
        missing = sorted({end for ranks in places.values() for end in (ranks[0], ranks[-1])} - set(records))
        if not missing:
            break
        record_more(missing)
    substitutes = list(range(workers))
    for ranks in places.values():
        _spread(families, ranks, records, record_more, substitutes)
    return substitutes


def _spread(
    families: Families, ranks: Sequence[int], records: Mapping[int, RankRecord],
    record_more: Callable[[Sequence[int]], None], substitutes: list[int],
) -> None:  # fmt: skip
    """Set the recorded rank that stands for each rank of a place.

    If the first and the last rank do the same, the first stands for all ranks; else the function splits the ranks.
    """
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
        cut = 1 if first_differs_alone else len(ranks) // 2
        _spread(families, ranks[:cut], records, record_more, substitutes)
        _spread(families, ranks[cut:], records, record_more, substitutes)
