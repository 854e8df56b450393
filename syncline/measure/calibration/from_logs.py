"""``syncline calibrate --from``: a network from logs of collectives, or lines between places from iperf3 and ping."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from syncline.costmodel import Link, Network, TwoLevel, chosen_algorithm, collective_s
from syncline.costmodel.bases import STREAMS
from syncline.costmodel.least_squares import relative_fit
from syncline.costmodel.network.software_costs import FREE, GENERATIONS, nvlink_costs
from syncline.costmodel.numerics.uncertainty import Scope
from syncline.errors import SpecError
from syncline.measure.calibration.cluster_file import RATES, TIMES, ClusterFile, Fields, bounds_section, quantity
from syncline.measure.calibration.stream_law import StreamLaw, lines_by_ends
from syncline.measure.logs import Logged, gpus_in, read_log
from syncline.specs import network_fields
from syncline.version import __version__

SAME_WINDOW = 0.05
"""Relative spread of windows that count as one."""

NVLINK_S = 0.6e-6
"""Latency of NVLink inside a node, as the presets have it."""

MIN_COLLECTIVES = 3
"""Smallest number of collectives from which a latency and a bandwidth are fitted, with a residual to tell the error."""

ALL_PAIRS = "a run of iperf3 between all pairs of places, in either direction"


def calibrate_from_logs(
    logs: Sequence[str], out: Path, algorithm: str | None = None, command: str = "", *, exact: bool = False
) -> Fields:
    """Write a cluster file whose network is fitted to logs.

    Args:
        out: the file to write; a number is added if it exists, unless ``exact``.
        algorithm: the algorithm of the logged collectives, or the policy that chose it; ``auto`` by default.

    Returns:
        ``file``, ``name``, the sections of the file, and ``rows``: each measurement with its prediction and error.

    Raises:
        SynclineError: a log cannot be read, the logs are of both kinds, or their measurements determine no network.
    """
    logged = [entry for name in logs for entry in read_log(Path(name), "--from")]
    quantities = {entry.quantity for entry in logged}
    if "collective" in quantities and len(quantities) > 1:
        raise SpecError("--from", list(logs), "logs of collectives, or of lines between places, but not both")
    if algorithm is not None and "collective" not in quantities:
        raise SpecError("--algorithm", algorithm, "none for logs of lines between places, which run no collectives")
    with ClusterFile(out, exact) as file:
        if "collective" in quantities:
            section, rows = _fit_collectives(logged, algorithm or "auto")
        else:
            section, rows = _fit_lines(logged)
        measured = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "command": command,
            "syncline": __version__, "logs": [str(name) for name in logs],
        } | ({"algorithm": algorithm} if algorithm else {})  # fmt: skip
        return file.write({"measured": measured, "network": section, "collectives": rows})


def _fit_collectives(logged: Sequence[Logged], policy: str) -> tuple[Fields, list[Fields]]:
    """Return the network section that fits collectives best, and a row for each of them.

    ``policy`` names the algorithm of all collectives, or the policy that chooses it.
    """
    if len(logged) < MIN_COLLECTIVES:
        raise SpecError("--from", f"{len(logged)} collectives", f"at least {MIN_COLLECTIVES}, of several sizes")
    measured_s = np.array([entry.value for entry in logged])
    fits = [_fit_network(logged, build_network, policy) for build_network in _candidates(logged, policy)]
    squared_errors = [np.square(np.log(fitted_s / measured_s)).sum() for _, fitted_s in fits]
    network, predicted_s = fits[int(np.argmin(squared_errors))]
    errors = predicted_s / measured_s - 1
    scope = Scope.of_values(
        workers=[float(entry.setting["workers"]) for entry in logged],
        nbytes=[float(entry.setting["nbytes"]) for entry in logged],
    )
    kinds = ", ".join(sorted({entry.setting["kind"] for entry in logged}))
    section = network_fields(network)
    assert isinstance(section, dict)
    del section["name"]
    fitted_link = section if isinstance(network, Link) else section["between"]  # the link between nodes
    fitted_link.update(bounds_section(errors, f"{kinds} in the logs", scope))
    rows = []
    for entry, seconds, error in zip(logged, predicted_s, errors, strict=True):
        rows.append({
            "collective": entry.setting["kind"], "algorithm": _algorithm_of(entry, network, policy),
            "workers": entry.setting["workers"], "nbytes": entry.setting["nbytes"], "measured_s": entry.value,
            "predicted_s": float(seconds), "error": float(error),
        })  # fmt: skip
    return section, rows


def _algorithm_of(entry: Logged, network: Network, policy: str) -> str:
    """Return the name of the algorithm that carries a logged collective on a network."""
    setting = entry.setting
    return chosen_algorithm(policy, setting["kind"], setting["workers"], setting["nbytes"], network)


def _candidates(logged: Sequence[Logged], policy: str) -> list[Callable[[float, float], Network]]:
    """Return functions ``(latency_s, bytes_per_s) -> network`` of the networks that a log may have been measured on.

    In one node these are a plain link, and NVLink of each possible generation. Nodes of several GPUs have NVLink inside
    and a link between them, with one network card per GPU. All other logs have one link. A link of gloo's collectives
    carries gloo's costs, all 0, so that later commands use gloo's algorithms by default.
    """
    if policy == "gloo":
        return [partial(Link, gloo=FREE)]
    nodes = {entry.setting["nodes"] for entry in logged}
    gpus_per_node = {entry.setting["workers"] // entry.setting["nodes"] for entry in logged if entry.setting["nodes"]}
    gpus = {gpu for entry in logged for gpu in gpus_in(entry.setting["gpu"])}
    generations = sorted({gpu.nvlink for gpu in gpus if gpu.nvlink}) or list(GENERATIONS)  # all if the GPUs are unknown

    def build_node(latency_s: float, bytes_per_s: float, generation: int) -> Network:
        return Link(latency_s, bytes_per_s, fabric="nvlink", nvlink=nvlink_costs(generation))

    def build_nodes(latency_s: float, bytes_per_s: float, generation: int) -> Network:
        nvlink = Link(
            NVLINK_S, GENERATIONS[generation], f"nvlink{generation}", fabric="nvlink", nvlink=nvlink_costs(generation)
        )
        (num_gpus,) = gpus_per_node
        return TwoLevel(num_gpus, nvlink, Link(latency_s, bytes_per_s))

    if nodes == {1}:
        return [Link, *(partial(build_node, generation=generation) for generation in generations)]
    if len(gpus_per_node) == 1 and gpus_per_node != {1} and None not in nodes:
        return [partial(build_nodes, generation=generation) for generation in generations]
    return [Link]


def _fit_network(
    logged: Sequence[Logged], build_network: Callable[[float, float], Network], policy: str
) -> tuple[Network, np.ndarray]:
    """Return the network that predicts logged collectives best, and the seconds that it predicts for each.

    ``build_network`` returns a network with a latency in seconds and a bandwidth in bytes per second.
    """

    def predict_s(constants: np.ndarray) -> np.ndarray:
        """Return the seconds ``(..., N)`` of the N collectives for latencies and bandwidths ``(2, ..., 1)``."""
        latencies_s, rates = np.asarray(constants)[..., 0]  # without the last axis, of length 1
        seconds = []
        for latency_s, bytes_per_s in zip(latencies_s.ravel().tolist(), rates.ravel().tolist(), strict=True):
            network = build_network(latency_s, bytes_per_s)
            for entry in logged:
                kind, workers, nbytes = (entry.setting[name] for name in ("kind", "workers", "nbytes"))
                algorithm = _algorithm_of(entry, network, policy)
                seconds.append(float(collective_s(kind, workers, nbytes, network, algorithm)))
        return np.reshape(seconds, (*latencies_s.shape, len(logged)))

    measured_s = [entry.value for entry in logged]
    # The fit starts from four rough guesses, because it may end in a minimum that is only local: the bandwidth as if
    # the largest collective only sent bytes, and the latency as if the fastest one were 2 P empty messages.
    largest = max(logged, key=lambda entry: entry.setting["nbytes"])
    bytes_per_s = largest.setting["nbytes"] / largest.value
    latency_s = min(measured_s) / (2 * max(entry.setting["workers"] for entry in logged))
    starts = [[latency_s * part, bytes_per_s * factor] for part in (0.1, 1.0) for factor in (1.0, 2.0)]
    fit = relative_fit(predict_s, np.array(measured_s), starts, scale=0.1)
    return build_network(*fit.constants.tolist()), predict_s(fit.constants[:, None])


def _fit_lines(logged: Sequence[Logged]) -> tuple[Fields, list[Fields]]:
    """Return the network section of a matrix of lines between places, and a row for each measured rate.

    A line without a measured other direction has the same rate in both. Each place has one worker; the user can change
    this in the file.
    """
    lines = lines_by_ends(logged)
    laws = {ends: StreamLaw.from_line(line) for ends, line in lines.items()}
    places = list(dict.fromkeys(place for ends in laws for place in ends))
    for index, place in enumerate(places):
        for earlier_place in places[:index]:
            if (place, earlier_place) not in laws and (earlier_place, place) not in laws:
                raise SpecError("--from", f"no line from {place} to {earlier_place}", ALL_PAIRS)
    if not laws:
        raise SpecError("--from", "no rate between two places", ALL_PAIRS)

    windows = [law.window_bytes for law in laws.values()]
    have_same_window = max(windows) <= (1 + SAME_WINDOW) * min(windows)
    section: Fields = {"kind": "matrix", "places": dict.fromkeys(places, 1), "per": "connection"}
    if have_same_window:
        section["tcp"] = {"window": float(np.median(windows)), "connections": 1, "slow_start": False}
    section["lines"] = []
    rows, errors = [], []
    for (source, target), law in laws.items():
        bandwidth = quantity(law.cap_bytes_per_s, RATES)
        fields: Fields = {"from": source, "to": target, "rtt": quantity(law.rtt_s, TIMES), "bandwidth": bandwidth}
        if not have_same_window:
            fields["tcp"] = {"window": law.window_bytes, "connections": 1, "slow_start": False}
        section["lines"].append(fields)
        rates = lines[source, target].rates
        fewest_streams = min(entry.setting["streams"] for entry in rates)  # they give the window, so they test nothing
        for entry in rates:
            streams = entry.setting["streams"]
            predicted = law.rate_bytes_per_s(streams)
            error = entry.value / predicted - 1  # the error of the time, the inverse of the rate
            rows.append({
                "from": source, "to": target, "streams": streams, "measured_bytes_per_s": entry.value,
                "predicted_bytes_per_s": predicted, "error": error, "capped": law.is_capped,
            })  # fmt: skip
            if streams > fewest_streams:
                errors.append(error)
    return section | bounds_section(errors, "streams in the logs", Scope((STREAMS,))), rows
