"""Lockstep: the same history as the events, by recurrences over all workers at once.

Without contention, when things happen follows from maxima and sums: in the max-plus algebra a collective is a linear
map from when the workers enter it to when they are done with it. Three ways to apply the map, one meaning:

- round by round, as the algorithm runs;
- as a matrix, ``done_i = max_j (entry_j + A_ji)``, with A the map of the unit vectors, found once;
- as a vector, if all workers enter together: adding a constant commutes with the map.

Source: F. Baccelli, G. Cohen, G. J. Olsder, J.-P. Quadrat, "Synchronization and Linearity" (1992), chapter 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.link import Link
from syncline.sim.programs import Call, calls_by_step, compute_times
from syncline.sim.rounds import Round, rounds, sent_bytes
from syncline.sim.timeline import Timeline
from syncline.sim.uplinks import Floats, Uplinks, start_times


class Wave(NamedTuple):
    """One span of every worker at once: times and bytes are ``(P,)``."""

    stream: str
    what: str
    label: str
    start_s: Floats
    end_s: Floats
    nbytes: Floats
    step: int


def run_lockstep(
    compute_s: ArrayLike, calls: Iterable[Call], links: Link | Sequence[Link], starts_s: ArrayLike | None = None
) -> Timeline:
    """What happens in data-parallel training without overlap: `run_events` of `data_parallel`, only faster.

    Args:
        compute_s: seconds that each worker computes in each step, ``(T, P)``.
        calls: the collectives of the training.
        links: the link that every worker has, or one per worker.
        starts_s: when each worker begins, ``(P,)`` seconds; at 0 unless given.
    """
    return timeline_of(waves(compute_s, calls, links, starts_s), np.shape(compute_s)[1])


def waves(
    compute_s: ArrayLike, calls: Iterable[Call], links: Link | Sequence[Link], starts_s: ArrayLike | None = None
) -> Iterator[Wave]:
    """The history of `run_lockstep` wave by wave, in order of time, for trainings too long to keep."""
    times = compute_times(compute_s)
    steps, workers = times.shape
    due = calls_by_step(calls, steps)
    uses = Counter((call.collective, call.nbytes) for of_step in due.values() for call in of_step)
    maps = CollectiveMaps(Uplinks.of(links, workers), uses)
    now, nothing = start_times(starts_s, workers), np.zeros(workers)
    for step, seconds in enumerate(times):
        now, start = now + seconds, now
        yield Wave("compute", "compute", "compute", start, now, nothing, step)
        for call in due.get(step, ()):
            now, start = maps.done_s(call.collective, call.nbytes, now), now
            sent = maps.sent_bytes(call.collective, call.nbytes)
            yield Wave("network", call.collective, call.label, start, now, sent, step)
            yield Wave("compute", "wait", call.label, start, now, nothing, step)


def timeline_of(history: Iterable[Wave], workers: int) -> Timeline:
    """The timeline of these waves."""
    kept = list(history)
    columns: dict[str, Any] = {
        name: np.concatenate([np.broadcast_to(getattr(wave, name), workers) for wave in kept]) if kept else []
        for name in Wave._fields
    }
    return Timeline.of_columns({**columns, "worker": np.tile(np.arange(workers), len(kept))}, workers)


def run_rounds(of: Sequence[Round], uplinks: Uplinks, entry_s: Floats) -> tuple[Floats, Floats]:
    """When each worker has received its last message, and when its own last has left.

        start = max(received, link free);  link free = start + n / B;  received by the other = link free + alpha

    Args:
        of: the rounds of a collective.
        uplinks: the workers' links.
        entry_s: when each worker enters, ``(..., P)`` seconds; -inf for one that holds nobody up.

    Returns:
        Both ``(..., P)`` seconds; a worker without messages has its entry.
    """
    received, free = entry_s.copy(), entry_s.copy()
    for senders, receivers, nbytes in of:
        start = np.maximum(received[..., senders], free[..., senders])
        free[..., senders] = left = start + nbytes / uplinks.bandwidth_bytes_per_s[senders]
        received[..., receivers] = np.maximum(received[..., receivers], left + uplinks.latency_s[senders])
    return received, free


class CollectiveMaps:
    """From when workers enter a collective to when they are done with it, for the collectives of one training.

    Args:
        uplinks: the workers' links.
        uses: how often each (kind, bytes) will occur. The matrix of a collective costs as many operations as running
            its rounds P times, so it is made for one that occurs more than P times, and only when it is needed.
    """

    def __init__(self, uplinks: Uplinks, uses: Counter[tuple[str, float]]) -> None:
        self._uplinks, self._uses = uplinks, uses
        self._vectors: dict[tuple[str, float], Floats] = {}
        self._matrices: dict[tuple[str, float], Floats] = {}
        self._sent: dict[tuple[str, float], Floats] = {}

    def done_s(self, kind: str, nbytes: float, entry_s: Floats) -> Floats:
        """When each worker is done: its last message has arrived and its own last has left, ``(P,)`` seconds."""
        workers, key = self._uplinks.workers, (kind, nbytes)
        if np.all(entry_s == entry_s[0]):
            if key not in self._vectors:
                self._vectors[key] = self._run(key, np.zeros(workers))
            return entry_s + self._vectors[key]
        if self._uses[key] <= workers:
            return self._run(key, entry_s)
        if key not in self._matrices:
            self._matrices[key] = self._run(key, np.where(np.eye(workers, dtype=bool), 0.0, -np.inf))
        return (entry_s[:, None] + self._matrices[key]).max(axis=0)

    def sent_bytes(self, kind: str, nbytes: float) -> Floats:
        """Bytes that each worker puts on the wire, ``(P,)``."""
        key = (kind, nbytes)
        if key not in self._sent:
            self._sent[key] = sent_bytes(self._rounds(key), self._uplinks.workers)
        return self._sent[key]

    def _rounds(self, key: tuple[str, float]) -> tuple[Round, ...]:
        return rounds(key[0], self._uplinks.workers, key[1])

    def _run(self, key: tuple[str, float], entry_s: Floats) -> Floats:
        return np.maximum(*run_rounds(self._rounds(key), self._uplinks, entry_s))
