"""Data parallelism, which averages the gradient in every step, and PowerSGD, which averages low-rank factors of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork, low_rank_work, repeated
from syncline.methods.dion import FACTORS_FORMULA
from syncline.methods.parts.asynchronous import AsynchronousSpec, RemedyField
from syncline.methods.parts.compressors import CompressibleBase
from syncline.methods.parts.method_spec import MethodBase, Presets, Tensors, elements, tensors_of
from syncline.methods.parts.rules import AdamRule, RuleSpec, SGDMRule, rule_name
from syncline.methods.registry import register


class DataParallelBase(CompressibleBase):
    """The base of methods that average the gradient in every step, through a compressor if the spec has one.

    Args:
        remedy: correction for delayed gradients in the stages of a pipeline; by default none.
    """

    family = "data parallel"

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
    def can_shard_states(self) -> bool:
        return not self.compressor

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return a worker's exchange: the gradient, in each step.

        Unless the gradient is compressed, its tensors can be sent one by one during the backward pass.
        """
        exchanges = self._average_exchanges(tensors_of(model), workers, period=1, label="gradient")
        return [replace(exchange, in_backward=self.sends_in_backward) for exchange in exchanges]

    @override
    def _sent_periods(self) -> Iterable[int]:
        return [1]

    def _build_optimizer(self, params: Iterable[Any], rule: optim.UpdateRule, **options: Any) -> optim.Method:
        """Build the optimizer that takes the steps of ``rule`` along the averaged gradient."""
        reducer: optim.Reducer = optim.MeanGradient(self.sends_in_backward, encoded=self.converts_to_wire)
        if self.compressor:
            reducer = optim.CompressedMean(self.compressor.build(), self.compressor.error_feedback)
        return optim.Method(params, self.lr, rule, sync=optim.EveryStep(), reducer=reducer, **options)


@register
class DDPSpec(DataParallelBase):
    """Data parallelism: the gradient is averaged in every step.

    Workers send ``4 N`` bytes per step in fp32 for N parameters, by one all-reduce. With one worker this is the serial
    optimizer.

    Args:
        rule: the update rule of the averaged gradient.
        asynchronous: settings of a server that replaces the all-reduce; by default, all workers step together.
    """

    source = "PyTorch Distributed (Li et al., 2020)"
    sends_only_means = True

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

    @property
    @override
    def name(self) -> str:
        prefix = "" if self.asynchronous is None else "async-"
        return self.label or f"{prefix}ddp-{rule_name(self.rule)}{self._suffix}"

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return how many numbers a worker stores: the elements of the rule's states and of a compressor's errors."""
        tensors = tensors_of(model)
        return self.rule.state_elements(tensors) + self._compressor_elements(tensors, reference=False)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        return self._build_optimizer(params, self.rule.build(), **options)


FEEDBACK_WORK = ElementwiseWork(kernel_bytes=32, kernels=3)
"""Sums and copies of the error of low-rank factors."""


@register
class PowerSGDSpec(MethodBase):
    """PowerSGD: workers average low-rank factors of the gradients of matrices, with error feedback.

    Args:
        rule: the update rule, applied to the averaged low-rank gradient.
        rank: rank of the factors.
        warm_start: whether the right factor continues from the last step; otherwise it is random in each step.
        error_feedback: whether each worker adds what the factors leave out to the next gradient.
        warmup_steps: number of first steps in which full gradients are averaged.
        compress_all_matrices: whether matrices are compressed even if their factors are larger than the matrix.
    """

    family = "low rank"
    source = "PowerSGD (Vogels et al., 2019)"

    presets: ClassVar[Presets] = {"powersgd": {"lr": 0.05}}

    kind: Literal["powersgd"] = "powersgd"
    rule: RuleSpec = SGDMRule()
    rank: int = Field(default=2, ge=1)
    warm_start: bool = True
    error_feedback: bool = True
    warmup_steps: int = Field(default=0, ge=0)
    compress_all_matrices: bool = False

    @property
    @override
    def same_for_any_group(self) -> bool:
        return True

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchange of gradients in the warm-up, later of uncompressed gradients, P, and R (the new Q)."""
        tensors, warmup_steps = tensors_of(model), self.warmup_steps
        compressed = [t for t in tensors if self._rank(t)]
        exchanges = []
        if warmup_steps:
            count = elements(tensors)
            exchanges.append(self._plain_exchange(count, label="gradient", shares_call=False, stop=warmup_steps))
        count_by_label = {
            "gradient": elements(tensors) - elements(compressed),
            "P": sum(t.sides[0] * self._rank(t) for t in compressed),  # (m, r) of an m by n matrix
            "R": sum(t.sides[1] * self._rank(t) for t in compressed),  # (n, r)
        }
        for label, count in count_by_label.items():
            if count:
                exchanges.append(self._plain_exchange(count, label=label, shares_call=False, start=warmup_steps))
        return exchanges

    def _rank(self, tensor: TensorShape) -> int:
        """Return the rank of a tensor's factors; 0 if its gradient is not compressed."""
        if len(tensor.shape) < 2:
            return 0
        rank = min(self.rank, *tensor.sides)
        is_compressed = self.compress_all_matrices or tensor.is_worth_factors(rank)
        return rank if is_compressed else 0

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return, as text, the formula of the bytes that a worker sends per step after the warm-up."""
        return FACTORS_FORMULA.format(self._wire_bytes(1))

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the rule's states, and of compressed matrices' errors and right factors."""
        tensors = tensors_of(model)
        compressed = [t for t in tensors if self._rank(t)]
        right_factors = sum(t.sides[1] * self._rank(t) for t in compressed)
        return self.rule.state_elements(tensors) + elements(compressed) + right_factors

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the rule, and of the factors of compressed matrices, their products and errors."""
        work = super()._update_work(tensors)
        compressed = [t for t in tensors if self._rank(t)]
        for (sides, rank), count in Counter((t.sides, self._rank(t)) for t in compressed).items():
            # Three products of a matrix: two in the power iteration, and one of the averaged factors.
            work += repeated(low_rank_work(*sides, rank, products=3), count)
        return work + UpdateWork(FEEDBACK_WORK.on(compressed))

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of compressed matrices, whose errors are stored even if unused."""
        return elements([t for t in tensors_of(model) if self._rank(t)])

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        names = ("rank", "warm_start", "error_feedback", "warmup_steps", "compress_all_matrices")
        reducer = optim.FactorMean(**{name: getattr(self, name) for name in names})
        return optim.Method(params, self.lr, rule=self.rule.build(), sync=optim.EveryStep(), reducer=reducer, **options)
