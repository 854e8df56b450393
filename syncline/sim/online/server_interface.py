"""Workers that share a server: the settings, the observer of the events, the results, and the servers' machines.

A server has a *handler* for each worker or local server that it serves: a program that exchanges messages with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.link import topology
from syncline.costmodel.network.paths import DerivedTopology, Floats, Ints, Network, Paths, Topology
from syncline.errors import SpecError
from syncline.sim.failures.costs import FailureCosts
from syncline.sim.program.timeline import Timeline


@dataclass(frozen=True)
class UpperServer:
    """A server above local servers, each of which serves a group of workers.

    After every ``merge_period`` versions, a local server sends the difference since it last received the upper server's
    model, and continues to serve its workers. The upper server makes a version from each such update and sends its
    model back. The local server merges this model into its own model.

    Args:
        groups: number of workers of each local server, in order.
        merge_period: number of versions that a local server makes between a merge and its next update.
    """

    groups: tuple[int, ...]
    merge_period: int

    def __post_init__(self) -> None:
        if not self.groups or min(self.groups) < 1:
            raise SpecError("groups", self.groups, "the workers of each local server, at least 1")
        if self.merge_period < 1:
            raise SpecError("merge_period", self.merge_period, "at least 1")


@dataclass(frozen=True)
class ServerSettings:
    """Settings of asynchronous training with a server.

    A worker fetches the server's model, makes its local steps, sends its update, and waits for the next model. The
    server makes a new version from ``buffer_size`` updates and those that arrive within ``grace_period_s`` after them.
    If fewer than all workers take part at a time, the server draws the next participants from the idle workers.

    Args:
        workers: P, number of workers.
        steps: number of steps that all workers make together; the server assigns steps, so a fast worker makes more.
        local_steps: number of steps of each worker between two models, ``(P,)``, each at least 1.
        buffer_size: number of updates per version, the quorum; the updates that remain at the end make the last
            version.
        synchronous: whether a worker gets its model only when a version contains its update; otherwise it gets the
            model at once, at the end of that instant.
        grace_period_s: seconds after the buffer is full in which more updates enter the version; the period ends at
            once when no other worker is under way.
        participants: number of workers that take part at a time; all if None. The server sends a worker the model when
            the worker is drawn; the first participants have the model at the beginning.
        hierarchy: the server above the servers of groups of workers; None: all workers share one server.

    Raises:
        SpecError: a number below 1, a time below 0, more participants than workers, or a buffer that never fills
            because all workers wait.
    """

    workers: int
    steps: int
    local_steps: Sequence[int]
    buffer_size: int = 1
    synchronous: bool = False
    update_bytes: float = 0.0
    model_bytes: float = 0.0
    grace_period_s: float = 0.0
    participants: int | None = None
    seed: int = 0
    hierarchy: UpperServer | None = None

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        for name in ("workers", "steps", "buffer_size"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "at least 1")
        if not 1 <= self.num_participants <= self.workers:
            raise SpecError("participants", self.participants, f"from 1 to {self.workers}, the workers")
        if self.hierarchy is not None and (sum(self.hierarchy.groups) != self.workers or self.participants is not None):
            expected = f"all {self.workers} workers, who take part at all times"
            raise SpecError("hierarchy.groups", self.hierarchy.groups, expected)
        if not (math.isfinite(self.grace_period_s) and self.grace_period_s >= 0):
            raise SpecError("grace_period", self.grace_period_s, "seconds, finite and at least 0")
        if len(self.local_steps) != self.workers or min(self.local_steps) < 1:
            raise SpecError("local_steps", list(self.local_steps), f"{self.workers} numbers of at least 1")
        # Workers that wait for a version send no second update, so the first updates of all must fill the buffer.
        most_updates = min(self.groups, default=self.num_participants)
        if self.synchronous and self.buffer_size > most_updates:
            senders = "the workers" if self.participants is None else "the participants"
            expected = f"at most {most_updates}, {senders}, who wait until it is full"
            raise SpecError("buffer_size", self.buffer_size, expected)

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the number of workers of each local server, or an empty tuple if all workers share a server."""
        return () if self.hierarchy is None else self.hierarchy.groups

    @property
    def num_participants(self) -> int:
        """Return the number of workers that take part at a time."""
        return self.workers if self.participants is None else self.participants


