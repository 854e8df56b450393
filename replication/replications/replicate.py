"""The command ``syncline replicate``: runs the stages in order, within its allowance, and stores each as a table."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from replication.replications.averages import averages_rows, keep_averages, read_averages
from replication.replications.choosing import check_effort, chosen_trials
from replication.replications.expected import Expected, expected
from replication.replications.measured import MEASURED, measured_rows
from replication.replications.networks import NETWORKS_TABLE, networks_identity, rows_over_networks, timed_cells
from replication.replications.networks_page import draw_networks
from replication.replications.persistent import Trainer, check_text
from replication.replications.replicated import EMPTY_STAGE, Replicated
from replication.replications.search_one_by_one import SearchOneByOne, rows_of_averages, stage_rows
from replication.replications.spec import CPU, ReplicationSpec
from replication.replications.stage_tables import (
    CompletedStage,
    StageRows,
    keep_stage,
    read_stage,
    stage_in,
    stage_table,
)  # fmt: skip
from replication.replications.stages import (
    ReplicationStage,
    check_stages,
    final_rows,
    final_stages,
    independent_stages,
    rerun_stage,
    search_stage,
    seconds_trained,
    trial_rows,
)
from syncline import SpecError, SynclineError
from syncline.runs.folders.folder import environment
from syncline.runs.folders.result_files import remove_manifest, write_manifest
from syncline.runs.processes.progress import Listener
from syncline.runs.sweep.folder import Swept
from syncline.runs.sweep.identity import code_version
from syncline.runs.sweep.jobs import Allowance

TRAININGS = "trainings"
"""Folder inside a replication's folder with the sources of its tables: a sweep's folder per stage."""


StageListener = Callable[[ReplicationStage], AbstractContextManager[Listener]]
TrainStage = Callable[[ReplicationStage], CompletedStage | None]


def default_folder(spec: ReplicationSpec, scale: str | None) -> Path:
    """Return the folder of a replication if the user names none."""
    return Path("results") / "replication" / (spec.name if scale in (None, CPU) else f"{spec.name}-{scale}")


def command_of(spec: str, scale: str | None, seeds: Sequence[int] | None) -> str:
    """Return the command that makes a replication, without the limits of one piece."""
    words = ["syncline", "replicate", spec]
    if scale:
        words += ["--scale", scale]
    if seeds is not None:
        is_count = list(seeds) == list(range(len(seeds)))
        words += ["--seeds", str(len(seeds)) if is_count else str(list(seeds))]
    return shlex.join(words)


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
    search_s: float | None = None,
) -> Replicated:
    """Search, choose, train the finals and the extras, and compare, as far as the allowance permits.

    A second call continues where the last one ended, however it ended: each training is stored when it is done, and
    each completed stage as a table. Completed stages stay valid when the code changes; other code repeats the trainings
    of an incomplete stage, unless the search goes one by one, whose finished trainings all stay.

    Args:
        spec: the replication.
        out: its folder.
        command: the command that the page names to make the replication.
        claims: texts of the claims, by the names in the spec.
        jobs: number of processes side by side; one per core if None. It changes no number.
        allowance: limit of the trainings of this call; no limit by default.
        on_stage: function that gives the listener of a stage's trainings.
        on_expected: function that is called with the expected effort before anything is trained.
        search_s: seconds after which a search one by one ends with the trials that it has.

    Raises:
        SpecError: the spec cannot be trained, or the folder has something else; raised before anything is trained.
        SynclineError: trainings failed, or methods have different numbers of trials.
    """
    result = Replicated(spec, out, spec.num_trainings_by_stage())
    check_folder(out)
    search, allowance = search_stage(spec), allowance or Allowance()
    trainer: Trainer | None = None
    train_stage: TrainStage
    if spec.search.one_by_one:
        trainer = Trainer(out / TRAININGS, jobs, allowance, search_s)
        train_stage = partial(_train_by_lines, result, trainer)
    else:
        train_stage = partial(_train_by_sweeps, result, jobs, allowance, on_stage)
    if read_stage(stage_table(out, search.name), search.identity) is None:
        check_stages(spec)
    if on_expected is not None:
        remaining = expected(spec, out)
        if remaining is not None:
            on_expected(remaining)
    trials = train_stage(search)
    if trials is not None:
        result.effort = check_effort(spec, trials.rows)
        repeated = train_stage(rerun_stage(spec, trials.rows)) if spec.rerun else EMPTY_STAGE
        if repeated is not None:
            result.chosen = chosen_trials(spec, trials.rows, repeated.rows)
            _train_finals(result, train_stage, trainer)
    if trainer is not None:
        trainer.close()
        result.notes = trainer.notes
    result.judge()
    if result.kept:
        from replication.replications.readme import write_readme

        write_readme(result, command, claims or {})
    write_manifest(out)
    return result


def _train_finals(result: Replicated, train_stage: TrainStage, trainer: Trainer | None) -> None:
    """Train the finals, the extras and the measured stages with the chosen hyperparameters, and time them on networks.

    A ``trainer`` first trains all stages that do not depend on each other, without a wait between them.
    """
    spec, chosen = result.spec, result.chosen_methods()
    if trainer is not None and not trainer.interrupted:
        independent = independent_stages(spec, chosen)
        trainer.train_ahead([stage for stage in independent if not stage_table(result.folder, stage.name).is_file()])
    judged_stages: list[ReplicationStage] = []
    for stage in final_stages(spec, chosen, lambda cell: result.last("averages")[cell]):
        if train_stage(stage) is None:
            break
        if not stage.name.startswith(MEASURED):
            judged_stages.append(stage)
    if judged_stages:
        result.networks = over_networks(result, judged_stages)


def over_networks(result: Replicated, stages: Sequence[ReplicationStage]) -> StageRows:
    """Return the losses over time and bytes on other networks, and write them as a table and figures.

    An existing table of the same stages, networks and code is read instead.
    """
    path, identity = result.folder / NETWORKS_TABLE, networks_identity(result.spec, stages, code_version())
    if path.is_file():
        digest, stage = stage_in(path)
        if digest == identity:
            return list(stage.rows)
    cells = timed_cells(result.spec, stages, result.kept, read_averages(result.tables()))
    prepare_folder(result.folder)
    draw_networks(result, cells)
    return list(keep_stage(path, rows_over_networks(cells, result.spec.network_names), identity, {}).rows)


def _train_by_sweeps(
    result: Replicated, jobs: int | None, allowance: Allowance, on_stage: StageListener | None, stage: ReplicationStage
) -> CompletedStage | None:
    """Train a stage as far as the allowance permits, and return it; None if it is not complete."""
    path = stage_table(result.folder, stage.name)
    completed = read_stage(path, stage.identity)
    if completed is None and not result.interrupted:
        trained: list[TrainedPart] = []
        prepare_folder(result.folder)
        for part in stage.parts():
            folder = result.folder / TRAININGS / part.file_name
            with nullcontext(Listener()) if on_stage is None else on_stage(part) as listener:
                swept = part.train(folder, jobs, allowance, listener)
            if swept.interrupted:
                result.finished[stage.name] = sum(len(done.swept.rows) for done in trained) + len(swept.rows)
                result.interrupted = not allowance.spent
                return None
            trained.append(TrainedPart(part, swept, folder / "runs"))
        completed = _store_stage(stage, trained, path)
    if completed is not None:
        result.keep(stage.name, completed)
    return completed


def _train_by_lines(result: Replicated, trainer: Trainer, stage: ReplicationStage) -> CompletedStage | None:
    """Train a stage of a replication whose search goes one by one, and return it; None if it is not complete."""
    path = stage_table(result.folder, stage.name)
    completed = read_stage(path, stage.identity)
    if completed is None and not trainer.interrupted:
        prepare_folder(result.folder)
        if stage.name == "search":
            assert result.spec.search.one_by_one
            lines = SearchOneByOne(result.spec, result.spec.search.one_by_one, trainer).lines_of_all()
        else:
            lines = trainer.train_stage(stage, timed=stage.name != "rerun")
        result.interrupted = trainer.interrupted
        if lines is None:
            keys = {line["key"] for line in trainer.lines.values() if line["stage"] == stage.name}
            result.finished[stage.name] = min(len(keys), result.planned[stage.name])
            return None
        check_text(lines)
        about = trainer.about | {
            "day": datetime.now(UTC).date().isoformat(),
            "trainings": sum(len(line["rows"]) for line in lines),
            "seconds": math.ceil(sum(line["wall_s"] for line in lines)),
            "corpus_sha256": lines[0]["corpus_sha256"],
        }
        if stage.name not in ("search", "rerun"):
            keep_averages(path, rows_of_averages(lines), about)
        completed = keep_stage(path, stage_rows(stage, lines), stage.identity, about)
    if completed is not None:
        result.keep(stage.name, completed)
    return completed


class TrainedPart(NamedTuple):
    """A sweep of a stage, and the folder of its runs."""

    stage: ReplicationStage
    swept: Swept
    runs: Path


def _store_stage(stage: ReplicationStage, trained: Sequence[TrainedPart], path: Path) -> CompletedStage:
    """Store the rows of a stage's sweeps as a table, with the table of averages beside it."""
    swept_rows, rows, rows_of_averages = StageRows(), StageRows(), StageRows()
    for part in trained:
        swept_rows += part.swept.rows
    failed = [row for row in swept_rows if row["error"] is not None]
    if failed:
        raise SynclineError(
            f"{stage.name}: {len(failed)} of {len(swept_rows)} trainings failed, the first with: {failed[0]['error']}"
        )
    for part in trained:
        rows += _rows_of_part(stage, part)
        rows_of_averages += averages_rows(part.swept, part.runs)
    about = environment() | {
        "code": code_version(), "day": datetime.now(UTC).date().isoformat(), "trainings": len(swept_rows),
        "seconds": math.ceil(sum(seconds_trained(part.swept, part.runs) for part in trained)),
    }  # fmt: skip
    keep_averages(path, rows_of_averages, about)
    return keep_stage(path, rows, stage.identity, about)


def _rows_of_part(stage: ReplicationStage, part: TrainedPart) -> StageRows:
    """Return the rows that are stored of a stage's sweep: measures, trials or losses, by the kind of the stage."""
    if stage.name.startswith(MEASURED):
        return measured_rows(part.swept, part.runs)
    if stage.name in ("search", "rerun"):
        return trial_rows(part.stage, part.swept)
    return final_rows(part.stage, part.swept, part.runs)


def check_folder(out: Path) -> None:
    """Refuse a folder in which a subfolder has the name of an output file, before anything is computed.

    Raises:
        SpecError: such a subfolder exists.
    """
    if not out.is_dir():
        return
    for path in out.iterdir():
        if path.suffix in (".parquet", ".json", ".md", ".png") and path.is_dir():
            raise SpecError("--out", str(out), f"a folder as it was written: {path.name} is a folder")


def prepare_folder(out: Path) -> None:
    """Make the folder, and remove the manifest, because the files will change.

    Raises:
        SpecError: the place cannot be written to.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        remove_manifest(out)
    except OSError as error:
        raise SpecError("--out", str(out), f"a place that can be written to ({error.strerror})") from None
