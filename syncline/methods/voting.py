"""Methods whose workers vote on signs: signSGD and Signum, Lion Cub and Distributed Lion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.compute.tensors import chosen_layers
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork
from syncline.costmodel.traffic.packing import whole_word_bytes
from syncline.errors import SpecError
from syncline.fields import Period, Rate, refusal
from syncline.methods.parts.method_spec import (
    BYTES_PER_ELEMENT,
    FP32_BYTES,
    MethodBase,
    Presets,
    Tensors,
    elements,
    per_step_formula,
    tensors_of,
)
from syncline.methods.registry import register

Bits = Annotated[int, Field(ge=1, le=31)]


VOTES_BY_FIELD: dict[str, tuple[str, ...]] = {
    "bits": ("direct", "quantised"),
    "p": ("quantised",),
    "stochastic": ("quantised",),
    "ties": ("one-bit", "direct", "server-efficient"),
}
"""The kinds of votes that use a field, by the name of the field."""


VOTE_WORK: dict[str, ElementwiseWork] = {
    "one-bit": ElementwiseWork(foreach_bytes=107, kernel_bytes=34, kernels=7),
    "server-efficient": ElementwiseWork(foreach_bytes=105, kernel_bytes=34, kernels=7),
    "server-naive": ElementwiseWork(foreach_bytes=39, kernel_bytes=37, kernels=7),
    "direct": ElementwiseWork(foreach_bytes=78, kernel_bytes=41, kernels=7),
    "quantised": ElementwiseWork(foreach_bytes=82, kernel_bytes=130, kernels=28),
}
"""Elementwise operations by which a worker votes, counts, and moves by the result."""

MAXIMUM_VOTE_WORK = ElementwiseWork(foreach_bytes=82, kernel_bytes=102, kernels=14)
"""Elementwise operations of quantised votes that are scaled by the largest magnitude."""


class VotingBase(MethodBase):
    """The base of methods whose workers vote.

    Args:
        vote: the exchange that implements the vote: ``one-bit`` (an all-to-all of signs, the vote, an all-gather of its
            result), ``direct`` (an all-reduce of 0/1 votes), ``server-naive`` and ``server-efficient`` (a parameter
            server), or ``quantised`` (an all-reduce of small integers).
        bits: bits of a sum of votes, for ``direct`` and ``quantised``.
        p: exponent of the power mean that scales the integers, for ``quantised``; ``inf`` for the maximum.
        stochastic: whether numbers are rounded to integers at random, for ``quantised`` with ``p: inf``.
        ties: value of a worker's zero and, except for ``direct``, of a tied vote, see `optim.votes.break_zeros`.
    """

    family = "votes"

    vote: Literal["one-bit", "direct", "server-naive", "server-efficient", "quantised"] = "quantised"
    bits: Bits | None = None
    p: Annotated[float, Field(ge=0)] | Literal["inf"] | None = None
    stochastic: bool = False
    ties: Literal["zero", "alternate", "plus", "minus", "random"] | None = None

    @model_validator(mode="after")
    def _check_fields_are_used(self) -> VotingBase:
        """Raise an error for a field that the vote does not use."""
        for name, votes in VOTES_BY_FIELD.items():
            value = getattr(self, name)
            is_set = value not in (None, False)
            if is_set and self.vote not in votes:
                raise refusal(name, value, f"none with vote {self.vote!r}; it is for {' and '.join(votes)}")
        if self.stochastic and self.p != "inf":
            raise refusal("stochastic", True, "false unless p is 'inf'")
        return self

    @property
    def quantised_bits(self) -> int:
        """Return the bits of a sum of quantised votes, by default a byte."""
        return 8 if self.bits is None else self.bits

    @property
    def ternary(self) -> bool:
        """Return whether packed signs have zero as a third value."""
        return self.ties == "zero"

    def _voting_work(self, tensors: Sequence[TensorShape], rule_work: ElementwiseWork) -> UpdateWork:
        """Return the operations of a rule, of a vote on its directions, and of the step."""
        vote = MAXIMUM_VOTE_WORK if self.p == "inf" else VOTE_WORK[self.vote]
        return UpdateWork(rule_work.on(tensors), messages=vote.on(tensors)) + self._step_work(tensors)

    def vote_exchanges(self, count: int, workers: int) -> list[Exchange]:
        """Return the exchanges of a worker for a vote on ``count`` parameters.

        Raises:
            SpecError: a sum of all votes has more bits than ``bits``; the error names a number that suffices.
        """
        signs_per_byte = 4 if self.ternary else 8
        if self.vote == "one-bit":
            chunk_bytes = math.ceil(math.ceil(count / workers) / signs_per_byte)
            calls = [("votes", workers * chunk_bytes, "all_to_all"), ("verdict", chunk_bytes, "all_gather")]
        elif self.vote == "server-naive":
            calls = [("votes", FP32_BYTES * count, "gather"), ("verdict", FP32_BYTES * count, "broadcast")]
        elif self.vote == "server-efficient":
            packed_bytes = math.ceil(count / signs_per_byte)
            calls = [("votes", packed_bytes, "gather"), ("verdict", packed_bytes, "broadcast")]
        else:
            calls = [("votes", whole_word_bytes(count, self.bits_of_sum(workers)), "all_reduce")]
        encoded_bytes = 0 if self.vote == "server-naive" else FP32_BYTES * count  # naive votes need no encoding
        return [
            Exchange(nbytes, label=label, collective=collective, shares_call=False, encoded_bytes=encoded_bytes)
            for label, nbytes, collective in calls
        ]

    def bits_of_sum(self, workers: int) -> int:
        """Return the number of bits of a sum of votes in an all-reduce: the spec's, or by default as few as suffice.

        Raises:
            SpecError: there are too many workers for the number of bits; the error names a number that suffices.
        """
        # Minus and plus are sent as 0 and 1, or as 0 and 2 if 1 stands for zero, as in a quantised vote.
        largest_vote = 2 if self.vote == "quantised" or self.ternary else 1
        needed_bits = (largest_vote * workers).bit_length()
        bits = needed_bits
        if self.vote == "quantised":
            bits = self.quantised_bits
        elif self.bits is not None:
            bits = self.bits
        if bits < needed_bits:
            raise SpecError("bits", bits, f"at least {needed_bits} for sums over {workers} workers")
        return bits

    def vote_formula(self, workers: int) -> str:
        """Return the formula of the bytes of a vote on N parameters, without padding: votes + verdict, or sums."""
        per_sign = 0.25 if self.ternary else 0.125  # bytes
        if self.vote == "one-bit":
            return f"{per_sign:g} N + {per_sign / workers:g} N"
        if self.vote == "server-naive":
            return "4 N + 4 N"
        if self.vote == "server-efficient":
            return f"{per_sign:g} N + {per_sign:g} N"
        bits = self.bits_of_sum(workers)
        word_bits = 8 if 8 % bits == 0 else 32  # sums do not cross the borders of words
        sums_per_word = word_bits // bits
        return f"{word_bits / 8 / sums_per_word:g} N"

    def build_vote(self) -> optim.Vote:
        """Build the reducer by which the workers vote on each element's sign."""
        if self.vote == "quantised":
            p = 1.0 if self.p is None else float(self.p)
            return optim.QuantisedVote(self.quantised_bits, p, self.stochastic)
        if self.vote == "server-naive":  # fp32 numbers can express a tie by 0
            return optim.ServerVote("naive")
        ties = "alternate" if self.ties is None else self.ties
        if self.vote == "server-efficient":
            return optim.ServerVote("efficient", ties)
        if self.vote == "one-bit":
            return optim.OneBitVote(ties)
        return optim.DirectVote(ties, self.bits)


