"""Specs of asynchronous training through a server, and of corrections for delayed gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.errors import SpecError
from syncline.fields import MANY, Positive, Rate, Seconds, Spec, from_name, refusal
from syncline.methods.parts.method_spec import MethodBase


def _check_dynamic_local_updates(value: Any) -> Any:
    """Return a value of ``dynamic_local_updates`` unchanged, or raise an error that names the possible values."""
    if value not in (True, False, "yes", "no", "true", "false", "batch"):  # pydantic would name only booleans
        raise refusal("", value, "yes, no or batch")
    return value


class HierarchySpec(Spec):
    """A global server over local servers, as in HALoS: each group of workers has a local server.

    The local servers use the outer optimizer of the method. A local server starts from the global model y. When it has
    made ``merge_period`` versions x, it sends the difference ``y - x`` to the global server, and continues to apply its
    workers' updates. The global server uses the difference as a pseudo-gradient in a delayed Nesterov step, and returns
    its new model z. The local server then sets ``x <- (1 - merge_weight) x + merge_weight z`` and ``y <- x``.

    Args:
        groups: number of local servers. Consecutive workers form a group; the sizes of groups differ by at most one.
        merge_period: K, number of versions that a local server makes after a merge before it sends its difference.
        merge_weight: alpha, weight of the global model when a local server merges it into its own, in (0, 1].
        lr: learning rate of the global server.
        momentum: momentum coefficient of the global server.
        buffer_size: N, number of pseudo-gradients between two steps of the global server's delayed momentum.

    Source: HALoS (Kim et al., 2025); details that the paper does not give are as in its public code (utnslab/halos).
    """

    groups: Annotated[int, Field(ge=1, le=MANY)]
    merge_period: Annotated[int, Field(ge=1, le=MANY)] = 32
    merge_weight: Annotated[float, Field(gt=0, le=1)] = 0.25
    lr: Positive = 0.3
    momentum: Rate = 0.5
    buffer_size: Annotated[int, Field(ge=1, le=MANY)] = 2

    def groups_of(self, workers: int) -> tuple[int, ...]:
        """Return the number of workers of each local server.

        >>> HierarchySpec(groups=3).groups_of(8)
        (3, 3, 2)
        """
        size, num_larger = divmod(workers, self.groups)
        return (size + 1,) * num_larger + (size,) * (self.groups - num_larger)


class AsynchronousSpec(Spec):
    """Asynchronous training through a server: a worker sends an update when ready, and goes on from the server's model.

    The server replaces the collective. It combines ``buffer_size`` updates u_k into a version of its model. The age of
    an update is the number of versions that the server made while the worker computed it:

        U = sum_k s_k (1 + age_k)^-staleness_exponent u_k / sum_k s_k

    The optimizer uses U in place of the mean gradient over all workers, or of DiLoCo's mean pseudo-gradient.
    ``update_weights`` gives the weight s_k.

    Args:
        buffer_size: K, number of updates per version. With 1 the server applies each update when it arrives; with more,
            this is FedBuff. With ``momentum: delayed`` it is N, the number of updates per momentum step. With
            ``synchronous`` it is the quorum that the workers wait for.
        grace_period: time after the K-th update, in seconds, in which later updates still enter the version.
        synchronous: whether a worker waits for the version that contains its update (K-async SGD). By default, it
            continues at once from the server's current model.
        participants: number of workers that take part at a time; by default, all. When participants become idle, the
            server draws their successors from all idle workers. With ``synchronous``, these are the clients of a round
            of FedAvg; otherwise, their number is FedBuff's concurrency.
        update_weights: the weight s_k of an update: ``equal``, 1; ``tokens``, the number of tokens that the update was
            computed from (FedAvg); ``token-rate``, this number times the tokens of one step (Decoupled DiLoCo).
        reference: the model from which the worker's final model is subtracted to give a pseudo-gradient: ``worker``,
            the model that the worker started from; ``server``, the server's model when the update arrives (Decoupled
            DiLoCo).
        hierarchy: settings of a global server over several local servers; by default, all workers share one server.
        staleness_exponent: exponent of the age in an update's weight; with 0 all ages weigh the same, FedBuff uses 0.5.
        momentum: ``every``, the outer momentum is updated in each version, as in DiLoCo; ``delayed``, delayed Nesterov:
            the server moves its model with each update, and updates the momentum once per ``buffer_size`` updates.
        momentum_activation: c of delayed Nesterov, the share of the momentum that moves the model with each update, at
            most 1 / N.
        dynamic_local_updates: ``yes``, slower workers make fewer local steps, so that all workers send at about the
            same time (dynamic local updates); ``batch``, slower workers use smaller batches instead; ``no``, all
            workers do equal work.

    Source: FedBuff (Nguyen et al., 2022), Algorithm 1; Asynchronous Local-SGD (Liu et al., 2024), Algorithm 4 and
    section 5.2; FedAsync (Xie et al., 2019), section 5.2; K-async SGD (Dutta et al., 2018), section 2; FedAvg
    (McMahan et al., 2017), Algorithm 1; Decoupled DiLoCo (Douillard et al., 2026).
    """

    buffer_size: Annotated[int, Field(ge=1, le=MANY)] = 1
    grace_period: Seconds = 0.0
    synchronous: bool = False
    participants: Annotated[int, Field(ge=1, le=MANY)] | None = None
    update_weights: Literal["equal", "tokens", "token-rate"] = "equal"
    reference: Literal["worker", "server"] = "worker"
    staleness_exponent: float = Field(default=0.0, ge=0)
    momentum: Literal["every", "delayed"] = "every"
    momentum_activation: float = Field(default=0.0, ge=0)
    dynamic_local_updates: Annotated[bool | Literal["batch"], BeforeValidator(_check_dynamic_local_updates)] = False
    hierarchy: HierarchySpec | None = None

    @property
    def updates_per_version(self) -> int:
        """Return the number of updates per version; delayed momentum makes a version of each update."""
        return 1 if self.momentum == "delayed" else self.buffer_size

    def weight(self, age: int) -> float:
        """Return ``(1 + age)^-staleness_exponent``, the factor by which an update of this age is multiplied.

        >>> AsynchronousSpec(staleness_exponent=0.5).weight(3)
        0.5
        """
        return float((1 + age) ** -self.staleness_exponent)

    def share(self, steps: int, tokens: float = 1.0) -> float:
        """Return the weight s of an update from ``steps`` steps with ``tokens`` tokens each, see ``update_weights``.

        >>> [AsynchronousSpec(update_weights=name).share(8, 2.0) for name in ("tokens", "token-rate")]
        [16.0, 32.0]
        """
        if self.update_weights == "equal":
            return 1.0
        weight = steps * tokens
        return float(weight if self.update_weights == "tokens" else weight * tokens)

    def local_steps(self, period: int, speeds: Sequence[float]) -> tuple[int, ...]:
        """Return each worker's number of local steps per update: H, or ``H v_m / max v`` if they adapt.

        The quotient is rounded down to a whole number of at least 1; v_m is the speed of worker m.

        >>> AsynchronousSpec(dynamic_local_updates=True).local_steps(8, (1.0, 0.5, 0.3))
        (8, 4, 2)
        """
        if self.dynamic_local_updates is not True:
            return (period,) * len(speeds)
        return _in_proportion(period, speeds)

    def batches(self, batch: int, speeds: Sequence[float]) -> tuple[int, ...]:
        """Return each worker's number of samples per step: B, or ``B v_m / max v`` if batches adapt.

        The quotient is rounded down to a whole number of at least 1; v_m is the speed of worker m.

        >>> AsynchronousSpec(dynamic_local_updates="batch").batches(32, (1.0, 0.5, 0.3))
        (32, 16, 9)
        """
        if self.dynamic_local_updates != "batch":
            return (batch,) * len(speeds)
        return _in_proportion(batch, speeds)

    def check(self, method: MethodBase) -> None:
        """Raise an error, which names the wrong field, if these settings contradict other fields of the method."""
        is_diloco = hasattr(method, "outer_momentum")  # otherwise data parallelism
        compressor = getattr(method, "compressor", None)
        if compressor is not None:
            raise refusal("compressor", compressor.kind, "none with asynchronous, as updates are sent whole")
        if getattr(method, "in_backward", False) and is_diloco:
            raise refusal("in_backward", True, "false with asynchronous, as an update is sent when it is complete")
        self._check_fields(is_diloco)
        if self.hierarchy is not None and not is_diloco:
            raise refusal("asynchronous.hierarchy", {}, "none, as only diloco has updates to gather")
        if self.hierarchy is not None and self.participants is not None:
            expected = "none with hierarchy, as all workers take part"
            raise refusal("asynchronous.participants", self.participants, expected)
        if self.reference == "server" and not is_diloco:
            raise refusal("asynchronous.reference", self.reference, "worker, as only diloco has pseudo-gradients")

    def _check_fields(self, is_diloco: bool) -> None:
        """Raise an error for the first field that contradicts another field, or that only DiLoCo supports."""

        def refuse(is_wrong: bool, field: str, expected: str) -> None:
            if is_wrong:
                raise refusal(f"asynchronous.{field}", getattr(self, field), expected)

        is_delayed = self.momentum == "delayed"
        if not is_diloco:
            adapts_steps = self.dynamic_local_updates is True
            refuse(is_delayed, "momentum", "every, as only diloco has an outer momentum")
            refuse(adapts_steps, "dynamic_local_updates", "batch or no, as only diloco has local steps")
        has_activation = self.momentum_activation > 0
        refuse(has_activation and not is_delayed, "momentum_activation", "0 unless momentum is delayed")
        largest = 1 / self.buffer_size
        refuse(self.momentum_activation > largest, "momentum_activation", f"at most 1 / buffer_size ({largest:g})")
        if is_delayed:
            refuse(self.synchronous, "synchronous", "no with delayed momentum, which has one version")
            refuse(self.grace_period > 0, "grace_period", "0 with delayed momentum, which has one version")
        has_one_update = self.updates_per_version == 1 and not self.grace_period
        weighs_updates = self.update_weights != "equal"
        refuse(weighs_updates and has_one_update, "update_weights", "equal where a version is of one update")

    def check_workers(self, workers: int, path: str) -> None:
        """Raise an error, which names a field below the method's ``path``, if there are too few workers.

        Each local server and each participant needs a worker, and with ``synchronous`` the workers of a server must be
        able to fill its buffer.
        """
        num_senders, senders = workers, "the workers"  # they fill the buffer of a server
        if self.hierarchy is not None:
            if self.hierarchy.groups > workers:
                expected = f"at most {workers}, as each local server has a worker"
                raise refusal(f"{path}.asynchronous.hierarchy.groups", self.hierarchy.groups, expected)
            num_senders = min(self.hierarchy.groups_of(workers))
            senders = "the workers of a local server"
        if self.participants is not None:
            if self.participants > workers:
                raise refusal(f"{path}.asynchronous.participants", self.participants, f"at most {workers}, the workers")
            num_senders, senders = self.participants, "the participants"
        if self.synchronous and self.buffer_size > num_senders:
            expected = f"at most {num_senders}, {senders}, which wait until it is full"
            raise refusal(f"{path}.asynchronous.buffer_size", self.buffer_size, expected)


def _in_proportion(largest: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Return a count for each worker in proportion to its speed: ``largest`` for the fastest, at least 1."""
    return tuple(max(1, int(largest * speed / max(speeds))) for speed in speeds)


