"""``syncline replicate``: the stages one after another, as far as is allowed now; each whole one is kept as a table."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import SpecError, SynclineError
from syncline.experiments.folder import environment
from syncline.experiments.manifest import remove_manifest, write_manifest
from syncline.experiments.replicating.along import ALONG, measured_rows
from syncline.experiments.replicating.averages import averages_rows, keep_averages, read_averages
from syncline.experiments.replicating.choosing import check_effort, chosen_trials, method_with
from syncline.experiments.replicating.expected import Expected, expected
from syncline.experiments.replicating.kept import KeptStage, StageRows, keep_stage, read_stage, stage_in, stage_table
from syncline.experiments.replicating.networks import NETWORKS_TABLE, networks_identity, rows_over_networks, timed_cells
from syncline.experiments.replicating.stages import (
    ReplicationStage,
    again_stage,
    check_stages,
    final_rows,
    final_stages,
    search_stage,
    seconds_trained,
    trial_rows,
)
from syncline.experiments.replicating.verdicts import verdict_rows
from syncline.experiments.sweep.allowance import Allowance
from syncline.experiments.sweep.identity import code_version
from syncline.experiments.sweep.listener import Listener
from syncline.experiments.sweep.swept import Swept
from syncline.specs.replications import CPU, Cell, ReplicationSpec

EXTRA = "extra "
"""What names of extras begin with."""

TRAININGS = "trainings"
"""Of a replication's folder: what its tables are made of, a sweep's folder per stage."""

NOBODY = KeptStage([], {})
"""What is trained again where the search alone chooses."""

StageListener = Callable[[ReplicationStage], AbstractContextManager[Listener]]


@dataclass
class Replicated:
    """How far a replication is, and what came out.

    Attributes:
        spec: what is replicated.
        folder: where everything is.
        planned: trainings by stage.
        finished: those of them that are done.
        kept: stages that are whole, by name.
        effort: trials of each method, once the search is whole.
        chosen: ``trial`` and ``knobs`` of each method, once both searches are whole.
        verdicts: a row per comparison whose cells are all trained.
        networks: a row per method, setting and network, once the finals are whole.
        interrupted: whether Ctrl-C ended it.
    """

    spec: ReplicationSpec
    folder: Path
    planned: dict[str, int]
    finished: dict[str, int] = field(default_factory=dict)
    kept: dict[str, KeptStage] = field(default_factory=dict)
    effort: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: StageRows = field(default_factory=list)
    networks: StageRows = field(default_factory=list)
    interrupted: bool = False

    @property
    def left(self) -> int:
        """Trainings that are still to be made."""
        return sum(self.planned.values()) - sum(self.finished.values())

    def json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        stages = [
            {"stage": name, "trainings": number, "finished": self.finished.get(name, 0), "whole": name in self.kept}
            for name, number in self.planned.items()
        ]
        return {
            "rows": self.verdicts, "stages": stages, "effort": self.effort, "chosen": self.chosen, "left": self.left,
            "networks": self.networks, "folder": str(self.folder), "interrupted": self.interrupted,
        }  # fmt: skip

    def losses(self) -> dict[Cell, dict[int, float]]:
        """The last loss of each method and seed, of finals and extras that are whole."""
        return self.last("loss")

    def last(self, column: str) -> dict[Cell, dict[int, Any]]:
        """What a column of finals and extras ends with: ``loss``, ``bytes_per_worker`` or ``step_time_s``."""
        found: dict[Cell, dict[int, Any]] = {}
        for name, extra in self._judged():
            for row in sorted(self.kept[name].rows, key=lambda one: one["step"]):
                cell = Cell(row["method"], extra)
                found.setdefault(cell, {})[row["seed"]] = row.get(column)
        return found

    def evaluations(self) -> dict[Cell, dict[int, dict[int, float]]]:
        """Losses of finals and extras that are whole, by seed and step."""
        found: dict[Cell, dict[int, dict[int, float]]] = {}
        for name, extra in self._judged():
            for row in self.kept[name].rows:
                of_seed = found.setdefault(Cell(row["method"], extra), {}).setdefault(row["seed"], {})
                of_seed[row["step"]] = row["loss"]
        return found

    def tables(self) -> dict[str, Path]:
        """Of finals (no name) and extras that are whole, by the extra's name."""
        return {extra: stage_table(self.folder, name) for name, extra in self._judged()}

    def _judged(self) -> list[tuple[str, str]]:
        """Stages whose losses count, and what cells call them."""
        names = [name for name in self.kept if name == "finals" or name.startswith(EXTRA)]
        return [(name, name.removeprefix(EXTRA) if name != "finals" else "") for name in names]


