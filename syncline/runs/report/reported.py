"""A result as the input of a page, and its origin: the spec, the versions, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from rich.console import Group

from syncline.checkout import has_replication, import_replication
from syncline.runs.folders.result_files import json_value, read_object
from syncline.units import format_seconds

FACT_LABELS = {
    "syncline": "Syncline", "git_commit": "commit", "python": "Python", "machine": "processor", "device": "device",
    "dtype": "numbers", "machines": "machines",
}  # fmt: skip
"""Facts of ``run.json`` that the page shows, with their labels."""

COMMIT_DIGITS = 12
"""Number of digits of a commit's hash on the page."""


@dataclass(frozen=True)
class Reported:
    """A result as a page shows it.

    Attributes:
        command: command that made the result: ``compare``, ``sweep``, ...
        output: the object that ``--json`` prints.
        spec: spec of the run; None if it is unknown.
        folder: folder with the files of the result; None without files.
        findings: papers' claims about the methods: a ``title``, and ``claims`` with their ``state``.
    """

    title: str
    command: str
    output: Mapping[str, Any]
    tables: Sequence[Group]
    spec: Any = None
    folder: Path | None = None
    findings: Sequence[Mapping[str, Any]] = ()

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the result, with None for infinite numbers and NaN."""
        return json_value(self.output["rows"])

    @cached_property
    def stored_facts(self) -> dict[str, Any]:
        """Return the facts that the folder stores about the result's origin.

        They are the content of ``run.json`` or ``sweep.json``; for a replication, the metadata of its latest table. The
        result is empty without any of these files.
        """
        record_path = self.file("run.json") or self.file("sweep.json")
        if record_path is not None:
            return read_object(record_path)
        if self.command != "replicate":
            return {}
        latest_table = self.file("finals.parquet") or self.file("search.parquet")
        if latest_table is None:
            return {}
        _, stage_record = import_replication("replications.stage_tables").stage_in(latest_table)
        return dict(stage_record.about)

    def file(self, name: str) -> Path | None:
        """Return the path of a file of the folder; None if the folder has no such file."""
        if self.folder is None or not (self.folder / name).is_file():
            return None
        return self.folder / name

    @property
    def methods(self) -> list[str]:
        """Return the methods, or a trace's scripts, in the order of the rows."""
        return list(dict.fromkeys(str(row["method"]) for row in self.rows if row.get("method") is not None))

    @property
    def paths(self) -> list[str]:
        """Return the paths of the fields of a sweep; empty for other results."""
        grids, tuned = self.stored_facts.get("grids"), self.stored_facts.get("tuned")
        return [str(path) for path in [*(grids or {}), *(tuned or {})]]


def reported(result: Any, folder_name: str = "") -> Reported:
    """Return a `Result` as a page shows it; its title is the spec's name, or else ``folder_name``, or the command."""
    untitled = Reported(
        title="", command=result.command, output=result.record, tables=result.tables, spec=result.spec,
        folder=result.folder, findings=_claims_about_methods(result),
    )  # fmt: skip
    name = getattr(result.spec, "name", None) or untitled.stored_facts.get("name")
    return replace(untitled, title=str(name or folder_name or result.command))


def _claims_about_methods(result: Any) -> list[dict[str, Any]]:
    """Return the papers' claims about a result's methods, with a title per paper.

    There are none in an installed package, as only a checkout has the package ``replication``.
    """
    if not has_replication():
        return []
    methods = [*(getattr(result.spec, "methods", None) or ()), getattr(result.spec, "method", None)]
    names = {str(getattr(method, "kind", "")) for method in methods}
    names |= {str(row.get("method")) for row in result.record["rows"]}
    claims: list[dict[str, Any]] = import_replication("claims").findings_of(names)
    return claims


def titled(results: Sequence[Reported]) -> list[Reported]:
    """Return the results with distinct titles; equal titles get the folder's name, or its path, or a number."""
    titles = [result.title for result in results]
    titled_results = []
    for number, result in enumerate(results, start=1):
        title = result.title
        if titles.count(title) > 1:
            distinction = str(number)
            folders = [other.folder for other in results if other.title == title and other.folder is not None]
            if result.folder is not None and folders.count(result.folder) == 1:
                has_own_name = [folder.name for folder in folders].count(result.folder.name) == 1
                distinction = result.folder.name if has_own_name else str(result.folder)
            title = f"{title} ({distinction})"
        titled_results.append(replace(result, title=title))
    return titled_results


