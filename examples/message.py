"""A message: worker 0 computes and sends, worker 1 waits for what was sent.

On a link with latency α and bandwidth B a message of n bytes occupies its sender for n / B and arrives α later:

    arrival = start + n / B + α = 500 ms + 1 MB / (100 MB/s) + 20 ms = 530 ms

Output:

    worker 0  compute  compute     0 to  500 ms
    worker 0  send     send      500 to  510 ms
    worker 1  compute  recv        0 to  530 ms
    worker 1  compute  compute   530 to  630 ms
"""

from syncline.costmodel import Link
from syncline.sim import Compute, Program, Recv, Send, run_events

link = Link(latency_s=20e-3, bandwidth_bytes_per_s=100e6)
programs: list[Program] = [
    [Compute(0.5), Send(to=1, nbytes=1e6)],
    [Recv(source=0), Compute(0.1)],
]
timeline = run_events(programs, link)

# A send only starts something: it is on a stream of its own, beside what its worker computes.
for worker, stream, what, start_s, end_s in zip(
    timeline.worker, timeline.stream, timeline.what, timeline.start_s, timeline.end_s, strict=True
):
    print(f"worker {worker}  {stream:7}  {what:7}  {start_s * 1e3:4.0f} to {end_s * 1e3:4.0f} ms")
