"""Predictions of trainings, compared with the same trainings between real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.traffic.call import bytes_of_worker
from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.measure.calibration.calibrate import calibrate
from syncline.measure.calibration.plan import Calibration, calibrate_warnings, process_counts
from syncline.measure.processes.hosts import Hosts, LocalHosts
from syncline.measure.validation.cases import MEASURED, SOFTWARE, Case, CasePlan
from syncline.measure.validation.measured_steps import error_of, errors_by_group
from syncline.measure.validation.predicted import (
    device_bytes_per_step,
    last_loss,
    measured_row,
    predict,
    read_measured,
    read_software,
)
from syncline.runs.folders.folder import RunFolder, environment
from syncline.runs.training.train_and_time import train_method
from syncline.runs.training.trained import Trained
from syncline.specs import CompareSpec, RunSpec, network
from syncline.specs.cluster.links import link_fields
from syncline.units import format_bandwidth, format_seconds

PROCESS_MODULE = "syncline.measure.validation.cases"

BOUND_SHARE = 0.5
"""The share of communication in a predicted step from which the step counts as bound by communication."""


@dataclass(frozen=True)
class Question:
    """The trainings to validate.

    Args:
        specs: specs of trainings; each method of each spec is one training.
        workers: numbers of processes.
        repeats: number of times that each training is measured after a warm-up, at least 1.
        timeout_s: timeout of a launch of processes, in which all trainings of one network run.
    """

    specs: tuple[RunSpec | CompareSpec, ...]
    workers: tuple[int, ...]
    repeats: int = 5
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise SpecError("--repeats", self.repeats, "at least 1")
        for workers in self.workers:
            if workers < 2:
                raise SpecError("--workers", workers, "at least 2, as a single process does not communicate")


@dataclass(frozen=True)
class PredictedTraining:
    """One method of a user's spec, trained by the simulator with a number of workers."""

    spec: RunSpec
    spec_name: str
    trained: Trained

    @property
    def name(self) -> str:
        """Return the name of the training's folder, from its spec and its method."""
        return f"{self.spec_name}.{self.spec.method.name}".replace("/", "-")


def validate_processes(
    question: Question, hosts: Hosts, out: Path, *, exact: bool = False, on_progress: Callable[[str], object] = print
) -> dict[str, Any]:
    """Predict, measure, and write the folder: ``points.parquet``, ``run.json``, the figure, and the processes' files.

    Returns:
        ``rows`` (one per training and network), ``summary`` (errors of groups of them), ``folder``.

    Raises:
        SynclineError: an argument cannot be used, or a process failed; the folder has the rows until then.
    """
    from syncline.analysis import save

    rows: list[dict[str, Any]] = []
    links = hosts.links(_networks(question.specs))
    with RunFolder(out, exact) as folder:
        for workers in question.workers:
            trainings = list(_trainings(question, workers))
            for link in links:
                on_progress(f"{link.name}, {workers} workers: {len(trainings)} trainings")
                case_folder = folder.working / "processes" / f"{link.name}-{workers}".replace("/", "-")
                cases = []
                for training in trainings:
                    cases.append(Case(training.name, training.spec.model_dump(mode="json"), question.repeats))
                plan = CasePlan(case_folder.absolute(), tuple(cases), question.timeout_s, link_fields(link))
                hosts.run(link, workers, ["-m", PROCESS_MODULE, str(plan.write())], question.timeout_s)
                for training in trainings:
                    rows.append(_row(question, hosts, training, link, folder=case_folder / training.name))
                folder.table("points", {name: [row[name] for row in rows] for name in rows[0]})
        summary = summarise(rows)
        folder.json("run", environment() | {"specs": [spec.model_dump(mode="json") for spec in question.specs],
                                            "repeats": question.repeats, "rows": rows, "summary": summary})  # fmt: skip
        save(figure_of(rows), folder.figure("validation"))
    return {"rows": rows, "summary": summary, "folder": str(folder.path)}


