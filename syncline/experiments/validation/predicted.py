"""What a training takes between processes, predicted from what it takes without a network and from the cost model.

Three things make a prediction. The simulator trains, which tells what is sent in which step, and the loss. Processes
that exchange through memory (`syncline.experiments.validation.cases`) tell what each step takes on this machine with no
network in it, and which collectives each call of the method becomes: an all-reduce of a format that rounds is an
all-to-all and an all-gather, for example. The cost model tells the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.backend.collective_times import spread
from syncline.costmodel.collectives.gloo.wire import ETHERNET_MSS, gloo_wire
from syncline.costmodel.network.link import Link
from syncline.costmodel.traffic.call import Call
from syncline.errors import SynclineError
from syncline.experiments.launching.parts import MeasuredRun, lines_of, read_parts
from syncline.experiments.trained import Trained
from syncline.sim import Clock, clock
from syncline.specs import RunSpec


@dataclass(frozen=True)
class Software:
    """What a training takes without a network.

    Args:
        step_s: seconds of each step, ``(R, T, P)``, for R repetitions.
        inside_s: of these in collectives: encoding, decoding, local reduction; likewise.
        sent: what was sent in each step, each call as `whenever`.
        carried: the collectives that each call becomes: name and bytes, as the cost model counts them.
    """

    step_s: NDArray[np.float64]
    inside_s: NDArray[np.float64]
    sent: tuple[tuple[Call, ...], ...]
    carried: dict[Call, tuple[tuple[str, float], ...]]

    def of(self, trained: Sequence[tuple[Call, ...]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of steps in which this is sent: of the same step if it sent the same, else the median of such."""
        step_s, inside_s = (
            np.stack([self._of(times, t, sent) for t, sent in enumerate(trained)], 1)
            for times in (self.step_s, self.inside_s)
        )
        return step_s, inside_s

    def _of(self, times: NDArray[np.float64], t: int, sent: tuple[Call, ...]) -> NDArray[np.float64]:
        if t < len(self.sent) and self.sent[t] == sent:
            return times[:, t]
        like = [i for i, of_step in enumerate(self.sent) if of_step == sent]
        return np.asarray(np.median(times[:, like or slice(None)], axis=1))


def read_software(folder: Path, spec: RunSpec, repeats: int) -> Software:
    """What the processes of a case without a network wrote.

    Raises:
        SynclineError: they did not finish.
    """
    every = [_measured(folder / str(repeat), spec) for repeat in range(repeats)]
    stood_in_s = np.array([
        [[line["stood_in_ns"] / 1e9 for line in lines_of(folder / str(repeat) / f"{rank}.jsonl") if "step" in line]
         for rank in range(spec.workers)]
        for repeat in range(repeats)
    ]).transpose(0, 2, 1)  # fmt: skip
    steps = [line for line in lines_of(folder / "0" / "0.jsonl") if "step" in line]
    carried: dict[Call, tuple[tuple[str, float], ...]] = {}
    for line in steps:
        for fields, asked in line["carried"]:
            carried.setdefault(whenever(Call.of(fields)), tuple((kind, size) for kind, size in asked))
    sent = tuple(tuple(whenever(Call.of(fields)) for fields, _ in line["carried"]) for line in steps)
    whole_s = np.stack([one.steps["step_s"] for one in every]) - stood_in_s
    inside_s = np.stack([one.steps["exposed_communication_s"] for one in every]) - stood_in_s
    return Software(whole_s, np.maximum(inside_s, 0.0), sent, carried)


def _measured(folder: Path, spec: RunSpec) -> MeasuredRun:
    measured = read_parts(folder, spec, 0.0, interrupted=False)
    if measured is None or len(measured.steps["step_s"]) < spec.steps:
        raise SynclineError(f"{spec.method.name}: a training between processes did not finish its {spec.steps} steps")
    return measured


def read_measured(folder: Path, spec: RunSpec, repeats: int) -> list[MeasuredRun]:
    """What the processes of a case wrote, by repetition.

    Raises:
        SynclineError: they did not finish.
    """
    return [_measured(folder / str(repeat), spec) for repeat in range(repeats)]


