"""Lines between places: a rate and a latency from each place to each other, as iperf and ping measure them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.link import ByValue, Floats, Ints, Link, Paths
from syncline.costmodel.network.network_links import CostsOfLinks, CostsOfNetwork
from syncline.costmodel.network.software_costs import HivemindCosts
from syncline.costmodel.numerics.arrays import frozen
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, one_of

Per = Literal["connection", "pair", "host", "place"]
"""Owner of the rate of a line; the messages of one owner share the rate."""

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
    places, which all their workers share.

    Args:
        places: names of the S places.
        lines: ``(S, S)`` the line from each place (row) to each (column): one way, at the rate at which the place of
            the row sends. The line from a place to itself joins the place's workers; None is possible for one worker.
        ranks: number of the place of each worker, ``(P,)``, in the order of the ranks.
        per: owner of a line's rate.
        card: each worker's card, at both ends of every message, which both add the card's latency.
        uplinks: each place's link to the others, one for all or one per place, also at both ends; None for no limit.
        hivemind: costs of hivemind's software, which all-reduces by direct exchange then contain.
        name: display name.
        bounds: errors of predictions on these lines, from the calibration that measured them; None without calibration.

    Raises:
        SpecError: no place, lines of another shape, half-duplex lines or uplinks, an unknown owner, ranks in no place.
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
        count = len(self.places)
        if not count or len(set(self.places)) < count:
            raise SpecError("network.places", list(self.places), "different names, one at least")
        if self.per not in get_args(Per):
            raise SpecError("network.per", self.per, one_of(get_args(Per), str(self.per)))
        if len(self.lines) != count or any(len(row) != count for row in self.lines):
            raise SpecError("network.lines", len(self.lines), f"{count} rows of {count} lines, one for each place")
        if not self.ranks or not 0 <= min(self.ranks) <= max(self.ranks) < count:
            raise SpecError("network.ranks", list(self.ranks), "the place of each worker, one worker at least")
        for i, row in enumerate(self.lines):
            for j, line in enumerate(row):
                path = f"network.lines.{self.places[i]}.{self.places[j]}"
                if line is None and not (i == j and self.ranks.count(i) <= 1):
                    raise SpecError(path, None, "a line: {bandwidth, latency}")
                if line is not None and line.duplex == "half":
                    raise SpecError(path, "half", "a line for each direction")
        uplinks = self.uplinks if isinstance(self.uplinks, tuple) else (self.uplinks,) * count
        if len(uplinks) != count:
            raise SpecError("network.uplinks", len(uplinks), f"one link, or one for each of the {count} places")
        for uplink in uplinks:
            if uplink is not None and uplink.duplex == "half":
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

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return how many of the first ``workers`` are in each place."""
        return tuple(np.bincount(self.ranks[:workers], minlength=len(self.places)).tolist())

    def among(self, workers: int) -> MatrixTopology:
        """Return the topology of the first ``workers``.

        Raises:
            SpecError: more workers than the places have, or more than `MOST_WORKERS` with a rate per connection.
        """
        if workers > self.workers:
            raise SpecError("workers", workers, f"at most {self.workers}, the workers of all places")
        if workers > MOST_WORKERS and (self.per == "connection" or self.hivemind):
            raise SpecError("workers", workers, f"at most {MOST_WORKERS:,} with a rate per connection")
        return MatrixTopology(self, np.array(self.ranks[:workers]))

    def describe(self) -> str:
        """Return a short description for users."""
        rates = [line.describe() for row in self.lines for line in row if line is not None]
        lines = rates[0] if len(set(rates)) == 1 else f"{len(set(rates))} different lines"
        return f"{self.workers} workers in {len(self.places)} places, {lines}, a rate per {self.per}"


class _LineChannels(NamedTuple):
    """The rate of each channel of the lines, and the first channel of those inside places (0 without own channels)."""

    bytes_per_s: Floats
    first_inside: int


