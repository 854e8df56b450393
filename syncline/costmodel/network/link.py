"""A link: what it costs to send one message, in the alpha-beta model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.gloo_costs import GlooCosts
from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.costmodel.network.paths import Star, Topology
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.errors import SpecError, one_of
from syncline.units import format_bandwidth, format_seconds

Duplex = Literal["full", "half"]
"""Whether both directions of a link carry all of it at once, or share it."""

FabricKind = Literal["nvlink", "pcie", "network"]
"""What a link is made of, as far as NCCL's tables tell one from another: inside a node, or a network's cards."""


@dataclass(frozen=True)
class Link:
    """A worker's link to a network that is nowhere narrower than the workers' links (full bisection).

    A message of n bytes takes ``alpha + o + n / R`` over idle links, with R = efficiency x min(B, upload). Its sender
    is busy with it for ``o + n / R``: the latency alpha does not occupy the link.

    Args:
        latency_s: alpha, one way, from sender to receiver (half a round trip), in seconds; at least 0.
        bandwidth_bytes_per_s: B, that a worker receives at, in bytes per second; positive. Also what it sends at,
            unless ``upload_bytes_per_s`` is given.
        name: for people.
        overhead_s: o, per message, in seconds; at least 0. What the sender's software does before a message leaves.
        efficiency: the part of the bandwidth that payload gets, beside headers and repeats; in (0, 1].
        upload_bytes_per_s: what a worker sends at, if that is another bandwidth.
        duplex: ``full``: both directions at once; ``half``: they share B.
        gloo: what gloo's software takes on it. Where that is known, gloo's algorithms carry collectives that name none;
            None: it is not known, the textbook's carry them, and gloo's take what the link alone takes.
        nccl: what NCCL cuts tensors into on it, over sockets. Where that is known, NCCL's algorithms carry collectives
            that name none, and the policy ``nccl`` stands for them. Not beside ``gloo``.
        tcp: how windows open after idling (`syncline.costmodel.collectives.tcp_slow_start`); what they let through at
            most is in the bandwidth already. None: they do not, as with RDMA and NVLink.
        fabric: what it is made of, which the policy ``nccl`` goes by and nothing else.

    Numbers may be arrays, so that one call prices many networks (such links cannot be compared or hashed).

    Raises:
        SpecError: a field out of range or not finite.

    Source: R. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994): the alpha-beta model;
    D. Culler et al., "LogP" (1993): the overhead o.
    """

    latency_s: FloatOrArray
    bandwidth_bytes_per_s: FloatOrArray
    name: str = ""
    overhead_s: FloatOrArray = 0.0
    efficiency: FloatOrArray = 1.0
    upload_bytes_per_s: FloatOrArray | None = None
    duplex: Duplex = "full"
    gloo: GlooCosts | None = None
    nccl: NcclCosts | None = None
    tcp: Tcp | None = None
    fabric: FabricKind = "network"

    def __post_init__(self) -> None:
        for field in ("latency_s", "overhead_s"):
            value = getattr(self, field)
            require(np.isfinite(value) & np.greater_equal(value, 0), f"link.{field}", value, "seconds, at least 0")
        for field in ("bandwidth_bytes_per_s", "upload_bytes_per_s"):
            value = getattr(self, field)
            if value is not None:
                require(
                    np.isfinite(value) & np.greater(value, 0),
                    f"link.{field}",
                    value,
                    "bytes per second, positive and finite",
                )
        part = self.efficiency
        require(
            np.greater(part, 0) & np.less_equal(part, 1), "link.efficiency", part, "a fraction above 0 and at most 1"
        )
        if self.duplex not in ("full", "half"):
            raise SpecError("link.duplex", self.duplex, "'full' or 'half'")
        if self.gloo is not None and self.nccl is not None:
            raise SpecError("link.nccl", self.nccl, "none beside gloo: one library carries what names no algorithm")
        if self.fabric not in get_args(FabricKind):
            raise SpecError("link.fabric", self.fabric, one_of(get_args(FabricKind), str(self.fabric)))
        if self.duplex == "half" and self.upload_bytes_per_s is not None:
            raise SpecError("link.upload_bytes_per_s", self.upload_bytes_per_s, "none on a half-duplex link")

    @property
    def down_bytes_per_s(self) -> FloatOrArray:
        """Payload bytes per second that a worker receives at: ``efficiency x B``."""
        return self.efficiency * self.bandwidth_bytes_per_s

    @property
    def up_bytes_per_s(self) -> FloatOrArray:
        """Payload bytes per second that a worker sends at: ``efficiency x upload``."""
        upload = self.bandwidth_bytes_per_s if self.upload_bytes_per_s is None else self.upload_bytes_per_s
        return self.efficiency * upload

    @property
    def goodput_bytes_per_s(self) -> FloatOrArray:
        """R, payload bytes per second from one worker to another: the slower of sending and receiving."""
        if self.upload_bytes_per_s is None:
            return self.down_bytes_per_s
        return np.minimum(self.up_bytes_per_s, self.down_bytes_per_s)

    def transfer_s(self, nbytes: FloatOrArray) -> FloatOrArray:
        """Seconds until a message of ``nbytes`` has arrived over idle links: ``alpha + o + n / R``."""
        return self.latency_s + self.overhead_s + nbytes / self.goodput_bytes_per_s

    def shared_by(self, flows: int) -> Link:
        """The link that each of so many transfers in each direction finds while all of them share this one.

        It is full-duplex: of a half-duplex link, both directions' transfers have got their shares.
        """
        share = 1 / (2 * flows if self.duplex == "half" else flows)
        upload = None if self.upload_bytes_per_s is None else self.upload_bytes_per_s * share
        bandwidth = self.bandwidth_bytes_per_s * share
        return replace(self, bandwidth_bytes_per_s=bandwidth, upload_bytes_per_s=upload, duplex="full")

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fields that are arrays, by name."""
        return {name: value for name, value in vars(self).items() if np.ndim(value)}

    def with_numbers(self, numbers: Mapping[str, FloatOrArray]) -> Link:
        """The link with other numbers, by the names of their fields."""
        changed: dict[str, Any] = dict(numbers)
        return replace(self, **changed) if changed else self

    def describe(self) -> str:
        """What it is, for people: ``50 us one way, 10 Gbit/s``."""
        rate = format_bandwidth(float(self.bandwidth_bytes_per_s))
        if self.upload_bytes_per_s is not None:
            rate += f" down, {format_bandwidth(float(self.upload_bytes_per_s))} up"
        more = [
            *([f"{format_seconds(float(self.overhead_s))} per message"] if self.overhead_s else []),
            *([f"{100 * float(self.efficiency):.3g}% payload"] if self.efficiency != 1 else []),
            *(["half duplex"] if self.duplex == "half" else []),
            *(["gloo's costs"] if self.gloo is not None else []),
            *(["NCCL's pieces"] if self.nccl is not None else []),
            *(["windows that open"] if self.tcp is not None else []),
        ]
        return ", ".join([f"{format_seconds(float(self.latency_s))} one way", rate, *more])

    def among(self, workers: int) -> Topology:
        """The topology of so many workers with this link each."""
        return star(self, workers)


