"""The clock of an asynchronous training: durations of the workers' steps, and the order in which updates arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from syncline.costmodel import Network, TensorShape
from syncline.costmodel.network.link import topology
from syncline.costmodel.network.network_links import slow_down
from syncline.costmodel.network.paths import Floats
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.methods.parts.method_spec import FP32_BYTES
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.sim import Clock
from syncline.sim.failures.outages import Absences
from syncline.sim.online.async_workers import simulate_async_workers
from syncline.sim.online.server_interface import (
    AsyncResult,
    EventObserver,
    ServerSettings,
    ServerTopology,
    UpperServer,
    with_server,
)
from syncline.specs import Training


class SampledPace:
    """Sampled durations of the workers' steps; the first T are the same as for synchronous workers.

    Args:
        spec: spec of the training; it has T, the number of steps, and the jitter.
        base_s: seconds of a step without jitter.
        relative_durations: duration of each worker's step relative to ``base_s``; 1 by default.
    """

    def __init__(self, spec: Training, base_s: float, relative_durations: Sequence[float] | None = None) -> None:
        self._spec, self._base_s, self._relative_durations = spec, base_s, relative_durations
        self._sample(spec.steps)

    def _sample(self, steps: int) -> None:
        """Draw the durations of the first ``steps`` steps of all workers."""
        self._durations_s = self._spec.step_times(self._base_s, steps, self._relative_durations)
        self._constant_s: list[float] | None = None  # by worker, if all its steps take equally long
        has_equal_steps = self._durations_s.strides[0] == 0  # NumPy then keeps one row in memory for all steps
        if len(self._durations_s) and has_equal_steps:
            self._constant_s = self._durations_s[0].tolist()

    def has_equal_workers(self) -> bool:
        """Return whether any two workers have the same durations of their first T steps."""
        distinct_workers = np.unique(self._durations_s[: self._spec.steps], axis=1)
        return distinct_workers.shape[1] < self._spec.workers

    def __call__(self, worker: int, number: int) -> float:
        """Return the seconds of a worker's step ``number``, counted from 0."""
        if self._constant_s is not None:
            return self._constant_s[worker]
        if number >= len(self._durations_s):  # draw a longer sample, which begins with the same steps
            self._sample(max(2 * len(self._durations_s), number + 1))
        return float(self._durations_s[number, worker])


@dataclass(frozen=True)
class AsyncPlan:
    """An asynchronous training before the simulation of its events.

    Args:
        spec: spec of the training, with its faults and failures.
        settings: settings of the server, and of the protocol between workers and server.
        base_s: seconds of a step without jitter.
        relative_durations: duration of each worker's step relative to ``base_s``, if faster workers have larger
            batches.
    """

    spec: Training
    settings: ServerSettings
    base_s: float
    network: Network
    relative_durations: tuple[float, ...] | None = None

    def simulate(self, observer: EventObserver | None = None, factors: Factors = AS_PREDICTED) -> AsyncResult:
        """Simulate the events of the training.

        Args:
            observer: an object that is called at each event, for example to do the training's math.
            factors: factors on the seconds of computing and communication.
        """
        spec, failures, workers = self.spec, self.spec.failures, self.spec.workers
        network = self.network if factors == AS_PREDICTED else slow_down(self.network, float(factors.communication))
        network_with_server, server_place = with_server(network, workers)
        endpoints = network_with_server.workers  # the workers and the servers
        links = topology(spec.faults.network(network_with_server, endpoints), endpoints)
        absences = None
        if failures is not None:  # the first seed draws them for all seeds
            absences = Absences(failures.failing_group(workers), failures.outages_of(workers, spec.seeds[0]))
        return simulate_async_workers(
            self.settings, self.pace(factors),
            topology=ServerTopology(links, workers, server_place, self.settings.groups),
            observer=observer, starts_s=spec.compute.start_offsets or None,
            delay=spec.faults.delay(links, endpoints, spec.seeds[0]),
            keep_steps=spec.timeline_steps, absences=absences,
        )  # fmt: skip

    def pace(self, factors: Factors = AS_PREDICTED) -> SampledPace:
        """Return the durations of the workers' steps, multiplied by the factor on computing."""
        return SampledPace(self.spec, self.base_s * float(factors.computing), self.relative_durations)


def async_plan(
    spec: Training,
    method: MethodBase,
    tensors: Sequence[TensorShape],
    base_s: float,
    network: Network,
    relative_durations: tuple[float, ...] | None = None,
) -> AsyncPlan:
    """Return the plan of an asynchronous method, in which P workers make P T steps in all, T the steps of the spec.

    Args:
        tensors: shapes of the model's parameters, which decide the size of updates and models.
        relative_durations: duration of each worker's step relative to ``base_s``, if batches differ.
    """
    asynchronous = asynchronous_of(method)
    assert asynchronous is not None
    global_server = None
    if asynchronous.hierarchy is not None:
        group_sizes = asynchronous.hierarchy.groups_of(spec.workers)
        global_server = UpperServer(group_sizes, asynchronous.hierarchy.merge_period)
    speeds = spec.relative_speeds or (1.0,) * spec.workers
    period = getattr(method, "period", 1)  # a method without local steps sends after each step
    settings = ServerSettings(
        spec.workers, steps=spec.steps * spec.workers, local_steps=asynchronous.local_steps(period, speeds),
        buffer_size=asynchronous.updates_per_version, synchronous=asynchronous.synchronous,
        grace_period_s=asynchronous.grace_period, participants=asynchronous.participants, seed=spec.seeds[0],
        hierarchy=global_server,
        update_bytes=sum(float(exchange.payload_bytes) for exchange in method.exchanges(tensors, spec.workers)),
        model_bytes=float(FP32_BYTES * sum(tensor.elements for tensor in tensors)),
    )  # fmt: skip
    return AsyncPlan(spec, settings, base_s, network, relative_durations)


