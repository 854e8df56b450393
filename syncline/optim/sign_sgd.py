"""signSGD with majority vote, and Signum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.optim.base import Reducer
from syncline.optim.method import Method
from syncline.optim.rules import sgdm
from syncline.optim.sync import Periodic
from syncline.optim.votes import OneBitVote


class SignSGD(Method):
    """The group moves by the sign of a vote on gradients, or on each worker's own momentum (Signum).

        u_m <- beta u_m + (1 - beta) g_m;   x <- x - lr vote(u_1, ..., u_P)

    Signum is Lion Cub with ``beta1 = beta2``. With one worker and no momentum it is sign descent.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        momentum: beta; 0 keeps no state.
        vote: as for ``LionCub``; one bit by default.
        **options: ``weight_decay``, ``clip_norm``, ``comm``, ``worker_axis`` of ``Method``.

    Raises:
        SpecError: for a value out of range.

    Source: Bernstein et al., "signSGD with Majority Vote" (2019).
    """

    def __init__(
        self, params: Iterable[Any], lr: float, *, momentum: float = 0.0, vote: Reducer | None = None, **options: Any
    ) -> None:
        rule, sync = sgdm(momentum, "ema"), Periodic({"direction": 1})
        super().__init__(params, lr, rule, sync, reducer=vote or OneBitVote(), **options)
