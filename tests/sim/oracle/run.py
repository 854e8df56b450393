"""The event simulation: workers run their programs over a network, message by message."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.paths import Network, Topology
from syncline.errors import SpecError, one_of
from syncline.sim.lockstep.recurrences import RULES
from syncline.sim.program.instructions import Program
from syncline.sim.program.timeline import Timeline
from tests.sim.oracle.ports import Delay
from tests.sim.oracle.simulation import Simulation


def run_events(
    programs: Sequence[Program],
    network: Link | Sequence[Link] | Network | Topology,
    starts_s: ArrayLike | None = None,
    rule: Rule = "eager",
    delay: Delay | None = None,
) -> Timeline:
    """What happens when each worker runs its program.

    Channels are shared: concurrent transfers have max-min fair rates. On each stream a worker has one port out, which
    serves its messages in the order of queueing, and for collectives one port in, which serves them in the order in
    which the worker's programs receive them. By the rule

    - *eager*, a message starts when its sender has queued it and both ports are free, whatever its receiver's program
      is at: ``start``, the sender is busy for the overhead o, the bytes flow, both ports are free, and the message
      arrives alpha later;
    - *rendezvous*, it starts when both ends have come to it, a worker to all messages of a round at once when those of
      its rounds before are over: ``start``, alpha + o pass, the bytes flow, both ends go on.

    What gloo runs follows neither rule, but its own, see `tests.sim.oracle.gloo`. On a network that knows what
    gloo's software takes, collectives that name no algorithm are gloo's.

    A worker is done with a collective when its last message has arrived and its own last has left. What happens at the
    same instant happens in one fixed order.

    Args:
        programs: one per worker.
        network: the link that every worker has, or one per worker; a network; or a topology.
        starts_s: when each worker begins, ``(P,)`` seconds; at 0 unless given.
        rule: ``eager`` or ``rendezvous``.
        delay: seconds by which a message from one worker to another is late on top of its latency, no less than minus
            that; called as ``delay(sender, receiver)`` once per message, in the order in which they start.

    Raises:
        SpecError: an argument that cannot be used.
        SynclineError: programs that cannot finish, or that disagree about a collective.
    """
    if rule not in RULES:
        raise SpecError("rule", rule, one_of(RULES, str(rule)))
    return Simulation(programs, topology(network, len(programs)), starts_s, rule == "eager", delay).run()
