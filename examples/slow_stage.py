"""A pipeline with a slow stage: four stages and eight micro-batches by GPipe and by 1F1B; stage 2 takes twice as long.

With equal stages, f = 1 s forward and b = 2 s backward, both take (M + K - 1) (f + b) = (8 + 4 - 1) 3 = 33 s. A stage
of 2 s and 4 s has 8 × 6 = 48 s to compute; what it stands still for depends on the schedule:

    gpipe   2 s until its first input, 3 s while stage 3 turns around, 4 s for the stages before it at the end:  57 s
    1f1b    while stage 3 turns the first around it computes another forward, and stands still for 1 s, not 3:  55 s

The others compute 8 × 3 = 24 s of that: 42% and 44%.

Output:

    gpipe  equal stages 33 s  a slow one 57 s  computing 42% 42% 84% 42%
    1f1b   equal stages 33 s  a slow one 55 s  computing 44% 44% 87% 44%
"""

from syncline.costmodel import Link
from syncline.sim import Durations, Pipeline, run_pipeline, schedule

free = Link(latency_s=0.0, bandwidth_bytes_per_s=1e18)
equal = Durations(forward_s=1.0, backward_s=2.0)
slow = Durations(forward_s=[[1.0], [1.0], [2.0], [1.0]], backward_s=[[2.0], [2.0], [4.0], [2.0]])  # a row per stage

for name in ("gpipe", "1f1b"):
    order = schedule(name, stages=4, microbatches=8)
    even, uneven = (run_pipeline(Pipeline(order, stages=4, durations=of), free) for of in (equal, slow))
    computing = " ".join(f"{part:.0%}" for part in uneven.utilisation())
    times = f"equal stages {even.makespan_s:.0f} s  a slow one {uneven.makespan_s:.0f} s"
    print(f"{name:5}  {times}  computing {computing}")