class EndSimulation(Exception):
    """An exception that an observer raises to end the simulation."""


class EventObserver:
    """The base class of observers of a simulation: their methods compute gradients and models when events happen.

    This class ignores all events. A subclass overrides some methods, which may raise `EndSimulation`.
    """

    def step(self, worker: int, number: int) -> None:
        """Compute local step ``number`` of a worker, counted from 0, when the step ends."""

    def arrive(self, worker: int, age: int) -> None:
        """Process a worker's update; the server has made ``age`` versions since that worker's model."""

    def version(self, count: int, server: int) -> None:
        """Make a version of a server's model from the last ``count`` updates that arrived at this server."""

    def reply(self, worker: int) -> None:
        """Send a worker the current model of its server."""

    def send_up(self, server: int) -> None:
        """Send the upper server the change of a local server's model since its last merge."""

    def arrive_up(self, server: int, age: int) -> None:
        """Make the upper server's next version from an update of a local server that is ``age`` versions old."""

    def reply_up(self, server: int) -> None:
        """Send a local server the current model of the upper server."""

    def merge(self, server: int) -> None:
        """Merge the upper server's model into a local server's model when it arrives there."""

    def fail(self, worker: int) -> None:
        """Process a failure: the worker loses its unsent steps, and begins again with a new model."""


class Contribution(NamedTuple):
    """An update that a worker sent to a server.

    Attributes:
        steps: number of local steps in the update.
        begun_s: time at which the worker began these steps with its model, in seconds, as the other times.
        sent_s: time at which the worker sent the update.
        arrived_s: time at which the update arrived at the server.
        model: version of the model with which the worker began; 0 is the first model.
        version: version that contains the update, from 1.
        age: number of versions that the server made between ``model`` and ``version``, ``version - 1 - model``.
        replied_s: time at which the server sent the next model; NaN if never.
    """

    worker: int
    steps: int
    begun_s: float
    sent_s: float
    arrived_s: float
    model: int
    version: int
    age: int
    replied_s: float


class Merge(NamedTuple):
    """An update of a local server to the upper server, and the returned model; times are in seconds.

    Attributes:
        versions: number of versions of the local server since its last merge, which the update contains.
        sent_s: time at which the local server sent the update.
        arrived_s: time at which the update arrived at the upper server.
        version: version that the upper server made from the update, from 1.
        age: number of versions that the upper server made since it last sent a model to this local server.
        merged_s: time at which the local server merged the returned model; NaN if never.
    """

    server: int
    versions: int
    sent_s: float
    arrived_s: float
    version: int
    age: int
    merged_s: float


