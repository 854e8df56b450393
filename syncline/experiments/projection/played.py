"""What a collective takes that has no closed form on a network: played by itself, in lockstep or in events."""

from __future__ import annotations

import math
from functools import lru_cache

from syncline.costmodel import Network
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.counts import most_messages
from syncline.costmodel.collectives.many import CLOSED_FORM
from syncline.costmodel.traffic.call import Call, parts_like

MOST_PLAYED = {"lockstep": 4_000_000, "events": 300_000}
"""How many messages of one collective each evaluator plays: a second's worth or two."""

MOST_AROUND = 64_000_000
"""How many lockstep plays of rings, whose rounds are all the same."""

HOW = (CLOSED_FORM, *MOST_PLAYED)
"""How a time is known, from a formula to one event after another; anything else says why it is not."""


@lru_cache(maxsize=4096)
def played_s(
    kind: str, workers: int, nbytes: float, network: Network, algorithm: str, rule: Rule = "eager"
) -> tuple[float, str]:
    """Seconds of a collective whose workers start together, and who played it; or nan, and why nobody did.

    Args:
        kind: one of `syncline.costmodel.COLLECTIVES`.
        workers: P.
        nbytes: n.
        network: what joins them.
        algorithm: what carries it.
        rule: when a message starts.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    what = f"{kind} by {algorithm} among {workers:,}"
    messages = most_messages(kind, algorithm, workers, network, nbytes)
    played = MOST_PLAYED | ({"lockstep": MOST_AROUND} if algorithm == "ring" else {})
    if messages > max(played.values()):
        return math.nan, f"{what} has no closed form here, and {messages:,} messages are too many to play"

    from syncline.sim import collective_finish_s  # only here: most projections play nothing
    from syncline.sim.lockstep.routed import Contention

    for by, most in played.items():
        if messages > most:
            return (
                math.nan,
                f"{what} has no closed form here; {messages:,} messages that meet are too many for events",
            )
        try:
            return float(collective_finish_s(kind, workers, nbytes, network, algorithm, by=by, rule=rule).max()), by
        except Contention:
            continue
    raise AssertionError("the events play everything")


@lru_cache(maxsize=1024)
def played_parts_s(
    kind: str, part: range, workers: int, nbytes: float, network: Network, algorithm: str, rule: Rule = "eager"
) -> tuple[float, str]:
    """Seconds of a collective among each of the parts that are like one, all at once; or nan, and why nobody played it.

    Args:
        kind: one of `syncline.costmodel.COLLECTIVES`.
        part: the first of them, see `syncline.costmodel.traffic.call.parts_like`.
        workers: P.
        nbytes: n.
        network: what joins all of them.
        algorithm: what carries it.
        rule: when a message starts.
    """
    parts = parts_like(part, workers)
    messages = len(parts) * most_messages(kind, algorithm, len(part), network, nbytes)
    if messages > MOST_PLAYED["events"]:
        return math.nan, f"{kind} by {algorithm} among {len(parts):,} parts: {messages:,} messages are too many to play"

    from syncline.sim import clock

    calls = [Call(0, kind, nbytes, each) for each in parts]
    told = clock(calls, 0.0, network, workers, 1, algorithm=algorithm, rule=rule)
    return told.wall_s, told.evaluator
