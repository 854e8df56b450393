"""Which knobs a method gets: the best trials of its search, seen again at another seed."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.headline.kept import RESULTS
from syncline.files import parse_yaml
from syncline.specs.load import with_knobs

SEEN_AGAIN = 4
"""How many trials of each method are seen again: fixed before the first of them was."""

SEED = 102
"""At which they are; the search has another."""

FIRST = "trial", "loss", "again"
"""Columns that are no knobs; the others are fields of a method."""


def trials_of(path: Path = RESULTS / "trials.csv") -> dict[str, list[dict[str, Any]]]:
    """The trials of each method in their order: ``trial``, ``loss``, ``again`` if seen again, and knobs by path."""
    found: dict[str, list[dict[str, Any]]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            method = line.pop("method")
            row = {name: float(value) for name, value in line.items() if value}
            found.setdefault(method, []).append(row)
    return found


def knobs(trial: Mapping[str, Any]) -> dict[str, float]:
    """What was searched, to three digits; of what is a bit below 1, three digits of what it lacks.

    >>> knobs({"trial": 2, "loss": 2.5, "lr": 0.00123456, "beta2": 0.9912345})
    {'lr': 0.00123, 'beta2': 0.99123}
    """
    return {name: rounded(value) for name, value in trial.items() if name not in FIRST}


def rounded(value: float) -> float:
    """Three digits of a value, or of what it lacks to 1.

    >>> rounded(1.26543), rounded(0.0123456), rounded(0.9912345)
    (1.27, 0.0123, 0.99123)
    """
    if 0.5 < value < 1:
        lacking = f"{1 - value:.3g}"
        return round(1 - float(lacking), len(lacking) - 2)
    return float(f"{value:.3g}")


def searched_spec(folder: Path = RESULTS) -> dict[str, Any]:
    """The spec of the search."""
    found: dict[str, Any] = parse_yaml((folder / "search.yaml").read_text())
    return found


def second_look(path: Path, trials: Path = RESULTS / "trials.csv") -> None:
    """Write the spec of what is seen again: the best trials of each method, named ``METHOD TRIAL``."""
    spec, methods, found = searched_spec(), [], trials_of(trials)
    for method in spec["methods"]:
        ranked = sorted(found[method["label"]], key=lambda one: one.get("loss", float("inf")))
        for one in ranked[:SEEN_AGAIN]:
            methods.append(with_knobs(method, knobs(one)) | {"label": f"{method['label']} {one['trial']:.0f}"})
    fields = spec | {"name": "headline-again", "seeds": [SEED], "methods": methods}
    path.write_text(yaml.safe_dump(fields, sort_keys=False))


def keep_again(folder: Path, path: Path = RESULTS / "trials.csv") -> None:
    """Add what was seen again to the trials."""
    losses = {row["method"]: row["loss"] for row in json.loads((folder / "sweep.json").read_text())["rows"]}
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    first = ["method", *FIRST]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*first, *(name for name in lines[0] if name not in first)], lineterminator="\n")
        writer.writeheader()
        for line in lines:
            again = losses.get(f"{line['method']} {line['trial']}")
            writer.writerow(line | {"again": "" if again is None else f"{again:.5g}"})


def chosen(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """The trial with the lowest mean of both seeds."""
    return min((one for one in trials if "again" in one), key=lambda one: one["loss"] + one["again"])


def chosen_methods() -> dict[str, dict[str, Any]]:
    """Label -> fields with the knobs that were chosen."""
    trials = trials_of()
    return {one["label"]: with_knobs(one, knobs(chosen(trials[one["label"]]))) for one in searched_spec()["methods"]}


def in_one_line(fields: Mapping[str, Any]) -> str:
    """As specs have a method.

    >>> in_one_line({"kind": "ddp", "rule": {"kind": "adam"}, "lr": 0.002})
    '{kind: ddp, rule: {kind: adam}, lr: 0.002}'
    """
    return str(yaml.safe_dump(dict(fields), default_flow_style=True, sort_keys=False, width=1000)).strip()
