"""Where a result is from: its spec, the versions, the command that makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from syncline.experiments.reporting.reported import Reported
from syncline.units import format_seconds

SHOWN = {
    "syncline": "Syncline", "git_commit": "commit", "python": "Python", "machine": "processor", "device": "device",
    "dtype": "numbers", "machines": "machines",
}  # fmt: skip


DIGITS = 12
"""Of a commit."""


def origin_of(one: Reported) -> dict[str, Any]:
    """``command``, ``versions`` (name and value) and ``spec`` (text); what is not known is left out."""
    return {"command": _command(one), "versions": list(_versions(one)), "spec": _spec(one)}


def _versions(one: Reported) -> Iterator[tuple[str, str]]:
    noted = one.noted
    for name, said in SHOWN.items():
        if noted.get(name) not in (None, ""):
            yield said, _commit(noted[name]) if name == "git_commit" else str(noted[name])
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


def _commit(full: Any) -> str:
    """As many digits as tell commits apart, and whether files differ from it."""
    text = str(full)
    return text[:DIGITS] + ("+" if text.endswith("+") else "")


def _command(one: Reported) -> str:
    """What makes it again, as far as its folder says that: options of a launch or a trace stand beside the versions."""
    if one.told.get("command"):
        return str(one.told["command"])
    scripts = one.noted.get("scripts")
    if one.command == "trace" and isinstance(scripts, dict):
        words = [shlex.join(words) if isinstance(words, list) else str(words) for words in scripts.values()]
        options = ["--workers", str(one.rows[0]["workers"])] if one.rows else []
        options += [part for network in _networks(one) for part in ("--network", network)]
        if len(words) == 1:
            return f"{shlex.join(['syncline', 'trace', *options])} -- {words[0]}"
        return shlex.join(["syncline", "trace", *options, *(part for each in words for part in ("--script", each))])
    records = one.noted.get("records")
    if one.command == "whatif" and isinstance(records, list):
        options = [part for network in _networks(one) for part in ("--network", network)]
        return shlex.join(["syncline", "whatif", *map(str, records), *options])
    if one.command in ("run", "compare", "pipeline", "launch") and one.file("spec.yaml") is not None:
        return f"syncline {one.command} spec.yaml"  # the text below: where it lies here is nobody else's affair
    return _sweep_command(one) if one.command == "sweep" else ""


def _sweep_command(one: Reported) -> str:
    """Of grids of numbers, which any run's spec can be swept over; nothing of others."""
    grids = one.noted.get("grids") or {}
    values = [value for several in grids.values() for value in several]
    if one.noted.get("tuned") or not one.rows or not all(isinstance(value, int | float) for value in values):
        return ""
    options = [part for path, several in grids.items() for part in ("--grid", f"{path}={','.join(map(str, several))}")]
    seeds = list(dict.fromkeys(row["seed"] for row in one.rows))
    return shlex.join(["syncline", "sweep", "spec.yaml", *options, "--seeds", str(seeds)])


def _networks(one: Reported) -> list[str]:
    return list(dict.fromkeys(str(row["network"]) for row in one.rows))


def _spec(one: Reported) -> str:
    path = one.file("spec.yaml")
    if one.command == "sweep" and _sweep_command(one) and one.rows:
        path = one.file(f"runs/{one.rows[0]['run']}/spec.yaml")
    if path is not None:
        return path.read_text(encoding="utf-8")
    if isinstance(one.spec, BaseModel):
        return yaml.safe_dump(one.spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)
    return ""
