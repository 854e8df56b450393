"""What a server knows of its workers and of its versions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Desk:
    """Of one server, the only or a local one.

    Args:
        number: its own.
        idle: workers who have no model to work with, in the order in which they became so; at first all of its own.
        versions: that it has made.
        under_way: workers who compute, or whose updates are on their way.
        buffered: workers whose updates wait for a version.
        closing: version whose grace is running.
        merged: versions that it had made when it last merged the model from above.
        above: version of the model that was sent from above last.
        away: whether what it sent above, or what came back, is on its way.
    """

    number: int
    idle: list[int]
    versions: int = 0
    under_way: int = 0
    buffered: list[int] = field(default_factory=list)
    closing: int = 0
    merged: int = 0
    above: int = 0
    away: bool = False


def desks_of(workers: int, groups: tuple[int, ...]) -> list[Desk]:
    """One for all workers, or one for each group of them."""
    sizes = groups or (workers,)
    firsts = [sum(sizes[:s]) for s in range(len(sizes))]
    return [
        Desk(s, list(range(first, first + size))) for s, (first, size) in enumerate(zip(firsts, sizes, strict=True))
    ]
