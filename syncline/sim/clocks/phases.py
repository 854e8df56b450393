"""The clock of a training with changing workers: one clock per phase in which the group stays the same."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import Floats, Ints, Network, Topology, among, topology
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, buckets_on
from syncline.errors import SpecError
from syncline.sim.clocks.overlap import optimizer_times, overlapped, trigger_times
from syncline.sim.clocks.training import Clock, clock
from syncline.sim.program.instructions import Delay, start_times
from syncline.sim.program.timeline import Timeline

Bools = NDArray[np.bool_]

TOTALS = ("step_time_s", "bytes_per_worker", "wall_s")
"""Fields of a `Clock` that are no mean over steps and workers."""


def phased_clock(
    present: Bools,
    calls: Iterable[Call],
    compute_s: ArrayLike,
    network: Network | Topology | Sequence[Link],
    *,
    starts_s: ArrayLike | None = None,
    overlap: str = "none",
    buckets: Sequence[Bucket] = WHOLE,
    trigger_s: ArrayLike = 0.0,
    optimizer_s: ArrayLike = 0.0,
    keep_steps: int = 50,
    delay: Delay | None = None,
    **options: Any,
) -> Clock:
    """Return the clock of a training in which worker i takes part in step t if ``present[t, i]``.

    Collectives are among the present workers. When the group changes, no call is under way: a call that would be
    awaited later is awaited at the end of the step before. Workers that stay go on, each in its own time. Workers that
    join begin when the last of the others is through with the step before. Transfers to a joining worker are not
    counted.

    Args:
        present: whether each worker takes part in each step, ``(T, P)``; at least one worker does.
        calls: the collectives of the training.
        compute_s: seconds that each worker computes in each step in which it takes part, ``(T, P)``.
        network: the network of the P workers.
        starts_s: earliest beginning of each worker, ``(P,)`` seconds; 0 by default.
        overlap: whether and how calls overlap with computing: ``none``, ``ddp`` or ``async``, see `clock`.
        buckets: buckets of a gradient.
        trigger_s: seconds in which a worker decides whether to send, one number for all steps or ``(T,)``.
        optimizer_s: seconds of a worker's update in each step, one number for all workers or ``(P,)``.
        keep_steps: number of steps to keep in the timeline.
        delay: lateness of each message.
        options: other options of `clock`.

    Returns:
        A clock whose means are per step and present worker.

    Raises:
        SpecError: a step without workers, or an argument that `clock` refuses.
    """
    present = np.asarray(present)
    steps, workers = present.shape
    empty = np.flatnonzero(~present.any(axis=1))
    if len(empty):
        raise SpecError("present", int(empty[0]), "somebody present in every step")
    times = np.broadcast_to(np.asarray(compute_s, dtype=np.float64), (steps, workers))
    calls, full_network = list(calls), topology(network, workers)
    triggers_s, optimizers_s = trigger_times(trigger_s, steps), optimizer_times(optimizer_s, workers)
    travelling = overlapped(calls, overlap, buckets_on(full_network, buckets))
    now, before, parts = start_times(starts_s, workers).copy(), np.ones(workers, dtype=bool), []
    for begin, end in _phases(present):
        is_present = present[begin]
        members, joining = np.flatnonzero(is_present), is_present & ~before
        if joining.any():
            now[joining] = np.maximum(now[joining], now[before].max())
        part = clock(
            _of_phase(travelling, begin, end, steps, members),
            times[begin:end, members],
            among(full_network, members),
            len(members),
            end - begin,
            starts_s=now[members],
            trigger_s=triggers_s[begin:end],
            optimizer_s=optimizers_s[members],
            keep_steps=max(keep_steps - begin, 0),
            delay=delay and _between(members, delay),
            **options,
        )
        now[members], before = part.end_s, is_present
        parts.append(_Part(begin, members, part))
    return _joined(parts, present, sum(call.payload_bytes for call in calls), now)


def _of_phase(calls: Iterable[Call], begin: int, end: int, steps: int, members: Ints) -> list[Call]:
    """Return the calls of one phase, counted from its first step, all awaited before the next phase.

    Raises:
        SpecError: a call among other workers than the members of the phase.
    """
    phase_calls, selected = [], [call for call in calls if begin <= call.step < end]
    _check_groups(selected, members.tolist(), f"those present in steps {begin} to {end - 1}, or none, which means them")
    for call in selected:
        wait_steps = call.wait_steps if end == steps else min(call.wait_steps, end - 1 - call.step)
        phase_calls.append(call._replace(step=call.step - begin, group=None, wait_steps=wait_steps))
    return phase_calls


def _check_groups(calls: Iterable[Call], members: Iterable[int], expected: str) -> None:
    """Refuse a collective among other workers than these members.

    Raises:
        SpecError: names the first such group.
    """
    everybody = set(members)
    for group in dict.fromkeys(call.group for call in calls):
        if group is not None and (len(group) != len(everybody) or set(group) != everybody):
            raise SpecError("calls.group", group, expected)


def _between(members: Ints, delay: Delay) -> Delay:
    """Return the delay of messages between members, by their numbers within the group."""
    number = members.tolist()
    return lambda sender, receiver: delay(number[sender], number[receiver])


def _phases(present: Bools) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each run of steps with the same workers."""
    changes = np.flatnonzero((present[1:] != present[:-1]).any(axis=1)) + 1
    edges = [0, *changes.tolist(), len(present)]
    yield from itertools.pairwise(edges)


@dataclass(frozen=True)
class _Part:
    """The clock of one phase: its first step, and its workers in their order."""

    begin: int
    members: Ints
    clock: Clock


def _joined(parts: Sequence[_Part], present: Bools, nbytes: float, end_s: Floats) -> Clock:
    """Return one clock of all phases."""
    steps, workers = present.shape
    weight = np.array([len(part.clock.step_end_s) * len(part.members) for part in parts]) / present.sum()

    names = [field.name for field in dataclasses.fields(Clock) if field.type == "float" and field.name not in TOTALS]
    means: dict[str, Any] = {name: float(weight @ [getattr(part.clock, name) for part in parts]) for name in names}
    step_end_s = np.concatenate([part.clock.step_end_s for part in parts])
    wall_s = float(step_end_s[-1])
    return dataclasses.replace(
        parts[0].clock,
        step_end_s=step_end_s,
        end_s=end_s,
        step_time_s=wall_s / steps,
        bytes_per_worker=nbytes / steps,
        wall_s=wall_s,
        evaluator="events" if any(part.clock.evaluator == "events" for part in parts) else "lockstep",
        timeline=_timeline(parts, workers),
        **means,
    )


def _timeline(parts: Sequence[_Part], workers: int) -> Timeline:
    columns = []
    for part in parts:
        of_part = part.clock.timeline.to_columns()
        step = np.where(of_part["step"] >= 0, of_part["step"] + part.begin, of_part["step"])
        columns.append(of_part | {"worker": part.members[of_part["worker"]], "step": step})
    joined = {name: np.concatenate([of_part[name] for of_part in columns]) for name in columns[0]}
    return Timeline.from_columns(joined, workers)
