"""Results read back from their folders, and the page of results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.collectives import collectives_result
from syncline.api.projection import projection_result
from syncline.api.result import Result, deferred
from syncline.api.trainings import SweepResult, replay_result, training_result
from syncline.checkout import import_replication
from syncline.errors import SpecError, SynclineError
from syncline.fields import checked_argument
from syncline.files import refuse_changed_files
from syncline.measure.replaying.replay_folder import read_losses
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.planner.collectives import CostQuestion
from syncline.planner.transfer import transfers_of
from syncline.questions.results import Report
from syncline.registry import specs_as_data
from syncline.runs.folders.result_files import ROWS, check_rows, read_run_record
from syncline.runs.folders.run_index import is_replication
from syncline.runs.report.reported import reported
from syncline.runs.sweep.folder import SWEEP_FILE, read_sweep
from syncline.specs import VALIDATIONS, Experiment, RunSpec, kind_of, load_spec, network

if TYPE_CHECKING:
    from syncline.runs.report.page import ReportPage


@checked
def load(folder: str | Path) -> Result:
    """Return the result in a run folder, as the commands and `Result.save` write it.

    The folder of a sweep gives the result of `sl.sweep`, and that of a replication the result of `sl.replicate`, even
    before all trainings are finished.

    Reading runs no code: the function unpickles nothing, and it neither imports nor calls anything that the folder
    names by ``module:name``, ``file.py:name`` or ``{kind: python, ...}``. A problem of such a name keeps only the name.
    If the spec has other such names, the result has no `Result.spec` and no `Result.tables`; rows, data frames and the
    picture are read from the files. Built-in names, names that an installed package offers, and torch's own optimizers
    stay usable, because the folder does not choose their code.

    Args:
        folder: the folder of a run, a sweep or a replication.

    Raises:
        SynclineError: there is no such folder, or it is not the folder of a result.

    >>> import tempfile
    >>> import syncline as sl
    >>> with tempfile.TemporaryDirectory() as somewhere:
    ...     path = sl.pipeline(schedules=["gpipe"]).save(f"{somewhere}/gpipe")
    ...     print(sl.load(path).rows == sl.pipeline(schedules=["gpipe"]).rows)
    True
    """
    with refuse_changed_files(Path(folder)), specs_as_data():
        result = _loaded(Path(folder))
    result.read_from = Path(folder)
    return result


def answer_report(question: Report) -> ReportPage:
    """Return one HTML page of the question's results, which are `Result` objects or folders of results."""
    checked_argument("what", question.what, list[str | Path | Result])
    if not question.what:
        raise SpecError("report", question.what, "at least one result")
    pages = []
    for source in question.what:
        result = source if isinstance(source, Result) else load(source)
        # A result that is computed again from its record, such as a projection, has no folder.
        pages.append(reported(result, "" if result is source or result.folder is None else result.folder.name))
    from syncline.runs.report.page import write_page

    return write_page(pages, question.out, question.title)


def _loaded(path: Path) -> Result:
    """Return the result in the folder of a sweep, a replication, a trace, a projection or a training."""
    if (path / SWEEP_FILE).is_file():
        return SweepResult(read_sweep(path))
    if not (path / "run.json").is_file() and is_replication(path):
        result: Result = import_replication("replications.results").read_replication_result(path)
        return result
    if not os.path.lexists(path / "run.json"):
        raise SpecError("folder", str(path), "a run folder, with a run.json, or a sweep's")
    record = read_run_record(path / "run.json")
    if record.get("command") in ("trace", "whatif"):
        return _replay_result(record, path)
    return _run_result(record, path)


def _run_result(record: dict[str, Any], path: Path) -> Result:
    """Return the result in the folder of a projection, a validation or a training.

    Args:
        record: content of the folder's ``run.json``.
        path: the folder.
    """
    rows, command = record["rows"], str(record.get("command"))
    recompute = {"project": _projection, "collectives": _collectives}.get(command)
    if recompute is not None:
        check_rows(rows, path / "run.json", ROWS[command])
        try:
            return recompute(record)
        except SynclineError:  # a spec that cannot be read, for example because code makes it: the rows remain
            return Result(command, {"rows": rows}, folder=path)
    answer: dict[str, Any] = {"rows": rows, "folder": str(path), "interrupted": bool(record.get("interrupted"))}
    try:
        spec: Any = load_spec(path / "spec.yaml")
    except SynclineError:
        spec = None
    if "summary" in record:  # only a validation has one
        return _validation_result(record, spec, path)
    # A spec that cannot be read completely still states its kind.
    kind = kind_of(path / "spec.yaml") if (path / "spec.yaml").is_file() else "run"
    command = kind if kind in ("compare", "pipeline") else "run"  # `sl.run` answers a study, whatever its kind
    if "launch" in record:
        command = "launch"
    is_study = command == "run" and not isinstance(spec, RunSpec)
    has_own_columns = is_study or record.get("failed")  # a failed launch measured no times
    check_rows(rows, path / "run.json", {} if has_own_columns else ROWS.get(command, {}))
    if command == "launch":
        answer |= {name: record.get(name) for name in ("simulated", "failed")}
    if "measured_step_s" in record:
        answer["measured_step_s"] = record["measured_step_s"]
    if command == "compare":
        answer["target_loss"] = rows[0]["target_loss"] if rows else None
    return Result(command, answer, folder=path) if spec is None else training_result(command, spec, answer)


def _validation_result(record: dict[str, Any], spec: Any, path: Path) -> Result:
    """Return the stored result of a validation by published measurements, or by launched trainings."""
    names = ("rows", "summary", "constants", "cross_validation")
    answer = {name: record[name] for name in names if name in record} | {"folder": str(path)}
    module = "syncline.measure.validation.tables"
    if not isinstance(spec, VALIDATIONS):  # the measurements are launched trainings
        return Result("validate", answer, tables=deferred(f"{module}:validation_tables", answer), folder=path)
    answer = {"spec": spec.name} | answer
    return Result("validate", answer, spec, tables=deferred(f"{module}:validate_tables", answer, spec), folder=path)


def _projection(record: dict[str, Any]) -> Result:
    """Return the result of `sl.project` from the content of its ``run.json``."""
    specs: list[Experiment] = [load_spec(dict(fields)) for fields in record["specs"]]
    return projection_result(specs, record["rows"], transfers_of(specs), origins=record.get("origins"))


def _collectives(record: dict[str, Any]) -> Result:
    """Return the result of `sl.collectives` from the content of its ``run.json``."""
    fields: dict[str, Any] = dict(record["question"])
    fields |= {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    question = CostQuestion(**fields | {"networks": tuple(map(network, fields["networks"]))})
    return collectives_result(question, {name: record[name] for name in ("rows", "crossovers", "choices")})


def _replay_result(record: dict[str, Any], path: Path) -> Result:
    """Return the result of `sl.trace` or `sl.whatif` from its folder and the content of its ``run.json``."""
    check_rows(record["rows"], path / "run.json", ROWS["trace"])
    names = ("rows", "sites", "sensitivities")
    answer = {name: record[name] for name in names if name in record}
    answer |= {"losses": read_losses(path), "folder": str(path)}
    command = str(record["command"])
    try:
        question = ReplayedOn.from_fields(record["question"])
    except SpecError:  # the network or the hardware is made by code, or no longer exists
        return Result(command, answer, folder=path)
    return replay_result(command, answer, question)
