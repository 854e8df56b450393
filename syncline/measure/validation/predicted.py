"""Predictions of trainings between processes, from their times without a network and from the cost model.

A prediction has three sources. The simulator trains, which gives the data sent in each step, and the loss. Processes
that exchange through memory (`syncline.measure.validation.cases`) give the time of each step on this machine
without a network, and the collectives that each call of the method becomes: an all-reduce of a format that rounds is an
all-to-all and an all-gather, for example. The cost model gives the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.gloo import ETHERNET_MSS, gloo_wire_bytes
from syncline.costmodel.network.link import Link
from syncline.costmodel.traffic.call import Call
from syncline.errors import SynclineError
from syncline.measure.calibration.collective_times import spread
from syncline.measure.launching.rank_files import MeasuredRun, lines_of, read_rank_files
from syncline.runs.training.trained import Trained
from syncline.sim import Clock, clock
from syncline.specs import RunSpec


@dataclass(frozen=True)
class Software:
    """The times of a training whose processes exchange through memory, without a network.

    Args:
        step_s: seconds of each of T steps on each of P workers in R repeats of the training, ``(R, T, P)``.
        collective_work_s: seconds of each step in which collectives encode, decode and add, ``(R, T, P)``.
        calls_by_step: calls of each step, without their context (see `without_context`).
        collectives: the collectives that each call becomes, with their bytes as the cost model counts them.
    """

    step_s: NDArray[np.float64]
    collective_work_s: NDArray[np.float64]
    calls_by_step: tuple[tuple[Call, ...], ...]
    collectives: dict[Call, tuple[tuple[str, float], ...]]

    def step_times(self, calls_by_step: Sequence[tuple[Call, ...]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ``step_s`` and ``collective_work_s`` for steps with these calls, ``(R, T, P)`` each.

        A step takes as long as the measured step of the same number if both have the same calls; otherwise the median
        over all measured steps with its calls, or over all measured steps if none has its calls.
        """
        all_steps = list(range(self.step_s.shape[1]))
        step_s, collective_work_s = [], []
        for step, step_calls in enumerate(calls_by_step):
            equal_steps = [i for i, measured_calls in enumerate(self.calls_by_step) if measured_calls == step_calls]
            steps = [step] if step in equal_steps else equal_steps or all_steps
            step_s.append(np.median(self.step_s[:, steps], axis=1))
            collective_work_s.append(np.median(self.collective_work_s[:, steps], axis=1))
        return np.stack(step_s, 1), np.stack(collective_work_s, 1)


def read_software(folder: Path, spec: RunSpec, repeats: int) -> Software:
    """Return the times of a training without a network from the files of its processes."""

    def step_lines(repeat: int, rank: int) -> list[dict[str, Any]]:
        return [line for line in lines_of(folder / str(repeat) / f"{rank}.jsonl") if "step" in line]

    runs = read_measured(folder, spec, repeats)
    transfer_s = np.empty((repeats, spec.steps, spec.workers))  # copies through memory, and waits for a network's time
    for repeat, rank in np.ndindex(repeats, spec.workers):
        transfer_s[repeat, :, rank] = [line["stood_in_ns"] / 1e9 for line in step_lines(repeat, rank)]
    collectives: dict[Call, tuple[tuple[str, float], ...]] = {}
    calls_by_step = []
    for line in step_lines(repeat=0, rank=0):
        calls = []
        for fields, transfers in line["carried"]:
            call = without_context(Call.from_fields(fields))
            calls.append(call)
            collectives.setdefault(call, tuple((kind, size) for kind, size in transfers))
        calls_by_step.append(tuple(calls))
    step_s = np.stack([run.steps["step_s"] for run in runs]) - transfer_s
    collective_work_s = np.stack([run.steps["exposed_communication_s"] for run in runs]) - transfer_s
    return Software(step_s, np.maximum(collective_work_s, 0.0), tuple(calls_by_step), collectives)


def read_measured(folder: Path, spec: RunSpec, repeats: int) -> list[MeasuredRun]:
    """Return the measured runs of a training, one per repeat, from the files of its processes."""
    runs = []
    for repeat in range(repeats):
        run = read_rank_files(folder / str(repeat), spec, wall_s=0.0, interrupted=False)
        if run is None or len(run.steps["step_s"]) < spec.steps:
            name = spec.method.name
            raise SynclineError(f"{name}: a training between processes did not finish its {spec.steps} steps")
        runs.append(run)
    return runs


