"""Results of replications, as ``sl.replicate`` and ``sl.load`` return them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import syncline as sl
from replication.replications import bundled_replications
from replication.replications.expected import Expected
from replication.replications.reading import claim_texts, command_in, read_replication
from replication.replications.replicate import StageListener, command_of, default_folder, replicate
from replication.replications.spec import CPU, load_replication, scales_of
from replication.replications.tables import replication_tables
from syncline.planner.tables.table import table
from syncline.runs.sweep.grid import seeds_of
from syncline.runs.sweep.jobs import Allowance
from syncline.units import parse_seconds


def replication_result(
    name: str | Path,
    *,
    scale: str | None,
    seeds: int | Sequence[int] | None,
    max_trainings: int | None,
    time: float | str | None,
    jobs: int | None,
    out: str | Path | None,
    on_stage: StageListener | None,
    on_expected: Callable[[Expected], None] | None,
) -> sl.Result:
    """Train a replication as far as the limits permit, and return its result, as `sl.replicate` describes.

    Raises:
        SynclineError: an argument is wrong, or trainings failed.
    """
    allowance = Allowance(max_trainings, None if time is None else parse_seconds(time, "--for"))
    seed_list = seeds_of(seeds)
    spec = load_replication(name, scale, seed_list)
    claims = claim_texts(spec)
    replicated = replicate(
        spec, Path(out) if out is not None else default_folder(spec, scale),
        command=command_of(str(name), scale, seed_list), claims=claims, jobs=jobs, allowance=allowance,
        on_stage=on_stage, on_expected=on_expected,
    )  # fmt: skip
    return sl.Result(
        "replicate", replicated.json(), spec, tables=lambda: replication_tables(replicated, claims),
        folder=Path(replicated.folder),
    )  # fmt: skip


def read_replication_result(folder: Path) -> sl.Result:
    """Return the result in a replication's folder, as far as its stages are complete.

    Raises:
        SynclineError: the folder is not a replication's, its files have changed, or its spec is missing.
    """
    replicated = read_replication(folder)
    claims = claim_texts(replicated.spec)
    answer = replicated.json() | {"command": command_in(folder)}
    return sl.Result(
        "replicate", answer, replicated.spec, tables=lambda: replication_tables(replicated, claims), folder=folder
    )


def known_replications() -> sl.Result:
    """Return the bundled replications: a row each, with its scales and the trainings of each stage."""
    rows = []
    for name, path in bundled_replications().items():
        sized = {scale: load_replication(name, scale) for scale in [CPU, *scales_of(path)]}
        trainings = {scale: sum(spec.num_trainings_by_stage().values()) for scale, spec in sized.items()}
        spec = sized[CPU]
        rows.append(
            {
                "name": name, "scales": trainings, "methods": len(spec.methods), "claims": len(spec.claims),
                "trainings": trainings[CPU], "stages": spec.num_trainings_by_stage(), "description": spec.description,
            }
        )  # fmt: skip
    columns = "name trainings_by_scale methods claims description"
    return sl.Result(
        "replicate",
        {"rows": rows},
        tables=lambda: [table("replications", columns, rows, values={"trainings_by_scale": _trainings_by_scale})],
    )


def _trainings_by_scale(row: Mapping[str, Any]) -> str:
    return "\n".join(f"{scale} {trainings}" for scale, trainings in row["scales"].items())
