"""Rings, many rounds at once: the same permutation of the workers in every round.

If every round is the same permutation, each worker receives from one other worker only, so that one time per worker is
the whole state: x_i, at which worker i can begin its next round. Along a ring, with c_i the time for which the message
of worker i occupies its sender and receiver, and alpha_i its latency, one round is

    eager:       x_i <- max(x_i + c_i, x_(i-1) + c_(i-1) + alpha_(i-1))
    rendezvous:  x_i <- max(e_i, e_(i-1)),  e_i = max(x_i, x_(i+1)) + c_i + alpha_i

Workers are in the order of the ring, so that neighbours are neighbours in memory and a round is three sums and maxima
of slices; for many messages compiled loops take the same sums and maxima. If all messages cost the same, K rounds are
the maximum over a window of K neighbours, which doubles in each step: log2 K steps for K rounds.
"""

from __future__ import annotations

import math

import numpy as np

from syncline.acceleration import Kernels
from syncline.costmodel.network.paths import Floats, Ints

KERNELS = Kernels("syncline.sim.lockstep.compiled", break_even_units=2**28)
"""The compiled loops over many messages; the unit of their work is a message."""

MAX_COMPILED_STRIDE = 16
"""Largest number of rings and runs side by side for which compiled loops take less time than NumPy."""


def rings(senders: Ints, receivers: Ints, workers: int) -> Ints | None:
    """Return the workers along the M rings that messages form, ``(G, M)`` for G workers per ring.

    Return None unless each worker is on a ring, and all rings are of equal length.
    """
    if len(senders) != workers or workers < 2:  # some worker sends nothing, or has nobody to send to
        return None
    all_workers = np.arange(workers)
    if np.array_equal(senders, all_workers) and np.array_equal(receivers, np.roll(all_workers, -1)):
        return all_workers[:, None]
    receiver_of: list[int] = [-1] * workers
    for sender, receiver in zip(senders.tolist(), receivers.tolist(), strict=True):
        receiver_of[sender] = receiver
    if sorted(receiver_of) != list(range(workers)):  # not every worker receives a message
        return None
    # Follow the messages from each worker until they come back to it.
    order: list[int] = []  # the workers of one ring after another
    visited = [False] * workers
    ring_lengths: set[int] = set()
    for first in range(workers):
        if visited[first]:
            continue
        ring_start, worker = len(order), first
        while not visited[worker]:
            visited[worker] = True
            order.append(worker)
            worker = receiver_of[worker]
        ring_lengths.add(len(order) - ring_start)
    if len(ring_lengths) > 1:  # the rings do not fit into one array
        return None
    return np.ascontiguousarray(np.reshape(order, (-1, ring_lengths.pop())).T)


def eager_rounds(x: Floats, occupied_s: float | Floats, latency_s: float | Floats, repetitions: int) -> Floats:
    """Return the times after K equal rounds by the eager rule, at which each worker can begin its next round.

    Args:
        x: times of G workers along each of M rings, for N separate runs, ``(G, M, N)`` seconds.
        occupied_s: c, seconds that the message to the next worker in the ring occupies a port, one number for all or
            ``(G, M, 1)``.
        latency_s: alpha, seconds of latency to the next worker, one number for all or ``(G, M, 1)``.
        repetitions: K, number of rounds.
    """
    if isinstance(occupied_s, float) and isinstance(latency_s, float):  # all messages cost the same, see the module
        window = 0  # number of rounds done; x_i is the maximum over as many workers before worker i
        while window < repetitions:
            step = min(window + 1, repetitions - window)
            x = np.maximum(x, np.roll(x, step, axis=0) + step * latency_s)
            window += step
        return x + repetitions * occupied_s
    own_cost_s = np.broadcast_to(occupied_s, x.shape)
    message_cost_s = np.broadcast_to(own_cost_s + latency_s, x.shape)
    compiled_x = _compiled_rounds(x, own_cost_s, message_cost_s, repetitions, eager=True)
    if compiled_x is not None:
        return compiled_x
    padded = _with_last_in_front(x)  # the first worker gets its predecessor in the ring as the row before it
    own_x, previous_x = padded[1:], padded[:-1]
    received_cost_s = _with_last_in_front(message_cost_s)[:-1]
    arrival_s = np.empty_like(x)
    for _ in range(repetitions):
        np.add(previous_x, received_cost_s, out=arrival_s)
        np.add(own_x, own_cost_s, out=own_x)
        np.maximum(own_x, arrival_s, out=own_x)
        padded[0] = padded[-1]
    return own_x.copy()


def rendezvous_rounds(x: Floats, cost_s: float | Floats, repetitions: int) -> Floats:
    """Return the times after K equal rounds by the rendezvous rule, at which each worker can begin its next round.

    ``cost_s`` has the seconds of each message, c + alpha in the module's formula: one number for all, or ``(G, M, 1)``
    for G workers along each of M rings. The other arguments are as in `eager_rounds`.
    """
    if isinstance(cost_s, float):  # all messages cost the same, see the module
        window = 0  # number of rounds done; x_i is the maximum over as many workers on each side of worker i
        while window < repetitions:
            step = min(2 * window + 1, repetitions - window)
            x = np.maximum(x, np.maximum(np.roll(x, step, axis=0), np.roll(x, -step, axis=0)))
            window += step
        return x + repetitions * cost_s
    compiled_x = _compiled_rounds(x, cost_s, cost_s, repetitions, eager=False)
    if compiled_x is not None:
        return compiled_x
    message_cost_s = _with_last_in_front(np.broadcast_to(cost_s, x.shape))
    padded = np.concatenate([x[-1:], x, x[:1]])  # the first and the last worker get their neighbours as rows
    message_end_s = np.empty_like(message_cost_s)
    for _ in range(repetitions):
        np.maximum(padded[:-1], padded[1:], out=message_end_s)
        np.add(message_end_s, message_cost_s, out=message_end_s)
        np.maximum(message_end_s[:-1], message_end_s[1:], out=padded[1:-1])
        padded[0], padded[-1] = padded[-2], padded[1]
    return padded[1:-1].copy()


def _compiled_rounds(
    x: Floats, own_cost_s: Floats, message_cost_s: Floats, repetitions: int, eager: bool
) -> Floats | None:
    """Return the times after equal rounds by the compiled loops, or None if NumPy takes less time."""
    stride = math.prod(x.shape[1:])
    kernels = KERNELS.for_work(x.size * repetitions) if stride <= MAX_COMPILED_STRIDE else None
    if kernels is None:
        return None
    flat = (np.ascontiguousarray(np.broadcast_to(array, x.shape)).ravel() for array in (x, own_cost_s, message_cost_s))
    return kernels.run_rounds(*flat, stride, repetitions, eager).reshape(x.shape)


def _with_last_in_front(x: Floats) -> Floats:
    """Return the array with its last row repeated before the first."""
    return np.concatenate([x[-1:], x])
