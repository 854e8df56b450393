"""The stages of a replication as sweeps: the trainings of each, and the rows that are stored."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from replication.replications.choosing import best_trials, knobs_of, method_with
from replication.replications.spec import Cell, ReplicationSpec, cells_of
from syncline import SpecError, SynclineError
from syncline.methods import method_of
from syncline.runs.folders.result_files import SWEEP_METRICS, read_parquet
from syncline.runs.processes.progress import Listener
from syncline.runs.sweep.folder import Swept, read_run
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.runs.sweep.identity import canonical
from syncline.runs.sweep.jobs import Allowance
from syncline.runs.sweep.ranking import value_or_infinite
from syncline.runs.sweep.search import Search, Tuned
from syncline.runs.sweep.sweep import sweep
from syncline.specs import Override

DEFAULT_NETWORK = "10gbe"
"""The network that times trainings if a replication names none; no loss depends on it."""


@dataclass(frozen=True)
class ReplicationStage:
    """A sweep: methods in one setting, on some seeds; with ``tune`` a search.

    Args:
        name: ``search``, ``rerun``, ``finals``, ``extra NAME`` or ``measured NAME``.
        training: fields of a run without method and seeds.
        methods: fields of the methods, with labels.
        seeds: seeds of each method.
        changes: fields that the setting changes, also of the methods, by path.
        tune: ranges of fields, in the form of ``--tune``.
        trials: trials of each method, if something is tuned.
        by_seed: further changes on each seed, if the seeds differ.
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
        """Return the number of trainings of the stage."""
        return len(self.methods) * len(self.seeds) * (self.trials or 1)

    @property
    def file_name(self) -> str:
        """Return the name of the folder of its trainings."""
        return self.name.replace("extra ", "extra-").replace("measured ", "measured-")

    @property
    def steps(self) -> int:
        """Return the number of steps of each training."""
        return int(self.changes.get("steps", self.training["steps"]))

    def parts(self) -> list[ReplicationStage]:
        """Return the sweeps of the stage: one, or one for each seed if changes differ by seed."""
        if not self.by_seed:
            return [self]
        parts = []
        for seed, seed_changes in self.by_seed.items():
            name, changes = f"{self.name}, seed {seed}", {**self.changes, **seed_changes}
            parts.append(replace(self, name=name, seeds=(seed,), changes=changes, by_seed={}))
        return parts

    @property
    def identity(self) -> str:
        """Return a digest of the spec of the stage, which does not depend on the code."""
        inputs: list[Any] = [self.training, list(self.methods), list(self.seeds), self.changes, list(self.tune)]
        inputs.append(self.trials)
        if self.by_seed:
            inputs.append(sorted((seed, dict(changes)) for seed, changes in self.by_seed.items()))
        return hashlib.sha256(canonical(inputs).encode()).hexdigest()[:20]

    def fields(self) -> dict[str, Any]:
        """Return the fields of the comparison that is swept."""
        name = self.file_name.replace(", ", "-").replace(" ", "-")
        fields: dict[str, Any] = {"kind": "compare", "name": name, "compute": {"hardware": "cpu-core"}}
        fields |= self.training
        network = fields.pop("network", DEFAULT_NETWORK)
        return fields | {"methods": list(self.methods), "networks": [network], "seeds": list(self.seeds)}

    def overrides(self) -> list[Override]:
        """Return the changes of the setting as overrides."""
        return [Override.option(f"{self.name}: {path}", path, value) for path, value in self.changes.items()]

    def check(self) -> None:
        """Refuse a stage that cannot be trained.

        Raises:
            SpecError: a field, a range or a combination of both is invalid.
        """
        base = SweptSpec.from_spec(self.fields(), self.overrides(), [])
        if self.tune:
            search = Search.from_options([Tuned.parse(text) for text in self.tune], self.trials or 1)
            search.batches(base, list(base.grids), self.seeds, equal_effort=False)
        else:
            configurations(base, list(base.grids), self.seeds)

    def train(self, out: Path, jobs: int | None, allowance: Allowance, listener: Listener) -> Swept:
        """Train the missing trainings of the folder ``out``, as far as the allowance permits."""
        return sweep(
            self.fields(), seeds=self.seeds, overrides=self.overrides(), out=out, jobs=jobs,
            search=Search.from_options([Tuned.parse(text) for text in self.tune], self.trials), allowance=allowance,
            listener=listener,
        )  # fmt: skip


