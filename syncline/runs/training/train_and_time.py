"""One method of a spec: its training with simulated workers, and its simulated time on a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from syncline.comm import SimulatedCommunicator
from syncline.comm.devices import name_of_device, training_device
from syncline.costmodel import Call, Network, TensorShape
from syncline.costmodel.bases import TIMED_STEPS, communication_uncertainty
from syncline.costmodel.compute.kernel_rates import bytes_per_number
from syncline.costmodel.failures import rejoin_s
from syncline.costmodel.network.network_links import slow_down
from syncline.costmodel.network.paths import Topology
from syncline.costmodel.numerics.uncertainty import uncertainties
from syncline.costmodel.traffic.overlap import gradient_buckets
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.runs.folders.streams import SeedStream, TrainingStream
from syncline.runs.training.clock_bounds import BoundedClock, clock_bounds
from syncline.runs.training.delayed_gradients import (
    delayed_setup,
    delayed_training_of,
    stages_of_run,
    train_run_by_events,
    trains_by_events,
)
from syncline.runs.training.limits import check_training
from syncline.runs.training.regrouping import ReformedGroup, TrainedGroup
from syncline.runs.training.trained import (
    Trained,
    build_task,
    regroups_after_failures,
    sequential_results,
    state_bytes,
    task_tensors,
    throttled,
    undisturbed_step_s,
)
from syncline.sim import Clock, clock, phased_clock
from syncline.sim.clocks.phases_and_failures import failing_clock
from syncline.specs import Training
from syncline.training import History, Recorder, parameter_groups, rows_of, train


def train_method(
    spec: Training,
    method: MethodBase,
    on_step: Callable[[int], None] | None = None,
    stream: TrainingStream | None = None,
    network: Network | None = None,
    recorder: Recorder | None = None,
) -> Trained:
    """Train a method with the settings of a spec, all workers and all seeds in this process.

    Args:
        on_step: called with the number of completed steps, at most every 50 ms and at the end; it may raise
            ``KeyboardInterrupt`` to stop the training, which then returns its results.
        stream: files for the results of the running training.
        network: network that decides the order of events, if the training depends on it; the spec's by default.
        recorder: recorder of a synchronous training, for an ``on_step`` that reads evaluations. A method that trains
            one seed at a time then needs a spec with one seed.

    Raises:
        SpecError: a mistake that only the problem shows: a text that is too short, more workers than images, no FLOPs.
    """
    method = method.in_precision(spec.number_format)
    check_training(spec, method)
    torch.set_num_threads(spec.threads)  # the bits of sums depend on it
    start_s = time.perf_counter()
    network = network or getattr(spec, "network", None)
    if asynchronous_of(method) is not None:
        from syncline.runs.training.async_training import train_async  # only here: numba is slow to load

        return train_async(spec, method, network, on_step, stream)
    if trains_by_events(spec):
        return train_run_by_events(spec, method, on_step)
    if not method.one_seed_at_a_time:
        return _train_seeds(spec, method, spec.seeds, on_step, start_s, stream, network, recorder)

    def train_seed(seed: int, report: Callable[[int], None] | None) -> Trained:
        return _train_seeds(spec, method, (seed,), report, start_s, stream, network, recorder)

    trained_seeds: list[Trained] = []
    for trained_seed in sequential_results(train_seed, spec.seeds, spec.steps, on_step):
        if trained_seeds and trained_seed.history.interrupted:
            break  # an incomplete seed is dropped, because the clock needs complete ones
        trained_seeds.append(trained_seed)
    # The calls of the first seed represent all, although a trigger fires at other steps in each seed.
    first_seed = trained_seeds[0]
    history = History.concatenate([trained_seed.history for trained_seed in trained_seeds])
    stages = None if first_seed.stages is None else replace(first_seed.stages, steps=history.steps)
    return replace(first_seed, history=history, wall_s=trained_seeds[-1].wall_s, stages=stages)


def _train_seeds(
    spec: Training,
    method: MethodBase,
    seeds: tuple[int, ...],
    on_step: Callable[[int], None] | None,
    start_s: float,
    stream: TrainingStream | None,
    network: Network | None,
    recorder: Recorder | None,
) -> Trained:
    """Train several seeds as rows of the same tensors; see `train_method` for the other arguments.

    Args:
        seeds: the seeds that train side by side.
        start_s: start of the method's training by ``time.perf_counter``.
    """
    comm = SimulatedCommunicator(spec.workers, len(seeds), spec.faults.membership(spec.workers))
    task = build_task(spec.problem, rows_of(comm, seeds), training_device(spec.device), **spec.arithmetic)
    shapes = tuple(task_tensors(task))
    optimizer_s(spec, method, shapes, task.flops_per_step)  # a wrong spec fails here rather than after the training
    checkpoint_bytes = state_bytes(method, shapes, spec.workers)
    group = None
    if regroups_after_failures(spec, method) and network is not None:

        def clock_of(calls: Sequence[Call], factors: Factors, present: np.ndarray) -> Clock:
            no_readbacks = np.zeros(len(present))  # only triggers read back; their methods cannot form a new group
            work = StepWork(shapes, task.flops_per_step)
            return _clock_without_failures(spec, method, calls, work, network, factors, no_readbacks, present)

        reformed = ReformedGroup(spec, method, network, tensors=shapes, state_bytes=checkpoint_bytes, clock_of=clock_of)
        # The simulated failures decide which workers take part in each step.
        group = TrainedGroup(reformed, reformed.simulate())
        comm = SimulatedCommunicator(spec.workers, len(seeds), group.membership())
    if spec.pipeline is None:
        optimizer = method.build(parameter_groups(task), comm)
        schedule = spec.schedule.build(optimizer, spec.steps)
    else:
        task, optimizer, schedule = delayed_setup(delayed_training_of(spec, method), task, comm)
    recorder = recorder or Recorder()
    ledger = comm.ledger if seeds[0] == spec.seeds[0] else None  # the calls of the first seed represent all
    seed_stream = SeedStream(stream, seeds, recorder, ledger) if stream else None
    report = throttled(spec.steps, seed_stream.write_if_due if seed_stream else None, on_step)
    try:
        history = train(
            task, optimizer, seeds, spec.steps,
            eval_every=spec.eval_every, schedule=schedule, on_step=report, recorder=recorder, watch=spec.watch.build(),
        )  # fmt: skip
    except RuntimeError as error:  # NotImplementedError is a RuntimeError
        if "not implemented for" not in str(error):
            raise
        raise SpecError("dtype", spec.dtype, f"a type that torch computes all of {method.name} in ({error})") from None
    if seed_stream:
        seed_stream.finish()
    wall_s = time.perf_counter() - start_s
    stages = stages_of_run(spec, method, task.flops_per_step, history.steps) if spec.pipeline else None
    return Trained(
        method.name, history, ledger=comm.ledger.records, facts=task.describe(), flops_per_step=task.flops_per_step,
        wall_s=wall_s, tensors=shapes,
        readbacks=comm.ledger.readbacks, state_bytes=checkpoint_bytes, stages=stages, group=group,
    )  # fmt: skip


def where_trained(spec: Training) -> dict[str, str]:
    """Return the name of the device and the type of the numbers of a training, for ``run.json``."""
    return {"device": name_of_device(training_device(spec.device)), "dtype": spec.dtype}


def jobs_of(spec: Training) -> int | None:
    """Return the default number of parallel trainings: 1 on a GPU, which all share, else None (one per core)."""
    return 1 if training_device(spec.device).type == "cuda" else None


def time_method(spec: Training, trained: Trained, network: Network, factors: Factors = AS_PREDICTED) -> Clock | None:
    """Return the simulated clock of a training on one network.

    The result is None if no step was completed, or if the training belongs to another network. The jitter of computing
    is drawn from the first seed, the same for every method and network.

    Args:
        network: the network, which may differ from that of the training.
    """
    steps = trained.history.steps
    if not steps:
        return None
    if trained.asynchronous is not None:
        return trained.asynchronous.time(network, factors)
    if trained.stages is not None:
        return trained.stages.time(network, factors)
    if trained.group is not None:
        return trained.group.time(trained.calls(), steps, network, factors)
    methods: tuple[MethodBase, ...] = getattr(spec, "methods", ())  # only a comparison has several
    if not methods:
        methods = (spec.method,)  # type: ignore[attr-defined]
    (method,) = [candidate for candidate in methods if candidate.name == trained.method]
    work = StepWork(trained.tensors, trained.flops_per_step)
    clock_without_failures = _clock_without_failures(
        spec, method, trained.calls(), work, network, factors, readbacks=trained.readbacks_by_step()
    )
    failures = spec.failures
    if failures is None:
        return clock_without_failures
    # A worker that comes back fetches the state from another one.
    fetch_s = rejoin_s(network, spec.workers, copies=spec.workers, copy_bytes=trained.state_bytes)
    checkpoints = failures.checkpoint_costs(
        clock_without_failures.step_time_s, spec.workers, trained.state_bytes, rejoin_s=fetch_s
    )
    outages = failures.outages_of(spec.workers, spec.seeds[0])
    group = failures.failing_group(spec.workers)
    return failing_clock(clock_without_failures, group, checkpoints, outages, spec.timeline_steps)


def time_with_bounds(spec: Training, trained: Trained, network: Network, measured: bool) -> BoundedClock | None:
    """Return a training's clock on a network with the bounds of its times; None where `time_method` returns None.

    Args:
        measured: whether the seconds of computing were measured on this machine.
    """
    retime = partial(time_method, spec, trained, network)
    predicted_clock = retime()
    if predicted_clock is None:
        return None
    # Seconds that were measured here are as certain as those of other timed steps.
    computing = uncertainties()[TIMED_STEPS] if measured else spec.compute.uncertainty()
    communication = communication_uncertainty(network, spec.algorithm_on(network))
    return BoundedClock(predicted_clock, *clock_bounds(predicted_clock, retime, computing, communication))


class StepWork(NamedTuple):
    """The work of a worker's step: shapes of the model's parameters in order, and FLOPs if they can be counted."""

    tensors: tuple[TensorShape, ...]
    flops: float | None


def _clock_without_failures(
    spec: Training,
    method: MethodBase,
    calls: Sequence[Call],
    work: StepWork,
    network: Network,
    factors: Factors,
    readbacks: np.ndarray,
    present: np.ndarray | None = None,
) -> Clock:
    """Return the clock of a training from its collectives, without failures of machines.

    Args:
        work: work of one worker's step.
        readbacks: number of values that a worker copies from its device in each step, ``(T,)``.
        present: whether a worker takes part in each step, ``(T, P)``; by default from the spec's absences.
    """
    slowdown = float(factors.computing)
    elements = [tensor.elements for tensor in work.tensors]
    buckets = gradient_buckets(elements, spec.bucket_size, element_bytes=bytes_per_number(spec.number_format))
    encode_bandwidth = spec.compute.encode_bandwidth
    # Only completed steps are sampled, because an interrupted run may have planned a billion.
    compute_s = spec.step_times(slowdown * undisturbed_step_s(spec, work.flops), steps=len(readbacks))
    return clock_with_faults(
        spec, calls, compute_s,
        network=network if factors == AS_PREDICTED else slow_down(network, float(factors.communication)),
        present=present,
        starts_s=spec.compute.start_offsets or None, keep_steps=spec.timeline_steps,
        overlap=spec.overlap, buckets=buckets,
        algorithm=spec.algorithm_on(network), rule=spec.protocol,
        encode_bytes_per_s=None if encode_bandwidth is None else encode_bandwidth / slowdown,
        trigger_s=slowdown * spec.compute.readback_latency * readbacks,
        optimizer_s=slowdown * optimizer_s(spec, method, work.tensors, work.flops),
    )  # fmt: skip


def clock_with_faults(
    spec: Training,
    calls: Iterable[Call],
    compute_s: np.ndarray,
    network: Network | Topology,
    present: np.ndarray | None = None,
    **options: Any,
) -> Clock:
    """Return the clock of a training with the slow links, late messages and absences of its spec.

    Args:
        spec: spec of the training, whose first seed draws the faults.
        compute_s: seconds of each worker in each step, ``(T, P)``.
        present: whether a worker takes part in each step, ``(T, P)``; by default from the spec's absences.
        options: further options of `syncline.sim.clocks.training`.
    """
    workers, steps = spec.workers, len(compute_s)
    faulty_network = spec.faults.network(network, workers)
    delay = spec.faults.delay(faulty_network, workers, spec.seeds[0])
    membership = spec.faults.membership(workers)
    if present is None and membership is not None:
        present = membership.table(steps)
    if present is None or present.all():
        return clock(calls, compute_s, faulty_network, workers, steps, delay=delay, **options)
    # Each phase, in which the same workers are present, is timed by itself.
    return phased_clock(present, calls, compute_s, faulty_network, delay=delay, **options)


def optimizer_s(spec: Training, method: MethodBase, tensors: Sequence[TensorShape], flops: float | None) -> np.ndarray:
    """Return the seconds that the optimizer's update adds to each worker's step, ``(P,)``."""
    step_s = undisturbed_step_s(spec, flops)
    return spec.persistent_slowdowns * spec.compute.optimizer_s(method, tensors, step_s, flops, spec.problem.name)
