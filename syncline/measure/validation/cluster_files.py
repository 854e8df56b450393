"""Files of measurements on clusters, predicted with the bundled constants: tables known by their headers, and logs.

| header has                                                            | predicted                                 |
|-----------------------------------------------------------------------|-------------------------------------------|
| ``collective, backend, nodes, megabytes, delay_ms, gbit_s``           | ``predicted_ms`` of ``time_ms``           |
| ``algorithm, bw, steps, n_sync, params, batch, seq``                  | ``predicted_ms`` of ``sync_wall_ms``, and |
|                                                                       | ``predicted_mean_ms`` of ``mean_wall_ms`` |
| ``gpu, gpus, bytes``                                                  | ``predicted_ms`` of ``in_place_ns``       |
| those of `NVLINK_COLUMNS`                                             | ``predicted_ms`` of ``time_us``           |
| those of `TRAINING_COLUMNS`                                           | ``predicted_ms`` of `published.TIMES`     |
| those of vTrain's measured steps (`measured_steps.COLUMNS`)           | ``predicted_ms`` of their iteration time  |

A row may lack the measured time: it is then predicted, and not compared. Collectives of a log are predicted on the
network that the user names, or on the preset of the GPUs that the log names.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import Network, chosen_algorithm, collective_s
from syncline.costmodel.bases import SMALL_BYTES, communication_uncertainty
from syncline.costmodel.collectives.nccl import NUM_RINGS, node_times
from syncline.costmodel.collectives.table import MEASURED
from syncline.costmodel.compute.hardware import HARDWARE
from syncline.costmodel.layouts.transformer_time import STEP_TIMES, Node, step_s
from syncline.costmodel.measured_clusters import l40s_step, p3_s
from syncline.costmodel.network.presets import NETWORKS, P3, P3Constants, g6e_nccl_link
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics import measured_times as measured
from syncline.errors import SpecError, SynclineError
from syncline.measure.calibration.stream_law import StreamLaw, lines_by_ends
from syncline.measure.logs import FORMATS, Logged, format_of, gpus_in, log_error, positive_number, read_log, read_text
from syncline.measure.validation import published
from syncline.measure.validation.measured_steps import COLUMNS, TIME_COLUMN, Point, check_point, layouts, recomputes

GB = 1e9

_Row = dict[str, Any]


def predicted_log(path: Path, network: Network | None = None) -> list[_Row]:
    """Return a row per measurement of a log, with its prediction and bounds.

    A collective is predicted as ``syncline collectives`` does, on the network or on the preset of the GPUs that the log
    names.
    """
    rows = []
    for entry in read_log(path):
        kind, workers, nbytes = (entry.setting[name] for name in ("kind", "workers", "nbytes"))
        log_network = network or _preset(entry)
        algorithm = chosen_algorithm("auto", kind, workers, nbytes, log_network)
        try:
            predicted_s = float(collective_s(kind, workers, nbytes, log_network, algorithm))
        except SynclineError as error:
            raise log_error(entry.file, entry.line, str(error)) from None
        bounds = communication_uncertainty(log_network, algorithm, workers, nbytes)
        row = _row(entry, predicted_s, measured_s=entry.value, regime=f"{kind}, {workers} workers, {log_network.name}")
        rows.append(row | {
            "low_ms": 1e3 * bounds.low * predicted_s, "high_ms": 1e3 * bounds.high * predicted_s,
            "basis": f"{bounds.points} residuals of {bounds.basis}",
        })  # fmt: skip
    return rows


def _preset(entry: Logged) -> Network:
    """Return the preset network of the GPUs that a log names."""
    gpu = entry.setting["gpu"]
    presets = [machine.network for machine in gpus_in(gpu) if machine.network]
    if not presets:
        expected = "--cluster with the network, as the log names no GPU whose machines have a preset"
        raise log_error(entry.file, entry.line, f"gpu: got {gpu!r}; expected {expected}")
    return NETWORKS[presets[0]].network  # a name that fits two GPUs means the first


def predicted_streams(paths: Sequence[Path]) -> list[_Row]:
    """Return a row per measured rate of TCP streams between two places: the measured and predicted time of a gigabyte.

    The rate of the fewest streams between two places gives their window, and the window the rates of more streams. If
    only one number of streams was measured, the prediction is with the window that Linux allows, see `Tcp`. The round
    trip of a rate may be in another of the logs ``paths``.
    """
    logged = [entry for path in paths for entry in read_log(path)]
    rows = []
    for (source, target), line in lines_by_ends(logged).items():
        law = StreamLaw.from_line(line)
        counts = {entry.setting["streams"] for entry in line.rates}
        has_law = len(counts) > 1
        for entry in line.rates:
            streams = entry.setting["streams"]
            if has_law:
                rate = law.rate_bytes_per_s(streams)
                basis = f"{law.bounds.points} residuals of {law.bounds.basis}"
            else:  # infinite: nothing is known of the line's own limit
                rate = float(Tcp(connections=streams).rate_bytes_per_s(np.inf, law.rtt_s))
                basis = "Linux's window"
            row = _row(entry, GB / rate, measured_s=GB / entry.value, regime=f"streams from {source} to {target}")
            if has_law and streams == min(counts):
                row["error"] = None  # this row gives the window
            is_bounded = has_law and law.bounds.points
            row["low_ms"] = law.bounds.low * row["predicted_ms"] if is_bounded else None
            row["high_ms"] = law.bounds.high * row["predicted_ms"] if is_bounded else None
            rows.append(row | {"basis": basis})
    return rows


def _row(entry: Logged, predicted_s: float, measured_s: float, regime: str) -> _Row:
    """Return the columns of a measurement and its prediction."""
    # The GPU is left out: a row with a column ``gpu`` would count as one of a table of all-reduces over NVLink.
    setting = {name: value for name, value in entry.setting.items() if name != "gpu" and value is not None}
    if "nodes" in setting:
        setting["nodes"] = str(setting["nodes"])  # text, as in the rows of a table
    return setting | {
        "file": entry.file.name, "line": entry.line, "regime": regime, "measured_ms": 1e3 * measured_s,
        "predicted_ms": 1e3 * predicted_s, "error": predicted_s / measured_s - 1,
    }  # fmt: skip


COLLECTIVES, L40S_STEPS = (Path(__file__).parent / "measured" / name for name in ("collectives.csv", "l40s_steps.csv"))
NVLINK = Path(measured.__file__).with_name("nvlink_all_reduce.csv")
GPT_STEPS = tuple(COLLECTIVES.with_name(name) for name in ("a100_one_node.csv", "a100_nodes.csv"))
BUNDLED_FILES = (COLLECTIVES, L40S_STEPS, NVLINK, published.NVLINK_COLLECTIVES, *GPT_STEPS, published.TRAININGS)
"""The measurements that come with the package."""

MIB = 2**20

UNCHANGED = "default"
"""The delay or rate in a row if the experimenters left it as the data centre has it."""

PIECES_SOURCE = "Simulate_DP.md"
"""The file of the source whose tensors travel in as many calls as there are nodes."""


class Table(NamedTuple):
    """A kind of CSV file with measurements, recognised by its columns.

    Attributes:
        columns: columns that identify it, all that a prediction needs.
        measured_ms: function that returns the measured milliseconds of a row; None if the row has no measurement.
        build_predictor: function that gets all rows of a file, as text, and returns a function that returns the
            predicted columns of a row.
    """

    columns: tuple[str, ...]
    measured_ms: Callable[[Mapping[str, str]], float | None]
    build_predictor: Callable[[Sequence[Mapping[str, str]]], Callable[[Mapping[str, str]], _Row]]


def predicted_files(paths: Sequence[Path], network: Network | None = None) -> list[_Row]:
    """Return the rows of all files, each row with its prediction.

    Logs of TCP rates and of round trips are read together, because a rate and its round trip may be in different files.
    """
    rows: list[_Row] = []
    logs_of_lines = []
    for path in paths:
        log_format = format_of(read_text(path)) if path.is_file() else None
        if log_format is not None and log_format.of_lines:
            logs_of_lines.append(path)
        else:
            rows += predicted_rows(path, network)
    return rows + predicted_streams(logs_of_lines)


def predicted_rows(path: Path, network: Network | None = None) -> list[_Row]:
    """Return a file's rows with further columns: ``predicted_ms``, ``error`` and ``regime``.

    ``regime`` is the group of the row in a summary of errors.

    Args:
        path: a table of `TABLE_KINDS`, or a log of `syncline.measure.logs`.
        network: the network of a log's collectives; by default the preset of the GPUs that the log names.

    Raises:
        SpecError: the file does not exist, or is neither such a table nor a log.
        SynclineError: a line that cannot be predicted.
    """
    if path.is_file() and format_of(read_text(path)) is not None:
        return predicted_log(path, network)
    name, text_rows = read_table(path)
    kind, rows = TABLE_KINDS[name], []
    predict = kind.build_predictor(text_rows)
    for line, text_row in enumerate(text_rows, start=2):  # the header is line 1
        try:
            row: _Row = {**text_row, **predict(text_row)}
            measured_ms = kind.measured_ms(text_row)
            row["error"] = None if measured_ms is None else row["predicted_ms"] / measured_ms - 1
        except (SpecError, ValueError, TypeError, ZeroDivisionError) as error:
            raise SynclineError(f"measurements: {path}, line {line}: {error}") from None
        rows.append({"file": path.name, **row})
    return rows


def read_table(path: Path) -> tuple[str, list[dict[str, str]]]:
    """Return the name in `TABLE_KINDS` of a file's table, which its header tells, and the table's rows as text."""
    if not path.is_file():
        raise SpecError("measurements", str(path), "a CSV file, or a log")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SynclineError(f"measurements: {path} cannot be read: {error}") from None
    header = set(reader.fieldnames or ())
    for name, kind in TABLE_KINDS.items():
        if header.issuperset(kind.columns):
            for number, row in enumerate(rows, start=2):
                if None in row or None in row.values():  # None: the key of surplus cells, or the value of a missing one
                    raise SynclineError(f"measurements: {path}, line {number}: fewer or more columns than the header")
            if not rows:
                raise SynclineError(f"measurements: {path} has no row")
            return name, rows
    headers = "; or ".join(", ".join(kind.columns) for kind in TABLE_KINDS.values())
    logs = "; or ".join(log_format.name for log_format in FORMATS)
    raise SpecError("measurements", str(path), f"a file whose header has the columns {headers}; or {logs}")


def collective_row_s(row: Mapping[str, str], constants: P3Constants = P3) -> Any:
    """Return the predicted seconds of a row of ``collectives.csv``."""
    delay_s = None if row["delay_ms"] == UNCHANGED else positive_number(row["delay_ms"], "delay_ms", minimum=0.0) / 1e3
    rate = None if row["gbit_s"] == UNCHANGED else positive_number(row["gbit_s"], "gbit_s") * 1e9 / 8
    nodes = int(positive_number(row["nodes"], "nodes"))
    nbytes = positive_number(row["megabytes"], "megabytes") * MIB
    return p3_s(
        row["collective"], row["backend"], workers=nodes, nbytes=nbytes, delay_s=delay_s, bytes_per_s=rate,
        pieces=in_several_calls(row), constants=constants,
    )  # fmt: skip


def in_several_calls(row: Mapping[str, str]) -> bool:
    """Return whether the tensor of a row travelled in several calls."""
    return row.get("source") == PIECES_SOURCE or "+" in row["collective"]


LONG_MS, LONG_LINK = 50.0, "50 ms and more"
"""The delay in milliseconds from which each step of a ring waits for it, and the kind of such links in words."""


def _predict_collective(row: Mapping[str, str]) -> _Row:
    """Return the prediction of a collective; the summary groups them by library, collective and kind of link."""
    collective = "in pieces" if in_several_calls(row) else row["collective"]
    regime = f"{row['backend']} {collective}, {collective_link(row)}"
    return {"predicted_ms": 1e3 * float(collective_row_s(row)), "regime": regime}


def collective_link(row: Mapping[str, str]) -> str:
    """Return the kind of a row's link in words: a long delay, shaped, or unchanged by the experimenters."""
    delay, rate = row["delay_ms"], row["gbit_s"]
    if delay != UNCHANGED and positive_number(delay, "delay_ms", minimum=0.0) >= LONG_MS:
        return LONG_LINK
    is_unchanged = delay == UNCHANGED or (delay == "0" and rate == UNCHANGED)  # "0": the experimenters added no delay
    return "as the data centre has it" if is_unchanged else "shaped"


