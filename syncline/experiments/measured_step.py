"""How long a step takes here: a worker's gradients, timed before a training whose clock is to go by them."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, TypeVar

from syncline.experiments.trained import build_task
from syncline.specs import Training

if TYPE_CHECKING:
    from torch import device as Device

    from syncline.problems import Problem

WARM_UP_STEPS = 3
FEWEST_STEPS, MOST_STEPS = 5, 50
LONGEST_S = 1.0
"""For which steps are timed, once there are the fewest."""

T = TypeVar("T", bound=Training)


def measured_step_s(
    problem: Problem,
    workers: int = 1,
    threads: int = 1,
    *,
    seed: int = 0,
    device: Device | str = "cpu",
    dtype: str = "float32",
    execution: str = "eager",
) -> float:
    """Seconds of a gradient step of one worker on this machine: the median of several, after some that are not timed.

    Args:
        problem: what is trained.
        workers: in the group, of which the first is timed.
        threads: of torch.
        seed: of weights and data.
        device: where it computes.
        dtype: in which type of numbers.
        execution: in which way.

    Raises:
        SpecError: what only the problem can tell.
    """
    import torch

    from syncline.problems import Rows

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        task = build_task(problem, Rows((seed,), (0,), workers), torch.device(device), dtype, execution)
        on_gpu = torch.device(device).type == "cuda"
        times_s: list[float] = []
        for step in range(WARM_UP_STEPS + MOST_STEPS):
            begun_s = time.perf_counter()
            task.step_gradients(step)
            if on_gpu:
                torch.cuda.synchronize(device)
            times_s.append(time.perf_counter() - begun_s)
            timed_s = times_s[WARM_UP_STEPS:]
            if len(timed_s) >= FEWEST_STEPS and sum(timed_s) >= LONGEST_S:
                break
    finally:
        torch.set_num_threads(before)
    return statistics.median(times_s[WARM_UP_STEPS:])


def with_measured_step(spec: T) -> tuple[T, float | None]:
    """A spec whose ``compute`` says ``measure`` with the seconds that were measured, and these; else itself and none.

    Raises:
        SpecError: what only the problem can tell.
    """
    if not spec.compute.measure:
        return spec, None
    from syncline.backend.devices import training_device

    step_s = measured_step_s(
        spec.problem, spec.workers, spec.threads, seed=spec.seeds[0], device=training_device(spec.device),
        dtype=spec.dtype, execution=spec.execution,
    )  # fmt: skip
    return with_seconds(spec, step_s), step_s


def with_seconds(spec: T, step_s: float) -> T:
    """A spec with seconds that were measured."""
    compute = spec.compute.model_copy(update={"measure": False, "seconds": step_s})
    return spec.model_copy(update={"compute": compute})
