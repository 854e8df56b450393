"""Lines between places: a rate and a latency from each place to each other, as iperf and ping measure them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.hivemind_costs import HivemindCosts
from syncline.costmodel.network.library_costs import CostsOfLinks, CostsOfNetwork
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.topology import ByValue, Floats, Ints, Paths
from syncline.costmodel.numerics.bounded_cache import frozen
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, one_of

Per = Literal["connection", "pair", "host", "place"]
"""Owner of the rate of a line; the messages of one owner share the rate."""

MOST_WORKERS = 2048
"""Largest number of workers with a rate for each connection, of which there are P^2."""


@dataclass(frozen=True)
class Matrix(CostsOfLinks):
    """Places, and a line from each place to each other; every worker is in a place.

    A message from a worker in place a to one in place b takes the latency of the line from a to b, and a rate that the
    messages of one owner share. ``per`` names the owner:

    | ``per``      | messages that share the rate from a to b                                                  |
    |--------------|-------------------------------------------------------------------------------------------|
    | `connection` | those of one worker to one other                                                          |
    | `pair`       | all from place a to place b                                                               |
    | `host`       | those of one worker to all places with the same latency and rate, as `tc` shapes classes  |
    | `place`      | those of all workers of a to all places with the same latency and rate                    |

    With ``pair`` and ``place`` each worker of a place sends, and receives, at the rate of the line inside it. A message
    also passes its sender's and its receiver's card, and between places the uplinks of both, which are shared by all.

    Args:
        places: names of the S places.
        lines: ``(S, S)`` the line from each place (row) to each (column): one way, at the rate at which the first
            sends. The line from a place to itself joins its workers; None is possible if it has one worker.
        ranks: number of the place of each worker, ``(P,)``, in the order of the ranks.
        per: owner of a line's rate.
        card: each worker's card, at both ends of every message; its latency is added at each.
        uplinks: each place's link to the others, one for all or one per place, likewise at both ends; None for no
            limit.
        hivemind: costs of hivemind's software, which all-reduces by direct exchange then contain.
        name: for people.
        bounds: errors of predictions on these lines, from the calibration that measured them; None: nobody did.

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
        """Return the hash of all fields, kept because there are S^2 lines."""
        return hash((self.places, self.lines, self.ranks, self.per, self.card, self.uplinks, self.hivemind, self.name))

    @property
    def workers(self) -> int:
        """Return the number of workers in all places."""
        return len(self.ranks)

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the number of the first P workers in each place."""
        return tuple(np.bincount(self.ranks[:workers], minlength=len(self.places)).tolist())

    def among(self, workers: int) -> MatrixTopology:
        """Return the topology of the first P workers.

        Raises:
            SpecError: more workers than the places have, or more than there can be connections of.
        """
        if workers > self.workers:
            raise SpecError("workers", workers, f"at most {self.workers}, the workers of all places")
        if workers > MOST_WORKERS and (self.per == "connection" or self.hivemind):
            raise SpecError("workers", workers, f"at most {MOST_WORKERS:,} with a rate per connection")
        return MatrixTopology(self, np.array(self.ranks[:workers]))

    def describe(self) -> str:
        """Return a short description that a user can read."""
        rates = [line.describe() for row in self.lines for line in row if line is not None]
        lines = rates[0] if len(set(rates)) == 1 else f"{len(set(rates))} different lines"
        return f"{self.workers} workers in {len(self.places)} places, {lines}, a rate per {self.per}"


@dataclass(frozen=True, eq=False)
class MatrixTopology(ByValue, CostsOfNetwork):
    """The workers of some places.

    Channels, in this order: of the lines, by their owner (see `_lines`); the workers' cards up, and down; the places'
    uplinks up, and down; a connection from each worker to each, if software limits it.

    Args:
        network: the places.
        place: of each worker, ``(P,)``.
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
        none = Link(0.0, 1.0)
        lines = [[line or none for line in row] for row in self.network.lines]
        rows = [[(line.latency_s, line.up_bytes_per_s, line.overhead_s) for line in row] for row in lines]
        latency_s, rate, overhead_s = np.moveaxis(np.array(rows, dtype=np.float64), -1, 0)
        return latency_s, rate, overhead_s

    @cached_property
    def _classes(self) -> Ints:
        """Return the class of each line among those that leave its place, ``(S, S)``: equal lines have equal classes.

        The line inside a place is in a class of its own if the lines belong to the places.
        """
        latency_s, rate, _ = self._numbers
        classes = np.zeros(rate.shape, dtype=np.int64)
        for i, keys in enumerate(zip(latency_s, rate, strict=True)):
            pairs = np.stack(keys, axis=1)
            if self.network.per == "place":
                pairs[i] = -1
            classes[i] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        return classes

    @cached_property
    def _lines(self) -> tuple[Floats, int]:
        """Return the bytes per second of the lines' channels, and the first channel of those inside places.

        Per connection there are P^2, in the order of (sender, receiver); per host a channel for each worker and class;
        per pair S^2 and per place S x classes, then one up and one down for each worker inside its place.
        """
        _, rate, _ = self._numbers
        place, per = self.place, self.network.per
        if per == "connection":
            rates = rate[place[:, None], place[None, :]]
            costs = self.network.hivemind
            return (rates if costs is None else np.minimum(rates, costs.connection_bytes_per_s)).ravel(), 0
        of_class = np.ones((len(rate), int(self._classes.max()) + 1))
        np.put_along_axis(of_class, self._classes, rate, axis=1)
        if per == "host":
            return of_class[place].ravel(), 0
        between = (rate if per == "pair" else of_class).ravel()
        return np.concatenate([between, np.tile(rate[place, place], 2)]), len(between)

    @cached_property
    def _blocks(self) -> dict[str, tuple[int, Floats]]:
        """Return the first channel of each kind, and the bytes per second of its channels."""
        rates: dict[str, Floats] = {"lines": self._lines[0]}
        network = self.network
        if network.card is not None:
            card = np.array([network.card.up_bytes_per_s, network.card.down_bytes_per_s], dtype=np.float64)
            rates["cards"] = np.repeat(card, self.workers)
        if self._uplinks:
            rates["uplinks"] = np.array(
                [link.up_bytes_per_s for link in self._uplinks] + [link.down_bytes_per_s for link in self._uplinks],
                dtype=np.float64,
            )
        if network.hivemind is not None and network.per != "connection":
            rates["connections"] = np.full(self.workers**2, network.hivemind.connection_bytes_per_s)
        firsts = np.cumsum([0, *(len(block) for block in rates.values())]).tolist()
        return {kind: (first, block) for first, (kind, block) in zip(firsts, rates.items(), strict=False)}

    @property
    def _uplinks(self) -> tuple[Link, ...]:
        uplinks = self.network.uplinks
        return (uplinks,) * len(self.network.places) if isinstance(uplinks, Link) else uplinks or ()

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second that each channel carries."""
        return np.concatenate([rates for _, rates in self._blocks.values()])

    def channel_names(self) -> list[str]:
        """Return the name of each channel's link: of a line its places, or its own place if several places share it."""
        places, of_worker = self.network.places, [self.network.places[place] for place in self.place.tolist()]
        inside = [f"{name}-{name}" for name in of_worker] * 2
        classes = range(int(self._classes.max()) + 1)
        lines = {
            "connection": [f"{source}-{target}" for source in of_worker for target in of_worker],
            "pair": [f"{source}-{target}" for source in places for target in places] + inside,
            "host": [f"from {source}" for source in of_worker for _ in classes],
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
            ways_s = np.array([link.latency_s for link in self._uplinks], dtype=np.float64)
            latency_s = latency_s + np.where(source != target, ways_s[source] + ways_s[target], 0.0)
        return Paths(np.stack(list(self._channels(senders, receivers)), axis=1), latency_s, overhead_s)

    def _channels(self, senders: Ints, receivers: Ints) -> Iterator[Ints]:
        """Yield the columns of channels; -1 of a message that does not pass one comes last."""
        source, target = self.place[senders], self.place[receivers]
        across, per, inside = source != target, self.network.per, self._lines[1]
        if "connections" in self._blocks:
            yield self._blocks["connections"][0] + senders * self.workers + receivers
        if "cards" in self._blocks:
            half = self.network.card is not None and self.network.card.duplex == "half"
            first = self._blocks["cards"][0]
            yield first + senders
            yield first + (0 if half else self.workers) + receivers
        if per == "connection":
            yield senders * self.workers + receivers
        elif per == "host":
            yield senders * (int(self._classes.max()) + 1) + self._classes[source, target]
        else:
            width = len(self.network.places) if per == "pair" else int(self._classes.max()) + 1
            line = target if per == "pair" else self._classes[source, target]
            yield np.where(across, source * width + line, inside + senders)
        ends = np.full(len(senders), -1)
        if per in ("pair", "place"):
            ends = np.where(across, -1, inside + self.workers + receivers)
            if "uplinks" not in self._blocks:
                yield ends
        if "uplinks" in self._blocks:
            first = self._blocks["uplinks"][0]
            yield np.where(across, first + source, ends)
            yield np.where(across, first + len(self.network.places) + target, -1)
