"""Cost of a collective without a closed form: a simulation of this collective alone, in lockstep or by events."""

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

MAX_MESSAGES = {"lockstep": 4_000_000, "events": 300_000}
"""Limit on the messages of one collective that each evaluator simulates: so many take a second or two."""

MAX_RING_MESSAGES = 64_000_000
"""Limit on the messages of a ring in lockstep, which is higher because all rounds of a ring are the same."""


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
        workers: number of workers.
        nbytes: bytes of the collective.
        network: network that joins the workers.
        algorithm: algorithm of the collective.
        rule: start rule of messages, ``eager`` or ``rendezvous``.
        group: the first of several groups that each run the collective at the same time, see
            `syncline.costmodel.traffic.call.groups_like`; if None, all workers run one collective.

    Raises:
        SpecError: a number of workers that the network cannot join.
    """
    if group is not None:
        return _groups_s(kind, group, workers, nbytes, network, algorithm, rule)
    description = f"{kind} by {algorithm} among {workers:,}"
    messages = most_messages(kind, algorithm, workers, network, nbytes)
    limits = MAX_MESSAGES | ({"lockstep": MAX_RING_MESSAGES} if algorithm in ("ring", ORDERED_RING) else {})
    if messages > max(limits.values()):
        return math.nan, f"{description} has no closed form here, and {messages:,} messages are too many to play"
    for evaluator, limit in limits.items():
        if messages > limit:
            reason = f"{description} has no closed form here; {messages:,} messages that meet are too many for events"
            return math.nan, reason
        try:
            finish_s = collective_finish_s(kind, workers, nbytes, network, algorithm, evaluator=evaluator, rule=rule)
            return float(finish_s.max()), evaluator
        except Contention:
            continue
    raise AssertionError("the events simulate every collective")


def _groups_s(
    kind: str, group: range, workers: int, nbytes: float, network: Network | Topology, algorithm: str, rule: Rule
) -> tuple[float, str]:
    """Return the seconds of a collective in all groups like ``group`` at once, and the evaluator; or nan, and why."""
    groups = groups_like(group, workers)
    messages = len(groups) * most_messages(kind, algorithm, len(group), network, nbytes)
    if messages > MAX_MESSAGES["events"]:
        return (
            math.nan,
            f"{kind} by {algorithm} among {len(groups):,} parts: {messages:,} messages are too many to play",
        )
    joined = topology(network, workers)
    times = StepTimes.checked(np.zeros((1, workers)))
    calls = [Call(0, kind, nbytes, members, algorithm) for members in groups]
    try:
        return max(float(spans.end_s.max()) for spans in lockstep_spans(times, calls, joined, None, rule)), "lockstep"
    except Contention:
        timeline = run_events(data_parallel(times, calls), joined, None, rule)
        return float(timeline.end_s.max(initial=0.0)), "events"
