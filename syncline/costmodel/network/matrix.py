"""Networks of lines between places: a rate and a latency from each place to each other, as iperf and ping measure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.network_links import CostsOfLinks, NetworkTopology
from syncline.costmodel.network.paths import ByValue, Floats, Ints, Paths
from syncline.costmodel.network.software_costs import HivemindCosts
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, one_of

Per = Literal["connection", "pair", "host", "place"]
"""The owner of a line's rate, whose messages share the rate; `Matrix` has a table of the owners."""

MOST_WORKERS = 2048
"""Largest number of workers with a rate for each connection, of which there are P^2."""


@dataclass(frozen=True)
class Matrix(CostsOfLinks):
    """Places, and a line from each place to each other; every worker is in a place.

    A message from a worker in place a to a worker in place b takes the latency of the line from a to b, and a rate that
    the messages of one owner share. ``per`` names the owner:

    | ``per``      | messages that share the rate from a to b                                                      |
    |--------------|-----------------------------------------------------------------------------------------------|
    | `connection` | messages of one worker to one other                                                           |
    | `pair`       | all messages from place a to place b                                                          |
    | `host`       | messages of one worker to all places with the same latency and rate, as `tc` shapes classes   |
    | `place`      | messages of all workers of a to all places with the same latency and rate                     |

    With ``pair`` and ``place`` each worker of a place sends, and receives, at the rate of the line inside the place. A
    message also passes its sender's and its receiver's card. Between places the message passes the uplinks of both
    places; all workers of a place share its uplink.

    Args:
        places: names of the S places.
        lines: ``(S, S)`` the one-way line from each place (row) to each (column). The line from a place to itself joins
            the place's workers; it may be None for a single worker.
        ranks: number of the place of each worker, ``(P,)``, in the order of the ranks.
        per: owner of a line's rate.
        card: each worker's network card; a message passes a card at both ends and pays the latency of both.
        uplinks: link of each place to the others, one for all or one per place; a message passes both ends' uplinks.
            None: no limit.
        hivemind: costs of hivemind's software; all-reduces by direct exchange then contain these costs.
        name: display name.
        bounds: errors of predictions on these lines, from the calibration that measured them; None without calibration.
    """

    places: tuple[str, ...]
    lines: tuple[tuple[Link | None, ...], ...]
    ranks: tuple[int, ...]
    per: Per = "connection"
    card: Link | None = None
    uplinks: Link | tuple[Link, ...] | None = None
    hivemind: HivemindCosts | None = None
    name: str = ""
    bounds: Uncertainty | None = None

    def __post_init__(self) -> None:
        """Raise ``SpecError`` for tables of the wrong size and for missing lines."""
        count = len(self.places)
        if not count or len(set(self.places)) < count:
            raise SpecError("network.places", list(self.places), "different names, at least one")
        if self.per not in get_args(Per):
            raise SpecError("network.per", self.per, one_of(get_args(Per), str(self.per)))
        if len(self.lines) != count or any(len(row) != count for row in self.lines):
            raise SpecError("network.lines", len(self.lines), f"{count} rows of {count} lines, one for each place")
        if not self.ranks or not 0 <= min(self.ranks) <= max(self.ranks) < count:
            raise SpecError("network.ranks", list(self.ranks), "the place of each worker, for at least one worker")
        for i, row in enumerate(self.lines):
            for j, line in enumerate(row):
                path = f"network.lines.{self.places[i]}.{self.places[j]}"
                needs_line = i != j or self.ranks.count(i) > 1
                if line is None and needs_line:
                    raise SpecError(path, None, "a line: {bandwidth, latency}")
                if line is not None and line.duplex == "half":
                    raise SpecError(path, "half", "a line for each direction")
        uplinks = self.uplink_by_place
        if self.uplinks is not None and len(uplinks) != count:
            raise SpecError("network.uplinks", len(uplinks), f"one link, or one for each of the {count} places")
        if any(uplink.duplex == "half" for uplink in uplinks):
            raise SpecError("network.uplinks", "half", "full-duplex uplinks")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Return the hash of all fields, cached because there are S^2 lines."""
        return hash((self.places, self.lines, self.ranks, self.per, self.card, self.uplinks, self.hivemind, self.name))

    @property
    def workers(self) -> int:
        """Return the number of workers in all places."""
        return len(self.ranks)

    @property
    def uplink_by_place(self) -> tuple[Link, ...]:
        """Return the uplink of each place, or an empty tuple if places have no uplinks."""
        if self.uplinks is None:
            return ()
        return self.uplinks if isinstance(self.uplinks, tuple) else (self.uplinks,) * len(self.places)

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of workers in each place if the first ``workers`` ranks train."""
        return tuple(np.bincount(self.ranks[:workers], minlength=len(self.places)).tolist())

    def among(self, workers: int) -> MatrixTopology:
        """Return the topology of the first ``workers`` ranks, or raise ``SpecError`` if these are too many."""
        if workers > self.workers:
            raise SpecError("workers", workers, f"at most {self.workers}, the workers of all places")
        if workers > MOST_WORKERS and (self.per == "connection" or self.hivemind):
            raise SpecError("workers", workers, f"at most {MOST_WORKERS:,} with a rate per connection")
        return MatrixTopology(self, np.array(self.ranks[:workers]))

    def describe(self) -> str:
        """Return a short text for tables: numbers of workers and places, and the lines between places."""
        line_texts = {line.describe() for row in self.lines for line in row if line is not None}
        lines = line_texts.pop() if len(line_texts) == 1 else f"{len(line_texts)} different lines"
        return f"{self.workers} workers in {len(self.places)} places, {lines}, a rate per {self.per}"


