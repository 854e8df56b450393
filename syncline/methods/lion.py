"""Methods that move by the sign of a vote, as specs: Lion Cub, Distributed Lion and signSGD."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator

from syncline.costmodel import Exchange
from syncline.costmodel.compute.layers import chosen_layers
from syncline.fields import Period, Rate, refusal
from syncline.methods.base import BYTES_PER_ELEMENT, Tensors, elements, every, tensors_of
from syncline.methods.votes import VotingBase

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


class LionCubSpec(VotingBase):
    """Lion whose workers vote; the momenta of ``momentum_layers`` are averaged every ``momentum_period`` steps."""

    source: ClassVar[str] = "Lion Cub, Algorithm 1"

    kind: Literal["lion-cub"] = "lion-cub"
    beta1: Rate = 0.9
    beta2: Rate = 0.99
    momentum_layers: Literal["all", "none", "first-and-last"] | tuple[str, ...] = "none"
    momentum_period: Period = 10

    @model_validator(mode="after")
    def _wire_is_of_the_momenta(self) -> LionCubSpec:
        if self.wire != "dense" and self.momentum_layers == "none":
            raise refusal("wire", self.wire, "'dense', as no momenta are averaged and votes have formats of their own")
        return self

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        if self.vote.startswith("server"):
            default = "distributed-lion" + ("-naive" if self.vote == "server-naive" else "")
        elif self.vote == "quantised":
            p = 1.0 if self.p is None else float(self.p)
            bits = "" if self.width == 8 else f"-{self.width}bit"
            default = "lion-cub" + bits + ("" if p == 1 else f"-l{p:g}") + ("-stochastic" if self.stochastic else "")
        else:
            default = "lion-cub-1bit" if self.vote == "one-bit" else "lion-cub-direct"
        return self.label or default

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """The vote, then the momenta that are due."""
        tensors = tensors_of(model)
        chosen = chosen_layers([tensor.name for tensor in tensors], self.momentum_layers)
        momenta = elements([tensor for tensor, one in zip(tensors, chosen, strict=True) if one])
        averaged = [self._plain(momenta, self.momentum_period, "momentum_1", joins=False)] if momenta else []
        return self.vote_exchanges(elements(tensors), workers) + averaged

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``; but for the last word's empty fields."""
        if self.momentum_layers == "none":
            return self.vote_formula(workers)
        whose = "N" if self.momentum_layers == "all" else "Σ chosen"
        averaged = every(f"{BYTES_PER_ELEMENT[self.wire]} {whose}", self.momentum_period)
        return f"{self.vote_formula(workers)} + {averaged}"

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The momentum."""
        return elements(tensors_of(model))

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import LionCub

        return LionCub(
            params,
            self.lr,
            vote=self.build_vote(),
            beta1=self.beta1,
            beta2=self.beta2,
            momentum_period=self.momentum_period,
            momentum_layers=self.momentum_layers,
            **self._common(comm, worker_axis),
        )


class SignSGDSpec(VotingBase):
    """signSGD with majority vote; with ``momentum`` it is Signum, whose momenta stay local."""

    source: ClassVar[str] = "signSGD (Bernstein et al., 2019)"

    kind: Literal["sign-sgd"] = "sign-sgd"
    vote: Literal["one-bit", "direct", "server-naive", "server-efficient", "quantised"] = "one-bit"
    momentum: Rate = 0.0

    @model_validator(mode="after")
    def _nothing_to_round(self) -> SignSGDSpec:
        if self.wire != "dense":
            raise refusal("wire", self.wire, "'dense', as votes have formats of their own")
        if self.clip_norm is not None and not self.momentum:
            raise refusal("clip_norm", self.clip_norm, "none without momentum: a vote does not see the gradient's size")
        return self

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        default = "signum" if self.momentum else "sign-sgd"
        return self.label or (default if self.vote == "one-bit" else f"{default}-{self.vote}")

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """The vote."""
        return self.vote_exchanges(elements(tensors_of(model)), workers)

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``; but for the last word's empty fields."""
        return self.vote_formula(workers)

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """The momentum, if there is one."""
        return elements(tensors_of(model)) if self.momentum else 0

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import SignSGD

        common = self._common(comm, worker_axis)
        return SignSGD(params, self.lr, momentum=self.momentum, vote=self.build_vote(), **common)
