"""The origin of a result: its spec, the versions, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from syncline.runs.report.reported import Reported
from syncline.units import format_seconds

SHOWN = {
    "syncline": "Syncline", "git_commit": "commit", "python": "Python", "machine": "processor", "device": "device",
    "dtype": "numbers", "machines": "machines",
}  # fmt: skip


DIGITS = 12
"""Number of digits of a commit."""


def provenance_of(result: Reported) -> dict[str, Any]:
    """Return ``command``, ``versions`` (name and value) and ``spec`` (text); unknown parts are left out."""
    return {"command": _command(result), "versions": list(_versions(result)), "spec": _spec(result)}


def _versions(result: Reported) -> Iterator[tuple[str, str]]:
    noted = result.noted
    for name, label in SHOWN.items():
        text = str(noted.get(name) or "")
        if name == "git_commit" and text:  # a "+" says that files differ from the commit
            text = text[:DIGITS] + ("+" if text.endswith("+") else "")
        if text:
            yield label, text
    packages = noted.get("packages")
    if isinstance(packages, dict):
        yield "packages", ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    seeds = noted.get("seeds")
    if isinstance(seeds, list):
        yield "seeds", ", ".join(map(str, seeds))
    wall_s = noted.get("wall_s")
    seconds = sum(wall_s.values()) if isinstance(wall_s, dict) else wall_s
    if isinstance(seconds, int | float):
        yield "trained for", format_seconds(float(seconds))
    for name in ("grids", "tuned", "launch", "question"):
        if isinstance(noted.get(name), dict):
            yield name, yaml.safe_dump(noted[name], sort_keys=False, default_flow_style=True, width=10_000).strip()


def _command(result: Reported) -> str:
    """Return the command that repeats the result, if its folder has it, without the options of launches and traces."""
    if result.output.get("command"):
        return str(result.output["command"])
    scripts = result.noted.get("scripts")
    if result.command == "trace" and isinstance(scripts, dict):
        words = [shlex.join(words) if isinstance(words, list) else str(words) for words in scripts.values()]
        options = (["--workers", str(result.rows[0]["workers"])] if result.rows else []) + _networks(result)
        if len(words) == 1:
            return f"{shlex.join(['syncline', 'trace', *options])} -- {words[0]}"
        return shlex.join(["syncline", "trace", *options, *(part for script in words for part in ("--script", script))])
    records = result.noted.get("records")
    if result.command == "whatif" and isinstance(records, list):
        return shlex.join(["syncline", "whatif", *map(str, records), *_networks(result)])
    if result.command in ("run", "compare", "pipeline", "launch") and result.file("spec.yaml") is not None:
        return f"syncline {result.command} spec.yaml"  # the page has the spec; its path does not matter
    return _sweep_command(result) if result.command == "sweep" else ""


def _sweep_command(result: Reported) -> str:
    """Return the command of a sweep over grids of numbers, which work with any run's spec; empty for other sweeps."""
    grids = result.noted.get("grids") or {}
    values = [value for several in grids.values() for value in several]
    if result.noted.get("tuned") or not result.rows or not all(isinstance(value, int | float) for value in values):
        return ""
    options = [part for path, several in grids.items() for part in ("--grid", f"{path}={','.join(map(str, several))}")]
    seeds = list(dict.fromkeys(row["seed"] for row in result.rows))
    return shlex.join(["syncline", "sweep", "spec.yaml", *options, "--seeds", str(seeds)])


def _networks(result: Reported) -> list[str]:
    """Return the networks of the rows as options of a command."""
    networks = dict.fromkeys(str(row["network"]) for row in result.rows)
    return [part for network in networks for part in ("--network", network)]


def _spec(result: Reported) -> str:
    """Return the text of the result's spec; of a sweep that a command repeats, the spec of its first run."""
    path = result.file("spec.yaml")
    if result.command == "sweep" and _sweep_command(result) and result.rows:
        path = result.file(f"runs/{result.rows[0]['run']}/spec.yaml")
    if path is not None:
        return path.read_text(encoding="utf-8")
    if isinstance(result.spec, BaseModel):
        return yaml.safe_dump(result.spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    return ""