@register
class SignSGDSpec(VotingBase):
    """signSGD with majority vote, or Signum with ``momentum``: workers vote on the signs of gradients or momenta.

        u_m <- beta u_m + (1 - beta) g_m;   x <- x - lr vote(u_1, ..., u_P)

    g_m and u_m are gradient and momentum of worker m, which stay local. Signum is Lion Cub with ``beta1 = beta2``.

    Args:
        momentum: beta, decay rate of each worker's momentum; with 0 workers vote on gradients and keep no state.

    Source: Bernstein et al., "signSGD with Majority Vote" (2019).
    """

    source = "signSGD (Bernstein et al., 2019)"

    presets: ClassVar[Presets] = {"sign-sgd": {"lr": 0.0005}}

    kind: Literal["sign-sgd"] = "sign-sgd"
    vote: Literal["one-bit", "direct", "server-naive", "server-efficient", "quantised"] = "one-bit"
    momentum: Rate = 0.0

    @model_validator(mode="after")
    def _check_fields_of_vote(self) -> SignSGDSpec:
        """Raise an error for a wire format or a clipped gradient, which do not affect the vote."""
        if self.wire not in (None, "dense"):
            raise refusal("wire", self.wire, "'dense', as votes have formats of their own")
        if self.clip_norm is not None and not self.momentum:
            raise refusal("clip_norm", self.clip_norm, "none without momentum: a vote does not see the gradient's size")
        return self

    @property
    @override
    def name(self) -> str:
        base = "signum" if self.momentum else "sign-sgd"
        vote = "" if self.vote == "one-bit" else f"-{self.vote}"
        return self.label or f"{base}{vote}"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        return self.vote_exchanges(elements(tensors_of(model)), workers)

    @override
    def traffic_formula(self, workers: int) -> str:
        return self.vote_formula(workers)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return how many numbers a worker stores: the elements of the momentum; 0 without momentum."""
        return elements(tensors_of(model)) if self.momentum else 0

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        return self._voting_work(tensors, ElementwiseWork(foreach_bytes=20 if self.momentum else 8))

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        rule, sync = optim.sgdm(self.momentum, form="ema"), optim.Periodic(periods={"direction": 1})
        return optim.Method(params, self.lr, rule, sync, reducer=self.build_vote(), **options)


@register
class LionCubSpec(VotingBase):
    """Lion Cub: workers vote on the signs of Lion's update vectors c_m, and all move by the result of the vote.

        c_m = beta1 m_m + (1 - beta1) g_m;   m_m <- beta2 m_m + (1 - beta2) g_m;   x <- x - lr vote(c_1, ..., c_P)

    g_m and m_m are gradient and momentum of worker m. Parameters stay equal on all workers; momenta differ, but can be
    averaged every ``momentum_period`` steps. With one worker this is Lion, except where c is 0.

    Args:
        beta1: weight of the momentum in the update vector c; the gradient has weight ``1 - beta1``.
        beta2: decay rate of the momentum.
        momentum_period: K, number of steps between averages of the momenta.
        momentum_layers: layers whose momenta are averaged: ``all``, ``none``, ``first-and-last``, or patterns of
            parameter names (``embedding*``). The layer of a parameter is its name up to the last dot.

    Source: Lion Cub, Algorithm 1 and section 5.
    """

    source = "Lion Cub, Algorithm 1"

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
    def _check_wire_is_used(self) -> LionCubSpec:
        """Raise an error for a wire format if no momenta are averaged."""
        if self.wire not in (None, "dense") and self.momentum_layers == "none":
            raise refusal("wire", self.wire, "'dense', as no momenta are averaged and votes have formats of their own")
        return self

    @property
    @override
    def name(self) -> str:
        if self.label:
            return self.label
        if self.vote == "quantised":
            bits = "" if self.quantised_bits == 8 else f"-{self.quantised_bits}bit"
            power = "" if self.p is None or float(self.p) == 1 else f"-l{float(self.p):g}"
            rounding = "-stochastic" if self.stochastic else ""
            return f"lion-cub{bits}{power}{rounding}"
        names = {
            "server-naive": "distributed-lion-naive",
            "server-efficient": "distributed-lion",
            "one-bit": "lion-cub-1bit",
            "direct": "lion-cub-direct",
        }
        return names[self.vote]

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchanges by which a worker votes, then the average of the momenta."""
        tensors = tensors_of(model)
        exchanges = self.vote_exchanges(elements(tensors), workers)
        is_chosen = chosen_layers([tensor.name for tensor in tensors], self.momentum_layers)
        count = elements([tensor for tensor, chosen in zip(tensors, is_chosen, strict=True) if chosen])
        if count:
            exchanges.append(self._plain_exchange(count, self.momentum_period, label="momentum_1", shares_call=False))
        return exchanges

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes of the vote and of the averaged momenta, without padding."""
        if self.momentum_layers == "none":
            return self.vote_formula(workers)
        count = "N" if self.momentum_layers == "all" else "Σ chosen"  # the parameters of the chosen layers
        momentum_formula = per_step_formula(f"{BYTES_PER_ELEMENT[self.wire_format]} {count}", self.momentum_period)
        return f"{self.vote_formula(workers)} + {momentum_formula}"

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        return elements(tensors_of(model))

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        return self._voting_work(tensors, ElementwiseWork(kernel_bytes=24, kernels=2))

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        rule = optim.LionRule(self.beta1, self.beta2, signed=False)
        options |= {"momentum_period": self.momentum_period, "momentum_layers": self.momentum_layers}
        return optim.LionCubMethod(params, self.lr, rule, vote=self.build_vote(), **options)
