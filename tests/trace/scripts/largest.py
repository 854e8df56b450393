"""An optimizer that keeps a momentum of its own and sends the largest entries of its cosine transform, as DeMo does."""

import math
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from common import net, tell, train

CHUNK, KEPT = 16, 4


def cosines(n: int) -> torch.Tensor:
    """The orthonormal DCT-II of n points."""
    k, i = torch.arange(n)[:, None], torch.arange(n)[None]
    rows = torch.cos(math.pi * (i + 0.5) * k / n) * math.sqrt(2 / n)
    rows[0] /= math.sqrt(2)
    return rows


class Largest(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float, decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay})
        self.cosines = cosines(CHUNK)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                kept = state.setdefault("momentum", torch.zeros_like(p))
                kept.mul_(group["decay"]).add_(p.grad, alpha=group["lr"])
                flat = torch.nn.functional.pad(kept.flatten(), (0, -kept.numel() % CHUNK)).view(-1, CHUNK)
                wave = flat @ self.cosines.T
                where = wave.abs().topk(KEPT, 1).indices
                what = wave.gather(1, where)
                sent = torch.zeros_like(wave).scatter_(1, where, what) @ self.cosines
                kept.sub_(sent.flatten()[: p.numel()].view_as(p))
                places = [torch.zeros_like(where) for _ in range(dist.get_world_size())]
                values = [torch.zeros_like(what) for _ in places]
                work = dist.all_gather(places, where, async_op=True)
                work.wait()
                dist.all_gather(values, what)
                mean = torch.zeros_like(wave).scatter_reduce_(1, torch.cat(places, 1), torch.cat(values, 1), "mean")
                p.add_((mean @ self.cosines).flatten()[: p.numel()].view_as(p).sign(), alpha=-group["lr"])


dist.init_process_group("gloo")
model = net()
tell("largest", model, train(model, Largest(model.parameters(), lr=1e-3, decay=0.99)))
