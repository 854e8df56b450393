"""A record as programs of the event simulation, and what they take on a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from syncline.backend.tracing.record import (
    Computed,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    Waited,
    payload_bytes,
)
from syncline.costmodel import Hardware, Link, Network, chosen_algorithm
from syncline.costmodel.collectives.policies import unless_named
from syncline.errors import SpecError
from syncline.sim import Collective, Compute, Instruction, Recv, Send, Timeline, Wait, run_events


def operations_s(operations: Operations, hardware: Hardware) -> float:
    """Seconds of operations one after another, each bounded by arithmetic or by memory.

        sum of max(FLOPs / (peak x mfu), bytes / bandwidth)

    Source: S. Williams et al., "Roofline" (2009).
    """
    rate = hardware.peak_flops * hardware.mfu
    memory = hardware.memory_bytes_per_s or np.inf
    return float(sum(max(flops / rate, nbytes / memory) for flops, nbytes in operations))


def carrier(network: Network, workers: int, wanted: str | None) -> Callable[[Started], str | None]:
    """Which algorithm carries each collective; of ``auto`` the fastest where all take part, or links are alike."""

    @cache
    def chosen(kind: str, size: int, nbytes: float) -> str | None:
        if wanted is None or (size < workers and not isinstance(network, Link)):
            return None
        return chosen_algorithm(wanted, kind, size, max(nbytes, 1.0), network)

    return lambda event: chosen(event.kind, len(event.ranks), event.payload_bytes)


def programs_of(
    ranks: Sequence[RankRecord], hardware: Hardware, algorithm: Callable[[Started], str | None]
) -> list[list[Instruction]]:
    """What each rank does, as instructions; the host waits where the script does, as on a CPU.

    Args:
        ranks: the record.
        hardware: that computes.
        algorithm: of each collective.
    """
    programs: list[list[Instruction]] = []
    for rank in ranks:
        seconds = [operations_s(one, hardware) for one in rank.segments]
        program: list[Instruction] = []
        waits: dict[int, Instruction | None] = {}
        step = 0
        for event in rank.events:
            if isinstance(event, Computed):
                program.append(Compute(seconds[event.segment], step=step))
            elif isinstance(event, Started):
                group = event.ranks
                waits[event.call] = Wait(event.key, step=step) if len(group) > 1 else None
                if len(group) > 1:
                    whole = len(group) == len(ranks)
                    program.append(
                        Collective(
                            event.kind, event.payload_bytes, event.key, event.site, step, algorithm(event),
                            group=None if whole else group, stream=f"group {event.key[0]}",
                        )
                    )  # fmt: skip
            elif isinstance(event, MessageSent):
                program.append(Send(event.to, event.payload_bytes, event.tag, step))
                waits[event.call] = None  # a buffer that has left is free
            elif isinstance(event, MessageAwaited):
                waits[event.call] = Recv(event.source, event.tag, step)
            elif isinstance(event, Waited):
                if (wait := waits.pop(event.call, None)) is not None:
                    program.append(wait)
            elif isinstance(event, Stepped):
                step += 1
        programs.append(program)
    return programs


@dataclass(frozen=True)
class Replayed:
    """A record on a network.

    Args:
        timeline: what happened.
        step_end_s: when each step ended on the last rank that had it.
        row: of the command.
    """

    timeline: Timeline
    step_end_s: np.ndarray
    row: dict[str, Any]


def replay(ranks: Sequence[RankRecord], network: Network, hardware: Hardware, algorithm: str | None = None) -> Replayed:
    """What a record takes on a network.

    Args:
        ranks: the record.
        network: that joins them.
        hardware: that computes.
        algorithm: of all collectives; none: ``auto``, or what the network's library runs.

    Raises:
        SpecError: ranks that the network cannot join, or that have nothing in common.
    """
    programs = programs_of(ranks, hardware, carrier(network, len(ranks), unless_named(algorithm, network)))
    timeline = run_events(programs, network)
    steps = max((rank.steps for rank in ranks), default=0)
    if not len(timeline.end_s):
        raise SpecError("script", "no computing and no communication", "one that computes or communicates")
    computing = timeline.stream == "compute"
    ends = np.zeros(steps + 1)
    np.maximum.at(ends, np.minimum(timeline.step[computing], steps), timeline.end_s[computing])
    step_end_s = np.maximum.accumulate(ends)[:steps]
    waits = computing & (timeline.what == "wait")
    wall_s = float(timeline.end_s.max())
    # The first step has what comes before it; a mean step is one of those after.
    step_s = float(np.diff(step_end_s).mean()) if steps > 1 else wall_s
    exposed_s = float((timeline.end_s - timeline.start_s)[waits].sum()) / len(ranks)
    losses = losses_of(ranks)
    row = {
        "network": network.name,
        "hardware": hardware.name,
        "workers": len(ranks),
        "steps": steps,
        "step_time_s": step_s,
        "wall_clock_s": wall_s,
        "exposed_communication_s": exposed_s / max(steps, 1),
        "bytes_per_worker": float(np.mean(payload_bytes(ranks))) / max(steps, 1),
        "loss": losses[-1] if losses else None,
    }
    return Replayed(timeline, step_end_s, row)


def losses_of(ranks: Sequence[RankRecord]) -> list[float]:
    """The losses, means over the ranks that have them."""
    of = [rank.losses for rank in ranks if rank.losses]
    return [float(np.mean(each)) for each in zip(*of, strict=False)] if of else []
