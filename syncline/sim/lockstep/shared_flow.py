"""Messages that begin together and share channels, with max-min fair rates, as far as lockstep can follow them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats, Ints
from syncline.sim.lockstep.routed import Contention

TOLERANCE = 1e-12
"""Relative difference up to which two times or rates count as equal."""


class SharedFlow:
    """The flow of M messages that begin together on each channel that they share.

    Each message gets the smallest of its channels' equal parts, ``R = min_c B_c / m_c``, with B_c the bandwidth of
    channel c and m_c messages on this channel. This is the max-min fair rate if all messages on the channel of the
    smallest part have this rate. If they also have equal bytes, the rate is constant until they end.

    Args:
        nbytes: bytes of each message, ``(M,)``.
        channels: the at most H channels of each message, ``(M, H)``, padded with -1.
        bandwidth: bytes per second of C channels, and infinity for channel -1, ``(C + 1,)``.
        shared: whether several messages can limit each other on a channel, ``(C + 1,)``; False for the last.
        copies: number of equal messages that each message stands for, ``(M,)``; one by default.

    Raises:
        Contention: messages on one channel get different rates, or have different sizes.
    """

    def __init__(
        self,
        nbytes: Floats,
        channels: NDArray[np.integer[Any]],
        bandwidth: Floats,
        shared: NDArray[np.bool_],
        copies: Ints | None = None,
    ) -> None:
        # A use is a pair of a message with bytes and a shared channel of its route. Uses are sorted by channel.
        messages, hops = np.nonzero(shared[channels] & (nbytes > 0)[:, None])
        channel_of_use = channels[messages, hops]
        order = np.argsort(channel_of_use, kind="stable")
        self._messages = messages[order]
        self._channels, self._first_uses, use_counts = np.unique(
            channel_of_use[order], return_index=True, return_counts=True
        )
        weights = None if copies is None else copies[messages]
        counts = np.bincount(channel_of_use, weights, minlength=len(bandwidth))
        equal_part = bandwidth / np.maximum(counts, 1)
        rate = equal_part[channels].min(axis=1)
        self._flow_s = nbytes / rate
        if not len(self._messages):  # no message has bytes on a shared channel
            return
        # All messages of a channel that limits one of them must have the same rate and bytes.
        use_rate, use_bytes = rate[self._messages], nbytes[self._messages]
        is_limited = use_rate >= np.repeat(equal_part[self._channels], use_counts) * (1 - TOLERANCE)
        limits = np.logical_or.reduceat(is_limited, self._first_uses) & (counts[self._channels] > 1)
        for values in (use_rate, use_bytes):
            lowest = np.minimum.reduceat(values, self._first_uses)
            highest = np.maximum.reduceat(values, self._first_uses)
            if np.any(highest[limits] > lowest[limits] * (1 + TOLERANCE)):
                raise Contention("unequal transfers share a channel, which lockstep cannot follow")

    def end_s(self, begin_s: Floats, busy_s: Floats) -> Floats:
        """Return the time at which the last byte of each message leaves, ``(M,)`` seconds.

        Args:
            begin_s: time at which the bytes of each message begin to flow, ``(M,)`` seconds.
            busy_s: time until which each channel is busy, ``(C + 1,)`` seconds; changed in place.

        Raises:
            Contention: messages begin at different times on a shared channel, or before the channel is free.
        """
        end_s: Floats = begin_s + self._flow_s
        if not len(self._messages):
            return end_s
        use_begin_s = begin_s[self._messages]
        first_s = np.minimum.reduceat(use_begin_s, self._first_uses)
        last_s = np.maximum.reduceat(use_begin_s, self._first_uses)
        busy_until_s, tolerance_s = busy_s[self._channels], TOLERANCE * np.abs(last_s)
        if np.any(last_s - first_s > tolerance_s) or np.any(first_s < busy_until_s - tolerance_s):
            raise Contention("transfers of different times share a channel, which lockstep cannot follow")
        channel_end_s = np.maximum.reduceat(end_s[self._messages], self._first_uses)
        busy_s[self._channels] = np.maximum(busy_until_s, channel_end_s)
        return end_s
