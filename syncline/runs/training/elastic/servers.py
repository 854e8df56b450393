"""The math of parameter servers for workers at their own pace: one server, several, and a global one above them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods.diloco import DiLoCoSpec
from syncline.methods.parts.asynchronous import AsynchronousSpec, HierarchySpec, asynchronous_of
from syncline.optim import Method, Nesterov
from syncline.optim.servers import DelayedNesterov, GradientServer, OuterServer, ServerRule
from syncline.problems import Task
from syncline.runs.training.elastic.async_local_steps import Rates
from syncline.specs import MethodBase, Training
from syncline.training import parameter_groups


def server_optimizer(method: MethodBase, task: Task, comm: SimulatedCommunicator) -> Method:
    """Return the optimizer of a server that receives gradients, alone in its group."""
    return method.model_copy(update={"asynchronous": None}).build(parameter_groups(task), comm)


def outer_rules(
    method: DiLoCoSpec, async_spec: AsynchronousSpec, models: Sequence[Sequence[Tensor]]
) -> list[DelayedNesterov] | list[OuterServer]:
    """Return the rule that updates each server's model by pseudo-gradients."""
    lr, momentum = method.outer_lr, method.outer_momentum
    if async_spec.momentum == "delayed":
        return [
            DelayedNesterov(model, lr, momentum, async_spec.buffer_size, async_spec.momentum_activation)
            for model in models
        ]
    return [OuterServer(model, Nesterov(lr, momentum)) for model in models]


class SingleServer:
    """A single server's model and update rule, as a separate process holds them.

    Args:
        spec: specification of the training.
        method: an asynchronous method without a global server above the server.
        task: task whose parameters are the model.
        factors: learning-rate factor of each step of the training.

    Raises:
        SpecError: a module with buffers.
    """

    def __init__(self, spec: Training, method: MethodBase, task: Task, factors: Sequence[float] | None) -> None:
        asynchronous = asynchronous_of(method)
        assert asynchronous is not None
        self.asynchronous, self.task = asynchronous, task
        if getattr(task, "buffers", {}):
            expected = "a module without buffers, of which a server would have to make one"
            raise SpecError("problem", spec.problem.name, expected)
        self.wire = WIRE_FORMATS[method.travels_as]
        self.params: list[Tensor] = list(task.params.values())
        self.from_server = isinstance(method, DiLoCoSpec) and asynchronous.reference == "server"
        self.rates: Rates | None = None
        self.num_updates = 0
        self.rule: ServerRule
        if isinstance(method, DiLoCoSpec):
            self.rule = outer_rules(method, asynchronous, [self.params])[0]
        else:
            optimizer = server_optimizer(method, task, SimulatedCommunicator(1, len(spec.seeds)))
            self.rates = Rates(optimizer, factors, spec)
            self.rule = GradientServer(optimizer)

    @torch.no_grad()
    def take(self, sent: Sequence[Tensor], age: int, steps: int, tokens: float) -> None:
        """Pass a worker's update to the rule, as decoded from its wire format.

        Args:
            sent: the update, see `syncline.runs.training.elastic.async_local_steps.LocalWorker.update`.
            age: number of model versions since the worker's model.
            steps: number of local steps in the update.
            tokens: tokens or samples of each step.
        """
        if self.from_server:
            sent = [x - p for x, p in zip(self.params, sent, strict=True)]
        self.rule.take(sent, self.asynchronous.weight(age), self.asynchronous.share(steps, tokens))

    def version(self, count: int) -> None:
        """Make a new version of the model from the last ``count`` updates."""
        if self.rates is not None:
            self.rates.set(self.num_updates)
        self.rule.version()
        self.num_updates += count

    def evaluate(self) -> dict[str, Tensor]:
        """Return the metrics of the model, each ``(S,)``."""
        with torch.no_grad():
            metrics = self.task.evaluate({name: p.detach() for name, p in self.task.params.items()})
        return {name: value.cpu() for name, value in metrics.items()}


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
        self.received: list[list[Tensor]] = [[] for _ in models]

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
        self.received[server] = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def merge(self, server: int) -> None:
        """Merge the received global model into the local model."""
        for x, y, z in zip(self.models[server], self.merged[server], self.received[server], strict=True):
            x.mul_(1 - self.alpha).add_(z, alpha=self.alpha)
            y.copy_(x)
