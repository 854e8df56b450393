"""The finals of a replication by protocol 2: losses by step and seed, and the clocks of the networks they are timed on.

Losses come from the tables in ``results/replication``. No clock changes them, so times are computed when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from replication.replications.averages import read_averages
from replication.replications.networks import TimedCell, runs_over, timed_cells
from replication.replications.reading import read_replication
from replication.replications.stages import independent_stages
from syncline.analysis import time_to_target_s
from syncline.costmodel import Network
from syncline.specs import RunSpec, network

RESULTS = Path(__file__).parents[2] / "results" / "replication"

TARGETS = (2.3, 2.05, 1.85)
"""Losses of DDP-Adam's first trial, its defaults, after a quarter, half and all of the steps, rounded up to 0.05."""


@dataclass(frozen=True)
class Finals:
    """The finals of all methods.

    Args:
        runs: the trained spec of each method, on one of the networks.
        networks: the networks by name.
        cells: losses and clocks by method.
        averaged: for each method that records it, whether each step averaged, a list for each seed.
    """

    runs: Mapping[str, RunSpec]
    networks: Mapping[str, Network]
    cells: Mapping[str, TimedCell]
    averaged: Mapping[str, list[list[bool]]]

    @property
    def seeds(self) -> int:
        """The number of seeds of each method."""
        return len(self.setting.seeds)

    @property
    def setting(self) -> RunSpec:
        """A run, for what all methods share."""
        return next(iter(self.runs.values()))

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(parameter.numel() for parameter in self.setting.problem.module().parameters())

    def median_time_s(self, method: str, network: str, target: float) -> float:
        """The median seconds until a loss over the seeds; infinite unless most of them reach it."""
        return median(self.cells[method].times_s(network, target))

    def steps(self, method: str, target: float) -> list[float]:
        """The steps after which each seed reaches a loss; infinite for a seed that never does."""
        curve = self.cells[method].curve
        return [time_to_target_s(curve.step, loss, target) for loss in curve.loss]

    def last_losses(self, method: str) -> list[float]:
        """The last loss of each seed."""
        last: list[float] = self.cells[method].curve.loss[:, -1].tolist()
        return last


@cache
def finals(run: str = "protocol-2") -> Finals:
    """Read the finals of a run in ``results/replication``, and time them."""
    replicated = read_replication(RESULTS / run)
    spec = replicated.spec
    stage = independent_stages(spec, replicated.chosen_methods())[0]
    averages = read_averages(replicated.tables())
    cells = timed_cells(spec, [stage], replicated.kept, averages)
    return Finals(
        runs={trained.method.name: trained for trained in runs_over(stage, (None,))},
        networks={link.name: link for link in map(network, spec.networks)},
        cells={cell.cell.method: cell for cell in cells},
        averaged={
            cell.method: [training.averaged for training in by_seed.values()]
            for cell, by_seed in averages.items()
            if not cell.extra
        },
    )