@dataclass(frozen=True)
class Predicted:
    """A training that was predicted.

    Args:
        clocks: one for each repetition of what the software takes.
        inside_s: seconds of a mean step in collectives, but not on the network, by repetition.
        device_bytes: what a worker's device sends in each step, ``(T,)``, mean over workers.
    """

    clocks: tuple[Clock, ...]
    inside_s: tuple[float, ...]
    device_bytes: NDArray[np.float64]

    @property
    def step_time_s(self) -> float:
        """Of a mean step, see `typical_step_s`."""
        return typical_step_s(self.clocks)

    @property
    def communication_s(self) -> float:
        """Seconds of a mean step in which a worker stands still for collectives."""
        waits = [one.exposed_communication_s + own for one, own in zip(self.clocks, self.inside_s, strict=True)]
        return float(np.median(waits))


def whenever(call: Call) -> Call:
    """The call, whichever step it is of and however it is called: equal for two that become the same on the wire."""
    return call._replace(step=0, group=None, label="")


def sent_by_step(trained: Trained) -> list[tuple[Call, ...]]:
    """What a training sent in each of its steps, each call as `whenever`."""
    out: dict[int, list[Call]] = defaultdict(list)
    for call in trained.ledger:
        out[call.step].append(whenever(call))
    return [tuple(out[step]) for step in range(trained.history.steps)]


def predict(
    trained: Trained,
    software: Software,
    link: Link,
    workers: int,
    segment_bytes: int = ETHERNET_MSS,
) -> Predicted:
    """The clock of a training between so many processes.

    Args:
        trained: what the simulator made of it.
        software: what it takes on this machine without a network.
        link: each worker's, with what gloo's software takes.
        workers: P.
        segment_bytes: the most payload that a device counts as one packet.
    """
    steps = sent_by_step(trained)
    step_s, inside_s = software.of(steps)
    calls: list[Call] = []
    device_bytes = np.zeros(len(steps))
    for step, of_step in enumerate(steps):
        for sent in of_step:
            for kind, nbytes in software.carried.get(sent, ((sent.collective, sent.payload_bytes),)):
                calls.append(Call(step, kind, nbytes))
                device_bytes[step] += gloo_wire(kind, workers, nbytes, segment_bytes).total_bytes
    clocks = tuple(clock(calls, of_repeat, link, workers, len(steps), algorithm="gloo") for of_repeat in step_s)
    return Predicted(clocks, tuple(inside_s.mean((1, 2)).tolist()), device_bytes)


def typical_step_s(clocks: Sequence[Clock]) -> float:
    """Seconds of a mean step, from the median of each step over repetitions: a machine's hiccup hits one of them."""
    ends_s = np.stack([one.step_end_s for one in clocks])
    return float(np.median(np.diff(ends_s, axis=1, prepend=0.0), axis=0).mean())


def measured_row(measured: Sequence[MeasuredRun]) -> dict[str, Any]:
    """A mean step of the repetitions: time, spread, communication, payload bytes, and the loss at the end.

    The spread is that of the repetitions' mean steps, see `syncline.backend.collective_times.spread`.
    """
    clocks = [one.clock for one in measured if one.clock is not None]
    means_s = [one.step_time_s for one in clocks]
    return {
        "measured_s": typical_step_s(clocks),
        "spread": spread(means_s),
        "measured_communication_s": float(np.median([one.exposed_communication_s for one in clocks])),
        "measured_bytes": float(np.median([one.bytes_per_worker for one in clocks])),
        "measured_loss": last_loss(measured[0].trained),
    }


def device_bytes_per_step(folder: Path, workers: int, repeats: int) -> float | None:
    """Bytes that a worker's device sent per step, after the first; None where no device is theirs alone."""
    found = []
    for repeat in range(repeats):
        for rank in range(workers):
            lines = [line for line in lines_of(folder / str(repeat) / f"{rank}.jsonl") if "step" in line]
            counts = [line["device_bytes"] for line in lines if "device_bytes" in line]
            if len(counts) < 2:
                return None
            found.append((counts[-1] - counts[0]) / (len(counts) - 1))
    return float(np.mean(found))


def last_loss(trained: Trained) -> float:
    """Of the last evaluation; of the last step where there is none."""
    losses = trained.history.evaluation.get("loss")
    return float(losses[-1][0]) if losses is not None and len(losses) else float(trained.history.loss[-1][0])