@dataclass(frozen=True)
class AsyncTrained:
    """The simulated events of an asynchronous training, whose gradients and updates were computed in this order.

    Args:
        steps: number of completed steps of the training.
    """

    plan: AsyncPlan
    result: AsyncResult
    steps: int

    def time(self, network: Network, factors: Factors) -> Clock | None:
        """Return the clock on the training's network, and None on another, because events belong to one network.

        Factors other than 1 need a new simulation.
        """
        if network.name != self.plan.network.name:
            return None
        # An interrupted training is simulated up to its completed steps; the simulation counts steps of single workers.
        settings = replace(self.plan.settings, steps=self.steps * self.plan.settings.workers)
        result = self.result
        if factors != AS_PREDICTED:
            result = replace(self.plan, settings=settings).simulate(factors=factors)
        return async_training_clock(result, settings, self.steps)

    def record(self) -> dict[str, Any]:
        """Return the columns on the server: model versions, ages of updates, steps and waiting time of each worker.

        Updates are counted by age at the workers' servers in ``ages``, at the global one in ``ages_above``.
        """
        updates, workers = self.result.columns(), self.plan.settings.workers
        ages, merge_ages = updates["age"], [merge.age for merge in self.result.merges]
        return {
            "versions": self.result.versions, "age_mean": float(ages.mean()) if len(ages) else 0.0,
            "age_max": int(ages.max(initial=0)), "ages": self.result.ages().tolist(),
            "ages_above": np.bincount(np.array(merge_ages, dtype=np.int64)).tolist(),
            "contributions": np.bincount(updates["worker"].astype(np.int64), minlength=workers).tolist(),
            "steps_by_worker": self.result.steps_of(workers).tolist(),
            "waited_s": self.result.wait_s.tolist(), "waited_for_s": self.waited_for_s().sum(axis=0).tolist(),
        }  # fmt: skip

    def waited_for_s(self) -> Floats:
        """Return the seconds that each worker (row) waited for each other one (column), ``(P, P)``."""
        return self.result.waited_for_s(self.plan.settings.workers, self.plan.settings.groups)

    def bytes_sent(self) -> Floats:
        """Return the bytes that a worker has sent by the end of each step, ``(T,)``, in the mean over P workers.

        The messages of local servers to a global one are included.
        """
        settings = self.plan.settings
        step_end_s = async_training_clock(self.result, settings, self.steps).step_end_s
        update_sent_s = self.result.columns()["sent_s"]
        merge_sent_s = np.array([merge.sent_s for merge in self.result.merges])
        sent_bytes: Floats = np.zeros(len(step_end_s))
        for sent_s, message_bytes in ((update_sent_s, settings.update_bytes), (merge_sent_s, settings.model_bytes)):
            num_sent = np.searchsorted(np.sort(sent_s), step_end_s, side="right")
            sent_bytes += num_sent.astype(np.float64) * (message_bytes / settings.workers)
        return sent_bytes


def async_training_clock(result: AsyncResult, settings: ServerSettings, steps: int) -> Clock:
    """Return the clock of an asynchronous training; P local steps of any workers count as one step.

    The last step of a complete training ends when its last update has arrived. All communication of a worker counts as
    waiting.
    """
    workers = settings.workers
    every_pth_end_s = result.step_end_s[workers - 1 :: workers]
    step_end_s = every_pth_end_s[:steps].copy()
    is_complete = len(result.step_end_s) == settings.steps
    if is_complete:
        step_end_s[-1] = result.end_s
    wall_s, num_local_steps = float(step_end_s[-1]), steps * workers
    worker_end_s = np.zeros(workers)
    np.maximum.at(worker_end_s, result.step_worker, result.step_end_s)
    waited_s = float(result.wait_s.sum()) / num_local_steps
    sent_bytes = len(result.contributions) * settings.update_bytes + len(result.merges) * settings.model_bytes
    return Clock(
        step_end_s=step_end_s, end_s=worker_end_s, step_time_s=wall_s / steps,
        compute_s=float(result.compute_s.sum()) / num_local_steps, encode_s=0.0, trigger_s=0.0, optimizer_s=0.0,
        communication_s=waited_s, exposed_communication_s=waited_s, bytes_per_worker=sent_bytes / num_local_steps,
        wall_s=wall_s, evaluator="events", timeline=result.timeline, failed=result.failed,
    )  # fmt: skip