def default_folder(spec: ReplicationSpec, scale: str | None) -> Path:
    """Where a replication is kept if nobody says where."""
    return Path("results") / "replication" / (spec.name if scale in (None, CPU) else f"{spec.name}-{scale}")


def command_of(spec: str, scale: str | None, seeds: Sequence[int] | None) -> str:
    """The command that makes a replication, without the limits of one piece."""
    parts = ["syncline", "replicate", spec, *(["--scale", scale] if scale else [])]
    if seeds is not None:
        counted = list(seeds) == list(range(len(seeds)))
        parts += ["--seeds", str(len(seeds)) if counted else str(list(seeds))]
    return shlex.join(parts)


def replicate(
    spec: ReplicationSpec,
    out: Path,
    *,
    command: str = "",
    claims: Mapping[str, str] | None = None,
    jobs: int | None = None,
    allowance: Allowance | None = None,
    on_stage: StageListener | None = None,
    on_expected: Callable[[Expected], None] | None = None,
) -> Replicated:
    """Search, choose, train the finals and the extras, and compare: as far as is allowed now.

    The same again goes on where the last one ended, however it ended: each training is kept as soon as it is done, and
    of each stage that is whole a table. Stages that are whole stay so when the code changes; trainings of one that is
    not are made anew by other code.

    Args:
        spec: what is replicated.
        out: its folder.
        command: what is told to make it again.
        claims: what is said, by the names of the spec's claims.
        jobs: processes side by side; one per core if none. It changes no number.
        allowance: how much is trained now; everything by default.
        on_stage: who is told of a stage's trainings.
        on_expected: who is told, before anything is trained, how long it will take.

    Raises:
        SpecError: something that cannot be trained, or a folder of something else; before anything is trained.
        SynclineError: trainings that failed, or methods of which not as many trials can be trained.
    """
    result = Replicated(spec, out, spec.planned())
    check_folder(out)
    search = search_stage(spec)
    whole = partial(_whole, result, jobs, allowance or Allowance(), on_stage or (lambda _: nullcontext(Listener())))
    if read_stage(stage_table(out, search.name), search.identity) is None:
        check_stages(spec)
    if on_expected is not None and (left := expected(spec, out)) is not None:
        on_expected(left)
    trials = whole(search)
    if trials is not None:
        result.effort = check_effort(spec, trials.rows)
        again = whole(again_stage(spec, trials.rows)) if spec.again else NOBODY
        if again is not None:
            result.chosen = chosen_trials(spec, trials.rows, again.rows)
            chosen = {one.label: method_with(one, result.chosen[one.label]["knobs"]) for one in spec.methods}
            made: list[ReplicationStage] = []
            for stage in final_stages(spec, chosen, lambda cell: result.last("averages")[cell]):
                if whole(stage) is None:
                    break
                made.append(stage)
            result.networks = over_networks(result, [one for one in made if not one.name.startswith(ALONG)])
    result.verdicts = verdict_rows(spec.claims, result.losses(), spec.least_seeds)
    if result.kept:
        from syncline.experiments.replicating.readme import write_readme

        write_readme(result, command, claims or {})
    write_manifest(out)
    return result


