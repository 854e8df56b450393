"""The lines that each process of a launched training wrote, and the training that they add up to.

A process appends a line of JSON after every step, so that its measurements survive it, however it ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel import Call, TensorShape
from syncline.costmodel.traffic.call import bytes_of_worker
from syncline.measure.processes.stopwatch import Lap, Stopwatch
from syncline.runs.training.trained import Trained
from syncline.sim import Clock, Span, Timeline
from syncline.specs import RunSpec
from syncline.training import History, diverged_at


class LineFile:
    """A file of JSON lines; a line is on disk once appended, so that a killed process leaves all its lines."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write_line(self, fields: Mapping[str, Any]) -> None:
        """Append a line of JSON with these fields."""
        self._file.write(json.dumps(fields, separators=(",", ":"), default=list) + "\n")

    def close(self) -> None:
        """Close the file of lines."""
        self._file.close()


class RankFile(LineFile):
    """The file of one process of a training: a line of facts, and lines for each step and each evaluation."""

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder / f"{rank}.jsonl")

    def write_evaluation(self, seed: int, steps_done: int, metrics: dict[str, float]) -> None:
        """Write an evaluation after this number of steps."""
        self.write_line({"seed": seed, "evaluated": steps_done, "metrics": metrics})

    def write_step(
        self, seed: int, step: int, loss: float, watch: Stopwatch, calls: Sequence[Call], **other_fields: Any
    ) -> None:  # fmt: skip
        """Write the line of a completed step, with the stopwatch's laps since the previous step."""
        self.write_line({
            "seed": seed, "step": step, "loss": loss, "begun_ns": watch.begun_ns, "ended_ns": watch.ended_ns,
            "laps": watch.take_laps(), "ledger": calls, **other_fields,
        })  # fmt: skip


@dataclass
class MeasuredRun:
    """A training on real processes.

    Args:
        clock: the end of each step and the parts of its time, for the first seed; None if no step was completed.
        steps: ``(T, P)`` seconds of each step and process, by name: ``start_s`` (its start), ``step_s`` (its
            duration), and three parts of the duration: ``compute_s`` (gradients), ``optimizer_s`` (the optimizer's
            step outside of collectives), and ``exposed_communication_s`` (waits for collectives).
        device: name of rank 0's device.
    """

    trained: Trained
    clock: Clock | None
    steps: dict[str, np.ndarray]
    machines: list[str]
    device: str


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a file of JSON lines as dicts; a missing file counts as empty."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def last_step(folder: Path, rank: int) -> int:
    """Return the last step that a process wrote; -1 if it wrote none."""
    steps = [line["step"] for line in lines_of(folder / f"{rank}.jsonl") if "step" in line]
    return steps[-1] if steps else -1


class _RankLines:
    """The lines that a process wrote during a launch: facts, and steps and evaluations by seed."""

    def __init__(self, path: Path, seeds: Sequence[int]) -> None:
        self.facts: dict[str, Any] = {}
        self.steps: dict[int, list[dict[str, Any]]] = {seed: [] for seed in seeds}
        self.evaluations: dict[int, list[dict[str, Any]]] = {seed: [] for seed in seeds}
        for line in lines_of(path):
            if "step" in line:
                self.steps[line["seed"]].append(line)
            elif "evaluated" in line:
                self.evaluations[line["seed"]].append(line)
            else:
                self.facts |= line


def read_rank_files(
    folder: Path, spec: RunSpec, wall_s: float, interrupted: bool, processes: int | None = None
) -> MeasuredRun | None:
    """Return the training in the files of all processes, up to the last step that all have completed.

    Args:
        folder: the folder with a file ``RANK.jsonl`` of each process.
        processes: number of processes P; one per worker if None.

    Returns:
        The training; None if a process had not started.
    """
    ranks = [_RankLines(folder / f"{rank}.jsonl", spec.seeds) for rank in range(processes or spec.workers)]
    if not all(rank.facts for rank in ranks):
        return None
    facts = ranks[0].facts
    histories: list[History] = []
    for seed in spec.seeds:
        steps = min(len(rank.steps[seed]) for rank in ranks)
        if histories and not steps:
            break  # a seed that was not started
        losses = np.array([[line["loss"] for line in rank.steps[seed][:steps]] for rank in ranks])
        mean_losses = losses.reshape(len(ranks), steps).mean(0)  # reshape: with 0 steps the array has one dimension
        evaluations = [
            line | {"metrics": {name: [value] for name, value in line["metrics"].items()}}  # one value, of this seed
            for line in ranks[0].evaluations[seed]
        ]
        histories.append(measured_history((seed,), mean_losses[:, None], evaluations, interrupted))

    # Traffic and times are those of the first seed alone.
    first_seed, steps = spec.seeds[0], histories[0].steps
    lines = ranks[0].steps[first_seed][:steps]
    trained = Trained(
        spec.method.name,
        History.concatenate(histories),
        ledger=[Call.from_fields(fields) for line in lines for fields in line["ledger"]],
        facts=facts["problem"],
        flops_per_step=facts["flops_per_step"],
        wall_s=wall_s,
        tensors=tensors_from_json(facts["tensors"]),
        readbacks={line["step"]: line["readbacks"] for line in lines},
    )
    timeline, start_s, end_s = _step_times(ranks, first_seed, steps)
    seconds = {"start_s": start_s, "step_s": end_s - start_s}
    activities = {"compute_s": "compute", "optimizer_s": "optimizer", "exposed_communication_s": "wait"}
    for name, activity in activities.items():
        spans = timeline[timeline.what == activity]
        seconds[name] = np.zeros(start_s.shape)
        np.add.at(seconds[name], (spans.step, spans.worker), spans.duration_s)
    clock = _measured_clock(timeline, seconds, trained) if steps else None
    return MeasuredRun(trained, clock, seconds, [rank.facts["machine"] for rank in ranks], facts["device"])


