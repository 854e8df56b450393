"""Max-min fair shares of transfers that begin together and share channels, as far as lockstep can follow them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats
from syncline.sim.lockstep.routed import Contention

TOLERANCE = 1e-12
"""Relative difference up to which two times or rates count as equal."""


def shared_flow_s(
    begin_s: Floats,
    nbytes: Floats,
    channels: NDArray[np.integer[Any]],
    bandwidth: Floats,
    shared: NDArray[np.bool_],
    busy_s: Floats,
) -> Floats:
    """Return the time at which the bytes of each of M messages have left, ``(M,)`` seconds.

    On every shared channel the messages begin together, after the messages of earlier rounds. Each message gets the
    smallest of its channels' equal parts, ``R = min_c B_c / m_c``, with B_c the bandwidth of channel c and m_c messages
    on this channel. This is the max-min fair rate if each message has a full channel on which all messages have the
    same rate. The rate stays the same until the end if these messages have as many bytes.

    Args:
        begin_s: time at which the bytes of each message begin to flow, ``(M,)`` seconds.
        nbytes: bytes of each message, ``(M,)``.
        channels: channels of each message, at most H, ``(M, H)``; -1 for none.
        bandwidth: bytes per second of each channel, ``(C + 1,)``; the last, channel -1, is infinite.
        shared: whether each channel may have several messages, ``(C + 1,)``; the last has none.
        busy_s: time until which each channel is busy, ``(C + 1,)`` seconds; changed in place.

    Raises:
        Contention: messages that begin at different times, or get different shares, or have different sizes.
    """
    has_bytes = nbytes > 0
    counts = np.zeros(len(bandwidth))
    first_s, last_s = np.full(len(bandwidth), np.inf), np.full(len(bandwidth), -np.inf)
    shared_columns = [
        column[has_bytes & shared[column]] for column in channels.T
    ]  # shared channels, and their messages
    message_columns = [np.flatnonzero(has_bytes & shared[column]) for column in channels.T]
    for channel, messages in zip(shared_columns, message_columns, strict=True):
        counts += np.bincount(channel, minlength=len(counts))
        np.minimum.at(first_s, channel, begin_s[messages])
        np.maximum.at(last_s, channel, begin_s[messages])
    used = counts > 0
    tolerance_s = TOLERANCE * np.abs(last_s[used])
    if np.any(last_s[used] - first_s[used] > tolerance_s) or np.any(first_s[used] < busy_s[used] - tolerance_s):
        raise Contention("transfers of different times share a channel, which lockstep cannot follow")
    equal_part = bandwidth / np.maximum(counts, 1)
    rate = equal_part[channels].min(axis=1)
    # A shared channel that limits any message must limit all its messages alike: the same rates, the same bytes.
    lowest, highest = np.full((2, len(counts)), np.inf), np.full((2, len(counts)), -np.inf)
    limits = np.zeros(len(counts), dtype=np.bool_)
    for channel, messages in zip(shared_columns, message_columns, strict=True):
        for row, values in enumerate((rate[messages], nbytes[messages])):
            np.minimum.at(lowest[row], channel, values)
            np.maximum.at(highest[row], channel, values)
        limits[channel[rate[messages] >= equal_part[channel] * (1 - TOLERANCE)]] = True
    limits &= counts > 1
    if np.any(highest[:, limits] > lowest[:, limits] * (1 + TOLERANCE)):
        raise Contention("unequal transfers share a channel, which lockstep cannot follow")
    end_s: Floats = begin_s + nbytes / rate
    for channel, messages in zip(shared_columns, message_columns, strict=True):
        np.maximum.at(busy_s, channel, end_s[messages])
    return end_s
