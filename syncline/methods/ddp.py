"""Data parallelism: the gradient is averaged in every step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange
from syncline.methods.compressible import CompressibleBase
from syncline.methods.constructor import constructor
from syncline.methods.parts.asynchronous import AsynchronousSpec
from syncline.methods.parts.method_spec import Presets, Tensors, tensors_of
from syncline.methods.parts.remedies import RemedyField
from syncline.methods.parts.rules import AdamRule, RuleSpec, rule_name
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator


class DataParallelBase(CompressibleBase):
    """The base of methods that average the gradient in every step, through a compressor if the user sets one.

    Args:
        remedy: correction for delayed gradients in the stages of a pipeline; by default none.
    """

    family: ClassVar[str] = "data parallel"

    remedy: RemedyField = None

    @property
    @override
    def sends_in_backward(self) -> bool:
        """Return whether gradients are sent during the backward pass: they are unless compressed."""
        return not self.compressor

    @property
    @override
    def sends_gradients(self) -> bool:
        return not self.compressor

    @property
    @override
    def shares_out(self) -> bool:
        return not self.compressor

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchange of one gradient per step.

        Unless the gradient is compressed, its tensors can be sent one by one during the backward pass.
        """
        exchanges = self._exchange(tensors_of(model), workers, 1, "gradient")
        return [replace(exchange, in_backward=self.sends_in_backward) for exchange in exchanges]

    @override
    def _sent_periods(self) -> Iterable[int]:
        return [1]

    def _with_rule(
        self, params: Iterable[Any], rule: optim.UpdateRule, comm: Communicator | None, worker_axis: bool
    ) -> optim.Method:
        reducer: optim.Reducer = optim.MeanGradient(self.sends_in_backward, self.encodes)
        if self.compressor:
            reducer = optim.CompressedMean(self.compressor.build(), self.compressor.error_feedback)
        options = self.common_options(comm, worker_axis)
        return optim.Method(params, self.lr, rule, optim.EveryStep(), reducer=reducer, **options)


@register
class DDPSpec(DataParallelBase):
    """Data parallelism: the gradient is averaged in every step.

    What travels: one all-reduce of the gradient per step, ``4 N`` bytes in fp32. With one worker it is the serial
    optimizer.

    Args:
        asynchronous: settings of a server that replaces the all-reduce; by default, all workers step together.
    """

    source: ClassVar[str] = "PyTorch Distributed (Li et al., 2020)"
    means_alone: ClassVar[bool] = True

    presets: ClassVar[Presets] = {
        "ddp-sgdm": {"rule": "sgdm", "lr": 0.05},
        "ddp-adam": {"rule": "adam", "lr": 0.003},
        "ddp-nadam": {"rule": "nadam", "lr": 0.003},
        "ddp-ada-sgd": {"rule": "ada-sgd", "lr": 0.003},
        "ddp-adopt": {"rule": "adopt", "lr": 0.003},
        "ddp-qhm": {"rule": "qhm", "lr": 0.5},
        "ddp-qhadam": {"rule": "qhadam", "lr": 0.003},
        "ddp-qhadopt": {"rule": "qhadopt", "lr": 0.003},
        "ddp-aggmo": {"rule": "aggmo", "lr": 0.015},
        "ddp-ademamix": {"rule": "ademamix", "lr": 0.001},
        "ddp-multi-momentum": {"rule": "multi-momentum", "lr": 0.003},
        "ddp-muon": {"rule": "muon", "lr": 0.02, "other_lr": 0.003},
        "ddp-scion": {"rule": "scion", "lr": 0.00025, "weight_decay": 1.0},
        "ddp-uscion": {"label": "ddp-uscion", "rule": "scion", "lr": 0.00025},
        "top-k": {"label": "top-k", "rule": "sgdm", "compressor": "top-k", "lr": 0.05},
        "qsgd": {"label": "qsgd", "rule": "sgdm", "compressor": "qsgd", "lr": 0.05},
        "ddp-lion": {"rule": "lion", "lr": 0.0005},
        "ddp-lion-16bit": {"label": "ddp-lion-16bit", "rule": "lion", "wire": "bf16", "lr": 0.0005},
    }

    kind: Literal["ddp"] = "ddp"
    rule: RuleSpec = AdamRule()
    asynchronous: AsynchronousSpec | None = None

    @model_validator(mode="after")
    def _can_be_late(self) -> Self:
        if self.asynchronous is not None:
            self.asynchronous.check(self)
        return self

    @property
    @override
    def name(self) -> str:
        prefix = "" if self.asynchronous is None else "async-"
        return self.label or f"{prefix}ddp-{rule_name(self.rule)}{self._suffix}"

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the rule's states and of a compressor's errors."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + self._kept_errors(tensors, reference=False)

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        return self._with_rule(params, self.rule.build(), comm, worker_axis)


DDP = constructor(DDPSpec)
