"""The math of a global server above local servers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from syncline.methods.parts.asynchronous import HierarchySpec
from syncline.optim.servers import DelayedNesterov


class GlobalServer:
    """Updates from local models to the global model, and merges of the global model into the local ones.

        up:    d = y - x, of the local model x and what it was after its last merge, y
        above: z <- delayed Nesterov(z, d)
        merge: x <- (1 - alpha) x + alpha z;  y <- x

    Args:
        spec: learning rate, momentum, buffer and alpha of the global server.
        params: z, the global model.
        models: x of each local server; at first equal to z.

    Source: HALoS (Kim et al., 2025), Algorithm 1. The progress that a local model makes between sending and merging
    stays in that model alone, as in the public code of HALoS.
    """

    def __init__(self, spec: HierarchySpec, params: Sequence[Tensor], models: Sequence[Sequence[Tensor]]) -> None:
        self.alpha, self.params, self.models = spec.merge_weight, list(params), models
        self.rule = DelayedNesterov(self.params, spec.lr, spec.momentum, spec.buffer_size)
        self.merged = [[x.clone() for x in model] for model in models]
        self.sent: list[list[Tensor]] = [[] for _ in models]
        self.came: list[list[Tensor]] = [[] for _ in models]

    def send_up(self, server: int) -> None:
        """Store the update that a local server sends, because its model changes during the transfer."""
        self.sent[server] = [y - x for y, x in zip(self.merged[server], self.models[server], strict=True)]

    def arrive_up(self, server: int) -> None:
        """Apply a local server's update to the global model."""
        self.rule.take(self.sent[server], 1.0)
        self.rule.version()

    @torch.no_grad()
    def reply_up(self, server: int) -> None:
        """Store the global model that goes to a local server, because it changes during the transfer."""
        self.came[server] = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def merge(self, server: int) -> None:
        """Merge the received global model into the local model."""
        for x, y, z in zip(self.models[server], self.merged[server], self.came[server], strict=True):
            x.mul_(1 - self.alpha).add_(z, alpha=self.alpha)
            y.copy_(x)
