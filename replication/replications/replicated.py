"""A replication as far as it has come: its spec, its folder, its stages and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from replication.replications.choosing import average_of, method_with
from replication.replications.spec import Cell, ReplicationSpec
from replication.replications.stage_tables import (
    CompletedStage,
    StageRows,
    stage_table,
)
from replication.replications.verdicts import search_spreads, verdict_rows

EXTRA = "extra "
"""Prefix of the names of extras."""


EMPTY_STAGE = CompletedStage([], {})
"""The empty stage of repeated trials, for a spec in which the search alone chooses."""


@dataclass
class Replicated:
    """The progress of a replication, and its results.

    Attributes:
        spec: the replication.
        folder: folder of the replication.
        planned: trainings by stage.
        finished: completed trainings by stage.
        kept: completed stages, by name.
        effort: trials of each method, once the search is complete.
        chosen: ``trial`` and ``knobs`` of each method, once both searches are complete.
        verdicts: a row per comparison whose cells are all trained.
        networks: a row per method, setting and network, once the finals are complete.
        interrupted: whether Ctrl-C ended it.
        notes: trainings that raised and were tried once more, a line each.
    """

    spec: ReplicationSpec
    folder: Path
    planned: dict[str, int]
    finished: dict[str, int] = field(default_factory=dict)
    kept: dict[str, CompletedStage] = field(default_factory=dict)
    effort: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: StageRows = field(default_factory=list)
    networks: StageRows = field(default_factory=list)
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def num_remaining(self) -> int:
        """Return the number of trainings that are still to be done."""
        return sum(self.planned.values()) - sum(self.finished.values())

    def keep(self, name: str, stage: CompletedStage) -> None:
        """Add a completed stage; a search one by one may have ended with fewer trials than planned."""
        self.kept[name] = stage
        if name == "search" and self.spec.search.one_by_one:
            self.planned[name] = len(stage.rows)
        self.finished[name] = self.planned[name]

    def chosen_methods(self) -> dict[str, dict[str, Any]]:
        """Return the fields of each method with the hyperparameters that were chosen, by label."""
        return {method.label: method_with(method, self.chosen[method.label]["knobs"]) for method in self.spec.methods}

    def json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        stages = [
            {"stage": name, "trainings": number, "finished": self.finished.get(name, 0), "whole": name in self.kept}
            for name, number in self.planned.items()
        ]
        return {
            "rows": self.verdicts, "stages": stages, "effort": self.effort, "chosen": self.chosen,
            "left": self.num_remaining,
            "networks": self.networks, "folder": str(self.folder), "interrupted": self.interrupted,
        }  # fmt: skip

    def spreads(self) -> dict[str, np.ndarray]:
        """Return the spread of each method's search once it is complete; empty before, and for a single trial."""
        trials = self.kept.get("search", EMPTY_STAGE).rows if self.spec.search.trials > 1 else []
        return search_spreads(trials, self.kept.get("rerun", EMPTY_STAGE).rows, average_of(self.spec))

    def judge(self) -> None:
        """Set the verdicts on the claims whose cells are all trained."""
        losses, rounding = self.losses(), self.spec.finals.rounding
        repeats = {Cell(cell.method): of_seeds for cell, of_seeds in losses.items() if cell.extra == rounding != ""}
        self.verdicts = verdict_rows(self.spec.claims, losses, self.spec.min_seeds, self.spreads(), repeats)

    def losses(self) -> dict[Cell, dict[int, float]]:
        """Return the last loss of each method and seed, for completed finals and extras."""
        return self.last("loss")

    def last(self, column: str) -> dict[Cell, dict[int, Any]]:
        """Return the last value of a column of finals and extras: ``loss``, ``bytes_per_worker`` or ``step_time_s``."""
        values: dict[Cell, dict[int, Any]] = {}
        for name, extra in self._judged():
            for row in sorted(self.kept[name].rows, key=lambda evaluation: evaluation["step"]):
                cell = Cell(row["method"], extra)
                values.setdefault(cell, {})[row["seed"]] = row.get(column)
        return values

    def evaluations(self) -> dict[Cell, dict[int, dict[int, float]]]:
        """Return the losses of completed finals and extras, by seed and step."""
        losses: dict[Cell, dict[int, dict[int, float]]] = {}
        for name, extra in self._judged():
            for row in self.kept[name].rows:
                of_seed = losses.setdefault(Cell(row["method"], extra), {}).setdefault(row["seed"], {})
                of_seed[row["step"]] = row["loss"]
        return losses

    def tables(self) -> dict[str, Path]:
        """Return the tables of completed finals (empty name) and extras, by the extra's name."""
        return {extra: stage_table(self.folder, name) for name, extra in self._judged()}

    def _judged(self) -> list[tuple[str, str]]:
        """Return the stages whose losses count, with the names that cells give them."""
        names = [name for name in self.kept if name == "finals" or name.startswith(EXTRA)]
        return [(name, name.removeprefix(EXTRA) if name != "finals" else "") for name in names]
