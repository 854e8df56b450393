"""The clock of a training: the end of each step, and the seconds of computing, communication and waiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.policies import Algorithms, algorithm_for, user_choice
from syncline.costmodel.collectives.prices import group_algorithm
from syncline.costmodel.collectives.table import ALGORITHMS, candidates_on
from syncline.costmodel.network.link import Link, among, topology
from syncline.costmodel.network.paths import Floats, Network, Topology
from syncline.costmodel.network.places import place_of
from syncline.costmodel.numerics.arrays import require
from syncline.costmodel.traffic.call import Call, CallsByStep, group_ranks
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, buckets_on
from syncline.errors import SpecError, require_one_of
from syncline.sim.clocks.overlap import StepTimes, data_parallel, lockstep_spans, overlapped
from syncline.sim.clocks.single_collective import EVALUATORS, collective_finish_s, simulated_s
from syncline.sim.events.run import run_events
from syncline.sim.failures.costs import FailureCosts
from syncline.sim.lockstep.collectives import Spans, timeline_of
from syncline.sim.lockstep.routed import Contention
from syncline.sim.program.instructions import Delay
from syncline.sim.program.timeline import Timeline

COMPUTING = ("compute", "encode", "trigger", "optimizer")
"""Kinds of computing, which are counted separately."""


@dataclass(frozen=True, eq=False)
class Clock:
    """The end of each of T steps of a training by P workers, and the seconds of each kind of work.

    Args:
        step_end_s: time at which the last worker ends each step, ``(T,)`` seconds.
        end_s: time at which each worker ends the last step, ``(P,)`` seconds.
        step_time_s: mean seconds of a step, ``wall_s / T``.
        compute_s: seconds of forward and backward passes, mean per step and worker.
        encode_s: seconds of encoding and decoding, mean per step and worker.
        trigger_s: seconds of deciding whether to send, mean per step and worker.
        optimizer_s: seconds of updates that ``compute_s`` does not include, mean per step and worker.
        communication_s: seconds in a collective, mean per step and worker; the end of a collective that lasts longer
            than the training does not count.
        exposed_communication_s: seconds of waiting for the network with nothing to compute, mean per step and worker.
        bytes_per_worker: payload bytes that a worker hands to collectives, mean per step and worker.
        wall_s: time at which the last worker ends the last step.
        evaluator: the evaluator that was used, ``events`` or ``lockstep``.
        timeline: the spans of the first steps.
        failed: costs of failures; None if no machine can fail.
    """

    step_end_s: Floats
    end_s: Floats
    step_time_s: float
    compute_s: float
    encode_s: float
    trigger_s: float
    optimizer_s: float
    communication_s: float
    exposed_communication_s: float
    bytes_per_worker: float
    wall_s: float
    evaluator: str
    timeline: Timeline
    failed: FailureCosts | None = None


def clock(
    calls: Iterable[Call],
    compute_s: ArrayLike,
    network: Network | Topology | Sequence[Link],
    workers: int,
    steps: int,
    *,
    starts_s: ArrayLike | None = None,
    evaluator: str = "auto",
    overlap: str = "none",
    buckets: Sequence[Bucket] = WHOLE,
    algorithm: Algorithms = None,
    rule: Rule = "eager",
    trigger_s: ArrayLike = 0.0,
    encode_bytes_per_s: float | None = None,
    optimizer_s: ArrayLike = 0.0,
    keep_steps: int = 50,
    delay: Delay | None = None,
) -> Clock:
    """Return the clock of data-parallel training.

    Args:
        calls: the collectives of the training, each among all workers or its ``group``.
        compute_s: seconds that each worker computes in each step, anything that broadcasts to ``(steps, workers)``.
        network: the link that every worker has, one link per worker, or a larger network.
        workers: P, number of workers, at least 1.
        steps: T, number of steps, at least 1.
        starts_s: time at which each worker begins, ``(P,)`` seconds; 0 by default.
        evaluator: ``events``, the event simulation; ``lockstep``, recurrences over rounds; or ``auto``, lockstep if it
            supports the training, else the events.
        overlap: ``none``: compute, then communicate; ``ddp``: calls that are ready during the backward pass are sent in
            ``buckets``; ``async``: a call that is sent after a step is awaited one step later. The fields ``ready`` and
            ``wait_steps`` of a call hold in any case.
        buckets: buckets of a gradient, see `syncline.costmodel.traffic.overlap.gradient_buckets`.
        algorithm: algorithm of calls that name none, see `syncline.costmodel.collectives.policies.algorithm_for`. For a
            call of some of the workers, whose links differ, `syncline.costmodel.collectives.prices.collective_prices`
            chooses for ``auto`` and ``nccl``. If it cannot, because no other groups are like the call's group, ``auto``
            is the fastest algorithm for this group alone if its workers are on lines between places, else the default.
        rule: start rule of messages, ``eager`` or ``rendezvous``.
        trigger_s: seconds in which a worker decides whether to send, one number for all steps or ``(T,)``.
        encode_bytes_per_s: fp32 bytes that a worker encodes and decodes per second; None if encoding takes no time.
        optimizer_s: seconds of a worker's update in each step, after all its waits; one number for all workers or one
            per worker, ``(P,)``.
        delay: lateness of each message, as in `run_events`; only the events can follow it.

    Raises:
        SpecError: an argument that cannot be used.
        Contention: with lockstep, transfers that share a channel in a way that only the events can follow.
    """
    require_one_of("clock.evaluator", evaluator, EVALUATORS)
    for name, count in (("workers", workers), ("steps", steps)):
        require(count >= 1, f"clock.{name}", count, "at least 1")
    try:
        compute_s = np.broadcast_to(np.asarray(compute_s, dtype=np.float64), (steps, workers))
    except ValueError:
        raise SpecError("compute_s", np.shape(compute_s), f"a shape that broadcasts to ({steps}, {workers})") from None
    times = StepTimes.checked(compute_s, trigger_s, optimizer_s, encode_bytes_per_s)
    if encode_bytes_per_s is not None:
        require(encode_bytes_per_s > 0, "encode", encode_bytes_per_s, "a positive number of bytes per second")
    if delay is not None:
        if evaluator == "lockstep":
            raise SpecError("clock.evaluator", evaluator, "events, or auto, where messages are late")
        evaluator = "events"  # the lateness of each message is known only when it starts
    if isinstance(network, Sequence):
        network = topology(network, workers)
    calls = list(calls)
    CallsByStep(calls, steps)  # only checks the calls, before they are split into buckets
    sent_calls = _with_algorithms(overlapped(calls, overlap, buckets_on(network, buckets)), algorithm, workers, network)
    bytes_per_worker = 0.0  # mean over the workers, in all steps
    for call in calls:
        num_members = len(group_ranks(call.group, workers) or range(workers))  # None: all workers
        bytes_per_worker += call.payload_bytes * (num_members / workers)
    if evaluator != "events":
        try:
            spans = lockstep_spans(times, sent_calls, network, starts_s, rule)
            return _tally_spans(spans, steps, workers, keep_steps).clock(bytes_per_worker, "lockstep")
        except Contention:
            if evaluator == "lockstep":
                raise  # ``auto`` goes on with the events
    timeline = run_events(data_parallel(times, sent_calls), network, starts_s, rule, delay)
    return _tally_timeline(timeline, keep_steps).clock(bytes_per_worker, "events")


def _with_algorithms(
    calls: Iterable[Call], algorithms: Algorithms, workers: int, network: Network | Topology
) -> list[Call]:
    """Return the calls, each with the name of its algorithm if ``algorithms`` names or chooses one for its kind."""
    if algorithms is None:
        return list(calls)
    choices: dict[tuple[str, float, tuple[int, ...] | None], str | None] = {}  # by kind, bytes and ranks
    named_calls = []
    for call in calls:
        kind, nbytes, ranks = call.collective, call.payload_bytes, group_ranks(call.group, workers)
        if (kind, nbytes, ranks) not in choices:
            if ranks is None or isinstance(network, Link):  # with equal links, only the number of members matters
                num_members = workers if ranks is None else len(ranks)
                algorithm = _algorithm(algorithms, kind, nbytes, num_members, network)
            else:
                algorithm = _group_algorithm(algorithms, kind, nbytes, ranks, workers, network)
            choices[kind, nbytes, ranks] = algorithm
        named_calls.append(call if call.algorithm else call._replace(algorithm=choices[kind, nbytes, ranks]))
    return named_calls


def _group_algorithm(
    algorithms: Algorithms, kind: str, nbytes: float, ranks: Sequence[int], workers: int, network: Network | Topology
) -> str | None:
    """Return the algorithm of a collective among the workers ``ranks`` with different links; None: the default."""
    policy = user_choice(algorithms, kind)
    if policy not in ("auto", "nccl"):
        return _algorithm(algorithms, kind, nbytes, len(ranks), network)
    if hasattr(network, "among"):  # a network, not a topology of different links
        name = group_algorithm(kind, ranks, workers, nbytes, cast(Network, network), policy, simulated_s)
        if name is not None:
            return name
    if policy == "nccl":
        raise SpecError("algorithm", policy, "an algorithm's name, for parts of workers whose links differ")
    members = among(topology(network, workers), ranks)
    has_places = place_of(members, len(ranks)) is not None
    return _fastest(kind, nbytes, members) if has_places else None


def _algorithm(
    algorithms: Algorithms, kind: str, nbytes: float, workers: int, network: Network | Topology
) -> str | None:
    """Return the algorithm of a collective among all workers, or among workers with equal links; None: the default.

    ``auto`` takes the fastest, which may need a simulation.
    """
    policy = user_choice(algorithms, kind)
    is_network = hasattr(network, "among")  # otherwise a topology of different links
    if policy == "nccl" and not is_network:
        raise SpecError("algorithm", policy, "a different one where links differ, as its tables are for equal links")
    if policy != "auto":
        return algorithm_for(algorithms, kind, workers, nbytes, network)
    if is_network:
        return group_algorithm(kind, range(workers), workers, nbytes, cast(Network, network), policy, simulated_s)
    return _fastest(kind, nbytes, cast(Topology, network))


def _fastest(kind: str, nbytes: float, network: Topology) -> str:
    """Return the algorithm that is fastest in a simulation on a topology of different links."""
    workers = network.workers
    has_places = place_of(network, workers) is not None  # only then algorithms that follow places differ from others
    names = candidates_on(kind, network, workers) if has_places else ALGORITHMS[kind]
    return min(names, key=lambda name: collective_finish_s(kind, workers, nbytes, network, name).max())


class _Tally(NamedTuple):
    """Sums over steps and workers, from which a `Clock` is made.

    Attributes:
        step_end_s: end of each of T steps, ``(T,)`` seconds.
        end_s: end of each worker's last step, ``(P,)`` seconds.
        seconds: seconds of all workers in all steps by the kind of work: ``compute``, ``communication``, and so on.
        timeline: the spans of the first steps.
    """

    step_end_s: Floats
    end_s: Floats
    seconds: dict[str, float]
    timeline: Timeline

    def clock(self, bytes_per_worker: float, evaluator: str) -> Clock:
        """Return the clock with means per step and worker; ``bytes_per_worker`` are those of all steps together."""
        steps, wall_s = len(self.step_end_s), float(self.step_end_s[-1])
        worker_steps = steps * len(self.end_s)
        means: dict[str, Any] = {f"{kind}_s": seconds / worker_steps for kind, seconds in self.seconds.items()}
        return Clock(
            self.step_end_s, self.end_s, step_time_s=wall_s / steps, bytes_per_worker=bytes_per_worker / steps,
            wall_s=wall_s, evaluator=evaluator, timeline=self.timeline, **means,
        )  # fmt: skip


def _tally_timeline(timeline: Timeline, keep_steps: int) -> _Tally:
    """Return the seconds of each kind of work in a timeline, with the timeline of the first ``keep_steps`` steps."""
    seconds = {kind: float(timeline.duration_s[timeline.what == kind].sum()) for kind in COMPUTING}
    worker_ends_s = timeline.step_end_s  # (T, P)
    step_end_s = np.nanmax(worker_ends_s, axis=1)
    seconds["communication"] = float(timeline.communication_s(until_s=float(step_end_s[-1])).sum())
    seconds["exposed_communication"] = float(timeline.exposed_communication_s().sum())
    return _Tally(step_end_s, worker_ends_s[-1], seconds, timeline.head(keep_steps))


def _tally_spans(all_spans: Iterable[Spans], steps: int, workers: int, keep_steps: int) -> _Tally:
    """Return the seconds of each kind of work in a training's spans, with the timeline of its first steps."""
    step_end_s, end_s = np.zeros(steps), np.zeros(workers)
    network_end_s = np.zeros(workers)  # end of each worker's last collective
    seconds = dict.fromkeys((*COMPUTING, "communication", "exposed_communication"), 0.0)
    first_spans: list[Spans] = []
    for spans in all_spans:
        if spans.step < keep_steps:
            first_spans.append(spans)
        span_s = float((spans.end_s - spans.start_s).sum())
        if spans.stream == "network":  # its spans do not overlap, so their sum counts no second twice
            seconds["communication"] += span_s
            network_end_s = np.maximum(network_end_s, spans.end_s)
            continue
        kind = "exposed_communication" if spans.what == "wait" else spans.what
        seconds[kind] += span_s
        end_s = spans.end_s  # the spans of computing are in the order of time, so the last stays
        step_end_s[spans.step] = end_s.max()
    # Communication after the end of the training does not count.
    seconds["communication"] -= float(np.maximum(0.0, network_end_s - end_s.max()).sum())
    return _Tally(step_end_s, end_s, seconds, timeline_of(first_spans, workers))
