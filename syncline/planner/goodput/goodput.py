"""A planned training as inputs of the failure model, and its goodput: the fraction of time in steps that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from syncline.costmodel.failures import rejoin_s
from syncline.costmodel.network.paths import Network
from syncline.methods import MethodBase, Tensors, tensors_of
from syncline.methods.parts.method_spec import FP32_BYTES, elements
from syncline.specs.failures import Recovery


class FailingTraining(NamedTuple):
    """The properties of a training that the failure model needs.

    Attributes:
        copies: number of complete model copies that can each continue without the others, all on equally many workers;
            1: every worker needs all others.
        exchanges_every: number of steps between exchanges of the copies.
        state_bytes: bytes of a checkpoint.
        step_s: seconds of a step in which nothing fails.
        rejoin_s: seconds in which a returning copy fetches its state over the network; None if no network is known.
    """

    workers: int
    copies: int
    exchanges_every: int
    state_bytes: float
    step_s: float
    steps: float
    rejoin_s: float | None = None


class KeptState(NamedTuple):
    """The bytes of a checkpoint, and the number of steps between exchanges of the replicas.

    Attributes:
        nbytes: bytes of the checkpoint, all replicas together.
        replica_bytes: bytes of the state of one replica.
        exchanges_every: number of steps from one exchange to the next.
    """

    nbytes: float
    replica_bytes: float
    exchanges_every: int


def kept_state(method: MethodBase, model: Tensors, replicas: int) -> KeptState:
    """Return the size of a checkpoint: fp32 parameters and method state, once if all replicas share them."""
    tensors = tensors_of(model)
    periods = [exchange.period for exchange in method.exchanges(tensors, replicas)] if replicas > 1 else []
    period = min(periods, default=1)
    replica_elements = elements(tensors) + float(method.kept_elements(tensors, replicas))
    all_elements = replicas * replica_elements
    if period == 1:  # the replicas are equal except in their error feedback
        all_elements = replica_elements + (replicas - 1) * method.error_feedback_elements(tensors, replicas)
    return KeptState(FP32_BYTES * all_elements, FP32_BYTES * replica_elements, period)


def failing_training(
    method: MethodBase,
    state: KeptState,
    network: Network,
    workers: int,
    replicas: int,
    sharding: str,
    step_s: float,
    steps: float,
) -> FailingTraining:
    """Return a projected training as inputs of the failure model.

    Args:
        method: synchronisation method between the replicas.
        state: `kept_state` of the replicas.
        network: network over which a returning copy fetches its state.
        sharding: the states that are sharded. Sharded data parallelism counts as one copy, because each replica has
            only a part of the states.
        step_s: seconds of a step in which nothing fails.
    """
    copies = 1 if method.sends_in_backward and sharding != "none" else replicas
    fetch_s = rejoin_s(network, workers, copies, state.replica_bytes)
    return FailingTraining(
        workers, copies, state.exchanges_every, state_bytes=state.nbytes, step_s=step_s, steps=steps, rejoin_s=fetch_s
    )


@dataclass(frozen=True)
class Goodput:
    """The goodput of a training on machines that fail.

    Args:
        recovery: the way in which the training continues after a failure.
        checkpoint_interval_s: seconds of work between checkpoints; None: the only checkpoint is at the end.
        goodput: fraction of the workers' time that is spent in steps that count.
        repair_s: seconds until a failed machine can be used again.
        spares: machines that replace failed ones at once.
        rejoin_s: seconds in which a returning replica fetches its state.
        stuck: the reason why the training makes no progress; None if it makes progress.
    """

    recovery: Recovery
    checkpoint_interval_s: float | None
    goodput: float
    repair_s: float
    spares: int
    rejoin_s: float
    stuck: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a row, without the reason of a training that is stuck."""
        return {name: getattr(self, name) for name in GOODPUT_FIELDS}


GOODPUT_FIELDS = ("recovery", "checkpoint_interval_s", "goodput", "repair_s", "spares", "rejoin_s")
"""Fields of a row, null without failures."""

BoundedSeconds = tuple[float, float | None, float | None]
"""A time in seconds with its lower and upper bounds."""


def with_failures(seconds: BoundedSeconds | None, goodput: Goodput | None) -> BoundedSeconds | None:
    """Return a time and its bounds divided by the goodput; None if the time is unknown, or without any progress.

    Without a goodput the time is unchanged.
    """
    if seconds is None or goodput is None:
        return seconds
    if not goodput.goodput:
        return None
    time_s, low_s, high_s = seconds
    share = goodput.goodput
    return time_s / share, None if low_s is None else low_s / share, None if high_s is None else high_s / share
