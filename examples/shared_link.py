"""A link shared by two flows: workers 0 and 1 send to worker 2 at the same time.

Both flows pass the way into worker 2, whose 100 MB/s they share by max-min fairness: 50 MB/s each. Worker 1's 50 MB are
through after 1 s. From then on worker 0 has the link alone, and its other 50 MB take half a second:

    50 MB / (50 MB/s) = 1 s,    1 s + 50 MB / (100 MB/s) = 1.5 s;    one after the other they would take 1 s and 0.5 s

Output:

    both at once    from 0: 1.50 s  from 1: 1.00 s
    only worker 0   from 0: 1.00 s
"""

from syncline.costmodel import Link
from syncline.sim import Recv, Send, run_events

link = Link(latency_s=0.0, bandwidth_bytes_per_s=100e6)
SIZES = {0: 100e6, 1: 50e6}


def sent(senders: list[int]) -> str:
    """When the messages of these workers have left."""
    programs = [[Send(to=2, nbytes=SIZES[worker])] if worker in senders else [] for worker in SIZES]
    timeline = run_events([*programs, [Recv(source=worker) for worker in senders]], link)
    sends = timeline[timeline.what == "send"]
    return "  ".join(f"from {worker}: {end_s:.2f} s" for worker, end_s in zip(sends.worker, sends.end_s, strict=True))


print("both at once   ", sent([0, 1]))
print("only worker 0  ", sent([0]))
