"""Replications of a paper's claims, with equal effort for every method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replication.replications.spec import CPU, ReplicationSpec, bundled_replications, load_replication, scales_of
from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.errors import SpecError, one_of
from syncline.runs.sweep.grid import seeds_of
from syncline.units import parse_seconds

if TYPE_CHECKING:
    from replication.replications.expected import Expected
    from replication.replications.stages import ReplicationStage
    from syncline.runs.sweep.listener import Listener


@checked
def replicate(
    name: str | Path,
    *,
    scale: str | None = None,
    seeds: int | Sequence[int] | None = None,
    most: int | None = None,
    time: float | str | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    on_stage: Callable[[ReplicationStage], AbstractContextManager[Listener]] | None = None,
    on_expected: Callable[[Expected], None] | None = None,
) -> Result:
    """Replicate a paper's claims: a search of equal effort for every method, finals on fresh seeds, and verdicts.

    A second call with the same arguments continues from the last finished training.

    Args:
        name: the name of a bundled replication, or a YAML file.
        scale: ``cpu``, or one of the file's ``scales``, such as ``larger`` and ``gpu``.
        seeds: number of seeds of the finals, or their list; the file's by default.
        most: largest number of trainings in this call; all by default.
        time: time after which this call starts no more trainings, in seconds or with a unit: ``"10min"``.
        jobs: number of processes side by side; one per core by default. It changes no result.
        out: the folder; ``results/replication/NAME`` by default.
        on_stage: function from a stage to a context manager of the listener that is informed of its trainings.
        on_expected: function called before the first training with the number of trainings left and their expected
            time.

    Returns:
        The result with a row per comparison and the state of its claim; `Result.told` has ``stages``, ``effort``,
        ``chosen`` and ``left``.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted, before any
            training.

    >>> import syncline as sl
    >>> sl.replicate("mt-dao", most=0)
    Traceback (most recent call last):
    syncline.errors.SpecError: most: got 0; expected at least 1 training
    """
    from replication.replications.replicate import command_of, default_folder
    from replication.replications.replicate import replicate as experiment
    from replication.replications.tables import replication_tables
    from syncline.runs.sweep.allowance import Allowance

    allowance = Allowance(most, None if time is None else parse_seconds(time, "--for"))
    seed_list = seeds_of(seeds)
    spec = load_replication(name, scale, seed_list)
    claims = _claim_texts(spec)
    replication = experiment(
        spec,
        Path(out) if out is not None else default_folder(spec, scale),
        command=command_of(str(name), scale, seed_list),
        claims=claims,
        jobs=jobs,
        allowance=allowance,
        on_stage=on_stage,
        on_expected=on_expected,
    )
    return Result(
        "replicate",
        replication.json(),
        spec,
        tables=lambda: replication_tables(replication, claims),
        folder=Path(replication.folder),
    )


def read_replication_result(folder: Path) -> Result:
    """Return the result in a replication's folder, as far as its stages are complete.

    Raises:
        SynclineError: the folder is not a replication's, its files have changed, or its spec is missing.
    """
    from replication.replications.reading import command_in, read_replication
    from replication.replications.tables import replication_tables

    replication = read_replication(folder)
    claims = _claim_texts(replication.spec)
    answer = replication.json() | {"command": command_in(folder)}
    return Result(
        "replicate", answer, replication.spec, tables=lambda: replication_tables(replication, claims), folder=folder
    )


def known_replications() -> Result:
    """Return the bundled replications: a row each, with its scales and the trainings of each stage."""
    from syncline.planner.tables.columns import Column, count_of, table, text_of

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
    columns: list[Column] = [
        text_of("name"), ("trainings\nby scale", _trainings_by_scale), count_of("methods"), count_of("claims"),
        text_of("description"),
    ]  # fmt: skip
    return Result(
        "replicate", {"rows": rows}, tables=lambda: [table("replications", columns, rows, text_columns=(0, 1, 4))]
    )


def _trainings_by_scale(row: Mapping[str, Any]) -> str:
    return "\n".join(f"{scale} {trainings}" for scale, trainings in row["scales"].items())


def _claim_texts(spec: ReplicationSpec) -> Mapping[str, str]:
    """Return the text of a paper's claims, by their ids."""
    if not spec.paper:
        return {}
    from replication.scoreboard.claim_register import claims_of
    from replication.scoreboard.rows import PAPERS

    if spec.paper not in PAPERS:
        raise SpecError("paper", spec.paper, one_of(PAPERS, spec.paper))
    claims: dict[str, Any] = {claim.id: claim.claim for claim in claims_of(spec.paper) if claim.id}
    for i, comparison in enumerate(spec.claims):
        if comparison.claim not in claims:
            raise SpecError(
                f"claims.{i}.claim", comparison.claim, f"{one_of(claims, comparison.claim)}, of the register of claims"
            )
    return claims
