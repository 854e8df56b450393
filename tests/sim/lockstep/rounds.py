"""Rounds in lockstep, by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.network.paths import Floats, Topology
from syncline.sim import Round
from syncline.sim.lockstep.recurrences import Ports, run_routed
from syncline.sim.lockstep.routed import RoutedRounds


def run_rounds(
    rounds: Sequence[Round], topology: Topology, entry_s: Floats, rule: Rule = "eager"
) -> tuple[Floats, Floats]:
    """Return the times at which each worker has received its last message and sent its last message."""
    routed = RoutedRounds.from_rounds(rounds, topology)
    ports = Ports.at_entry(np.asarray(entry_s, dtype=np.float64), len(routed.bandwidth) - 1)
    run_routed(routed, ports, rule)
    return ports.received_s, ports.out_s
