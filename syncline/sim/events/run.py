"""The event simulation: workers run their programs over a network, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.errors import require_one_of
from syncline.sim.lockstep.recurrences import RULES
from syncline.sim.program.instructions import Collective, Delay, Program
from syncline.sim.program.timeline import Timeline


def run_events(
    programs: Sequence[Program],
    network: Link | Sequence[Link] | Network | Topology,
    starts_s: ArrayLike | None = None,
    rule: Rule = "eager",
    delay: Delay | None = None,
) -> Timeline:
    """Return the timeline of workers that run their programs.

    Channels are shared: concurrent transfers have max-min fair rates. On each stream a worker has one outgoing port,
    which serves its messages in the order of queueing. For collectives it has one incoming port, which serves messages
    in the order in which the worker's programs receive them. By the rule

    - *eager*, a message starts when its sender has queued it and both ports are free, wherever its receiver's program
      is. The sender is busy for the overhead o, then the bytes flow, then both ports are free. The message arrives
      alpha later;
    - *rendezvous*, it starts when both ends have come to it. Then alpha + o pass, the bytes flow, and both ends go
      on. In a collective, a worker comes to all messages of a round once its earlier rounds are over.

    Collectives of gloo have their own rule, see `syncline.sim.events.core.messages`. On a network with the times of
    gloo's software, collectives that name no algorithm are gloo's.

    A worker is done with a collective when its last message has arrived and its own last message has left. Simultaneous
    events happen in one fixed order.

    Args:
        programs: one program per worker; a `Queued` for a worker with several streams.
        network: the link that every worker has, or one link per worker; a network; or a topology.
        starts_s: time at which each worker begins, ``(P,)`` seconds; 0 by default.
        rule: ``eager`` or ``rendezvous``.
        delay: function ``delay(sender, receiver)`` of the extra latency of a message in seconds, at least minus the
            latency. It is called once per message, in the order in which messages start.

    Raises:
        SpecError: an argument is out of range or does not fit the others.
        SynclineError: a program cannot finish, or programs disagree about a collective.
    """
    return _simulation(programs, network, starts_s, rule, delay).run()


def events_finish_s(join: Collective, topology: Topology, starts_s: Floats, rule: Rule = "eager") -> Floats:
    """Return the time at which each worker is done with one collective among all workers, ``(P,)`` seconds.

    Each worker joins the collective at its time in ``starts_s``, ``(P,)`` seconds; ``rule`` is as in `run_events`.
    """
    return _simulation([[join]] * topology.workers, topology, starts_s, rule).finish_s()  # one program for all


def _simulation(
    programs: Sequence[Program],
    network: Link | Sequence[Link] | Network | Topology,
    starts_s: ArrayLike | None,
    rule: Rule,
    delay: Delay | None = None,
) -> Any:
    """Return the `Simulation` of programs; the first call loads the compiled core in 0.15 s."""
    require_one_of("rule", rule, RULES)
    from syncline.sim.events.simulation import Simulation

    return Simulation(programs, topology(network, len(programs)), starts_s, rule == "eager", delay)
