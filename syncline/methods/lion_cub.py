"""Lion Cub and Distributed Lion: workers vote on Lion's update vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange
from syncline.costmodel.compute.layers import chosen_layers
from syncline.fields import Period, Rate, refusal
from syncline.methods.constructor import constructor
from syncline.methods.parts.method_spec import (
    BYTES_PER_ELEMENT,
    Presets,
    Tensors,
    elements,
    per_step_formula,
    tensors_of,
)
from syncline.methods.registry import register
from syncline.methods.voting import VotingBase

if TYPE_CHECKING:
    from syncline.comm import Communicator


@register
class LionCubSpec(VotingBase):
    """Lion whose workers vote; the momenta of ``momentum_layers`` are averaged every ``momentum_period`` steps.

        c_m = beta1 m_m + (1 - beta1) g_m;   m_m <- beta2 m_m + (1 - beta2) g_m;   x <- x - lr vote(c_1, ..., c_P)

    Parameters stay equal on all workers, momenta do not, unless they are averaged every ``momentum_period`` steps. With
    one worker it is Lion, up to what the vote makes of zeros.

    Args:
        beta1: weight of the momentum in the update vector c; the gradient has weight ``1 - beta1``.
        beta2: decay rate of the momentum.
        momentum_period: K, number of steps between averages of the momenta.
        momentum_layers: layers whose momenta are averaged: ``all``, ``none``, ``first-and-last``, or patterns of
            parameter names (``embedding*``). The layer of a parameter is its name up to the last dot.

    Source: Lion Cub, Algorithm 1 and section 5.
    """

    source: ClassVar[str] = "Lion Cub, Algorithm 1"

    presets: ClassVar[Presets] = {
        "distributed-lion": {"vote": "server-efficient", "lr": 0.0005},
        "distributed-lion-naive": {"vote": "server-naive", "lr": 0.0005},
        "lion-cub": {"lr": 0.0005},
        "lion-cub-linf": {"p": "inf", "lr": 0.0005},
        "lion-cub-4bit": {"label": "lion-cub-4bit", "vote": "direct", "bits": 4, "lr": 0.0005},
        "lion-cub-1bit": {"vote": "one-bit", "lr": 0.0005},
    }

    kind: Literal["lion-cub"] = "lion-cub"
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    momentum_layers: Literal["all", "none", "first-and-last"] | tuple[str, ...] = "none"
    momentum_period: Period = 10

    @model_validator(mode="after")
    def _wire_is_of_the_momenta(self) -> LionCubSpec:
        if self.wire not in (None, "dense") and self.momentum_layers == "none":
            raise refusal("wire", self.wire, "'dense', as no momenta are averaged and votes have formats of their own")
        return self

    @property
    @override
    def name(self) -> str:
        if self.vote.startswith("server"):
            default = "distributed-lion" + ("-naive" if self.vote == "server-naive" else "")
        elif self.vote == "quantised":
            p = 1.0 if self.p is None else float(self.p)
            bits = "" if self.width == 8 else f"-{self.width}bit"
            default = "lion-cub" + bits + ("" if p == 1 else f"-l{p:g}") + ("-stochastic" if self.stochastic else "")
        else:
            default = "lion-cub-1bit" if self.vote == "one-bit" else "lion-cub-direct"
        return self.label or default

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the vote, then the momenta that are due."""
        tensors = tensors_of(model)
        chosen = chosen_layers([tensor.name for tensor in tensors], self.momentum_layers)
        momenta = elements([tensor for tensor, is_chosen in zip(tensors, chosen, strict=True) if is_chosen])
        averaged = [self._plain(momenta, self.momentum_period, "momentum_1", joins=False)] if momenta else []
        return self.vote_exchanges(elements(tensors), workers) + averaged

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the bytes of the vote and of the averaged momenta, without the unused fields of the last word."""
        if self.momentum_layers == "none":
            return self.vote_formula(workers)
        whose = "N" if self.momentum_layers == "all" else "Σ chosen"
        averaged = per_step_formula(f"{BYTES_PER_ELEMENT[self.travels_as]} {whose}", self.momentum_period)
        return f"{self.vote_formula(workers)} + {averaged}"

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the momentum."""
        return elements(tensors_of(model))

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        return optim.LionCubMethod(
            params,
            self.lr,
            optim.LionRule(self.beta1, self.beta2, signed=False),
            vote=self.build_vote(),
            momentum_period=self.momentum_period,
            momentum_layers=self.momentum_layers,
            **self.common_options(comm, worker_axis),
        )


LionCub = constructor(LionCubSpec)
