"""Flows: how fast bytes move where transfers share channels.

A flow passes all channels of its route at once. Concurrent flows get max-min fair rates, found anew whenever one starts
or ends, and only for the flows that share channels with it, directly or through others. A flow alone on its channels
needs none of this.

SimPy keeps the clock, the heap and the order of what happens together. What a message does next is a callback of
`Later`, not a process that waits: one process per message tells the same history to the bit, and takes 1.7 times the
CPU seconds (``benchmarks/test_sim.py``), as each needs a generator, an event to begin and one to end it.

Source: D. Bertsekas, R. Gallager, "Data Networks" (1992), section 6.5.2: max-min fairness and progressive filling.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import simpy
from simpy.events import NORMAL, EventPriority

from syncline.errors import SpecError

LEFT_OVER = 1e-12
"""A flow with no more than this part of its bytes left is done: what remains is an error of rounding."""


def max_min_rates(routes: Sequence[Iterable[int]], bandwidth: Sequence[float] | Mapping[int, float]) -> list[float]:
    """The max-min fair rates of flows: nobody's can grow unless that of a slower or equal one shrinks.

    Progressive filling: all rates grow together until a channel is full, whose flows then keep theirs.

    Args:
        routes: the channels of each flow, each channel once; a flow without any has an infinite rate.
        bandwidth: of each channel, positive.

    Returns:
        The rate of each flow, in the unit of the bandwidth.

    >>> max_min_rates([[0], [0, 1], [1]], [10.0, 4.0])
    [8.0, 2.0, 2.0]
    """
    rates = [math.inf] * len(routes)
    on: dict[int, list[int]] = {}
    for flow, route in enumerate(routes):
        for channel in route:
            on.setdefault(channel, []).append(flow)
    left = {channel: bandwidth[channel] for channel in on}
    growing = {channel: len(flows) for channel, flows in on.items()}
    while growing:
        level = min(left[channel] / count for channel, count in growing.items())
        full = [channel for channel, count in growing.items() if left[channel] / count == level]
        for channel in full:
            for flow in on[channel]:
                if rates[flow] == math.inf:
                    rates[flow] = level
                    for passed in routes[flow]:
                        left[passed] -= level
                        growing[passed] -= 1
        growing = {channel: count for channel, count in growing.items() if count}
    return rates


class Route(NamedTuple):
    """The route of a message.

    Attributes:
        channels: that it passes, each once.
        rate: of a flow alone on it, in bytes per second.
        before_s: from when a message starts until its bytes flow.
        after_s: from when they have left until they have arrived.
    """

    channels: tuple[int, ...]
    rate: float
    before_s: float
    after_s: float


class Later(simpy.Event):
    """Calls a function so many seconds from now: a Timeout, without what nobody here asks of one.

    Args:
        env: the clock.
        seconds: at least 0.
        call: is called with this event.
        flow: that it is about, if any.
    """

    _ok = True

    def __init__(
        self, env: simpy.Environment, seconds: float, call: Callable[[Any], None], flow: Flow | None = None
    ) -> None:
        self.callbacks = [call]
        self.flow = flow
        env.schedule(self, NORMAL, seconds)


class AfterAll(simpy.Event):
    """Happens at this instant, when everything else of it has; of several, those with a smaller ``order`` before."""

    def __init__(self, env: simpy.Environment, order: int = 0) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, EventPriority(10 + order))  # SimPy's own are smaller


class Flow(ABC):
    """Bytes on their route; ``drained`` is called when the last has left.

    Args:
        route: of its bytes.
        nbytes: how many.
    """

    __slots__ = ("end", "left", "nbytes", "rate", "route", "since_s")

    end: Later | None
    left: float
    rate: float
    since_s: float

    def __init__(self, route: Route, nbytes: float) -> None:
        self.route, self.nbytes = route, nbytes

    @abstractmethod
    def drained(self) -> None:
        """The bytes have left."""


class Channels:
    """Channels and the flows on them.

    Args:
        env: the clock.
        bandwidth_bytes_per_s: of each channel.

    Raises:
        SpecError: a bandwidth that is not positive and finite.
    """

    def __init__(self, env: simpy.Environment, bandwidth_bytes_per_s: Sequence[float]) -> None:
        for channel, bandwidth in enumerate(bandwidth_bytes_per_s):
            if not (math.isfinite(bandwidth) and bandwidth > 0):
                raise SpecError(f"bandwidth_bytes_per_s[{channel}]", bandwidth, "bytes per second, positive and finite")
        self._env = env
        self._bandwidth = bandwidth_bytes_per_s
        self._on: list[dict[Flow, None]] = [{} for _ in bandwidth_bytes_per_s]  # dictionaries keep the order
        self._changed: dict[int, None] = {}
        self._after_flow = self._ended  # bound once

    def carry(self, flow: Flow) -> None:
        """Let a flow begin now. One of no bytes takes no time and no share."""
        route, nbytes = flow.route, flow.nbytes
        flow.left, flow.since_s = nbytes, self._env.now
        alone = True
        if nbytes:
            for channel in route.channels:
                on = self._on[channel]
                if on:
                    alone = False
                on[flow] = None
        if alone:
            flow.rate = rate = route.rate
            flow.end = Later(self._env, nbytes / rate, self._after_flow, flow)
        else:
            flow.rate, flow.end = 0.0, None  # until the shares are settled
            self._change(route.channels)

    def _ended(self, event: Any) -> None:
        flow: Flow = event.flow
        flow.end = None  # which has the flow: no circle is left for the garbage collector
        if flow.nbytes:
            for channel in flow.route.channels:
                on = self._on[channel]
                del on[flow]
                if on:
                    self._change((channel,))
        flow.drained()

    def _change(self, channels: Iterable[int]) -> None:
        """These channels have other flows than before: shares are settled when all else of this instant has happened.

        So flows that begin or end together do so for the shares too, and equal ones stay equal.
        """
        if not self._changed:
            AfterAll(self._env).callbacks.append(self._settle)
        self._changed.update(dict.fromkeys(channels))

    def _settle(self, _: simpy.Event) -> None:
        changed, self._changed = self._changed, {}
        seen: set[int] = set()
        for channel in changed:
            if channel not in seen and self._on[channel]:
                self._share(self._connected(channel, seen))

    def _connected(self, channel: int, seen: set[int]) -> list[Flow]:
        """The flows on this channel, on the other channels of these flows, and so on; marks the channels as seen."""
        flows: dict[Flow, None] = {}
        seen.add(channel)
        ahead = [channel]
        while ahead:
            for flow in self._on[ahead.pop()]:
                if flow not in flows:
                    flows[flow] = None
                    fresh = [passed for passed in flow.route.channels if passed not in seen]
                    seen.update(fresh)
                    ahead += fresh
        return list(flows)

    def _share(self, flows: list[Flow]) -> None:
        now = self._env.now
        rates = max_min_rates([flow.route.channels for flow in flows], self._bandwidth)
        for flow, rate in zip(flows, rates, strict=True):
            if rate == flow.rate:
                continue
            flow.left -= (now - flow.since_s) * flow.rate
            if flow.left <= LEFT_OVER * flow.nbytes + math.ulp(now) * flow.rate:
                flow.left = 0.0
            if flow.end is not None:
                flow.end.callbacks = []  # it will end at another time
            flow.rate, flow.since_s = rate, now
            flow.end = Later(self._env, flow.left / rate, self._after_flow, flow)