def over_networks(result: Replicated, stages: Sequence[ReplicationStage]) -> StageRows:
    """Losses over time and bytes on other networks, kept as a table and drawn; the table is read where it is there.

    Empty until the finals are whole.
    """
    if not stages:
        return []
    path, identity = result.folder / NETWORKS_TABLE, networks_identity(result.spec, stages, code_version())
    if path.is_file():
        there, kept = stage_in(path)
        if there == identity:
            return list(kept.rows)
    from syncline.experiments.replicating.networks_page import draw_networks

    cells = timed_cells(result.spec, stages, result.kept, read_averages(result.tables()))
    prepare_folder(result.folder)
    draw_networks(result, cells)
    return list(keep_stage(path, rows_over_networks(cells, result.spec.network_names), identity, {}).rows)


def _whole(
    result: Replicated, jobs: int | None, allowance: Allowance, on_stage: StageListener, stage: ReplicationStage
) -> KeptStage | None:
    """A stage, trained as far as is allowed; None if that is not enough."""
    path = stage_table(result.folder, stage.name)
    kept = read_stage(path, stage.identity)
    if kept is None and not result.interrupted:
        trained: list[TrainedPart] = []
        prepare_folder(result.folder)
        for part in stage.parts():
            folder = result.folder / TRAININGS / part.file_name
            with on_stage(part) as listener:
                swept = part.swept(folder, jobs, allowance, listener)
            if swept.interrupted:
                result.finished[stage.name] = sum(len(one.swept.rows) for one in trained) + len(swept.rows)
                result.interrupted = not allowance.spent
                return None
            trained.append(TrainedPart(part, swept, folder / "runs"))
        kept = _kept(stage, trained, path)
    if kept is not None:
        result.kept[stage.name] = kept
        result.finished[stage.name] = stage.trainings
    return kept


class TrainedPart(NamedTuple):
    """A sweep of a stage, and where its runs are."""

    stage: ReplicationStage
    swept: Swept
    runs: Path


def _kept(stage: ReplicationStage, trained: Sequence[TrainedPart], path: Path) -> KeptStage:
    swept_rows = [row for part in trained for row in part.swept.rows]
    failed = [row for row in swept_rows if row["error"] is not None]
    if failed:
        raise SynclineError(
            f"{stage.name}: {len(failed)} of {len(swept_rows)} trainings failed, the first with: {failed[0]['error']}"
        )
    rows = [row for part in trained for row in _rows(stage, part)]
    about = environment() | {
        "code": code_version(),
        "day": datetime.now(UTC).date().isoformat(),
        "trainings": len(swept_rows),
        "seconds": math.ceil(sum(seconds_trained(part.swept, part.runs) for part in trained)),
    }
    keep_averages(path, [row for part in trained for row in averages_rows(part.swept, part.runs)], about)
    return keep_stage(path, rows, stage.identity, about)


def _rows(stage: ReplicationStage, part: TrainedPart) -> StageRows:
    if stage.name.startswith(ALONG):
        return measured_rows(part.swept, part.runs)
    if stage.name in ("search", "again"):
        return trial_rows(part.stage, part.swept)
    return final_rows(part.stage, part.swept, part.runs)


def check_folder(out: Path) -> None:
    """Refuse a folder in which a folder has the name of a file of ours, before anything is computed.

    Raises:
        SpecError: there is one.
    """
    for path in out.iterdir() if out.is_dir() else ():
        if path.suffix in (".parquet", ".json", ".md", ".png") and path.is_dir():
            raise SpecError("--out", str(out), f"a folder as it was written: {path.name} is a folder")


def prepare_folder(out: Path) -> None:
    """Make the folder, and remove the manifest, as the files will change.

    Raises:
        SpecError: the place cannot be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_manifest(out)
    except OSError as error:
        raise SpecError("--out", str(out), f"a place that can be written to ({error.strerror})") from None
