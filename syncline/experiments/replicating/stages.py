"""The stages of a replication as sweeps: what each trains, and the rows that are kept of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, SynclineError
from syncline.experiments.replicating.choosing import best_trials, knobs_of, method_with
from syncline.experiments.result_files import SWEEP_METRICS, read_parquet
from syncline.experiments.sweep.allowance import Allowance
from syncline.experiments.sweep.grid import SweptSpec, configurations
from syncline.experiments.sweep.identity import canonical
from syncline.experiments.sweep.listener import Listener
from syncline.experiments.sweep.ranking import loss_or_infinite
from syncline.experiments.sweep.runs import read_run
from syncline.experiments.sweep.search import Tuned, searched
from syncline.experiments.sweep.sweep import sweep
from syncline.experiments.sweep.swept import Swept
from syncline.methods import method_of
from syncline.specs import Override
from syncline.specs.replications import Cell, ReplicationSpec, cells_of

DEFAULT_NETWORK = "10gbe"
"""On which trainings are timed if a replication says none; no loss depends on it."""


@dataclass(frozen=True)
class ReplicationStage:
    """A sweep: methods in one setting, on some seeds; with ``tune`` a search.

    Args:
        name: ``search``, ``again``, ``finals``, ``extra NAME`` or ``along NAME``.
        training: fields of a run without method and seeds.
        methods: fields with labels.
        seeds: of each.
        changes: what the setting changes of the fields, the methods' too, by path.
        tune: ranges of fields, as ``--tune`` takes them.
        trials: of each method, where something is tuned.
        by_seed: what else is changed on each seed, where that differs.
    """

    name: str
    training: Mapping[str, Any]
    methods: Sequence[Mapping[str, Any]]
    seeds: Sequence[int]
    changes: Mapping[str, Any] = field(default_factory=dict)
    tune: Sequence[str] = ()
    trials: int | None = None
    by_seed: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def trainings(self) -> int:
        """How many it has."""
        return len(self.methods) * len(self.seeds) * (self.trials or 1)

    @property
    def file_name(self) -> str:
        """Of its folder of trainings."""
        return self.name.replace("extra ", "extra-").replace("along ", "along-")

    @property
    def steps(self) -> int:
        """Of each training."""
        return int(self.changes.get("steps", self.training["steps"]))

    def parts(self) -> list[ReplicationStage]:
        """The sweeps that it is: one, or one for each seed where changes differ."""
        if not self.by_seed:
            return [self]
        return [
            replace(self, name=f"{self.name}, seed {seed}", seeds=(seed,), changes={**self.changes, **own}, by_seed={})
            for seed, own in self.by_seed.items()
        ]

    @property
    def identity(self) -> str:
        """A digest of all that is asked for, whatever code answers it."""
        asked: list[Any] = [
            self.training,
            list(self.methods),
            list(self.seeds),
            self.changes,
            list(self.tune),
            self.trials,
        ]
        if self.by_seed:
            asked.append(sorted((seed, dict(changes)) for seed, changes in self.by_seed.items()))
        return hashlib.sha256(canonical(asked).encode()).hexdigest()[:20]

    def fields(self) -> dict[str, Any]:
        """The comparison that is swept."""
        networks = [self.training.get("network", DEFAULT_NETWORK)]
        rest = {name: value for name, value in self.training.items() if name != "network"}
        shared = {
            "kind": "compare",
            "name": self.file_name.replace(", ", "-").replace(" ", "-"),
            "compute": {"hardware": "cpu-core"},
        }
        return shared | rest | {"methods": list(self.methods), "networks": networks, "seeds": list(self.seeds)}

    def overrides(self) -> list[Override]:
        """What the setting changes."""
        return [Override.option(f"{self.name}: {path}", path, value) for path, value in self.changes.items()]

    def check(self) -> None:
        """Refuse what cannot be trained.

        Raises:
            SpecError: a field, a range or a combination of both.
        """
        base = SweptSpec.of(self.fields(), self.overrides(), [])
        if self.tune:
            tuned = [Tuned.parse(one) for one in self.tune]
            searched(base, list(base.grids), tuned, self.trials or 1, self.seeds, "optuna")
        else:
            configurations(base, list(base.grids), self.seeds)

    def swept(self, out: Path, jobs: int | None, allowance: Allowance, listener: Listener) -> Swept:
        """Train what is missing in the folder ``out``, as far as it is allowed."""
        return sweep(
            self.fields(),
            seeds=self.seeds,
            overrides=self.overrides(),
            out=out,
            jobs=jobs,
            tune=[Tuned.parse(one) for one in self.tune],
            trials=self.trials,
            allowance=allowance,
            listener=listener,
        )


def search_stage(spec: ReplicationSpec) -> ReplicationStage:
    """The search for each method's knobs."""
    tune = [f"{one.label}:method.{path}={ends}" for one in spec.methods for path, ends in one.tune.items()]
    methods = [one.method for one in spec.methods]
    search = spec.search
    return ReplicationStage("search", spec.training, methods, search.seeds, search.set, tune, search.trials)


def again_stage(spec: ReplicationSpec, trials: Sequence[Mapping[str, Any]]) -> ReplicationStage:
    """The best trials of each method on other seeds, each a method ``LABEL TRIAL``."""
    methods = [
        method_with(one, knobs_of(trials, one.label, number), f"{one.label} {number}")
        for one in spec.methods
        for number in best_trials(spec, trials, one.label)
    ]
    seeds = spec.again.seeds if spec.again else ()
    return ReplicationStage("again", spec.training, methods, seeds, spec.search.set)