def _predict_l40s_step(row: Mapping[str, str]) -> _Row:
    """Return the predicted step of DDP or DiLoCo on L40S GPUs; the summary groups steps by method and link.

    ``predicted_ms`` is the time of a step that synchronises, ``predicted_mean_ms`` that of a mean step.
    """
    link_bytes_per_s = bandwidth_bytes_per_s(row["bw"])  # None: not shaped
    measured_bytes_per_s = None
    if row.get("bw_measured"):  # bits per second
        measured_bytes_per_s = positive_number(row["bw_measured"], "bw_measured") / 8
    syncs = int(positive_number(row["n_sync"], "n_sync", minimum=0.0))
    method = re.sub("[-_ ]", "", row["algorithm"].lower())
    params, batch, sequence, steps = (positive_number(row[name], name) for name in ("params", "batch", "seq", "steps"))
    link = g6e_nccl_link(link_bytes_per_s, measured_bytes_per_s)
    step = l40s_step(method, params, batch, seq=sequence, steps=int(steps), syncs=syncs, link=link)
    method_text = "DDP" if row["algorithm"].lower() == "ddp" else "DiLoCo, local SGD"
    regime = f"{method_text}, {'shaped' if link_bytes_per_s else 'not shaped'}"
    if syncs == 1:  # the only measured synchronisation is the first one, which is slow on any link
        regime = "a first synchronisation, without its warm-up"
    return {"predicted_ms": 1e3 * step.sync_s, "predicted_mean_ms": 1e3 * step.mean_s, "regime": regime}


