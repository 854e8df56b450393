"""What streams do by the rules of CUDA, in a dozen lines that know nothing of the simulation."""

from __future__ import annotations

from collections import defaultdict

from syncline.costmodel import Hardware, Link, chosen_algorithm, collective_s
from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    HostWaited,
    Marked,
    RankRecord,
    Started,
    StreamWaited,
    Waited,
)


def end_s(rank: RankRecord, workers: int, link: Link, hardware: Hardware, ahead: bool) -> float:
    """When all that a rank does is over, where all ranks do the same."""
    host, tails, free = 0.0, defaultdict[int, float](float), defaultdict[str, float](float)
    marks, calls = dict[int, float](), dict[int, float]()
    rate, memory = hardware.peak_flops * hardware.mfu, hardware.memory_bytes_per_s or float("inf")
    for event in rank.events:
        stream = getattr(event, "stream", 0) if ahead else 0
        now = max(host, tails[stream])
        if isinstance(event, Computed):
            took = (max(op.flops / rate, op.nbytes / memory) for op in rank.segments[event.segment])
            tails[stream] = now + sum(took)
        elif isinstance(event, Started):
            group, size = event.key[0], len(event.ranks)
            by = chosen_algorithm("ring", event.kind, size, event.payload_bytes, link)
            cost = collective_s(event.kind, size, event.payload_bytes, link, by) if size > 1 else 0.0
            free[group] = calls[event.call] = max(now, free[group]) + float(cost)
        elif isinstance(event, Waited):
            tails[stream] = max(now, calls[event.call])
        elif ahead and isinstance(event, Marked):
            marks[event.mark] = now
        elif ahead and isinstance(event, StreamWaited):
            tails[stream] = max(now, marks[event.mark])
        elif ahead and isinstance(event, HostWaited):
            everything = [host, *tails.values(), *calls.values()]
            host = max(everything) if event.mark == EVERYTHING else max(host, marks[event.mark])
    return max([*tails.values(), *calls.values()])