@dataclass(frozen=True, eq=False)
class MatrixTopology(ByValue, NetworkTopology):
    """The topology of workers in places: the channels of all lines, and the path of each message.

    The channels are, in this order: the lines, a channel for each owner of a rate (see `_rates`); the workers' cards
    up, then down; the places' uplinks up, then down; and, if hivemind limits connections, one between each two workers.

    Args:
        place_by_worker: number of each worker's place, ``(P,)``.
    """

    network: Matrix
    place_by_worker: NDArray[np.int64]

    @property
    def hivemind(self) -> HivemindCosts | None:
        """Return the costs of hivemind's software, or None."""
        return self.network.hivemind

    @property
    def workers(self) -> int:
        """Return P, the number of workers of the topology."""
        return len(self.place_by_worker)

    @cached_property
    def _line_properties(self) -> tuple[Floats, Floats, Floats]:
        """Return latency, bytes per second and overhead of each line, each ``(S, S)``.

        Where no line is they are 0, 1 and 0: no message goes there, and a rate of 0 would divide by 0.
        """
        shape = (len(self.network.places),) * 2
        latency_s, rate, overhead_s = np.zeros(shape), np.ones(shape), np.zeros(shape)
        for i, row in enumerate(self.network.lines):
            for j, line in enumerate(row):
                if line is not None:
                    latency_s[i, j], rate[i, j], overhead_s[i, j] = line.latency_s, line.up_bytes_per_s, line.overhead_s
        return latency_s, rate, overhead_s

    @cached_property
    def _line_classes(self) -> Ints:
        """Return the number of each line's class, ``(S, S)``: a place's lines of equal latency and rate are one class.

        With a rate per ``host`` or ``place``, the lines of a class share the rate. With a rate per ``place``, the line
        inside the place shares no other line's rate, so that it is a class of its own.
        """
        latency_s, rate, _ = self._line_properties
        classes = np.zeros(rate.shape, dtype=np.int64)
        for place in range(len(rate)):
            latencies_and_rates = np.stack([latency_s[place], rate[place]], axis=1)
            if self.network.per == "place":
                latencies_and_rates[place] = -1  # equal to no line
            _, inverse = np.unique(latencies_and_rates, axis=0, return_inverse=True)
            classes[place] = inverse.ravel()
        return classes

    @property
    def _num_classes(self) -> int:
        """Return the largest number of classes of lines from a place."""
        return int(self._line_classes.max()) + 1

    @cached_property
    def _rates(self) -> dict[str, Floats]:
        """Return the bytes per second of each channel by kind of channel, in the order of the channels' numbers.

        | kind          | channels                                                                              |
        |---------------|---------------------------------------------------------------------------------------|
        | `lines`       | by `Matrix.per`: ``connection``: P^2, by sender and receiver; ``host``: by worker and |
        |               | class of its lines; ``pair``: S^2, by both places; ``place``: by place and class      |
        | `inside`      | for ``pair`` and ``place``: a line inside the place from each worker, then to each    |
        | `cards`       | up from each worker, then down to each                                                |
        | `uplinks`     | up from each place, then down to each                                                 |
        | `connections` | P^2, by sender and receiver, if hivemind limits connections                           |
        """
        _, rate, _ = self._line_properties
        network, place, per, hivemind = self.network, self.place_by_worker, self.network.per, self.network.hivemind
        class_rates = np.ones((len(rate), self._num_classes))  # by place and class; 1: the place has fewer classes
        np.put_along_axis(class_rates, self._line_classes, rate, axis=1)
        rates: dict[str, Floats] = {}
        if per == "connection":
            rates["lines"] = rate[place[:, None], place[None, :]].ravel()
            if hivemind is not None:
                rates["lines"] = np.minimum(rates["lines"], hivemind.connection_bytes_per_s)
        elif per == "host":
            rates["lines"] = class_rates[place].ravel()
        else:
            rates["lines"] = (rate if per == "pair" else class_rates).ravel()
            rates["inside"] = np.tile(rate[place, place], 2)
        if network.card is not None:
            card = np.array([network.card.up_bytes_per_s, network.card.down_bytes_per_s], dtype=np.float64)
            rates["cards"] = np.repeat(card, self.workers)
        if network.uplink_by_place:
            up_and_down = [(link.up_bytes_per_s, link.down_bytes_per_s) for link in network.uplink_by_place]
            rates["uplinks"] = np.array(up_and_down, dtype=np.float64).T.ravel()
        if hivemind is not None and per != "connection":
            rates["connections"] = np.full(self.workers**2, hivemind.connection_bytes_per_s)
        return rates

    @cached_property
    def _first_channels(self) -> dict[str, int]:
        """Return the number of the first channel of each kind of channel, by the kind's name."""
        numbers = [len(rates) for rates in self._rates.values()]
        return dict(zip(self._rates, itertools.accumulate(numbers, initial=0), strict=False))

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second that each channel carries."""
        return np.concatenate(list(self._rates.values()))

    def channel_names(self) -> list[str]:
        """Return the name of each channel, such as both places of a line, or the sender's if lines share a channel."""
        places = self.network.places
        worker_places = [places[place] for place in self.place_by_worker.tolist()]
        ends = worker_places if self.network.per in ("connection", "host") else places
        line_names: list[str] = []
        for source in ends:
            if self.network.per in ("connection", "pair"):
                line_names += [f"{source}-{target}" for target in ends]
            else:
                line_names += [f"from {source}"] * self._num_classes
        names_by_kind = {
            "lines": line_names,
            "inside": [f"{name}-{name}" for name in worker_places] * 2,
            "cards": ["card"] * 2 * self.workers,
            "uplinks": [f"{name}'s uplink" for name in places] * 2,
            "connections": ["connection"] * self.workers**2,
        }
        return list(itertools.chain.from_iterable(names_by_kind[kind] for kind in self._rates))

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths of messages between workers, over lines, cards and uplinks."""
        senders, receivers = np.asarray(senders, dtype=np.int64), np.asarray(receivers, dtype=np.int64)
        source, target = self.place_by_worker[senders], self.place_by_worker[receivers]
        line_latency_s, _, line_overhead_s = self._line_properties
        latency_s, overhead_s = line_latency_s[source, target], line_overhead_s[source, target]
        card = self.network.card
        if card is not None:  # both cards delay a message; only the sender's overhead keeps the sender busy
            latency_s = latency_s + 2 * np.float64(card.latency_s)
            overhead_s = overhead_s + np.float64(card.overhead_s)
        if self.network.uplink_by_place:
            uplink_s = np.array([link.latency_s for link in self.network.uplink_by_place], dtype=np.float64)
            latency_s = latency_s + np.where(source != target, uplink_s[source] + uplink_s[target], 0.0)
        return Paths(np.stack(list(self._channels(senders, receivers)), axis=1), latency_s, overhead_s)

    def _channels(self, senders: Ints, receivers: Ints) -> Iterator[Ints]:
        """Yield the columns of `Paths.channels`; -1 is no channel, and columns with entries -1 come last."""
        source, target = self.place_by_worker[senders], self.place_by_worker[receivers]
        crosses, per = source != target, self.network.per
        first_channel = self._first_channels  # the lines begin at channel 0
        if "connections" in first_channel:
            yield first_channel["connections"] + senders * self.workers + receivers
        if "cards" in first_channel:
            is_half_duplex = self.network.card is not None and self.network.card.duplex == "half"
            yield first_channel["cards"] + senders
            yield first_channel["cards"] + (0 if is_half_duplex else self.workers) + receivers
        down_inside = np.full(len(senders), -1)  # only messages inside a place pass this channel
        if per == "connection":
            yield senders * self.workers + receivers
        elif per == "host":
            yield senders * self._num_classes + self._line_classes[source, target]
        else:
            line = source * self._num_classes + self._line_classes[source, target]
            if per == "pair":
                line = source * len(self.network.places) + target
            # Inside a place a message passes its sender's channel up instead of a line.
            yield np.where(crosses, line, first_channel["inside"] + senders)
            down_inside = np.where(crosses, -1, first_channel["inside"] + self.workers + receivers)
        if "uplinks" in first_channel:
            # A message passes either uplinks or a channel inside its place, so that they share a column.
            yield np.where(crosses, first_channel["uplinks"] + source, down_inside)
            yield np.where(crosses, first_channel["uplinks"] + len(self.network.places) + target, -1)
        elif per in ("pair", "place"):
            yield down_inside
