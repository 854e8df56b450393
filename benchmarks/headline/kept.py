"""What is kept of the runs: losses by step and seed, CurvaDion's calls; and what the clock makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from syncline.analysis import Curve, median_and_range, time_to_target_s
from syncline.costmodel import Call, Network, TensorShape
from syncline.costmodel.traffic.exchanges import calls_of
from syncline.methods import MethodBase
from syncline.problems import TextGPT
from syncline.problems.gpt import training_flops_per_token
from syncline.runs.training.results import eval_clock_s
from syncline.runs.training.train_and_time import time_method
from syncline.runs.training.trained import Trained
from syncline.sim import Clock
from syncline.specs import CompareSpec, load_spec
from syncline.training import History

RESULTS = Path(__file__).parents[2] / "results" / "headline"

TARGETS = (2.65, 2.4, 2.25)
"""Fixed before the finals: DDP-Adam untuned after 200, 300 and 400 steps at seed 101, rounded up to 0.05."""


@dataclass(frozen=True)
class Finals:
    """Trainings of one length.

    Args:
        spec: what was trained, and the networks.
        trained: method -> its losses and its calls.
    """

    spec: CompareSpec
    trained: Mapping[str, Trained]
    _clocks: dict[tuple[str, str], Clock] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def parameters(self) -> int:
        """Return the number of parameters of the trained model."""
        return sum(tensor.elements for tensor in self.trained["ddp-adam"].tensors)

    def clock(self, name: str, link: Network) -> Clock:
        """Return a method's clock on a network; what is told of them asks for each several times."""
        key = name, link.name
        if key not in self._clocks:
            clock = time_method(self.spec, self.trained[name], link)
            assert clock is not None
            self._clocks[key] = clock
        return self._clocks[key]

    def curves(self) -> list[Curve]:
        """For figures: of each method its losses, and the clock of each network."""
        clocks = {name: self._clock_s(name) for name in self.trained}
        return [
            Curve(name, one.history.eval_step, one.history.evaluation["loss"].T, clocks[name])
            for name, one in self.trained.items()
        ]

    def rows(self, targets: tuple[float, ...] = TARGETS) -> list[Row]:
        """One per network and method."""
        rows = []
        for link in self.spec.networks:
            for name, one in self.trained.items():
                clock = self.clock(name, link)
                losses, at_s = one.history.evaluation["loss"].T, eval_clock_s(one, clock)
                reached = {target: [time_to_target_s(at_s, loss, target) for loss in losses] for target in targets}
                final = median_and_range(losses[:, -1:])
                rows.append(
                    Row(
                        name,
                        link.name,
                        *(float(part[0]) for part in final),
                        clock.step_time_s,
                        clock.compute_s,
                        clock.bytes_per_worker,
                        {target: Reached.of(times) for target, times in reached.items()},
                    )
                )
        return rows

    def steps_to(self, name: str, target: float) -> Reached:
        """As ``Row.reached``, in steps, which no network changes."""
        history = self.trained[name].history
        return Reached.of([time_to_target_s(history.eval_step, loss, target) for loss in history.evaluation["loss"].T])

    def _clock_s(self, name: str) -> dict[str, np.ndarray]:
        one = self.trained[name]
        return {link.name: eval_clock_s(one, self.clock(name, link)) for link in self.spec.networks}


@dataclass(frozen=True)
class Reached:
    """When seeds reached a target: the median, infinite unless most did, and the first and last of those that did."""

    median_s: float
    low_s: float
    high_s: float
    seeds: int

    @classmethod
    def of(cls, times_s: list[float]) -> Reached:
        """Of one time per seed, infinite where it was never reached."""
        finite = [one for one in times_s if np.isfinite(one)]
        low, high = (min(finite), max(finite)) if finite else (np.inf, np.inf)
        return cls(median(times_s), low, high, len(finite))


@dataclass(frozen=True)
class Row:
    """One method on one network; losses are medians over the seeds with their range."""

    method: str
    network: str
    loss: float
    loss_min: float
    loss_max: float
    step_time_s: float
    compute_s: float
    bytes_per_worker: float
    reached: Mapping[float, Reached]


def finals(name: str = "headline", folder: Path = RESULTS) -> Finals:
    """Those of a bundled spec, of which ``NAME.parquet`` has the losses."""
    spec = load_spec(name, (), CompareSpec)
    return Finals(spec, {one.name: _trained(spec, one, folder / f"{name}.parquet") for one in spec.methods})


def _trained(spec: CompareSpec, method: MethodBase, path: Path) -> Trained:
    own = pq.read_table(path, filters=[("method", "=", method.name)]).sort_by(
        [("seed", "ascending"), ("step", "ascending")]
    )
    seeds = tuple(dict.fromkeys(own["seed"].to_pylist()))
    losses = own["loss"].to_numpy().reshape(len(seeds), -1)
    steps = own["step"].to_numpy().reshape(len(seeds), -1)[0]
    history = History(
        seeds, spec.steps, np.zeros((spec.steps, len(seeds))), {}, steps, {"loss": losses.T}, (None,) * len(seeds)
    )
    problem = spec.problem
    assert isinstance(problem, TextGPT)
    flops = training_flops_per_token(problem.module(), problem.context) * problem.batch_size * problem.context
    tensors = tensors_of_gpt(problem)
    return Trained(method.name, history, calls(method, tensors, spec, path), {}, flops, 0.0, tuple(tensors))


def tensors_of_gpt(problem: TextGPT) -> list[TensorShape]:
    """Its parameters; matrices are those of its blocks."""
    named = problem.module().named_parameters()
    return [TensorShape(name, tuple(p.shape), name.startswith("blocks.") and p.ndim == 2) for name, p in named]


def calls(method: MethodBase, tensors: list[TensorShape], spec: CompareSpec, path: Path) -> list[Call]:
    """What the method sends: in closed form, or as noted where a trigger decides."""
    noted = path.with_name(f"{path.stem}-{method.name}-calls.parquet")
    if not noted.exists():
        return calls_of(method.exchanges(tensors, spec.workers), spec.steps)
    rows: list[dict[str, Any]] = pq.read_table(noted).to_pylist()
    return [Call(row["step"], row["collective"], row["payload_bytes"], label=row["label"]) for row in rows]


def keep_losses(runs: list[tuple[str, int, pa.Table]], path: Path) -> None:
    """Losses of runs (method, seed, its ``metrics.parquet``), where they were evaluated, in one small file."""
    columns: dict[str, list[Any]] = {"method": [], "seed": [], "step": [], "loss": []}
    for method, seed, metrics in sorted(runs, key=lambda one: one[:2]):
        for step, loss in zip(metrics["step"].to_pylist(), metrics["eval_loss"].to_pylist(), strict=True):
            if loss is not None:
                for name, value in zip(columns, (method, seed, step, loss), strict=True):
                    columns[name].append(value)
    table = pa.table(columns)
    pq.write_table(table.set_column(0, "method", table["method"].dictionary_encode()), path, compression="zstd")
