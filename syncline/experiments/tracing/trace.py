"""``syncline trace``: run a foreign script once, and say what it would take on networks; ``whatif``: say it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from syncline.backend.tracing.ranks import ForeignScript, traced
from syncline.backend.tracing.record import RankRecord, Started
from syncline.costmodel import Hardware, Network
from syncline.errors import SpecError
from syncline.experiments.folder import RunFolder, environment
from syncline.experiments.tracing.kept import tables_of_record
from syncline.experiments.tracing.replay import Replayed, losses_of, replay
from syncline.sim import chrome_trace
from syncline.specs import hardware, network
from syncline.specs.clock import known_algorithm
from syncline.specs.cluster.spec_fields import check_joinable
from syncline.specs.experiment import check_distinct

MOST_WORKERS = 256
"""Each is a process of some hundred MB."""


class ReplayedOn(NamedTuple):
    """On what a record is replayed.

    Attributes:
        networks: one row each.
        hardware: that computes.
        algorithm: of all collectives; none: ``auto``, or what a network's library runs.
    """

    networks: Sequence[Network]
    hardware: Hardware
    algorithm: str | None = None

    @classmethod
    def of(cls, networks: Sequence[Any], machine: Any, algorithm: str | None = None) -> ReplayedOn:
        """From what a user writes.

        Raises:
            SpecError: names the option that cannot be used.
        """
        joined = [network(one, f"--network.{number}") for number, one in enumerate(networks)]
        check_distinct("--network", [one.name for one in joined])
        return cls(joined, hardware(machine, "--hardware"), known_algorithm(algorithm, "--algorithm"))


def check_trace(program: ForeignScript, workers: int, question: ReplayedOn) -> None:
    """Refuse before anything starts.

    Raises:
        SpecError: a script that is not there, too many workers, a network that cannot join them.
    """
    if not program.is_module and not Path(program.target).is_file():
        raise SpecError("script", program.target, "a Python file, or -m and a module's name, behind --")
    if not 1 <= workers <= MOST_WORKERS:
        raise SpecError("--workers", workers, f"a number from 1 to {MOST_WORKERS}, as each is a process")
    check_joinable(question.networks, workers)


def trace(program: ForeignScript, workers: int, question: ReplayedOn, out: Path, exact: bool = False) -> dict[str, Any]:
    """Run a program on so many ranks, keep the record, and replay it.

    Args:
        program: what is run.
        workers: ranks, one process each.
        question: on what it is replayed.
        out: the folder to write; see ``RunFolder`` for ``exact``.

    Returns:
        ``rows``, one per network, ``sites``, one per network and line of the script, and ``folder``.

    Raises:
        SynclineError: what `check_trace` refuses, or a rank that failed.
    """
    check_trace(program, workers, question)
    with RunFolder(out, exact) as folder:
        ranks = traced(program, workers)
        for name, table in tables_of_record(ranks).items():
            folder.long_table(name, [table])
        told, replays = replayed(ranks, question)
        words = [*(["-m"] if program.is_module else []), program.target, *program.args]
        folder.json("run", environment() | {"script": words, "workers": workers} | told)
        folder.long_table("curves", [curves_of(ranks, question, replays)])
        first = replays[0]
        folder.trace(chrome_trace(first.timeline))
    return told | {"folder": str(folder.path)}


def replayed(ranks: Sequence[RankRecord], question: ReplayedOn) -> tuple[dict[str, Any], list[Replayed]]:
    """A record on every network: rows and sites, and the replays."""
    check_joinable(question.networks, len(ranks))
    replays = [replay(ranks, on, question.hardware, question.algorithm) for on in question.networks]
    sites = [row for on, one in zip(question.networks, replays, strict=True) for row in sites_of(ranks, on, one)]
    return {"rows": [one.row for one in replays], "sites": sites}, replays


def sites_of(ranks: Sequence[RankRecord], on: Network, of: Replayed) -> list[dict[str, Any]]:
    """Which lines of the script communicate: calls, bytes and seconds on the network of a rank; the longest first."""
    timeline = of.timeline
    spans = timeline.stream != "compute"
    seconds: dict[str, float] = {}
    for label, took_s in zip(
        timeline.label[spans].tolist(), (timeline.end_s - timeline.start_s)[spans].tolist(), strict=True
    ):
        seconds[label] = seconds.get(label, 0.0) + took_s
    counts: dict[str, tuple[int, int]] = {}
    for rank in ranks:
        for event in rank.events:
            if isinstance(event, Started) and len(event.ranks) > 1:
                calls, nbytes = counts.get(event.site, (0, 0))
                counts[event.site] = calls + 1, nbytes + event.payload_bytes
    told = [
        {
            "network": on.name,
            "site": site,
            "calls": calls / len(ranks),
            "bytes": nbytes / len(ranks),
            "communication_s": seconds.get(site, 0.0) / len(ranks),
        }
        for site, (calls, nbytes) in counts.items()
    ]
    return sorted(told, key=lambda row: -row["communication_s"])


def curves_of(ranks: Sequence[RankRecord], question: ReplayedOn, replays: Sequence[Replayed]) -> pa.Table:
    """Loss against the clock of each network, step by step."""
    losses = losses_of(ranks)
    columns: dict[str, list[Any]] = {"network": [], "step": [], "seconds": [], "loss": []}
    for on, one in zip(question.networks, replays, strict=True):
        per_step = len(losses) // max(len(one.step_end_s), 1)  # several backward passes may make a step
        for step, end_s in enumerate(one.step_end_s.tolist()):
            columns["network"].append(on.name)
            columns["step"].append(step + 1)
            columns["seconds"].append(end_s)
            columns["loss"].append(
                float(np.mean(losses[step * per_step : (step + 1) * per_step])) if per_step else None
            )
    return pa.table(columns, schema=CURVES)


CURVES = pa.schema([("network", pa.string()), ("step", pa.int64()), ("seconds", pa.float64()), ("loss", pa.float64())])
