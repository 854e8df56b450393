"""Which ranks of a script are alike, so that one is recorded for many.

Every rank of a script makes all groups, also those that it is not in. Groups made one after another that have no rank
in common are a *family*: the rows of a mesh. A rank's *place* is, for each family, in which size of group it is, if in
any; and where messages travel in that family (the stages of a pipeline), which number it has in its group. Ranks of one
place differ by nothing but which groups they are in, as long as a script does not look at its rank. Whether it does is
seen by recording the first and the last of a place, and, where these differ, others between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from syncline.errors import SynclineError
from syncline.measure.recording.record import Event, MessageAwaited, MessageSent, RankRecord, Started

RankPlace: TypeAlias = tuple[Any, ...]


class Group(NamedTuple):
    """A group: its name and its ranks."""

    name: str
    ranks: tuple[int, ...]


class Families:
    """The groups of a script, those of each family together.

    Args:
        made: every group, in the order in which they were made.
    """

    def __init__(self, made: Iterable[tuple[str, Sequence[int]]]) -> None:
        self.families: list[list[Group]] = []
        seen: set[int] = set()
        for name, ranks in made:
            if not self.families or seen & set(ranks):
                self.families.append([])
                seen = set()
            self.families[-1].append(Group(name, tuple(ranks)))
            seen |= set(ranks)
        self._family = {group.name: number for number, family in enumerate(self.families) for group in family}
        self._of = [{rank: group for group in family for rank in group.ranks} for family in self.families]

    def family(self, name: str) -> int:
        """The number of a group's family."""
        return self._family[name]

    def of(self, rank: int, family: int) -> Group | None:
        """A rank's group in a family."""
        return self._of[family].get(rank)

    def place(self, rank: int, messages: Iterable[int]) -> RankPlace:
        """What a rank is, but for which of its groups it is in; of families with messages its number counts, too."""
        numbered = set(messages)
        groups = [of.get(rank) for of in self._of]
        return tuple(
            group and (len(group.ranks), group.ranks.index(rank) if number in numbered else None)
            for number, group in enumerate(groups)
        )

    def with_messages(self, records: Iterable[RankRecord]) -> set[int]:
        """Families in which somebody sends a message."""
        return {
            self.family(event.tag[0])
            for record in records
            for event in record.events
            if isinstance(event, MessageSent | MessageAwaited)
        }

    def as_if(self, record: RankRecord, rank: int) -> RankRecord:
        """A record of a rank, told of another rank of its place: in the other's groups, to the other's neighbours."""
        groups: dict[str, Group] = {}

        def there(name: str) -> Group:
            if name not in groups:
                group = self.of(rank, self.family(name))
                if group is None:
                    raise SynclineError(
                        f"rank {rank} is in no group like {name!r}, of the rank that is to stand for it"
                    )
                groups[name] = group
            return groups[name]

        def neighbour(name: str, member: int) -> int:
            here = next(group for group in self.families[self.family(name)] if group.name == name)
            return there(name).ranks[here.ranks.index(member)]

        def told(event: Event) -> Event:
            if isinstance(event, Started):
                group = there(event.key[0])
                return event._replace(ranks=group.ranks, key=(group.name, event.key[1]))
            if isinstance(event, MessageSent | MessageAwaited):
                name, source, to, number = event.tag
                ends = neighbour(name, source), neighbour(name, to)
                tag = there(name).name, *ends, number
                if isinstance(event, MessageSent):
                    return event._replace(to=ends[1], tag=tag)
                return event._replace(source=ends[0], tag=tag)
            return event

        return replace(record, events=[told(event) for event in record.events])


def same(one: RankRecord, other: RankRecord) -> bool:
    """Whether two ranks do the same, to the last event and operation."""
    return one.events == other.events and one.segments == other.segments


def stand_ins(
    families: Families, workers: int, records: dict[int, RankRecord], record_more: Callable[[Sequence[int]], None]
) -> list[int]:
    """For each rank the recorded rank that stands for it.

    Args:
        families: groups of the script.
        workers: P.
        records: of ranks; more are added.
        record_more: records ranks, and adds them.
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
    of = list(range(workers))
    for ranks in places.values():
        _spread(families, ranks, records, record_more, of)
    return of


def _spread(
    families: Families,
    ranks: Sequence[int],
    records: Mapping[int, RankRecord],
    record_more: Callable[[Sequence[int]], None],
    of: list[int],
) -> None:
    """Say who stands for the ranks of a place: the first for those up to the last that is like it, and so on."""
    first, last = ranks[0], ranks[-1]
    record_more([rank for rank in (first, last) if rank not in records])
    if same(families.as_if(records[first], last), records[last]):
        for rank in ranks:
            of[rank] = first
    elif len(ranks) > 2:
        # Most often the first differs alone, as it writes the log; else those of one half.
        if ranks[1] not in records:
            record_more([ranks[1]])
        alone = same(families.as_if(records[ranks[1]], last), records[last])
        cut = 1 if alone else len(ranks) // 2
        _spread(families, ranks[:cut], records, record_more, of)
        _spread(families, ranks[cut:], records, record_more, of)