def tensors_to_json(tensors: Iterable[TensorShape]) -> list[list[Any]]:
    """Return the name, shape and kind of parameters as values for a line of JSON."""
    return [[tensor.name, tensor.shape, tensor.is_matrix] for tensor in tensors]


def tensors_from_json(values: Iterable[Sequence[Any]]) -> tuple[TensorShape, ...]:
    """Return the shapes of parameters from the output of `tensors_to_json`."""
    return tuple(TensorShape(name, tuple(shape), is_matrix) for name, shape, is_matrix in values)


def measured_history(
    seeds: Sequence[int], losses: np.ndarray, evaluations: Iterable[dict[str, Any]], interrupted: bool
) -> History:
    """Return the losses and evaluations of a measured training as a history.

    Args:
        losses: the loss of each step and seed, ``(T, S)``.
        evaluations: lines with the step ``evaluated`` and its ``metrics``, S values each. Lines after step T are
            ignored.
        interrupted: whether the training stopped before its end.
    """
    finished_evaluations = [line for line in evaluations if line["evaluated"] <= len(losses)]
    names = finished_evaluations[0]["metrics"] if finished_evaluations else ()
    history = History(
        seeds=tuple(seeds), steps=len(losses), loss=losses, trace={},
        eval_step=np.array([line["evaluated"] for line in finished_evaluations], dtype=np.int64),
        evaluation={name: np.array([line["metrics"][name] for line in finished_evaluations]) for name in names},
        diverged_at=(), interrupted=interrupted,
    )  # fmt: skip
    history.diverged_at = diverged_at(history)
    return history


def _step_times(ranks: Sequence[_RankLines], seed: int, steps: int) -> tuple[Timeline, np.ndarray, np.ndarray]:
    """Return the laps of a seed's first ``steps`` steps, and the begin and end of each step in seconds, ``(T, P)``.

    All times are on rank 0's clock, from the begin of the first step on.
    """
    offsets_ns = np.array([rank.facts["offset_ns"] for rank in ranks])

    def times_on_clock_of_rank_0(name: str) -> np.ndarray:
        times_ns = [[line[name] for line in rank.steps[seed][:steps]] for rank in ranks]
        return np.array(times_ns).reshape(len(ranks), steps).T - offsets_ns

    start_ns, end_ns = times_on_clock_of_rank_0("begun_ns"), times_on_clock_of_rank_0("ended_ns")
    zero_ns = int(start_ns[0].min()) if steps else 0  # when the first process begins its first step
    spans: list[Span] = []
    for worker, rank in enumerate(ranks):
        laps = [lap for line in rank.steps[seed][:steps] for lap in line["laps"]]
        spans += spans_from_laps(laps, worker, zero_ns=zero_ns + rank.facts["offset_ns"])  # on the rank's own clock
    return Timeline.from_spans(spans, len(ranks)), (start_ns - zero_ns) / 1e9, (end_ns - zero_ns) / 1e9


def spans_from_laps(laps: Sequence[Sequence[Any]], worker: int, zero_ns: int) -> Iterator[Span]:
    """Yield a worker's laps as spans, see `separate_streams`, in seconds after the time ``zero_ns`` of their clock."""
    for lap in separate_streams(laps):
        yield Span(
            worker, lap.stream, what=lap.what, label=lap.label, start_s=(lap.start_ns - zero_ns) / 1e9,
            end_s=(lap.end_ns - zero_ns) / 1e9, nbytes=lap.nbytes, step=lap.step,
        )  # fmt: skip


def separate_streams(laps: Sequence[Sequence[Any]]) -> list[Lap]:
    """Return laps, from their fields, in order of time; collectives at the same time get separate streams."""
    free_at_ns: dict[int, int] = {}  # end of the last collective on each stream of the network, by its number from 1
    sorted_laps = []
    for lap in sorted(map(Lap._make, laps), key=lambda lap: lap.start_ns):
        stream = lap.stream
        if stream == "network":
            number = 1
            while number in free_at_ns and free_at_ns[number] > lap.start_ns:
                number += 1
            free_at_ns[number] = lap.end_ns
            stream = "network" if number == 1 else f"network {number}"
        sorted_laps.append(lap._replace(stream=stream))
    return sorted_laps


def _measured_clock(timeline: Timeline, seconds: dict[str, np.ndarray], trained: Trained) -> Clock:
    """Return the clock of the steps as if they followed each other, without the evaluations between them."""
    steps = len(seconds["step_s"])
    ends_s = seconds["step_s"].cumsum(0)  # ends of each step on each process, (T, P)
    wall_s = float(ends_s[-1].max())
    return Clock(
        step_end_s=ends_s.max(1),
        end_s=ends_s[-1],
        step_time_s=wall_s / steps,
        compute_s=float(seconds["compute_s"].mean()),
        encode_s=0.0,  # the stopwatch does not time these two by themselves
        trigger_s=0.0,
        optimizer_s=float(seconds["optimizer_s"].mean()),
        communication_s=float(timeline.communication_s().mean()) / steps,
        exposed_communication_s=float(seconds["exposed_communication_s"].mean()),
        bytes_per_worker=bytes_of_worker(trained.ledger, len(ends_s[-1])) / steps,
        wall_s=wall_s,
        evaluator="measured",
        timeline=timeline,
    )