def search_stage(spec: ReplicationSpec) -> ReplicationStage:
    """Return the search for each method's knobs."""
    tune = [f"{method.label}:method.{path}={ends}" for method in spec.methods for path, ends in method.tune.items()]
    methods = [method.method for method in spec.methods]
    search = spec.search
    return ReplicationStage("search", spec.training, methods, search.seeds, search.set, tune, search.trials)


def rerun_stage(spec: ReplicationSpec, trials: Sequence[Mapping[str, Any]]) -> ReplicationStage:
    """Return the stage that repeats the best trials of each method on other seeds, each as a method ``LABEL TRIAL``."""
    methods = [
        method_with(method, knobs_of(trials, method.label, number), f"{method.label} {number}")
        for method in spec.methods
        for number in best_trials(spec, trials, method.label)
    ]
    seeds = spec.rerun.seeds if spec.rerun else ()
    return ReplicationStage("rerun", spec.training, methods, seeds, spec.search.set)


Counts = Callable[[Cell], Mapping[int, int | None]]
"""A function that gives a method's number of averages by seed."""


def final_stages(
    spec: ReplicationSpec, chosen: Mapping[str, Mapping[str, Any]], counts: Counts
) -> Iterator[ReplicationStage]:
    """Yield the finals, the extras, and the stages that measure along trainings, for methods by label.

    Args:
        spec: the replication.
        chosen: fields of methods by label.
        counts: function that gives the averages of a cell that was trained before; called when an extra needs it.
    """
    finals, training = spec.finals, spec.training
    methods = [chosen[label] for label in chosen if label in spec.final_labels]
    yield ReplicationStage("finals", training, methods, finals.seeds, finals.set)
    for extra in spec.extras:
        by_seed = {}
        if extra.match_averages_of:
            (cell,) = cells_of(extra.match_averages_of)
            averages = counts(cell)
            by_seed = {seed: placed_as_often(cell, seed, averages.get(seed)) for seed in extra.seeds}
        methods, changes = [chosen[label] for label in extra.methods], {**finals.set, **extra.set}
        yield ReplicationStage(f"extra {extra.name}", training, methods, extra.seeds, changes, by_seed=by_seed)
    for measured in spec.measured:
        watch = {"watch": {"measures": list(measured.measures), "every": measured.record_every}}
        methods, changes = [chosen[label] for label in measured.methods], {**finals.set, **measured.set, **watch}
        yield ReplicationStage(f"measured {measured.name}", training, methods, measured.seeds, changes)


def independent_stages(spec: ReplicationSpec, chosen: Mapping[str, Mapping[str, Any]]) -> list[ReplicationStage]:
    """Return the finals and the stages after them that do not depend on another stage's averages."""
    extras = tuple(extra for extra in spec.extras if not extra.match_averages_of)
    alone = spec.model_copy(update={"extras": extras, "measured": ()})
    return list(final_stages(alone, chosen, lambda cell: {}))


def placed_as_often(cell: Cell, seed: int, averages: int | None) -> dict[str, Any]:
    """Return the changes that make a method average as often as another method did on that seed.

    Raises:
        SynclineError: the other method did not record its averages, because it has no trigger.
    """
    if averages is None:
        raise SynclineError(f"match_averages_of: {cell} does not record its averages; only methods with a trigger do")
    return {"method.num_averages": averages, "method.placement_seed": seed}