Counts = Callable[[Cell], Mapping[int, int | None]]
"""How often a method averaged, by seed."""


def final_stages(
    spec: ReplicationSpec, chosen: Mapping[str, Mapping[str, Any]], counts: Counts
) -> Iterator[ReplicationStage]:
    """The finals, the extras, and what is looked at on its way, of methods by label.

    Args:
        spec: the replication.
        chosen: fields of methods by label.
        counts: asked, when an extra's turn has come, for the averages of a cell that was trained before.
    """
    finals, training = spec.finals, spec.training
    methods = [chosen[label] for label in chosen if label in spec.final_labels]
    yield ReplicationStage("finals", training, methods, finals.seeds, finals.set)
    for extra in spec.extras:
        by_seed = {}
        if extra.as_many_as:
            (cell,) = cells_of(extra.as_many_as)
            averages = counts(cell)
            by_seed = {seed: placed_as_often(cell, seed, averages.get(seed)) for seed in extra.seeds}
        methods, changes = [chosen[label] for label in extra.methods], {**finals.set, **extra.set}
        yield ReplicationStage(f"extra {extra.name}", training, methods, extra.seeds, changes, by_seed=by_seed)
    for one in spec.along:
        watch = {"watch": {"measures": list(one.measures), "every": one.every}}
        methods, changes = [chosen[label] for label in one.methods], {**finals.set, **one.set, **watch}
        yield ReplicationStage(f"along {one.name}", training, methods, one.seeds, changes)


def placed_as_often(cell: Cell, seed: int, averages: int | None) -> dict[str, Any]:
    """What a method is told to average as often as another did on that seed.

    Raises:
        SynclineError: the other did not say, as it has no trigger.
    """
    if averages is None:
        raise SynclineError(f"as_many_as: {cell} does not say how often it averaged; only methods with a trigger do")
    return {"method.averages": averages, "method.placement_seed": seed}


def check_stages(spec: ReplicationSpec) -> None:
    """Refuse what cannot be trained, of all stages, before anything is; the finals with what the spec itself says.

    Raises:
        SpecError: what it is, and in which stage.
    """
    own = {one.label: dict(one.method) for one in spec.methods}
    for i, extra in enumerate(spec.extras):
        if extra.as_many_as:
            label = cells_of(extra.as_many_as)[0].method
            if not method_of(own[label]).one_seed_at_a_time:
                expected = "a method with a trigger, which says how often it averaged"
                raise SpecError(f"extras.{i}.as_many_as", extra.as_many_as, expected)
    once = {seed: 1 for extra in spec.extras for seed in extra.seeds}
    for stage in (search_stage(spec), *final_stages(spec, own, lambda _: once)):
        for part in stage.parts()[:1]:  # seeds differ in how often they average
            part.check()


def trial_rows(stage: ReplicationStage, swept: Swept) -> list[dict[str, Any]]:
    """Of a search or of what is trained again: a row per trial and seed; the search's say which knobs it took."""
    rows, numbers = [], dict[str, dict[int, int]]()
    for row in swept.rows:
        if stage.tune:
            label, of_method = row["method"], numbers.setdefault(row["method"], {})
            trial = of_method.setdefault(row["configuration"], len(of_method) + 1)
        else:
            label, _, number = row["method"].rpartition(" ")
            trial = int(number)
        own = [one.partition("=")[0].partition(":")[2] for one in stage.tune if one.startswith(f"{label}:")]
        knobs = {path.removeprefix("method."): row[path] for path in own}
        loss = loss_or_infinite(row)
        rows.append({"method": label, "trial": trial, "seed": row["seed"], "loss": loss, "knobs": json.dumps(knobs)})
    return rows


def final_rows(stage: ReplicationStage, swept: Swept, runs: Path) -> list[dict[str, Any]]:
    """Of the finals and the extras: losses where they were evaluated, by method, seed and step.

    Beside them what a training sent and took on the clock, and, where its method says so, how often it has averaged up
    to there. What diverged has an infinite loss at the last step.
    """
    rows = []
    for row in swept.rows:
        whose = {name: row[name] for name in ("method", "seed", "bytes_per_worker", "step_time_s")}
        last = stage.steps
        metrics = read_parquet(runs / row["run"] / "metrics.parquet", SWEEP_METRICS)
        averaged = metrics["averaged"].to_pylist() if "averaged" in metrics.column_names else None
        evaluated = zip(metrics["step"].to_pylist(), metrics["eval_loss"].to_pylist(), strict=True)
        losses = {step: loss for step, loss in evaluated if loss is not None and math.isfinite(loss)}
        if not math.isfinite(loss_or_infinite(row)):
            losses = {step: loss for step, loss in losses.items() if step < last} | {last: math.inf}
        rows += [
            whose | {"step": step, "loss": loss, "averages": averaged and sum(map(bool, averaged[: step + 1]))}
            for step, loss in losses.items()
        ]
    return rows


def seconds_trained(swept: Swept, runs: Path) -> float:
    """What the trainings of a stage took, s of the clock on the wall, one after another."""
    told = (read_run(runs, name) for name in {row["run"] for row in swept.rows})
    return sum(float(one.get("wall_s", 0.0)) for one in told if one)