_RATE = re.compile(r"(\d+(?:\.\d+)?)([mg])")


def bandwidth_bytes_per_s(text: str) -> float | None:
    """Return the bytes per second of a rate such as ``50m`` or ``1g`` bits per second; None for ``unshaped``."""
    if text.strip().lower() in ("unshaped", ""):
        return None
    match = _RATE.fullmatch(text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise SpecError("bw", text, "a rate as 200m or 1g (bits per second), or unshaped")
    return float(match[1]) * {"m": 1e6, "g": 1e9}[match[2]] / 8


def _predict_nvlink_all_reduce(row: Mapping[str, str]) -> _Row:
    """Return the prediction of an all-reduce over NVLink."""
    gpu, gpus = row["gpu"], int(positive_number(row["gpus"], "gpus"))
    if gpu not in NVLINK_PRESETS:
        raise SpecError("gpu", gpu, f"one of {', '.join(sorted(NVLINK_PRESETS))}")
    if gpus not in NUM_RINGS[gpu]:
        raise SpecError("gpus", gpus, f"one of {', '.join(str(count) for count in NUM_RINGS[gpu])}")
    link = NETWORKS[NVLINK_PRESETS[gpu]].network
    nbytes = positive_number(row["bytes"], "bytes")
    seconds = float(collective_s("all_reduce", gpus, nbytes, link, algorithm=MEASURED))
    source = BUNDLED_TIMES if gpus in node_times(gpu) else "other numbers of GPUs"
    return {"predicted_ms": 1e3 * seconds, "regime": f"{gpu}, {source}"}


def _predict_nvlink_collective(row: Mapping[str, str]) -> _Row:
    """Return the prediction of a collective of NCCL among GPUs with NVLink."""
    for name in ("nvlink", "gpus", "nodes", "bytes"):
        positive_number(row[name], name)  # raises an error with the column's name
    where = "one node" if int(row["nodes"]) == 1 else "several nodes"
    size = "8 MiB and more" if float(row["bytes"]) >= SMALL_BYTES else "below 8 MiB"
    return {"predicted_ms": 1e3 * published.nvlink_row_s(row), "regime": f"NCCL over NVLink, {where}, {size}"}


NVLINK_PRESETS = {"a100": "nvlink3", "v100": "nvlink2"}
"""The preset of the links inside a node, by the GPU of the node."""


BUNDLED_TIMES = "2, 4, 8 GPUs: these times ship"
"""Words in the regime of a row that is predicted from its own measurement."""


def _gpt_step_predictor(rows: Sequence[Mapping[str, str]]) -> Callable[[Mapping[str, str]], _Row]:
    """Return a predictor of GPT steps on A100 nodes; activations are recomputed in all steps of a table or in none."""
    points = []
    for row in rows:
        with contextlib.suppress(SpecError):  # `predict` reports the error of this row
            points.append(_gpt_point(row))
    machine = HARDWARE["a100"]
    recomputed = recomputes(points, machine.memory_bytes or math.inf)
    constants = replace(
        STEP_TIMES["a100-megatron-deepspeed"],
        tensor_times=measured.nvlink_all_reduce("a100"),
        node=Node(A100_NODE_GPUS, A100_NODE_BYTES_PER_S),
    )

    def predict(row: Mapping[str, str]) -> _Row:
        """Return the prediction for a measured row, with the regime to which it belongs."""
        point = _gpt_point(row)
        (seconds,) = step_s(layouts([point], recomputed), constants)
        where = "several nodes" if point.gpus > A100_NODE_GPUS else "one node"
        tensor = "no tensor parallelism" if point.tensor == 1 else "tensor parallelism"
        return {"predicted_ms": 1e3 * float(seconds), "regime": f"A100, {where}, {tensor}"}

    return predict


def _predict_training(row: Mapping[str, str]) -> _Row:
    """Return the prediction of a training; the summary groups trainings by source and GPU."""
    step_s = np.asarray(published.predicted_step(published.training_spec(row)).step_time_s).item()
    regime = ", ".join(text for text in (row.get("source"), row["hardware"].upper()) if text)
    return {"predicted_ms": 1e3 * step_s, "regime": regime}


def _measured_training_ms(row: Mapping[str, str]) -> float | None:
    """Return the measured milliseconds of a training's step; None if the row has no measurement."""
    seconds = published.measured_step_s(row)
    return None if seconds is None else 1e3 * seconds


def _column_ms(column: str, per_ms: float = 1.0) -> Callable[[Mapping[str, str]], float | None]:
    """Return a function that reads a time in ms from a row's column, in which 1 ms is ``per_ms``; None if empty."""
    return lambda row: positive_number(row[column], column) / per_ms if row.get(column) else None


A100_NODE_GPUS, A100_NODE_BYTES_PER_S = 8, 100e9
"""GPUs and bytes per second of vTrain's nodes: 800 Gbit/s in all.

Source: vTrain's configurations, ``node_size``, ``inter_node_bandwidth``.
"""


def _gpt_point(row: Mapping[str, str]) -> Point:
    """Return the configuration of a row of measured steps of a GPT, without its measured time."""
    numbers = {name: int(positive_number(row[column], column, minimum=1.0)) for name, column in COLUMNS.items()}
    point = Point(**numbers, measured_s=math.nan)
    if point.microbatches < 1:
        raise SpecError("global batch", point.global_batch, "a micro-batch at least for each replica")
    check_point(point)
    return point


TABLE_KINDS = {
    "collectives": Table(
        ("collective", "backend", "nodes", "megabytes", "delay_ms", "gbit_s"),
        _column_ms("time_ms"),
        lambda rows: _predict_collective,
    ),
    "steps": Table(
        ("algorithm", "bw", "steps", "n_sync", "params", "batch", "seq"),
        _column_ms("sync_wall_ms"),
        lambda rows: _predict_l40s_step,
    ),
    "nvlink": Table(("gpu", "gpus", "bytes"), _column_ms("in_place_ns", 1e6), lambda rows: _predict_nvlink_all_reduce),
    "nvlink collectives": Table(
        published.NVLINK_COLUMNS, _column_ms("time_us", 1e3), lambda rows: _predict_nvlink_collective
    ),
    "trainings": Table(published.TRAINING_COLUMNS, _measured_training_ms, lambda rows: _predict_training),
    "GPT steps": Table(tuple(COLUMNS.values()), _column_ms(TIME_COLUMN), _gpt_step_predictor),
}
"""Kinds of files, by their content."""
