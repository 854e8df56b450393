"""Cost of a collective without a closed form on a network: a simulation of it alone, in lockstep or by events."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from syncline.costmodel.collectives.by_places import ORDERED_RING
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.counts import most_messages
from syncline.costmodel.network.topology import Network, Topology, topology
from syncline.costmodel.traffic.call import Call, groups_like
from syncline.sim.clocks.overlap import StepTimes, data_parallel, lockstep_spans
from syncline.sim.clocks.single_collective import collective_finish_s
from syncline.sim.events.run import run_events
from syncline.sim.lockstep.routed import Contention

MOST_PLAYED = {"lockstep": 4_000_000, "events": 300_000}
"""Limit on the messages of one collective that each evaluator simulates: they take a second or two."""

MOST_AROUND = 64_000_000
"""Limit on the messages of a ring in lockstep, because all of its rounds are the same."""


@lru_cache(maxsize=4096)
def simulated_s(
    kind: str,
    workers: int,
    nbytes: float,
    network: Network | Topology,
    algorithm: str,
    rule: Rule = "eager",
    group: range | None = None,
) -> tuple[float, str]:
    """Return the seconds of a collective whose workers start together, and the evaluator; or nan, and the reason.

    Args:
        kind: the collective, one of `syncline.costmodel.COLLECTIVES`.
        workers: P, the number of workers.
        nbytes: n, the bytes of the collective.
        network: network that joins the workers.
        algorithm: algorithm of the collective.
        rule: condition under which a message starts.
        group: the first of the groups that call it at once, see `syncline.costmodel.traffic.call.groups_like`; None:
            all workers.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    if group is not None:
        return _groups_s(kind, group, workers, nbytes, network, algorithm, rule)
    description = f"{kind} by {algorithm} among {workers:,}"
    messages = most_messages(kind, algorithm, workers, network, nbytes)
    played = MOST_PLAYED | ({"lockstep": MOST_AROUND} if algorithm in ("ring", ORDERED_RING) else {})
    if messages > max(played.values()):
        return math.nan, f"{description} has no closed form here, and {messages:,} messages are too many to play"
    for evaluator, limit in played.items():
        if messages > limit:
            return (
                math.nan,
                f"{description} has no closed form here; {messages:,} messages that meet are too many for events",
            )
        try:
            return float(
                collective_finish_s(kind, workers, nbytes, network, algorithm, evaluator=evaluator, rule=rule).max()
            ), evaluator
        except Contention:
            continue
    raise AssertionError("the events play everything")


def _groups_s(
    kind: str, part: range, workers: int, nbytes: float, network: Network | Topology, algorithm: str, rule: Rule
) -> tuple[float, str]:
    """Return the seconds of a collective of all parts like ``part`` at once, and the evaluator, or nan and a reason."""
    parts = groups_like(part, workers)
    messages = len(parts) * most_messages(kind, algorithm, len(part), network, nbytes)
    if messages > MOST_PLAYED["events"]:
        return math.nan, f"{kind} by {algorithm} among {len(parts):,} parts: {messages:,} messages are too many to play"
    joined = topology(network, workers)
    times, calls = StepTimes.checked(np.zeros((1, workers))), [Call(0, kind, nbytes, on, algorithm) for on in parts]
    try:
        return max(float(spans.end_s.max()) for spans in lockstep_spans(times, calls, joined, None, rule)), "lockstep"
    except Contention:
        timeline = run_events(data_parallel(times, calls), joined, None, rule)
        return float(timeline.end_s.max(initial=0.0)), "events"
