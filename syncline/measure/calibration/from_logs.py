"""``syncline calibrate --from``: a network from logs of collectives, or lines between places from iperf3 and ping."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel import Link, Network, TwoLevel, chosen_algorithm, collective_s
from syncline.costmodel.bases import STREAMS
from syncline.costmodel.least_squares import relative_fit
from syncline.costmodel.network.software_costs import GENERATIONS, nvlink_costs
from syncline.costmodel.numerics.uncertainty import Scope, Uncertainty, uncertainty_of
from syncline.errors import SpecError
from syncline.measure.calibration.cluster_file import RATES, TIMES, ClusterFile, Fields, quantity
from syncline.measure.calibration.stream_law import StreamLaw, lines_by_ends
from syncline.measure.logs import Logged, gpus_in, read_log
from syncline.specs import network_fields
from syncline.specs.cluster.reading import bounds_fields
from syncline.version import __version__

SAME_WINDOW = 0.05
"""Relative spread of windows that count as one."""

NVLINK_S = 0.6e-6
"""Latency of NVLink inside a node, as the presets have it."""

FEWEST = 3
"""Smallest number of collectives from which a latency and a bandwidth are fitted, with a residual to tell the error."""


def calibrate_from_logs(logs: Sequence[str], out: Path, *, command: str = "", exact: bool = False) -> Fields:
    """Write a cluster file whose network is fitted to logs.

    Args:
        logs: files with collectives, or with rates and round trips of lines.
        out: the file to write; a number is added if it exists, unless ``exact``.
        command: the user's command, for the file.
        exact: refuse an existing file.

    Returns:
        ``file``, ``name``, the sections of the file, and ``rows``: each measurement with its prediction and error.

    Raises:
        SynclineError: a log cannot be read, logs of both kinds, or measurements that determine no network.
    """
    logged = [entry for name in logs for entry in read_log(Path(name), "--from")]
    quantities = {entry.quantity for entry in logged}
    if "collective" in quantities and len(quantities) > 1:
        raise SpecError("--from", list(logs), "logs of collectives, or of lines between places: a network has one kind")
    with ClusterFile(out, exact) as file:
        section, rows = _collectives(logged) if "collective" in quantities else _lines(logged)
        measured = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "command": command,
            "syncline": __version__, "logs": [str(name) for name in logs],
        }  # fmt: skip
        return file.write({"measured": measured, "network": section, "collectives": rows})


def _collectives(logged: Sequence[Logged]) -> tuple[Fields, list[Fields]]:
    """Return the network section that fits collectives best, and a row for each of them."""
    if len(logged) < FEWEST:
        raise SpecError("--from", f"{len(logged)} collectives", f"{FEWEST} at least, of several sizes")
    fits = [_fit(logged, parts) for parts in _candidates(logged)]
    network, predicted_s = min(fits, key=lambda fit: float(np.square(np.log(fit[1] / _seconds(logged))).sum()))
    errors = predicted_s / _seconds(logged) - 1
    scope = Scope.of_values(
        workers=[float(entry.setting["workers"]) for entry in logged],
        nbytes=[float(entry.setting["nbytes"]) for entry in logged],
    )
    kinds = ", ".join(sorted({entry.setting["kind"] for entry in logged}))
    uncertainty = uncertainty_of(errors)
    bounds = bounds_fields(
        Uncertainty(
            uncertainty.low, uncertainty.high, points=len(logged), basis=f"{kinds} in the logs", sources=0, scope=scope
        )
    )
    section = network_fields(network)
    assert isinstance(section, dict), "candidates are described by fields"
    (section if isinstance(network, Link) else section["between"])["bounds"] = bounds
    rows = [
        {"collective": entry.setting["kind"], "workers": entry.setting["workers"], "nbytes": entry.setting["nbytes"],
         "measured_s": entry.value, "predicted_s": float(seconds), "error": float(error)}
        for entry, seconds, error in zip(logged, predicted_s, errors, strict=True)
    ]  # fmt: skip
    return {name: value for name, value in section.items() if name != "name"}, rows


def _seconds(logged: Sequence[Logged]) -> np.ndarray:
    """Return the measured seconds of logged collectives, ``(N,)``."""
    return np.array([entry.value for entry in logged])


def _generations(logged: Sequence[Logged]) -> list[int]:
    """Return the generations of NVLink that the GPUs of the logs have; all of them if the GPUs are unknown."""
    gpus = {gpu for entry in logged for gpu in gpus_in(entry.setting["gpu"])}
    return sorted({gpu.nvlink for gpu in gpus if gpu.nvlink}) or list(GENERATIONS)


def _candidates(logged: Sequence[Logged]) -> list[Any]:
    """Return functions ``(latency_s, bytes_per_s) -> network`` of the networks that a log may have been measured on.

    In one node, a plain link and NVLink of each possible generation. Between nodes of several GPUs, NVLink inside the
    nodes and the fitted link between them, one card per GPU. Otherwise one link.
    """
    nodes = {entry.setting["nodes"] for entry in logged}
    per_node = {entry.setting["workers"] // entry.setting["nodes"] for entry in logged if entry.setting["nodes"]}
    if nodes == {1}:
        with_nvlink = [
            lambda latency_s, rate, g=generation: Link(latency_s, rate, fabric="nvlink", nvlink=nvlink_costs(g))
            for generation in _generations(logged)
        ]
        return [Link, *with_nvlink]
    if len(per_node) == 1 and per_node != {1} and None not in nodes:
        return [
            lambda latency_s, rate, g=generation: TwoLevel(
                next(iter(per_node)),
                Link(NVLINK_S, GENERATIONS[g], f"nvlink{g}", fabric="nvlink", nvlink=nvlink_costs(g)),
                Link(latency_s, rate),
            )
            for generation in _generations(logged)
        ]
    return [Link]


def _fit(logged: Sequence[Logged], network_of: Any) -> tuple[Network, np.ndarray]:
    """Return the pair of the network that predicts logged collectives best and the seconds that it predicts."""

    def predicted_s(network: Network) -> np.ndarray:
        """Return the predicted seconds of each logged collective on a network."""
        seconds = []
        for entry in logged:
            kind, workers, nbytes = (entry.setting[name] for name in ("kind", "workers", "nbytes"))
            algorithm = chosen_algorithm("auto", kind, workers, nbytes, network)
            seconds.append(collective_s(kind, workers, nbytes, network, algorithm))
        return np.array(seconds, dtype=np.float64)

    measured_s = _seconds(logged)
    largest = max(logged, key=lambda entry: entry.setting["nbytes"])
    rate = largest.setting["nbytes"] / largest.value
    latency_s = float(measured_s.min()) / (2 * max(entry.setting["workers"] for entry in logged))
    # The fit starts from four rough guesses, because it may end in a minimum that is only local.
    starts = [[latency_s * part, rate * factor] for part in (0.1, 1.0) for factor in (1.0, 2.0)]

    def columns(values: np.ndarray) -> np.ndarray:
        """Return the seconds ``(..., calls)`` for constants ``(2, ..., 1)``."""
        seconds = np.apply_along_axis(lambda pair: predicted_s(network_of(*map(float, pair))), 0, np.asarray(values))
        return np.moveaxis(seconds, 0, -1)[..., 0, :]

    fit = relative_fit(columns, measured_s, starts, scale=0.1)
    network = network_of(*fit.constants.tolist())
    return network, predicted_s(network)


def _lines(logged: Sequence[Logged]) -> tuple[Fields, list[Fields]]:
    """Return the section of a matrix of lines, and a row for each rate.

    A line without measurements has that of its other direction. All places have one worker, which a user changes.
    """
    by_ends = lines_by_ends(logged)
    laws = {ends: StreamLaw.from_line(line) for ends, line in by_ends.items()}
    places = list(dict.fromkeys(place for ends in laws for place in ends))
    unmeasured = [
        f"{a} to {b}" for i, a in enumerate(places) for b in places[:i] if (a, b) not in laws and (b, a) not in laws
    ]
    if not laws or unmeasured:
        lack = f"no line from {unmeasured[0]}" if unmeasured else "no rate between two places"
        raise SpecError("--from", lack, "a run of iperf3 between all pairs of places, in either direction")
    windows = [law.window_bytes for law in laws.values()]
    is_one = max(windows) <= (1 + SAME_WINDOW) * min(windows)
    section: Fields = {"kind": "matrix", "places": dict.fromkeys(places, 1), "per": "connection"}
    if is_one:
        section["tcp"] = {"window": float(np.median(windows)), "connections": 1, "slow_start": False}
    section["lines"] = [
        {
            "from": source, "to": target, "rtt": quantity(law.rtt_s, TIMES),
            "bandwidth": quantity(law.cap_bytes_per_s, RATES),
        }
        | ({} if is_one else {"tcp": {"window": law.window_bytes, "connections": 1, "slow_start": False}})
        for (source, target), law in laws.items()
    ]  # fmt: skip
    rows, errors = [], []
    for (source, target), line in by_ends.items():
        law = laws[source, target]
        fewest = min(entry.setting["streams"] for entry in line.rates)
        for entry in line.rates:
            rate = law.rate_bytes_per_s(entry.setting["streams"])
            streams = entry.setting["streams"]
            error = entry.value / rate - 1
            errors += [error] if streams > fewest else []
            rows.append({
                "from": source, "to": target, "streams": streams, "measured_bytes_per_s": entry.value,
                "predicted_bytes_per_s": rate, "error": error, "capped": law.is_capped,
            })  # fmt: skip
    if len(errors) >= 2:
        uncertainty = uncertainty_of(errors)
        bounds = Uncertainty(
            uncertainty.low,
            uncertainty.high,
            points=len(errors),
            basis="streams in the logs",
            sources=0,
            scope=Scope((STREAMS,)),
        )
        section["bounds"] = bounds_fields(bounds)
    return section, rows
