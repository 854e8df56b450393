"""A paper's claims at equal effort."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.errors import SpecError, one_of
from syncline.runs.sweep.grid import seeds_of
from syncline.specs.replications import CPU, ReplicationSpec, bundled_replications, load_replication, scales_of
from syncline.units import parse_seconds

if TYPE_CHECKING:
    from syncline.runs.replicating.expected import Expected
    from syncline.runs.replicating.stages import ReplicationStage
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
    """Replicate a paper's claims: a search of equal effort for every method, finals on fresh seeds, verdicts.

    The same again goes on where the last one ended, however it ended.

    Args:
        name: of a bundled replication, or a YAML file.
        scale: ``cpu``, or one of the file's ``scales``, as ``larger`` and ``gpu``.
        seeds: of the finals: how many, or which; the file's by default.
        most: trainings that are made now; all of them by default.
        time: for how long trainings are begun now, s or with a unit: ``"10min"``.
        jobs: processes side by side; one per core if none. It changes no number.
        out: the folder; ``results/replication/NAME`` by default.
        on_stage: given a stage, who is told of its trainings.
        on_expected: told, before anything is trained, how much is left and how long it will take.

    Returns:
        A row per comparison, with the state of its claim; ``told`` has ``stages``, ``effort``, ``chosen``, ``left``.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted; before anything is trained.

    >>> import syncline as sl
    >>> sl.replicate("mt-dao", most=0)
    Traceback (most recent call last):
    syncline.errors.SpecError: most: got 0; expected at least 1 training
    """
    from syncline.runs.replicating.replicate import command_of, default_folder
    from syncline.runs.replicating.replicate import replicate as experiment
    from syncline.runs.replicating.tables import replication_tables
    from syncline.runs.sweep.allowance import Allowance

    allowance = Allowance(most, None if time is None else parse_seconds(time, "--for"))
    asked = seeds_of(seeds)
    spec = load_replication(name, scale, asked)
    said = _said(spec)
    made = experiment(
        spec,
        Path(out) if out is not None else default_folder(spec, scale),
        command=command_of(str(name), scale, asked),
        claims=said,
        jobs=jobs,
        allowance=allowance,
        on_stage=on_stage,
        on_expected=on_expected,
    )
    return Result(
        "replicate", made.json(), spec, tables=lambda: replication_tables(made, said), folder=Path(made.folder)
    )


def replicated_in(folder: Path) -> Result:
    """The result in a replication's folder, as far as its stages are whole.

    Raises:
        SynclineError: it is none, it is not as it was written, or its spec is gone.
    """
    from syncline.runs.replicating.reading import command_in, read_replication
    from syncline.runs.replicating.tables import replication_tables

    made = read_replication(folder)
    said = _said(made.spec)
    told = made.json() | {"command": command_in(folder)}
    return Result("replicate", told, made.spec, tables=lambda: replication_tables(made, said), folder=folder)


def known_replications() -> Result:
    """The bundled replications: a row each, with its scales and the trainings of each stage."""
    from syncline.specs.tables.columns import Column, count_of, table, text_of

    rows = []
    for name, path in bundled_replications().items():
        sized = {scale: load_replication(name, scale) for scale in [CPU, *scales_of(path)]}
        trainings = {scale: sum(spec.planned().values()) for scale, spec in sized.items()}
        spec = sized[CPU]
        rows.append(
            {
                "name": name, "scales": trainings, "methods": len(spec.methods), "claims": len(spec.claims),
                "trainings": trainings[CPU], "stages": spec.planned(), "description": spec.description,
            }
        )  # fmt: skip
    columns: list[Column] = [
        text_of("name"), ("trainings\nby scale", _trainings_by_scale), count_of("methods"), count_of("claims"),
        text_of("description"),
    ]  # fmt: skip
    return Result("replicate", {"rows": rows}, tables=lambda: [table("replications", columns, rows, left=(0, 1, 4))])


def _trainings_by_scale(row: Mapping[str, Any]) -> str:
    return "\n".join(f"{scale} {trainings}" for scale, trainings in row["scales"].items())


def _said(spec: ReplicationSpec) -> Mapping[str, str]:
    """What the claims of a paper say, by their ids."""
    if not spec.paper:
        return {}
    from syncline.studies.scoreboard.claim_register import claims_of
    from syncline.studies.scoreboard.rows import PAPERS

    if spec.paper not in PAPERS:
        raise SpecError("paper", spec.paper, one_of(PAPERS, spec.paper))
    known: dict[str, Any] = {claim.id: claim.claim for claim in claims_of(spec.paper) if claim.id}
    for i, one in enumerate(spec.claims):
        if one.claim not in known:
            raise SpecError(f"claims.{i}.claim", one.claim, f"{one_of(known, one.claim)}, of the register of claims")
    return known
