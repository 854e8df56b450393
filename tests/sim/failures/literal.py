"""Trainings on machines that fail, played step by step as somebody would tell it: the oracle of the closed forms."""

from __future__ import annotations

from typing import NamedTuple


class Told(NamedTuple):
    wall_s: float
    steps: float
    lost_s: float
    down_s: float
    restart_s: float


def restarts(
    steps: int, step_s: float, every: int, stop_s: float, again_s: float, timeout_s: float,
    failures: list[tuple[float, float]],
) -> Told:  # fmt: skip
    """Everybody waits for everybody; each failure (at, back) is of a machine of its own."""
    now, saved, done, begun = 0.0, 0, 0, 0.0  # begun: where what would be lost begins
    lost = down = restart = 0.0
    waiting = list(failures)

    def survive(until: float) -> bool:
        return not waiting or waiting[0][0] >= until

    def recover() -> float:
        nonlocal down, restart
        at, back = waiting.pop(0)
        while True:
            noticed, came = at + timeout_s, at
            start = max(noticed, back)
            while waiting and waiting[0][0] < start:
                start = max(start, waiting.pop(0)[1])
            down += start - came
            if survive(start + again_s):
                restart += again_s
                return start + again_s
            restart += waiting[0][0] - start
            at, back = waiting.pop(0)

    while saved < steps:
        if not survive(now + step_s):
            lost += waiting[0][0] - begun
            now = begun = recover()
            done = saved
            continue
        now, done = now + step_s, done + 1
        if done % every == 0 or done == steps:
            if not survive(now + stop_s):
                lost += waiting[0][0] - begun
                now = begun = recover()
                done = saved
                continue
            now += stop_s
            saved, begun = done, now
    return Told(now, saved, lost, down, restart)


def alone(
    workers: int, step_s: float, period: int, again_s: float, until_s: float, failures: list[tuple[float, int, float]]
) -> list[int]:
    """Steps that each worker has made and sent, or is making, at an instant; failures are (at, worker, back)."""
    made = [0] * workers
    for worker in range(workers):
        now, kept = 0.0, 0
        own = [(at, back) for at, who, back in failures if who == worker]
        while True:
            ends = now + period * step_s
            if own and own[0][0] < min(ends, until_s):
                at, back = own.pop(0)
                now = max(at, back) + again_s
                while own and own[0][0] < now:
                    at, back = own.pop(0)
                    now = max(at, back) + again_s
                continue
            if ends > until_s:
                made[worker] = kept + max(0, int((until_s - now) / step_s))
                break
            now, kept = ends, kept + period
    return made
