"""A network slowed down by a factor."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.network_links import with_links
from syncline.costmodel.network.software_costs import Calls, GlooCosts
from syncline.costmodel.numerics.arrays import require

T = TypeVar("T")


def slow_down(network: T, factor: float) -> T:
    """Return the network with ``factor`` times the latencies and overheads, and bandwidths divided by ``factor``.

    The costs of software grow by the same factor, so that every message takes ``factor`` times as long. TCP's windows
    open in round trips, which are longer by this factor; the timeout after which idle windows close stays the same.

    Args:
        network: a link, or anything made of dataclasses that has links.
        factor: factor of all seconds, positive.

    Raises:
        SpecError: a factor that is not positive.

    >>> slow_down(Link(1e-3, 1e8), 2.0).transfer_s(1e6) / Link(1e-3, 1e8).transfer_s(1e6)
    2.0
    """
    require(np.isfinite(factor) & (factor > 0), "factor", factor, "a positive number")
    slower = with_links(network, partial(_slowed, factor=factor))
    if isinstance(slower, Matrix) and slower.hivemind is not None:
        return replace(slower, hivemind=slower.hivemind.slowed(factor))
    return slower


def _slowed(link: Link, factor: float) -> Link:
    """Return a link on which each message takes ``factor`` times as long."""
    upload = link.upload_bytes_per_s
    return replace(
        link,
        latency_s=link.latency_s * factor,
        overhead_s=link.overhead_s * factor,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / factor,
        upload_bytes_per_s=None if upload is None else upload / factor,
        gloo=None if link.gloo is None else _slowed_costs(link.gloo, factor),
        measured=None if link.measured is None else replace(link.measured, factor=link.measured.factor * factor),
        nccl=None if link.nccl is None else replace(link.nccl, call_s=link.nccl.call_s * factor),
        nvlink=None if link.nvlink is None else replace(link.nvlink, factor=link.nvlink.factor * factor),
    )


def _slowed_costs(costs: GlooCosts, factor: float) -> GlooCosts:
    """Return ``factor`` times gloo's costs."""

    def slowed_calls(calls: Calls) -> Calls:
        return tuple((count, seconds * factor) for count, seconds in calls)

    connection = costs.connection
    if connection is not None:
        connection = replace(connection, flow_bytes_per_s=connection.flow_bytes_per_s / factor)
    return replace(
        costs,
        message_s=costs.message_s * factor,
        call_s=slowed_calls(costs.call_s),
        byte_s=tuple((kind, seconds * factor) for kind, seconds in costs.byte_s),
        call_of_s=tuple((kind, slowed_calls(calls)) for kind, calls in costs.call_of_s),
        connection=connection,
    )
