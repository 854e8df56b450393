"""Own module, own images, own optimizer: compared on three networks, swept over twelve runs, drawn with pandas.

A step takes 10 ms here, and an average among four workers on the WAN six of its latencies, however little is sent. So
whoever averages every 8 steps is at the same loss sooner. `python examples/own_work.py picture.png` keeps the picture.

Output:

    3 networks x 2 methods x 3 seeds = 18 rows
    12 runs; best rates: 0.003 of ddp-Cautious, 0.003 of local-Cautious
    on the wan sooner at the loss that both reach: local-Cautious
"""

import sys
from typing import Any

import torch
from torch import nn

import syncline as sl
from syncline.problems.digits import load_images


class Cautious(torch.optim.AdamW):
    """AdamW that moves only where its step agrees with the gradient's sign."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step."""
        moved = [p for group in self.param_groups for p in group["params"]]
        before = [p.clone() for p in moved]
        super().step(closure)
        for p, was in zip(moved, before, strict=True):
            p.copy_(torch.where((was - p) * p.grad > 0, p, was))


def make_model() -> nn.Module:
    """A convolutional network with batch norm and dropout."""
    hidden = (nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1))
    return nn.Sequential(*hidden, nn.Linear(8 * 6 * 6, 10))


digits = load_images()
train = (digits.train.float().view(-1, 1, 8, 8), digits.train_labels)
held_out = (digits.validation.float().view(-1, 1, 8, 8), digits.validation_labels)
mine = sl.TorchProblem(make_model, train, nn.functional.cross_entropy, batch_size=16, validation=held_out)
methods = [sl.ddp(Cautious, lr=3e-3), sl.local(Cautious, lr=3e-3, period=8)]
shared: dict[str, Any] = dict(problem=mine, workers=4, steps=32, seeds=3, compute={"seconds": 0.01}, eval_every=4)

result = sl.compare(methods=methods, networks=["10gbe", "wan", sl.Link("20 ms", "1 Gbit/s")], jobs=1, **shared)
print("3 networks x 2 methods x 3 seeds =", len(result.summary), "rows")

swept = sl.sweep(grid={"method": methods, "method.lr": [1e-4, 3e-3]}, network="wan", jobs=1, **shared)
best = swept.best().groupby("method").first()["method.lr"]
print(f"{len(swept.rows)} runs; best rates:", ", ".join(f"{lr:g} of {method}" for method, lr in best.items()))

curves = result.curves.query("network == 'wan'").dropna(subset="loss")
lines = curves.groupby(["seconds", "method"]).loss.median().unstack().interpolate("index", limit_area="inside")
axes = lines.plot(logy=True, xlabel="seconds", ylabel="validation loss")
axes.figure.savefig(*sys.argv[1:] or ["/dev/null"], bbox_inches="tight")
soonest = result.summary.query("network == 'wan'").groupby("method").time_to_target_s.median().idxmin()
print("on the wan sooner at the loss that both reach:", soonest)