def validate_local(
    specs: Sequence[RunSpec | CompareSpec],
    workers: str | None,
    cluster: Path | None,
    repeats: int,
    out: Path,
    *,
    exact: bool = False,
    on_progress: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Calibrate this machine if there is no calibration, and return the result of `validate_processes` on it.

    Args:
        workers: numbers of processes, with commas between; those of the specs if None.
        cluster: file of a calibration of this machine; if None, the machine is calibrated now.
        repeats: number of times that each training is measured after a warm-up.
    """
    worker_counts = tuple(process_counts(workers) if workers else sorted({spec.workers for spec in specs}))
    question = Question(tuple(specs), worker_counts, repeats)
    if exact and out.exists():
        raise SpecError("--out", str(out), "a folder that does not exist yet")  # raised before minutes of measuring
    for warning in calibrate_warnings(worker_counts):
        on_progress(f"warning: {warning}")
    if cluster is not None:
        return validate_processes(question, LocalHosts(_link(cluster)), out, exact=exact, on_progress=on_progress)
    with temporary_folder() as folder:
        file = folder / "this-machine.yaml"
        on_progress(f"calibrating {' and '.join(map(str, worker_counts))} processes of this machine")
        # Only the link is used, which does not depend on the problem.
        calibrated = calibrate(Calibration(specs[0].problem), worker_counts, file, exact=True)
        if "failed" in calibrated:
            raise SynclineError(calibrated["failed"])
        return validate_processes(question, LocalHosts(_link(file)), out, exact=exact, on_progress=on_progress)


def _link(cluster: Path) -> Link:
    """Return the link of this machine's loopback device that a calibration has measured."""
    cluster_network = network(cluster, "--cluster")
    if not isinstance(cluster_network, Link) or cluster_network.gloo is None:
        raise SpecError("--cluster", str(cluster), "a file that 'syncline calibrate' has written")
    return cluster_network


def _networks(specs: Sequence[RunSpec | CompareSpec]) -> list[Any]:
    """Return all networks that the specs name, each once."""
    networks: dict[str, Any] = {}
    for spec in specs:
        spec_networks = spec.networks if isinstance(spec, CompareSpec) else [spec.network]
        networks |= {named_network.name: named_network for named_network in spec_networks}
    return list(networks.values())


def _trainings(question: Question, workers: int) -> Iterator[PredictedTraining]:
    """Train every method of every spec in the simulator with this many workers, and yield each training."""
    for spec in question.specs:
        # Fields that only a run or only a comparison has.
        fields_of_one_kind = {"kind", "methods", "networks", "target_loss", "method", "network"}
        run_fields = spec.model_dump(mode="json", exclude=fields_of_one_kind)
        run_fields |= {"kind": "run", "workers": workers, "eval_every": 0, "seeds": [spec.seeds[0]]}
        run_fields["network"], *_ = _networks([spec])  # a run must name a network; the processes use a real one
        methods = spec.methods if isinstance(spec, CompareSpec) else [spec.method]
        for method in methods:
            run = RunSpec.model_validate(run_fields | {"method": method.model_dump(mode="json")})
            yield PredictedTraining(run, spec.name, train_method(run, run.method))


def _row(question: Question, hosts: Hosts, training: PredictedTraining, link: Link, folder: Path) -> dict[str, Any]:
    """Return the predicted and the measured mean step of a training, and the errors of the prediction."""
    spec, trained, repeats = training.spec, training.trained, question.repeats
    software = read_software(folder / SOFTWARE, spec, repeats)
    predicted = predict(trained, software, link, spec.workers, hosts.segment_bytes(link))
    step_s, communication_s = predicted.step_time_s, predicted.communication_s
    device_bytes = predicted.device_bytes[1:]  # the measurement leaves out the first step too
    row = {
        "spec": training.spec_name, "problem": spec.problem.name, "method": spec.method.name, "network": link.name,
        "latency_s": float(link.latency_s), "bandwidth_bytes_per_s": float(link.bandwidth_bytes_per_s),
        "workers": spec.workers, "steps": spec.steps, "predicted_loss": last_loss(trained),
        "predicted_bytes": bytes_of_worker(trained.ledger, spec.workers) / spec.steps,
        "predicted_s": step_s, "predicted_communication_s": communication_s,
        "predicted_device_bytes": float(device_bytes.mean()) if len(device_bytes) else 0.0,
        "bound": "communication" if communication_s > BOUND_SHARE * step_s else "compute",
    }  # fmt: skip
    row |= measured_row(read_measured(folder / MEASURED, spec, repeats))
    row["device_bytes"] = device_bytes_per_step(folder / MEASURED, spec.workers, repeats)
    row["error"] = row["predicted_s"] / row["measured_s"] - 1
    row["noisy"] = abs(row["error"]) <= row["spread"]  # repeats differ by more than the error
    row["device_error"] = _relative_error(row["predicted_device_bytes"], row["device_bytes"])
    row["communication_error"] = _relative_error(communication_s, row["measured_communication_s"])
    row["loss_difference"] = row["measured_loss"] - row["predicted_loss"]
    return row


def _relative_error(predicted: float, measured: float | None) -> float | None:
    """Return ``predicted / measured - 1``; None if nothing was measured."""
    return predicted / measured - 1 if measured else None


GROUPED_COLUMNS = ("method", "network", "workers", "bound", "spec")
"""Columns by which errors are grouped."""


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return statistics of the errors of step times: of all rows, and by value of `GROUPED_COLUMNS`."""
    summary = [_statistics_row("all", value="", rows=rows)]
    for column in GROUPED_COLUMNS:
        values = list(dict.fromkeys(row[column] for row in rows))
        if len(values) > 1:  # a single group has all rows
            for value in values:
                summary.append(_statistics_row(column, value, [row for row in rows if row[column] == value]))
    return summary


def _statistics_row(column: str, value: Any, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return statistics of the errors of the rows that have this value in a column."""
    statistics = error_of([row["error"] for row in rows])
    del statistics["mape"]  # the tables have the median instead
    spread = float(np.median([row["spread"] for row in rows]))
    return {"by": column, "value": str(value), **statistics, "spread": spread}


def figure_of(rows: Sequence[dict[str, Any]]) -> Any:
    """Return a matplotlib figure of predicted against measured step times, with errors by link, workers and bound."""
    from syncline.analysis.validation import predicted_against_measured

    points: dict[str, tuple[list[float], list[float]]] = {}  # measured and predicted seconds by method
    for row in rows:
        measured_s, predicted_s = points.setdefault(row["method"], ([], []))
        measured_s.append(row["measured_s"])
        predicted_s.append(row["predicted_s"])
    panels = {
        "one-way delay": errors_by_group(rows, "latency_s", format_seconds),
        "rate": errors_by_group(rows, "bandwidth_bytes_per_s", format_bandwidth),
        "workers": errors_by_group(rows, "workers"),
        "bound by": errors_by_group(rows, "bound"),
    }
    return predicted_against_measured(points, panels, title="errors of a mean step")