class Predicted(NamedTuple):
    """The predicted times of a training between real processes.

    Attributes:
        step_time_s: seconds of a mean step, from medians over the repeats of the measurement without a network.
        communication_s: seconds per step in which a worker waits for collectives, the median over these repeats.
        device_bytes: bytes that a worker's network device sends in each step, ``(T,)``, mean over workers.
    """

    step_time_s: float
    communication_s: float
    device_bytes: NDArray[np.float64]


def without_context(call: Call) -> Call:
    """Return the call without step, group and label, so that calls with the same collectives are equal."""
    return call._replace(step=0, group=None, label="")


def sent_by_step(trained: Trained) -> list[tuple[Call, ...]]:
    """Return the calls of each step of a training, without their context."""
    calls_of_step: dict[int, list[Call]] = defaultdict(list)
    for call in trained.ledger:
        calls_of_step[call.step].append(without_context(call))
    return [tuple(calls_of_step[step]) for step in range(trained.history.steps)]


def predict(
    trained: Trained, software: Software, link: Link, workers: int, segment_bytes: int = ETHERNET_MSS
) -> Predicted:
    """Return the predicted times of a training between real processes.

    Args:
        link: each worker's link, with the costs of gloo's software.
        segment_bytes: the largest payload that a device counts as one packet.
    """
    steps = sent_by_step(trained)
    step_s, collective_work_s = software.step_times(steps)
    calls: list[Call] = []
    device_bytes = np.zeros(len(steps))
    for step, step_calls in enumerate(steps):
        for call in step_calls:
            # The processes may not have made this call: then it stands for itself.
            for kind, nbytes in software.collectives.get(call, ((call.collective, call.payload_bytes),)):
                calls.append(Call(step, kind, nbytes))
                device_bytes[step] += gloo_wire_bytes(kind, workers, nbytes, segment_bytes).total_bytes
    clocks = [clock(calls, repeat_s, link, workers, steps=len(steps), algorithm="gloo") for repeat_s in step_s]
    waits_s = np.add([clock.exposed_communication_s for clock in clocks], collective_work_s.mean(axis=(1, 2)))
    return Predicted(typical_step_s(clocks), float(np.median(waits_s)), device_bytes)


def typical_step_s(clocks: Sequence[Clock]) -> float:
    """Return the seconds of a mean step, from the median of each step over the clocks of repeats.

    The median removes a delay of the machine that affects one repeat.
    """
    ends_s = np.stack([clock.step_end_s for clock in clocks])
    return float(np.median(np.diff(ends_s, axis=1, prepend=0.0), axis=0).mean())


def measured_row(measured: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Return the time, its `spread`, communication and payload bytes of a step over repeats, and the last loss."""
    clocks = [run.clock for run in measured if run.clock is not None]
    return {
        "measured_s": typical_step_s(clocks),
        "spread": spread([clock.step_time_s for clock in clocks]),
        "measured_communication_s": float(np.median([clock.exposed_communication_s for clock in clocks])),
        "measured_bytes": float(np.median([clock.bytes_per_worker for clock in clocks])),
        "measured_loss": last_loss(measured[0].trained),
    }


def device_bytes_per_step(folder: Path, workers: int, repeats: int) -> float | None:
    """Return the mean bytes that a worker's network device sent per step after the first.

    None if fewer than two steps have counts; workers that share a device have none.
    """
    rates = []
    for repeat, rank in np.ndindex(repeats, workers):
        lines = [line for line in lines_of(folder / str(repeat) / f"{rank}.jsonl") if "step" in line]
        counts = [line["device_bytes"] for line in lines if "device_bytes" in line]
        if len(counts) < 2:
            return None
        rates.append((counts[-1] - counts[0]) / (len(counts) - 1))
    return float(np.mean(rates))


def last_loss(trained: Trained) -> float:
    """Return the loss of the last evaluation; of the last step if there is no evaluation."""
    losses = trained.history.evaluation.get("loss")
    if losses is None or not len(losses):
        losses = trained.history.loss
    return float(losses[-1][0])  # the first seed
