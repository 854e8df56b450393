"""A collective with a late rank: three workers average 3 MB around a ring, and worker 2 comes 30 ms late.

A ring all-reduce is 2 (P - 1) = 4 rounds; in each a worker sends a block of n / P = 1 MB to its right neighbour. On a
link of 10 ms and 100 MB/s a block occupies the link for 10 ms and arrives after 20 ms. Workers that start together are
done after 4 × 20 = 80 ms. Nobody waits for the late one as such: worker 1, whose left neighbour is early, is done
before the others, and after 130 + 80 = 210 ms everybody is. docs/clock.md follows every message by hand.

Output:

    together  closed form  180 ms   events  180, 180, 180 ms
    one late  closed form  210 ms   events  210, 190, 200 ms
"""

from syncline.costmodel import Link, ring_all_reduce_s
from syncline.sim import Collective, Compute, Wait, run_events

link = Link(latency_s=10e-3, bandwidth_bytes_per_s=100e6)


def step(compute_s: float) -> list[Compute | Collective | Wait]:
    """Compute, then average the gradients and wait for the result."""
    return [Compute(compute_s, step=0), Collective("all_reduce", 3e6, key="gradients", step=0), Wait("gradients")]


for name, compute_s in {"together": [0.1, 0.1, 0.1], "one late": [0.1, 0.1, 0.13]}.items():
    timeline = run_events([step(seconds) for seconds in compute_s], link)
    closed_s = max(compute_s) + ring_all_reduce_s(3, 3e6, link)
    ends = ", ".join(f"{end_s * 1e3:.0f}" for end_s in timeline.step_end_s[0])
    print(f"{name}  closed form  {closed_s * 1e3:.0f} ms   events  {ends} ms")