@dataclass(frozen=True, eq=False)
class AsyncResult:
    """The result of a simulation of workers at their own pace.

    Args:
        step_end_s: end of each step of any worker, ``(N,)`` seconds in order.
        step_worker: worker of each step, ``(N,)``.
        contributions: updates in the order of arrival.
        versions: number of versions of the server, or of all local servers together.
        end_s: time of the last step, arrival or version.
        compute_s: seconds that each worker computes, ``(P,)``.
        wait_s: seconds that each worker waits for a model, including the transfer of its update, ``(P,)``.
        timeline: timeline with rows of the P workers, of the S local servers if there are any, and of the only or upper
            server. A server has a stream for each receiver of its messages.
        interrupted: whether the user interrupted the simulation; the fields above are then the results so far.
        merges: updates of local servers in the order of arrival at the upper server.
        failed: costs of failures; None if no machine can fail.
    """

    step_end_s: Floats
    step_worker: Ints
    contributions: tuple[Contribution, ...]
    versions: int
    end_s: float
    compute_s: Floats
    wait_s: Floats
    timeline: Timeline
    interrupted: bool = False
    merges: tuple[Merge, ...] = ()
    failed: FailureCosts | None = None

    def columns(self) -> dict[str, np.ndarray]:
        """Return the contributions as a table: an array for each field, by the field's name."""
        columns: dict[str, np.ndarray] = {}
        for field in Contribution._fields:
            columns[field] = np.array([getattr(contribution, field) for contribution in self.contributions])
        return columns

    def ages(self) -> Ints:
        """Return the number of updates of each age, from 0 on."""
        return np.bincount(self.columns()["age"].astype(np.int64), minlength=1)

    def waited_for_s(self, workers: int, groups: Sequence[int] = ()) -> Floats:
        """Return the seconds that worker i's updates waited at the server for an update of worker j, ``(P, P)``.

        An update waits for the last update of its version, without the grace period after that. Updates count only if
        their workers waited for the version and received its model.

        Args:
            workers: P, number of workers.
            groups: number of workers of each local server, in order; empty: there is one server.
        """
        group_sizes = groups or (workers,)
        server_of_worker = np.repeat(np.arange(len(group_sizes)), group_sizes).tolist()
        last_update: dict[tuple[int, int], Contribution] = {}  # by server and version
        for update in self.contributions:  # in the order of arrival
            last_update[server_of_worker[update.worker], update.version] = update
        waited_s: Floats = np.zeros((workers, workers))
        for update in self.contributions:
            awaited = last_update[server_of_worker[update.worker], update.version]
            if update.replied_s >= awaited.arrived_s:  # not if the server replied at once or never (NaN)
                waited_s[update.worker, awaited.worker] += awaited.arrived_s - update.arrived_s
        return waited_s

    def steps_of(self, workers: int) -> Ints:
        """Return the number of local steps that each worker made, ``(P,)``."""
        return np.bincount(self.step_worker, minlength=workers)


@dataclass(frozen=True, eq=False)
class ServerTopology(DerivedTopology):
    """A network of P workers and the handlers of their servers.

    The handler for worker i, a program of its server, has the number P + i. With S local servers below an upper server,
    S programs of the local servers that send to it, and its S handlers for these, follow. All handlers at one place are
    one machine: their messages share its channels max-min fairly, as the connections of one machine do.

    Args:
        whole: the topology of the whole network, see `DerivedTopology`.
        num_workers: P, number of workers.
        server_place: place of the only server, or of the upper server, in the whole network.
        groups: number of workers of each local server, in order; empty: there is one server.
    """

    num_workers: int
    server_place: int
    groups: Sequence[int] = ()

    @cached_property
    def places(self) -> Ints:
        """Return each program's place in the whole network; a local server is at the place of its first worker."""
        workers = np.arange(self.num_workers)
        if not self.groups:
            return np.concatenate([workers, np.full(self.num_workers, self.server_place)])
        first_workers = np.cumsum(self.groups) - self.groups  # of each group
        upper_places = np.full(len(self.groups), self.server_place)
        return np.concatenate([workers, np.repeat(first_workers, self.groups), first_workers, upper_places])

    @property
    def workers(self) -> int:
        """Return the number of programs (workers and handlers), each of which is a worker of this topology."""
        return len(self.places)

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bandwidth of each channel of the whole network, in bytes per second."""
        return self.whole.bandwidth_bytes_per_s

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the routes between the places of these workers and handlers; equal places are no time apart."""
        source, target = self.places[senders], self.places[receivers]
        is_remote = source != target
        if is_remote.all():
            return self.whole.paths(source, target)
        routes = self.whole.paths(source[is_remote], target[is_remote])
        # Messages within one place: no channels (-1), latency or overhead.
        channels = np.full((len(source), routes.channels.shape[1]), -1, dtype=routes.channels.dtype)
        latency_s, overhead_s = np.zeros(len(source)), np.zeros(len(source))
        channels[is_remote], latency_s[is_remote], overhead_s[is_remote] = routes
        return Paths(channels, latency_s, overhead_s)


def with_server(network: Network | Topology, workers: int) -> tuple[Topology, int]:
    """Return a network with places for the workers and for their server, and the index of the server's place.

    Workers have the places 0 to ``workers - 1``, and the server the next one; on a network of nodes, places are added
    up to a whole node. On a network whose places are all taken, such as sites or a graph, the server shares place 0.
    """
    for num_places in range(workers + 1, 2 * workers + 2):  # add places until they fill a node
        try:
            return topology(network, num_places), workers
        except SpecError:  # the network cannot have this number of places
            continue
    return topology(network, workers), 0
