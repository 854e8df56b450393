"""A method of one's own: a rule, a sync policy and an outer optimizer, in a combination that nobody published.

Four workers descend on bowls |x - c|² / 2 with minima at c = 0, 1, 2, 3; the mean of the bowls has its minimum at 1.5.
The rule is Adam's. Parameters are averaged every 4 steps, its momentum every 8, its second moment every 16, and
Nesterov momentum acts on the averages. What is due in the same step travels as one call: in 256 steps 64 calls, of

    4 B × (256 / 4 + 256 / 8 + 256 / 16) = 448 B

Output:

      2 steps   0 calls,   0 B  mean of x 0.07, spread 0.10
     16 steps   4 calls,  28 B  mean of x 0.88, spread 0.00
    256 steps  64 calls, 448 B  mean of x 1.50, spread 0.00
"""

import torch

from syncline.comm import SimulatedCommunicator
from syncline.optim import Method, Nesterov, Periodic, adam

comm = SimulatedCommunicator(4)
x = torch.zeros(4, 1, requires_grad=True)  # a row per worker: the worker axis
minima = torch.tensor([[0.0], [1.0], [2.0], [3.0]])

rule = adam(beta2=0.99)
sync = Periodic({"params": 4, "momentum_1": 8, "second_moment": 16})
method = Method([x], 0.05, rule, sync, outer_optimizer=Nesterov(lr=0.7, momentum=0.5), comm=comm, worker_axis=True)
for step in range(256):
    method.zero_grad()
    (0.5 * (x - minima) ** 2).sum().backward()
    method.step()
    if step + 1 in (2, 16, 256):
        sent = f"{len(comm.ledger):2} calls, {comm.ledger.payload_bytes():3} B"
        print(f"{step + 1:3} steps  {sent}  mean of x {x.mean():.2f}, spread {x.max() - x.min():.2f}")