class _Block(NamedTuple):
    """The channels of one kind: the number of the first, and the bytes per second of each."""

    first: int
    bytes_per_s: Floats


@dataclass(frozen=True, eq=False)
class MatrixTopology(ByValue, CostsOfNetwork):
    """The topology of the workers of some places.

    The channels are, in this order: the lines, by their owner (see `_lines`); the workers' cards up, then down; the
    places' uplinks up, then down; a connection from each worker to each, if software limits connections.

    Args:
        network: the places.
        place: number of each worker's place, ``(P,)``.
    """

    network: Matrix
    place: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", frozen(self.place))

    @property
    def name(self) -> str:
        """Return the name that tables and messages show."""
        return self.network.name

    @property
    def hivemind(self) -> HivemindCosts | None:
        """Return the costs of hivemind's software, or None."""
        return self.network.hivemind

    @property
    def workers(self) -> int:
        """Return P, the number of workers."""
        return len(self.place)

    @cached_property
    def value(self) -> Hashable:
        """Return the value by which topologies are compared and hashed."""
        return self.network, self.place.tobytes()

    @cached_property
    def _numbers(self) -> tuple[Floats, Floats, Floats]:
        """Return the latency, the bytes per second and the overhead of each line, ``(S, S)``; 0, 1, 0 for None."""
        lines = [line or Link(0.0, 1.0) for row in self.network.lines for line in row]
        numbers = np.array([(line.latency_s, line.up_bytes_per_s, line.overhead_s) for line in lines], dtype=np.float64)
        latency_s, rate, overhead_s = numbers.T.reshape(3, len(self.network.places), -1)
        return latency_s, rate, overhead_s

    @cached_property
    def _classes(self) -> Ints:
        """Return the class of each line, ``(S, S)``: lines from a place with equal latency and rate have equal classes.

        The line inside a place is in a class of its own if the lines belong to the places.
        """
        latency_s, rate, _ = self._numbers
        classes = np.zeros(rate.shape, dtype=np.int64)
        for place, columns in enumerate(zip(latency_s, rate, strict=True)):
            pairs = np.stack(columns, axis=1)
            if self.network.per == "place":
                pairs[place] = -1
            classes[place] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        return classes

    @cached_property
    def _lines(self) -> _LineChannels:
        """Return the channels of the lines.

        Per connection there are P^2 channels, in the order of (sender, receiver); per host a channel for each worker
        and class; per pair S^2 and per place S x classes, then one up and one down for each worker inside its place.
        """
        _, rate, _ = self._numbers
        place, per = self.place, self.network.per
        if per == "connection":
            rates = rate[place[:, None], place[None, :]]
            costs = self.network.hivemind
            rates = rates if costs is None else np.minimum(rates, costs.connection_bytes_per_s)
            return _LineChannels(rates.ravel(), 0)
        class_rates = np.ones((len(rate), int(self._classes.max()) + 1))
        np.put_along_axis(class_rates, self._classes, rate, axis=1)
        if per == "host":
            return _LineChannels(class_rates[place].ravel(), 0)
        between = (rate if per == "pair" else class_rates).ravel()
        return _LineChannels(np.concatenate([between, np.tile(rate[place, place], 2)]), len(between))

    @cached_property
    def _blocks(self) -> dict[str, _Block]:
        """Return the channels of each kind."""
        rates: dict[str, Floats] = {"lines": self._lines.bytes_per_s}
        network = self.network
        if network.card is not None:
            card = np.array([network.card.up_bytes_per_s, network.card.down_bytes_per_s], dtype=np.float64)
            rates["cards"] = np.repeat(card, self.workers)
        if self._uplinks:
            up_and_down = [(link.up_bytes_per_s, link.down_bytes_per_s) for link in self._uplinks]
            rates["uplinks"] = np.array(up_and_down, dtype=np.float64).T.ravel()
        if network.hivemind is not None and network.per != "connection":
            rates["connections"] = np.full(self.workers**2, network.hivemind.connection_bytes_per_s)
        firsts = np.cumsum([0, *(len(block) for block in rates.values())]).tolist()
        return {kind: _Block(first, block) for first, (kind, block) in zip(firsts, rates.items(), strict=False)}

    @property
    def _uplinks(self) -> tuple[Link, ...]:
        """Return the uplink of each place; empty without uplinks."""
        uplinks = self.network.uplinks
        return (uplinks,) * len(self.network.places) if isinstance(uplinks, Link) else uplinks or ()

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second that each channel carries."""
        return np.concatenate([block.bytes_per_s for block in self._blocks.values()])

    def channel_names(self) -> list[str]:
        """Return the name of each channel's link: both places of a line, or the sender's if several lines share it."""
        places, worker_places = self.network.places, [self.network.places[place] for place in self.place.tolist()]
        inside = [f"{name}-{name}" for name in worker_places] * 2
        classes = range(int(self._classes.max()) + 1)
        lines = {
            "connection": [f"{source}-{target}" for source in worker_places for target in worker_places],
            "pair": [f"{source}-{target}" for source in places for target in places] + inside,
            "host": [f"from {source}" for source in worker_places for _ in classes],
            "place": [f"from {source}" for source in places for _ in classes] + inside,
        }[self.network.per]
        names = {"cards": ["card"] * 2 * self.workers, "uplinks": [f"{name}'s uplink" for name in places] * 2}
        names |= {"lines": lines, "connections": ["connection"] * self.workers**2}
        return [name for kind in self._blocks for name in names[kind]]

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths over lines, cards and uplinks."""
        senders, receivers = (np.asarray(ends, dtype=np.int64) for ends in (senders, receivers))
        source, target = self.place[senders], self.place[receivers]
        latency_s, _, overhead_s = (numbers[source, target] for numbers in self._numbers)
        card = self.network.card
        if card is not None:
            latency_s = latency_s + 2 * np.float64(card.latency_s)
            overhead_s = overhead_s + np.float64(card.overhead_s)
        if self._uplinks:
            uplink_s = np.array([link.latency_s for link in self._uplinks], dtype=np.float64)
            latency_s = latency_s + np.where(source != target, uplink_s[source] + uplink_s[target], 0.0)
        return Paths(np.stack(list(self._channels(senders, receivers)), axis=1), latency_s, overhead_s)

    def _channels(self, senders: Ints, receivers: Ints) -> Iterator[Ints]:
        """Yield the columns of `Paths.channels`; columns with entries -1, of messages without a channel, come last."""
        source, target = self.place[senders], self.place[receivers]
        across, per, inside = source != target, self.network.per, self._lines.first_inside
        if "connections" in self._blocks:
            yield self._blocks["connections"].first + senders * self.workers + receivers
        if "cards" in self._blocks:
            is_half_duplex = self.network.card is not None and self.network.card.duplex == "half"
            first = self._blocks["cards"].first
            yield first + senders
            yield first + (0 if is_half_duplex else self.workers) + receivers
        if per == "connection":
            yield senders * self.workers + receivers
        elif per == "host":
            yield senders * (int(self._classes.max()) + 1) + self._classes[source, target]
        else:
            count = len(self.network.places) if per == "pair" else int(self._classes.max()) + 1
            line = target if per == "pair" else self._classes[source, target]
            yield np.where(across, source * count + line, inside + senders)
        inside_down = np.full(len(senders), -1)
        if per in ("pair", "place"):
            inside_down = np.where(across, -1, inside + self.workers + receivers)
            if "uplinks" not in self._blocks:
                yield inside_down
        if "uplinks" in self._blocks:
            first = self._blocks["uplinks"].first
            yield np.where(across, first + source, inside_down)
            yield np.where(across, first + len(self.network.places) + target, -1)
