"""The measured seconds of a step on this machine: a worker's gradients, timed before a training that uses them."""

from __future__ import annotations

import statistics
import time
from typing import TypeVar

import torch

from syncline.comm.devices import training_device
from syncline.problems import Rows
from syncline.runs.training.trained import build_task
from syncline.specs import Training

WARM_UP_STEPS = 3
FEWEST_STEPS, MOST_STEPS = 5, 50
LONGEST_S = 1.0
"""Seconds after which timing ends, once the fewest steps are timed."""

T = TypeVar("T", bound=Training)


def measured_step_s(spec: Training) -> float:
    """Return the seconds of a gradient step of a spec's first worker on this machine: the median after a warm-up.

    Raises:
        SpecError: a mistake that only the built problem shows.
    """
    device, before = training_device(spec.device), torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    try:
        task = build_task(spec.problem, Rows(spec.seeds[:1], (0,), spec.workers), device, spec.dtype, spec.execution)
        times_s: list[float] = []
        for step in range(WARM_UP_STEPS + MOST_STEPS):
            begun_s = time.perf_counter()
            task.step_gradients(step)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times_s.append(time.perf_counter() - begun_s)
            timed_s = times_s[WARM_UP_STEPS:]
            if len(timed_s) >= FEWEST_STEPS and sum(timed_s) >= LONGEST_S:
                break
    finally:
        torch.set_num_threads(before)
    return statistics.median(times_s[WARM_UP_STEPS:])


def with_measured_step(spec: T) -> tuple[T, float | None]:
    """Return the spec with measured seconds, and the seconds, if ``compute`` has ``measure``; else the spec and None.

    Raises:
        SpecError: a mistake that only the built problem shows.
    """
    if not spec.compute.measure:
        return spec, None
    step_s = measured_step_s(spec)
    return with_seconds(spec, step_s), step_s


def with_seconds(spec: T, step_s: float) -> T:
    """Return a spec with measured seconds of a step."""
    compute = spec.compute.model_copy(update={"measure": False, "seconds": step_s})
    return spec.model_copy(update={"compute": compute})