def provenance_of(result: Reported) -> dict[str, Any]:
    """Return the origin of a result: ``command``, ``versions`` (pairs of label and text), and ``spec`` (text)."""
    return {"command": _command(result), "versions": list(_facts(result)), "spec": _spec_text(result)}


def _facts(result: Reported) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each known fact about the origin of a result."""
    record = result.stored_facts
    for name, label in FACT_LABELS.items():
        text = str(record.get(name) or "")
        if name == "git_commit" and text:
            has_changed_files = text.endswith("+")
            text = text[:COMMIT_DIGITS] + ("+" if has_changed_files else "")
        if text:
            yield label, text
    packages = record.get("packages")
    if isinstance(packages, dict):
        yield "packages", ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    seeds = record.get("seeds")
    if isinstance(seeds, list):
        yield "seeds", ", ".join(map(str, seeds))
    wall_s = record.get("wall_s")
    if isinstance(wall_s, dict):  # seconds by method
        wall_s = sum(wall_s.values())
    if isinstance(wall_s, int | float):
        yield "trained for", format_seconds(float(wall_s))
    for name in ("grids", "tuned", "launch", "question"):
        if isinstance(record.get(name), dict):
            yield name, yaml.safe_dump(record[name], sort_keys=False, default_flow_style=True, width=10_000).strip()


def _command(result: Reported) -> str:
    """Return the command that repeats a result; empty if it is unknown.

    For launches and traces it has only the most important options.
    """
    if result.output.get("command"):
        return str(result.output["command"])
    scripts, records = result.stored_facts.get("scripts"), result.stored_facts.get("records")
    if result.command == "trace" and isinstance(scripts, dict):
        return _trace_command(result, scripts)
    if result.command == "whatif" and isinstance(records, list):
        return shlex.join(["syncline", "whatif", *map(str, records), *_network_options(result)])
    if result.command in ("run", "compare", "pipeline", "launch") and result.file("spec.yaml") is not None:
        return f"syncline {result.command} spec.yaml"  # the page has the spec; its path does not matter
    return _sweep_command(result) if result.command == "sweep" else ""


def _trace_command(result: Reported, scripts: Mapping[str, Any]) -> str:
    """Return the command that traces scripts again, which are given as words or as one text."""
    script_commands = [shlex.join(words) if isinstance(words, list) else str(words) for words in scripts.values()]
    options = _network_options(result)
    if result.rows:
        options = ["--workers", str(result.rows[0]["workers"]), *options]
    if len(script_commands) == 1:
        return f"{shlex.join(['syncline', 'trace', *options])} -- {script_commands[0]}"
    for script_command in script_commands:
        options += ["--script", script_command]
    return shlex.join(["syncline", "trace", *options])


def _sweep_command(result: Reported) -> str:
    """Return the command that repeats a sweep over grids of numbers; empty for other sweeps."""
    if result.stored_facts.get("tuned") or not result.rows:
        return ""
    options: list[str] = []
    for path, values in (result.stored_facts.get("grids") or {}).items():
        if not all(isinstance(value, int | float) for value in values):
            return ""
        options += ["--grid", f"{path}={','.join(map(str, values))}"]
    seeds = list(dict.fromkeys(row["seed"] for row in result.rows))
    return shlex.join(["syncline", "sweep", "spec.yaml", *options, "--seeds", str(seeds)])  # as in --seeds '[3, 4]'


def _network_options(result: Reported) -> list[str]:
    """Return the networks of the rows as options of a command."""
    options = []
    for network in dict.fromkeys(str(row["network"]) for row in result.rows):
        options += ["--network", network]
    return options


def _spec_text(result: Reported) -> str:
    """Return a result's spec in YAML; for a sweep that `_sweep_command` repeats, the spec of its first run."""
    path = result.file("spec.yaml")
    if result.command == "sweep" and _sweep_command(result):  # the command replaces the swept fields
        path = result.file(f"runs/{result.rows[0]['run']}/spec.yaml")
    if path is not None:
        return path.read_text(encoding="utf-8")
    if isinstance(result.spec, BaseModel):
        return yaml.safe_dump(result.spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    return ""