def check_stages(spec: ReplicationSpec) -> None:
    """Refuse a stage that cannot be trained before any training starts; finals are checked with the spec's own knobs.

    Raises:
        SpecError: the stage and the field that cannot be trained.
    """
    spec_methods = {method.label: dict(method.method) for method in spec.methods}
    for i, extra in enumerate(spec.extras):
        if extra.match_averages_of:
            label = cells_of(extra.match_averages_of)[0].method
            if not method_of(spec_methods[label]).one_seed_at_a_time:
                expected = "a method with a trigger, which says how often it averaged"
                raise SpecError(f"extras.{i}.match_averages_of", extra.match_averages_of, expected)
    averages = {seed: 1 for extra in spec.extras for seed in extra.seeds}
    for stage in (search_stage(spec), *final_stages(spec, spec_methods, lambda _: averages)):
        for part in stage.parts()[:1]:  # the seeds differ only in their number of averages
            part.check()


def trial_rows(stage: ReplicationStage, swept: Swept) -> list[dict[str, Any]]:
    """Return a row per trial and seed of a search or of repeated trials; rows of the search have the trial's knobs."""
    rows: list[dict[str, Any]] = []
    trial_of_configuration: dict[str, dict[int, int]] = {}  # by method
    for row in swept.rows:
        knobs = {}
        if stage.tune:
            label, trials = row["method"], trial_of_configuration.setdefault(row["method"], {})
            trial = trials.setdefault(row["configuration"], len(trials) + 1)
            for tuned in stage.tune:  # LABEL:method.PATH=RANGE
                if tuned.startswith(f"{label}:"):
                    path, _, _ = tuned.removeprefix(f"{label}:").partition("=")
                    knobs[path.removeprefix("method.")] = row[path]
        else:
            label, _, number = row["method"].rpartition(" ")
            trial = int(number)
        loss = value_or_infinite(row, "loss")
        rows.append({"method": label, "trial": trial, "seed": row["seed"], "loss": loss, "knobs": json.dumps(knobs)})
    return rows


def final_rows(stage: ReplicationStage, swept: Swept, runs: Path) -> list[dict[str, Any]]:
    """Return the losses of finals and extras at their evaluations, by method, seed and step.

    The rows also have the bytes sent and the step time of a training, and the number of averages up to the step, if the
    method records it. A training that diverged has an infinite loss at the last step.
    """
    rows = []
    for row in swept.rows:
        keys = {name: row[name] for name in ("method", "seed", "bytes_per_worker", "step_time_s")}
        metrics = read_parquet(runs / row["run"] / "metrics.parquet", SWEEP_METRICS)
        averaged = metrics["averaged"].to_pylist() if "averaged" in metrics.column_names else None
        evaluated = dict(zip(metrics["step"].to_pylist(), metrics["eval_loss"].to_pylist(), strict=True))
        losses = losses_to_end(evaluated, last=stage.steps, last_loss=value_or_infinite(row, "loss"))
        for step, loss in losses.items():
            num_averages = None if averaged is None else sum(map(bool, averaged[: step + 1]))
            rows.append(keys | {"step": step, "loss": loss, "averages": num_averages})
    return rows


def losses_to_end(evaluated: Mapping[int, float | None], last: int, last_loss: float) -> dict[int, float]:
    """Return the finite losses of a training by step, and an infinite one at its last step if it diverged.

    Args:
        evaluated: loss by step; None where nothing was evaluated.
        last: the last step.
        last_loss: the training's result, infinite after a divergence.
    """
    losses = {step: loss for step, loss in evaluated.items() if loss is not None and math.isfinite(loss)}
    if math.isfinite(last_loss):
        return losses
    return {step: loss for step, loss in losses.items() if step < last} | {last: math.inf}


def seconds_trained(swept: Swept, runs: Path) -> float:
    """Return the wall-clock seconds of a stage's trainings, one after another."""
    seconds = 0.0
    for name in {row["run"] for row in swept.rows}:
        run = read_run(runs, name)
        if run:
            seconds += float(run.get("wall_s", 0.0))
    return seconds
