"""State of a server: its workers, updates and versions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ServerState:
    """The state of one server, the only one or a local one.

    Args:
        number: number of the server.
        idle: workers that have no model to work with, in the order in which they became idle; at first all its workers.
        versions: number of versions that it has made.
        under_way: number of workers that compute or whose updates are on their way.
        buffered: workers whose updates wait for a version.
        closing: version whose grace period is running.
        merged: number of versions that it had made at its last merge of the model from above.
        above: version of the last model that was sent from above.
        away: whether its update to the server above, or the returned model, is on its way.
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


def server_states(workers: int, groups: tuple[int, ...]) -> list[ServerState]:
    """Return one server state for all workers, or one for each group of them."""
    sizes = groups or (workers,)
    firsts = [sum(sizes[:s]) for s in range(len(sizes))]
    return [
        ServerState(s, list(range(first, first + size)))
        for s, (first, size) in enumerate(zip(firsts, sizes, strict=True))
    ]
