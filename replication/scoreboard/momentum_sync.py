"""Lion Cub's momenta with and without averaging: losses on digits, and the spread of momenta in a small GPT."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from replication.scoreboard.small import best_loss
from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.optim.measures import largest_spread
from syncline.problems import TextGPT
from syncline.training import parameter_groups, rows_of

RATES = (0.004, 0.008, 0.016)


def sync_losses(beta2: float, vote: str = "one-bit", skew: float = 0.5) -> dict[str, float]:
    """Return the median final loss of three seeds at the best of three rates, by the layers with averaged momenta.

    The workers average these momenta every ten steps.
    """
    spec = {"kind": "lion-cub", "beta2": beta2, "vote": vote}
    return {
        layers: best_loss({**spec, "momentum_layers": layers}, RATES, workers=8, skew=skew)
        for layers in ("none", "all")
    }


def sync_ratio(beta2: float, vote: str, layers: str, reference_layers: str, skew: float = 0.5) -> float:
    """Return the loss with averaged momenta of ``layers``, over that with averaged momenta of ``reference_layers``."""
    losses = sync_losses(beta2, vote, skew)
    return losses[layers] / losses[reference_layers]


@cache
def _spreads(steps: int = 32) -> dict[str, float]:
    """Return, by layer, the largest standard deviation over the workers of an entry of the momentum."""
    comm = SimulatedCommunicator(8)
    task = TextGPT(width=64, layers=2, context=32, batch_size=4, tied=False).build(rows_of(comm, (0,)))
    spec: dict[str, Any] = {"kind": "lion-cub", "lr": 0.0005, "vote": "one-bit"}
    method = method_of(spec).build(parameter_groups(task), comm, True)
    for t in range(steps):
        task.step_gradients(t)
        method.step()
    matrices = {name: p for name, p in task.params.items() if p.dim() == 3}  # with the worker axis
    return {name: float(largest_spread(method.state[p]["momentum_1"])) for name, p in matrices.items()}


def layer_spreads() -> dict[str, float]:
    """Return the spread of momenta in the token embedding, in the head, and the median over the blocks' matrices."""
    spreads = _spreads()
    inner = [value for name, value in spreads.items() if name.startswith("blocks.")]
    return {"embedding": spreads["token.weight"], "head": spreads["head.weight"], "inner": float(np.median(inner))}