NUMBERS = ("latency_s", "bandwidth_bytes_per_s", "overhead_s", "efficiency", "upload_bytes_per_s")
"""The fields of a link that are numbers."""


def stacked_links(links: Sequence[Link]) -> Link:
    """Links that differ in numbers alone as one, whose numbers are arrays ``(1, n)``; its name is the first's."""
    columns = {name: [getattr(link, name) for link in links] for name in NUMBERS}
    return links[0].with_numbers(
        {name: np.array([column], dtype=np.float64) for name, column in columns.items() if column[0] is not None}
    )


def star(links: Link | Sequence[Link], workers: int) -> Star:
    """The star of one link that all workers have, or of one link per worker.

    Raises:
        SpecError: the number of links is not the number of workers.
    """
    each = [links] if isinstance(links, Link) else list(links)
    if not isinstance(links, Link) and len(each) != workers:
        raise SpecError("links", len(each), f"one link, or one for each of the {workers} workers")

    known, cut, windows = {link.gloo for link in each}, {link.nccl for link in each}, {link.tcp for link in each}

    def column(of: list[Any], dtype: type = np.float64) -> NDArray[Any]:
        return np.broadcast_to(np.array(of, dtype=dtype), (workers,))

    return Star(
        links.name if isinstance(links, Link) else "",
        column([link.latency_s for link in each]),
        column([link.overhead_s for link in each]),
        np.concatenate([
            column([link.up_bytes_per_s for link in each]),
            column([link.down_bytes_per_s for link in each]),
        ]),
        column([link.duplex == "half" for link in each], np.bool_),
        known.pop() if len(known) == 1 else None,
        cut.pop() if len(cut) == 1 else None,
        windows.pop() if len(windows) == 1 else None,
    )  # fmt: skip
