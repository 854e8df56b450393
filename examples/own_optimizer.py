"""An optimizer of one's own, written for torch, as the rule of `local`: each worker has an instance of its own.

A step of it is `lr` long, whatever the gradient's size: it divides by the norm over a layer. Three workers begin at
(3, 4) on bowls c |x|² / 2 with c = 1, 100 and 0.01. In 5 steps of 0.2 each goes 1 towards the middle, to (2.4, 3.2);
with a norm over all workers together only the second would have gone anywhere. Then parameters are averaged, and
nothing else:

    4 B × 2 / 5 = 1.6 B per worker and step

Output:

    local-Normalised sends 1.6 B per worker and step
    worker 0: gradient   5.000, went 1.000
    worker 1: gradient 500.000, went 1.000
    worker 2: gradient   0.050, went 1.000
    all at (2.4, 3.2) after 1 call of 8 B
"""

from collections.abc import Iterable
from typing import Any

import torch

import syncline as sl
from syncline.comm import SimulatedCommunicator


class Normalised(torch.optim.Optimizer):
    """x <- x - lr g / |g|, with the norm over each parameter."""

    def __init__(self, params: Iterable[Any], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step."""
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / p.grad.norm(), alpha=group["lr"])


method = sl.local(Normalised, lr=0.2, period=5)
print(f"{method.name} sends {method.exchanges(2, workers=3)[0].payload_bytes / 5} B per worker and step")

comm = SimulatedCommunicator(3)
steepness = torch.tensor([[1.0], [100.0], [0.01]])
x = torch.nn.Parameter(torch.tensor([3.0, 4.0]).repeat(3, 1))  # a row per worker: the worker axis
start, first = x.detach().clone(), (steepness * x).detach()
optimizer = method.build([x], comm)
for _ in range(5):
    optimizer.zero_grad()
    (steepness * x**2 / 2).sum().backward()
    optimizer.step()
for worker in range(3):
    moved = (x - start)[worker].norm()
    print(f"worker {worker}: gradient {first[worker].norm():7.3f}, went {moved:.3f}")
where = ", ".join(f"{value:.1f}" for value in x[0].tolist())
print(f"all at ({where}) after {len(comm.ledger)} call of {comm.ledger.payload_bytes()} B")
