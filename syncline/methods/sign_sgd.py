"""signSGD with majority vote, and Signum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange
from syncline.fields import Rate, refusal
from syncline.methods.constructor import constructor
from syncline.methods.parts.method_spec import Presets, Tensors, elements, tensors_of
from syncline.methods.registry import register
from syncline.methods.voting import VotingBase

if TYPE_CHECKING:
    from syncline.comm import Communicator


@register
class SignSGDSpec(VotingBase):
    """signSGD with majority vote; with ``momentum`` it is Signum, whose momenta stay local.

        u_m <- beta u_m + (1 - beta) g_m;   x <- x - lr vote(u_1, ..., u_P)

    Signum is Lion Cub with ``beta1 = beta2``. With one worker and no momentum it is sign descent.

    Args:
        vote: the exchange that implements the vote, see `VotingBase`.
        momentum: beta, decay rate of each worker's momentum; with 0 workers vote on gradients and keep no state.

    Source: Bernstein et al., "signSGD with Majority Vote" (2019).
    """

    source: ClassVar[str] = "signSGD (Bernstein et al., 2019)"

    presets: ClassVar[Presets] = {
        "sign-sgd": {"lr": 0.0005},
    }

    kind: Literal["sign-sgd"] = "sign-sgd"
    vote: Literal["one-bit", "direct", "server-naive", "server-efficient", "quantised"] = "one-bit"
    momentum: Rate = 0.0

    @model_validator(mode="after")
    def _nothing_to_round(self) -> SignSGDSpec:
        if self.wire not in (None, "dense"):
            raise refusal("wire", self.wire, "'dense', as votes have formats of their own")
        if self.clip_norm is not None and not self.momentum:
            raise refusal("clip_norm", self.clip_norm, "none without momentum: a vote does not see the gradient's size")
        return self

    @property
    @override
    def name(self) -> str:
        default = "signum" if self.momentum else "sign-sgd"
        return self.label or (default if self.vote == "one-bit" else f"{default}-{self.vote}")

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchanges of the vote."""
        return self.vote_exchanges(elements(tensors_of(model)), workers)

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the bytes of the vote, without the unused fields of the last word."""
        return self.vote_formula(workers)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the momentum; 0 without momentum."""
        return elements(tensors_of(model)) if self.momentum else 0

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        rule, sync = optim.sgdm(self.momentum, "ema"), optim.Periodic({"direction": 1})
        return optim.Method(
            params, self.lr, rule, sync, reducer=self.build_vote(), **self.common_options(comm, worker_axis)
        )


SignSGD = constructor(SignSGDSpec)
