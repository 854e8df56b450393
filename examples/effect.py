"""A program with an effect: the order of events decides what the math sees.

Two workers descend on f(x) = x² / 2, whose gradient is x, without waiting for each other: each reads x, computes, and
then takes a step of 0.5 times what it *read*. Worker 0 computes for 1 s, worker 1 for 2.5 s. Nothing here says how
stale a gradient is: worker 1 reads x = 1 at 0 s, and by 2.5 s worker 0 has moved x twice, to 1 / 4.

Output:

    1.0 s  worker 0  read 1.0000, 0 updates ago   x = 0.5000
    2.0 s  worker 0  read 0.5000, 0 updates ago   x = 0.2500
    2.5 s  worker 1  read 1.0000, 2 updates ago   x = -0.2500
    3.0 s  worker 0  read 0.2500, 1 updates ago   x = -0.3750
"""

from syncline.costmodel import Link
from syncline.sim import Compute, Program, run_events

trace = [1.0]  # x after each update
log: list[str] = []


def worker(number: int, seconds: float, steps: int) -> Program:
    """Read, compute, step: an instruction's effect happens when the instruction completes."""
    read: list[int] = []

    def step() -> None:
        seen = read[-1]
        trace.append(trace[-1] - 0.5 * trace[seen])
        age = len(trace) - 2 - seen
        log.append(f"worker {number}  read {trace[seen]:.4f}, {age} updates ago   x = {trace[-1]:.4f}")

    return [Compute(0.0, effect=lambda: read.append(len(trace) - 1)), Compute(seconds, effect=step)] * steps


timeline = run_events([worker(0, 1.0, 3), worker(1, 2.5, 1)], Link(latency_s=0.0, bandwidth_bytes_per_s=1e9))
ends_s = sorted(timeline.end_s[timeline.duration_s > 0])
for end_s, line in zip(ends_s, log, strict=True):
    print(f"{end_s:.1f} s  {line}")
