"""Max-min fair shares of transfers that begin together and share channels, as far as lockstep can follow them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats
from syncline.sim.lockstep.routed import Contention

TOGETHER = 1e-12
"""Relative difference up to which two times count as one."""


def shared_flow_s(
    begin_s: Floats,
    nbytes: Floats,
    channels: NDArray[np.integer[Any]],
    bandwidth: Floats,
    shared: NDArray[np.bool_],
    busy_s: Floats,
) -> Floats:
    """Return the time at which the bytes of each message are through, ``(M,)`` seconds.

    On every shared channel the messages begin together, after those of earlier rounds. Each message gets the smallest
    of its channels' equal parts, ``R = min_c B_c / m_c`` with m messages on the channel. This is the max-min share if
    each message has a full channel that gives all others on it as much. The share stays so until the end if these
    messages have as many bytes.

    Args:
        begin_s: time at which the bytes of each message begin to flow, ``(M,)`` seconds.
        nbytes: bytes of each message, ``(M,)``.
        channels: ``(M, H)``; -1 for none.
        bandwidth: ``(C + 1,)`` bytes per second, the last infinite.
        shared: ``(C + 1,)`` channels that may have several messages; the last has none.
        busy_s: ``(C + 1,)`` time until which the channels are busy; changed in place.

    Raises:
        Contention: messages that begin at different times, or get different shares, or have different sizes.
    """
    flows = nbytes > 0
    counts = np.zeros(len(bandwidth))
    first, last = np.full(len(bandwidth), np.inf), np.full(len(bandwidth), -np.inf)
    channels_used = [column[flows & shared[column]] for column in channels.T]
    message_rows = [np.flatnonzero(flows & shared[column]) for column in channels.T]
    for channel, messages in zip(channels_used, message_rows, strict=True):
        counts += np.bincount(channel, minlength=len(counts))
        np.minimum.at(first, channel, begin_s[messages])
        np.maximum.at(last, channel, begin_s[messages])
    used = counts > 0
    near = TOGETHER * np.abs(last[used])
    if np.any(last[used] - first[used] > near) or np.any(first[used] < busy_s[used] - near):
        raise Contention("transfers of different times share a channel, which lockstep cannot follow")
    part = bandwidth / np.maximum(counts, 1)
    rate = part[channels].min(axis=1)
    # On a shared channel that limits any message, it limits all of them alike.
    lowest, highest = np.full((2, len(part)), np.inf), np.full((2, len(part)), -np.inf)
    holds = np.zeros(len(part), dtype=np.bool_)
    for channel, messages in zip(channels_used, message_rows, strict=True):
        for row, values in enumerate((rate[messages], nbytes[messages])):
            np.minimum.at(lowest[row], channel, values)
            np.maximum.at(highest[row], channel, values)
        holds[channel[rate[messages] >= part[channel] * (1 - TOGETHER)]] = True
    holds &= counts > 1
    if np.any(highest[:, holds] > lowest[:, holds] * (1 + TOGETHER)):
        raise Contention("unequal transfers share a channel, which lockstep cannot follow")
    end_s: Floats = begin_s + nbytes / rate
    for channel, messages in zip(channels_used, message_rows, strict=True):
        np.maximum.at(busy_s, channel, end_s[messages])
    return end_s
