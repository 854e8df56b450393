"""The math of the servers of workers at their own pace: their models, and what moves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.experiments.elastic.rates import Rates
from syncline.methods.diloco import DiLoCoSpec
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.optim import Nesterov
from syncline.optim.servers import DelayedNesterov, GradientServer, OuterServer, ServerRule
from syncline.problems import Task
from syncline.training import parameter_groups

if TYPE_CHECKING:
    from syncline.specs import MethodBase, Training


class Servers:
    """The only server, or local ones with one above: their models and rules.

    Args:
        spec: of the training.
        method: an asynchronous one.
        task: whose parameters are the model that is evaluated.
        factors: of the learning rate, by the training's step.

    Raises:
        SpecError: a module with buffers.
    """

    def __init__(self, spec: Training, method: MethodBase, task: Task, factors: Sequence[float] | None) -> None:
        how = asynchronous_of(method)
        assert how is not None
        self.how, self.task = how, task
        if getattr(task, "buffers", {}):
            expected = "a module without buffers, of which a server would have to make one"
            raise SpecError("problem", spec.problem.name, expected)
        self.wire = WIRE_FORMATS[method.travels_as]
        self.params: list[Tensor] = list(task.params.values())
        groups = () if how.above is None else how.above.groups_of(spec.workers)
        self.of = [s for s, size in enumerate(groups or (spec.workers,)) for _ in range(size)]
        self.models = [[p.detach().clone() for p in self.params] for _ in groups] or [self.params]
        self.from_server = isinstance(method, DiLoCoSpec) and how.start == "server"
        self.rates: Rates | None = None
        self.taken = 0
        self.rules: Sequence[ServerRule]
        if not isinstance(method, DiLoCoSpec):
            alone = method.model_copy(update={"asynchronous": None})
            optimizer = alone.build(parameter_groups(task), SimulatedCommunicator(1, len(spec.seeds)))
            self.rates = Rates(optimizer, factors, spec)
            self.rules = [GradientServer(optimizer)]
        elif how.momentum == "delayed":
            lr, mu, n, c = method.outer_lr, method.outer_momentum, how.buffer, how.activation
            self.rules = [DelayedNesterov(model, lr, mu, n, c) for model in self.models]
        else:
            outer = Nesterov(method.outer_lr, method.outer_momentum)
            self.rules = [OuterServer(model, outer) for model in self.models]

    @torch.no_grad()
    def take(self, worker: int, sent: Sequence[Tensor], age: int, steps: int, tokens: float) -> None:
        """What a worker has sent, in the wire format in which it travelled.

        Args:
            worker: whose.
            sent: see `syncline.experiments.elastic.one_worker.OneWorker.update`.
            age: versions that were made since its model.
            steps: local steps that it is of.
            tokens: or samples, of each.
        """
        if self.from_server:
            sent = [x - p for x, p in zip(self.models[self.of[worker]], sent, strict=True)]
        if not self.wire.exact_dtype:
            sent = [self.wire.decode(self.wire.encode(u), u.dtype) for u in sent]
        self.rules[self.of[worker]].take(sent, self.how.weight(age), self.how.share(steps, tokens))

    def version(self, count: int, server: int) -> None:
        """A version of a server's model, of the last ``count`` updates."""
        if self.rates is not None:
            self.rates.set(self.taken)
        self.rules[server].version()
        self.taken += count

    def model_of(self, worker: int) -> list[Tensor]:
        """Its server's model, as it is now."""
        return self.models[self.of[worker]]

    def evaluate(self) -> dict[str, Tensor]:
        """Metrics of the model, each ``(S,)``."""
        with torch.no_grad():
            metrics = self.task.evaluate({name: p.detach() for name, p in self.task.params.items()})
        return {name: value.cpu() for name, value in metrics.items()}