def asynchronous_of(method: Any) -> AsynchronousSpec | None:
    """Return a method's asynchronous settings, or None if it is synchronous."""
    settings: AsynchronousSpec | None = getattr(method, "asynchronous", None)
    return settings


def check_synchronous(method: Any, path: str) -> None:
    """Raise a SpecError if the method is asynchronous, for commands that do not simulate when updates arrive.

    ``path`` is the path of the method's fields in the spec, for the error; empty for a method by itself.
    """
    if asynchronous_of(method) is not None:
        expected = "a method without it: only 'run', 'compare' and 'launch' simulate or measure when workers arrive"
        raise SpecError(f"{path}.asynchronous" if path else "asynchronous", method.name, expected)


BackwardWeights = Literal["stashed", "current", "corrected"]
"""The weights of a backward pass: of the forward pass, stashed or as PipeMare estimates them, or the current ones."""


class RemedySpec(Spec):
    """A correction for delayed gradients, in addition to the method's usual step.

    Args:
        kind: ``discount`` multiplies the learning rate by ``tau^-(1 - t / anneal_steps)`` in step t, for a delay of tau
            steps, until step ``anneal_steps``. ``compensation`` adds ``strength * g * g * (x - x_stale)`` to the
            gradient g. ``look-ahead`` computes forward passes at predicted weights.
        anneal_steps: number of steps until the discount has ended; only for ``discount``, which needs it.
        strength: coefficient of the compensation; only for ``compensation``, which needs it.
    """

    kind: Literal["discount", "compensation", "look-ahead"]
    anneal_steps: int | None = Field(default=None, ge=1)
    strength: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_fields_of_kind(self) -> RemedySpec:
        """Raise an error unless the correction has exactly the fields of its kind."""
        for field, kind in (("anneal_steps", "discount"), ("strength", "compensation")):
            value = getattr(self, field)
            if self.kind == kind and value is None:
                raise refusal(field, None, f"a value, as {kind} needs one")
            if self.kind != kind and value is not None:
                raise refusal(field, value, f"none for {self.kind}, but for {kind}")
        return self

    def check_weights(self, backward_weights: BackwardWeights, path: str) -> None:
        """Raise an error, which names ``path``, if the correction does not support these weights of backward passes.

        Compensation and look-ahead need stashed weights, because only a stash keeps the weights of each forward pass.
        """
        if self.kind != "discount" and backward_weights != "stashed":
            raise refusal(path, self.kind, f"none, or a discount, where backward_weights are {backward_weights}")


RemedyField = Annotated[RemedySpec | None, BeforeValidator(from_name)]
"""The type of the field ``remedy``: a correction for delayed gradients, or its name, or None for no correction."""


def remedy_of(method: Any) -> RemedySpec | None:
    """Return a method's remedy, its correction for delayed gradients, or None."""
    remedy: RemedySpec | None = getattr(method, "remedy", None)
    return remedy


def refuse_remedy(method: MethodBase, path: str) -> None:
    """Raise a SpecError if the method has a remedy, a correction for delayed gradients.

    ``path`` is the path of the method's fields in the spec, for the error; empty for a method by itself.
    """
    remedy = remedy_of(method)
    if remedy is not None:
        expected = "none: only trainings of a pipeline's stages have late gradients"
        raise SpecError(f"{path}.remedy" if path else "remedy", remedy.kind, expected)
