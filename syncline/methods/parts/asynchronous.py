"""Workers that wait for nobody, as a spec: when they send to a server, and what it does with what arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from syncline.errors import SpecError
from syncline.fields import MANY, Positive, Rate, Seconds, Spec, refusal
from syncline.methods.parts.method_spec import MethodBase


def _adapts(value: Any) -> Any:
    if value not in (True, False, "yes", "no", "true", "false", "batch"):
        raise refusal("", value, "yes, no or batch")
    return value


class HierarchySpec(Spec):
    """A server above local ones, as HALoS has it: workers have a local server each group, with the method's momentum.

    A local server begins with the model y from above. After ``every`` versions x of its own it sends ``y - x``, and
    goes on meanwhile. The server above takes it as a pseudo-gradient into a delayed Nesterov step, and sends its model
    z back; then ``x <- (1 - merge) x + merge z`` and ``y <- x``.

    Args:
        groups: local servers; the workers are shared out to them in their order, nearly equally.
        every: K, versions of a local server between a merge and what it sends.
        merge: alpha, how much of the model from above a local one becomes.
        lr: of the server above.
        momentum: of the server above.
        buffer: N of its delayed momentum.

    Source: HALoS (Kim et al., 2025), with the names of its public code (utnslab/halos) for what it leaves open.
    """

    groups: Annotated[int, Field(ge=1, le=MANY)]
    every: Annotated[int, Field(ge=1, le=MANY)] = 32
    merge: Annotated[float, Field(gt=0, le=1)] = 0.25
    lr: Positive = 0.3
    momentum: Rate = 0.5
    buffer: Annotated[int, Field(ge=1, le=MANY)] = 2

    def groups_of(self, workers: int) -> tuple[int, ...]:
        """Return the workers of each local server.

        >>> HierarchySpec(groups=3).groups_of(8)
        (3, 3, 2)
        """
        size, more = divmod(workers, self.groups)
        return (size + 1,) * more + (size,) * (self.groups - more)


class AsynchronousSpec(Spec):
    """A server in the place of the collective: each worker sends to it when it is ready, and goes on from its model.

    A version of the model is made of ``buffer`` updates u, each of some age (versions made since its worker's model):

        U = sum_k s_k (1 + age_k)^-discount u_k / sum_k s_k

    U then takes the place of the mean over the workers: of their gradients, or of their pseudo-gradients.

    Args:
        buffer: K, updates of a version. 1: as each arrives. More: FedBuff; of delayed momentum its N. The quorum, where
            workers wait.
        grace: seconds after the K-th in which further updates come into the version, too.
        waits: whether a worker waits for the version that its update is in (K-async SGD) instead of going on at once.
        participants: workers that take part at a time, drawn anew from the idle whenever some have become so: with
            ``waits`` the clients of a round of FedAvg, else FedBuff's concurrency. All if none.
        weights: s: ``equal``, 1; ``tokens``, those that the update is of (FedAvg); ``token-rate``, tokens times tokens
            per step (Decoupled DiLoCo).
        start: from where a pseudo-gradient leads to the worker's end: its ``own`` begin, or the ``server``'s model when
            it arrives (Decoupled DiLoCo).
        above: a server above, where the workers have local ones; none: they all have the same.
        discount: exponent by which late updates count less; FedBuff has 0.5, FedAsync's polynomial any.
        momentum: ``every``: of each version, as DiLoCo's outer optimizer; ``delayed``: delayed Nesterov, of every
            ``buffer`` updates, while each moves the model as it arrives.
        activation: c of delayed Nesterov: how much of the momentum moves the model with each update, at most 1 / N.
        adapt: whether slower workers make fewer local steps, so that all send at about the same time (dynamic local
            updates); or, with ``batch``, steps of smaller batches.

    Source: FedBuff (Nguyen et al., 2022), Algorithm 1; Asynchronous Local-SGD (Liu et al., 2024), Algorithm 4 and
    section 5.2; FedAsync (Xie et al., 2019), section 5.2; K-async SGD (Dutta et al., 2018), section 2; FedAvg
    (McMahan et al., 2017), Algorithm 1; Decoupled DiLoCo (Douillard et al., 2026).
    """

    buffer: Annotated[int, Field(ge=1, le=MANY)] = 1
    grace: Seconds = 0.0
    waits: bool = False
    participants: Annotated[int, Field(ge=1, le=MANY)] | None = None
    weights: Literal["equal", "tokens", "token-rate"] = "equal"
    start: Literal["own", "server"] = "own"
    discount: float = Field(default=0.0, ge=0)
    momentum: Literal["every", "delayed"] = "every"
    activation: float = Field(default=0.0, ge=0)
    adapt: Annotated[bool | Literal["batch"], BeforeValidator(_adapts)] = False
    above: HierarchySpec | None = None

    @property
    def of_a_version(self) -> int:
        """Return updates of a version of the model; delayed momentum makes one of each."""
        return 1 if self.momentum == "delayed" else self.buffer

    def weight(self, age: int) -> float:
        """Return the weight of an update of this age.

        >>> AsynchronousSpec(discount=0.5).weight(3)
        0.5
        """
        return float((1 + age) ** -self.discount)

    def share(self, steps: int, tokens: float = 1.0) -> float:
        """s of an update of so many local steps, of so many tokens (or samples) each.

        >>> AsynchronousSpec(weights="tokens").share(8, 2.0), AsynchronousSpec(weights="token-rate").share(8, 2.0)
        (16.0, 32.0)
        """
        return float({"equal": 1, "tokens": steps * tokens, "token-rate": steps * tokens * tokens}[self.weights])

    def local_steps(self, period: int, speeds: Sequence[float]) -> tuple[int, ...]:
        """Each worker's, from one model to the next: ``H v_m / max v`` rounded down, at least 1, if they adapt.

        >>> AsynchronousSpec(adapt=True).local_steps(8, (1.0, 0.5, 0.3))
        (8, 4, 2)
        """
        fastest = max(speeds)
        return tuple(max(1, int(period * v / fastest)) if self.adapt is True else period for v in speeds)

    def batches(self, batch: int, speeds: Sequence[float]) -> tuple[int, ...]:
        """Each worker's samples of a step: ``B v_m / max v`` rounded down, at least 1, if batches adapt.

        >>> AsynchronousSpec(adapt="batch").batches(32, (1.0, 0.5, 0.3))
        (32, 16, 9)
        """
        fastest = max(speeds)
        return tuple(max(1, int(batch * v / fastest)) if self.adapt == "batch" else batch for v in speeds)

    def check(self, method: MethodBase) -> None:
        """Refuse what makes no sense beside a method's other fields.

        Raises:
            PydanticCustomError: with the path from the method.
        """
        outer = hasattr(method, "outer_momentum")
        if getattr(method, "compressor", None) is not None:
            raise refusal("compressor", method.compressor.kind, "none beside asynchronous: updates travel whole")  # type: ignore[attr-defined]
        if getattr(method, "in_backward", False) and outer:
            raise refusal("in_backward", True, "false beside asynchronous: an update is sent when it is whole")
        if self.momentum == "delayed" and not outer:
            raise refusal("asynchronous.momentum", self.momentum, "every, as only diloco has an outer momentum")
        if self.adapt is True and not outer:
            raise refusal("asynchronous.adapt", self.adapt, "batch or no, as only diloco has local steps")
        if self.activation and self.momentum != "delayed":
            raise refusal("asynchronous.activation", self.activation, "0 unless momentum is delayed")
        if self.activation > 1 / self.buffer:
            raise refusal("asynchronous.activation", self.activation, f"at most 1 / buffer ({1 / self.buffer:g})")
        if self.waits and self.momentum == "delayed":
            raise refusal("asynchronous.waits", self.waits, "no beside delayed momentum, whose versions are single")
        if self.grace and self.momentum == "delayed":
            raise refusal("asynchronous.grace", self.grace, "0 beside delayed momentum, whose versions are single")
        if self.weights != "equal" and self.of_a_version == 1 and not self.grace:
            raise refusal("asynchronous.weights", self.weights, "equal where a version is of one update")
        if self.above is not None and not outer:
            raise refusal("asynchronous.above", {}, "none, as only diloco has updates to gather")
        if self.above is not None and self.participants is not None:
            raise refusal("asynchronous.participants", self.participants, "none beside above: all workers take part")
        if self.start == "server" and not outer:
            raise refusal("asynchronous.start", self.start, "own, as only diloco has pseudo-gradients")

    def check_workers(self, workers: int, path: str) -> None:
        """Refuse a group that cannot be, or a quorum that it never has.

        Raises:
            PydanticCustomError: below ``path``.
        """
        group, members = workers, "the workers"
        if self.above is not None:
            if self.above.groups > workers:
                expected = f"at most {workers}, as each local server has a worker"
                raise refusal(f"{path}.asynchronous.above.groups", self.above.groups, expected)
            group, members = min(self.above.groups_of(workers)), "the workers of a local server"
        if self.participants is not None:
            if self.participants > workers:
                raise refusal(f"{path}.asynchronous.participants", self.participants, f"at most {workers}, the workers")
            group, members = self.participants, "the participants"
        if self.waits and self.buffer > group:
            expected = f"at most {group}, {members}, who wait until it is full"
            raise refusal(f"{path}.asynchronous.buffer", self.buffer, expected)


def asynchronous_of(method: Any) -> AsynchronousSpec | None:
    """Return a method's asynchronous settings, or None if it is synchronous."""
    settings: AsynchronousSpec | None = getattr(method, "asynchronous", None)
    return settings


def check_synchronous(method: Any, path: str) -> None:
    """Refuse an asynchronous method where nothing plays who comes when.

    Raises:
        SpecError: below ``path``.
    """
    if asynchronous_of(method) is not None:
        expected = "a method without it: only 'run', 'compare' and 'launch' know who comes when"
        raise SpecError(f"{path}.asynchronous" if path else "asynchronous", method.name, expected)
