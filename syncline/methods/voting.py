"""The base of methods that move by a vote, which combines the workers' directions."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from syncline import optim
from syncline.costmodel import Exchange
from syncline.costmodel.traffic.packing import field_bytes
from syncline.errors import SpecError
from syncline.fields import refusal
from syncline.methods.parts.method_spec import FP32_BYTES, MethodBase

Bits = Annotated[int, Field(ge=1, le=31)]


USED_BY: dict[str, tuple[str, ...]] = {
    "bits": ("direct", "quantised"),
    "p": ("quantised",),
    "stochastic": ("quantised",),
    "ties": ("one-bit", "direct", "server-efficient"),
}
"""Which votes a knob changes."""


class VotingBase(MethodBase):
    """The base of methods that vote.

    Args:
        vote: the exchange that implements the vote: ``one-bit`` (an all-to-all of signs, the vote, an all-gather of its
            result), ``direct`` (an all-reduce of 0/1 votes), ``server-naive`` and ``server-efficient`` (a parameter
            server), or ``quantised`` (an all-reduce of small integers).
        bits: bits of a sum of integers, for ``quantised``.
        p: exponent of the power mean that scales the integers, for ``quantised``; ``inf`` for the maximum.
        stochastic: whether numbers are rounded to integers at random, for ``quantised`` with ``p: inf``.
        ties: the result if as many workers vote plus as minus, for votes that leave it open.
    """

    family: ClassVar[str] = "votes"

    vote: Literal["one-bit", "direct", "server-naive", "server-efficient", "quantised"] = "quantised"
    bits: Bits | None = None
    p: Annotated[float, Field(ge=0)] | Literal["inf"] | None = None
    stochastic: bool = False
    ties: Literal["zero", "alternate", "plus", "minus", "random"] | None = None

    @model_validator(mode="after")
    def _knobs_that_matter(self) -> VotingBase:
        for knob, votes in USED_BY.items():
            value = getattr(self, knob)
            if value not in (None, False) and self.vote not in votes:
                raise refusal(knob, value, f"none with vote {self.vote!r}; it is for {' and '.join(votes)}")
        if self.stochastic and self.p != "inf":
            raise refusal("stochastic", True, "false unless p is 'inf'")
        return self

    @property
    def width(self) -> int:
        """Return the bits of a quantised field."""
        return 8 if self.bits is None else self.bits

    @property
    def ternary(self) -> bool:
        """Return whether packed signs have a third value, zero."""
        return self.ties == "zero"

    def vote_exchanges(self, count: int, workers: int) -> list[Exchange]:
        """Return the exchanges of a worker for a vote over ``count`` parameters.

        Raises:
            SpecError: too many workers for the width; names the width that would do.
        """
        per_byte = 4 if self.ternary else 8
        packed = math.ceil(count / per_byte)
        if self.vote == "one-bit":
            chunk = math.ceil(math.ceil(count / workers) / per_byte)
            sent = [("votes", workers * chunk, "all_to_all"), ("verdict", chunk, "all_gather")]
        elif self.vote == "server-naive":
            sent = [("votes", 4 * count, "gather"), ("verdict", 4 * count, "broadcast")]
        elif self.vote == "server-efficient":
            sent = [("votes", packed, "gather"), ("verdict", packed, "broadcast")]
        else:
            sent = [("votes", field_bytes(count, self.field_bits(workers)), "all_reduce")]
        encoded = 0 if self.vote == "server-naive" else FP32_BYTES * count
        return [
            Exchange(n, label=label, collective=collective, joins=False, encoded_bytes=encoded)
            for label, n, collective in sent
        ]

    def field_bits(self, workers: int) -> int:
        """Return the number of bits of each summed field.

        Raises:
            SpecError: there are too many workers for the number of bits; the error names a number that suffices.
        """
        largest = 2 if self.vote == "quantised" or self.ternary else 1
        enough = (largest * workers).bit_length()
        bits = self.width if self.vote == "quantised" else self.bits or enough
        if bits < enough:
            raise SpecError("bits", bits, f"at least {enough} for sums over {workers} workers")
        return bits

    def vote_formula(self, workers: int) -> str:
        """Return the bytes of a vote per parameter, without the unused fields of the last word."""
        per_sign = 0.25 if self.ternary else 0.125
        if self.vote == "one-bit":
            return f"{per_sign:g} N + {per_sign / workers:g} N"
        if self.vote == "server-naive":
            return "4 N + 4 N"
        if self.vote == "server-efficient":
            return f"{per_sign:g} N + {per_sign:g} N"
        bits = self.field_bits(workers)
        word = 8 if 8 % bits == 0 else 32
        return f"{word / 8 / (word // bits):g} N"

    def build_vote(self) -> optim.Vote:
        """Build the reducer that votes."""

        if self.vote == "quantised":
            return optim.QuantisedVote(self.width, 1.0 if self.p is None else float(self.p), self.stochastic)
        if self.vote == "server-naive":
            return optim.ServerVote("naive")
        ties = self.ties or "alternate"
        if self.vote == "server-efficient":
            return optim.ServerVote("efficient", ties)
        return optim.OneBitVote(ties) if self.vote == "one-bit" else optim.DirectVote(ties, self.bits)
