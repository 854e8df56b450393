"""Predictions of anyone's logs, with the network that a user names or that the machine has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel import Network, chosen_algorithm, collective_s
from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.network.presets import NETWORKS
from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SynclineError
from syncline.measure.calibration.stream_law import StreamLaw, lines_by_ends
from syncline.measure.logs.formats import read_log
from syncline.measure.logs.gpus import gpus_in
from syncline.measure.logs.logged import Logged, log_error

GB = 1e9

_Row = dict[str, Any]


def predicted_log(path: Path, network: Network | None = None) -> list[_Row]:
    """Return a row per measurement of a log, with its prediction and bounds.

    A collective is predicted as ``syncline collectives`` does, on the network or on the preset of the GPUs that the log
    names.

    Raises:
        SynclineError: the log cannot be read, or names no GPU with a preset.
    """
    return [_collective(entry, network) for entry in read_log(path)]


def _collective(entry: Logged, network: Network | None) -> _Row:
    kind, workers, nbytes = (entry.setting[name] for name in ("kind", "workers", "nbytes"))
    on = network or _preset(entry)
    algorithm = chosen_algorithm("auto", kind, workers, nbytes, on)
    try:
        predicted_s = float(collective_s(kind, workers, nbytes, on, algorithm))
    except SynclineError as error:
        raise log_error(entry.file, entry.line, str(error)) from None
    bounds = communication_uncertainty(on, algorithm, workers, nbytes)
    return _row(entry, predicted_s, entry.value, f"{kind}, {workers} workers, {on.name}") | {
        "low_ms": 1e3 * bounds.low * predicted_s, "high_ms": 1e3 * bounds.high * predicted_s,
        "basis": f"{bounds.points} residuals of {bounds.basis}",
    }  # fmt: skip


def _preset(entry: Logged) -> Network:
    """Return the preset of the machines that a log names."""
    gpu = entry.setting["gpu"]
    presets = [machine.network for machine in gpus_in(gpu) if machine.network]
    if not presets:
        expected = "--cluster with the network, as the log names no GPU whose machines have a preset"
        raise log_error(entry.file, entry.line, f"gpu: got {gpu!r}; expected {expected}")
    return NETWORKS[presets[0]].network


def predicted_streams(paths: Sequence[Path]) -> list[_Row]:
    """Return a row per rate of the logs of lines, with its prediction, as milliseconds of a gigabyte.

    Streams are predicted by the window of the fewest streams of their line, which is in one of the files. A line with
    one number of streams is predicted by the window that Linux lets a connection have, `Tcp`.

    Raises:
        SynclineError: a log cannot be read, or a line has no round trip.
    """
    logged = [entry for path in paths for entry in read_log(path)]
    rows = []
    for (source, target), line in lines_by_ends(logged).items():
        law, counts = StreamLaw.from_line(line), {entry.setting["streams"] for entry in line.rates}
        for entry in line.rates:
            streams = entry.setting["streams"]
            if len(counts) > 1:
                rate, basis = law.rate_bytes_per_s(streams), f"{law.bounds.points} residuals of {law.bounds.basis}"
            else:
                rate, basis = float(Tcp(connections=streams).rate_bytes_per_s(np.inf, law.rtt_s)), "Linux's window"
            row = _row(entry, GB / rate, GB / entry.value, f"streams from {source} to {target}")
            if len(counts) > 1 and streams == min(counts):
                row["error"] = None  # this row gives the window
            is_bounded = len(counts) > 1 and law.bounds.points
            low, high = (law.bounds.low, law.bounds.high) if is_bounded else (None, None)
            rows.append(
                row
                | {
                    "low_ms": low and low * row["predicted_ms"],
                    "high_ms": high and high * row["predicted_ms"],
                    "basis": basis,
                }
            )
    return rows


def _row(entry: Logged, predicted_s: float, measured_s: float, regime: str) -> _Row:
    """Return the columns of a measurement and its prediction."""
    setting = {name: value for name, value in entry.setting.items() if name != "gpu" and value is not None}
    return {name: str(value) if name == "nodes" else value for name, value in setting.items()} | {
        "file": entry.file.name, "line": entry.line, "regime": regime, "measured_ms": 1e3 * measured_s,
        "predicted_ms": 1e3 * predicted_s, "error": predicted_s / measured_s - 1,
    }  # fmt: skip
