"""Specs of replications: tests of a paper's claims with equal tuning effort, written down before the first training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from replication.replications import bundled_replications
from replication.timed_models import TimedModelSpec
from syncline import SpecError, SynclineError
from syncline.errors import one_of
from syncline.fields import Spec, refusal, validate
from syncline.files import parse_yaml
from syncline.specs import Experiment, SeedsField
from syncline.specs.load import read_fields, with_overrides

CPU = "cpu"
"""Name of the scale that stands for the file's own fields, unless the file has a scale of this name."""

FieldsByName = dict[str, Any]
SomeNames = Annotated[tuple[str, ...], Field(min_length=1)]


class Contained(Spec):
    """A method that another one contains: with these hyperparameters the other one is this method.

    Args:
        method: label of the contained method.
        knobs: value of each hyperparameter: the path of one of the contained method's, or a number.
    """

    method: str
    knobs: Annotated[dict[str, str | float], Field(min_length=1)]


class SearchedMethod(Spec):
    """A method and the search ranges of its hyperparameters: ``{lr: 1e-4..1e-2, rule.beta1: 1-0.2..1-0.03}``.

    ``contains``: a method that this one contains, whose best trials a search one by one tries, too.
    """

    method: FieldsByName
    tune: Annotated[dict[str, str], Field(min_length=1)]
    contains: Contained | None = None

    @model_validator(mode="after")
    def _has_a_label(self) -> SearchedMethod:
        if not isinstance(self.method.get("label"), str):
            raise refusal("method.label", self.method.get("label"), "what the method is called in this replication")
        return self

    @property
    def label(self) -> str:
        """Return the method's label in this replication."""
        return str(self.method["label"])


class OneByOne(Spec):
    """A search one by one: each trial changes one hyperparameter of the best trial so far by a factor.

    Args:
        contained_at: numbers of the trials that take the best point so far of the method that is contained.
        stop_at: steps at which a hopeless trial ends: its loss is above the median of the method's trials at this step,
            and more than ``stop_margin`` above the lowest.
        stop_margin: see ``stop_at``, in units of the loss.
        never_stopped: number of first trials that do not end early.
        side_by_side: number of trials after the first that are proposed at the same time, from the trials before them.
    """

    contained_at: tuple[int, ...] = ()
    stop_at: tuple[int, ...] = ()
    stop_margin: float = Field(default=0.0, ge=0)
    never_stopped: int = Field(default=4, ge=1)
    side_by_side: int = Field(default=1, ge=1)


class SearchStage(Spec):
    """The search: equally many trials for each method, on the search's own seeds and text.

    The first trial of a method takes the hyperparameters of the spec. ``one_by_one``: the search that
    `replication.replications.one_by_one` describes, in place of TPE. If its time is limited, all methods have the
    number of trials that the slowest reached, at most ``trials``.
    """

    trials: int = Field(ge=1, le=10_000)
    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    one_by_one: OneByOne | None = None


class RerunStage(Spec):
    """The repetition of each method's ``top_trials`` on other seeds.

    The trial with the lowest mean, or median (``choose``), of all its losses is chosen.
    """

    top_trials: int = Field(ge=1)
    seeds: SeedsField
    choose: Literal["mean", "median"] = "mean"


class FinalStage(Spec):
    """The finals: trainings with the chosen hyperparameters on new seeds, evaluated on text that no search has used.

    ``methods``: labels of the methods in the finals, by default all; a method that is trained only in extras is not
    listed. ``rounding``: the extra that repeats the finals with initial values that differ by rounding errors; verdicts
    draw a repetition of each final, as they draw seeds.
    """

    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    methods: tuple[str, ...] = ()
    rounding: str = ""


StageName = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")]


class ExtraStage(Spec):
    """Trainings of some methods with their chosen hyperparameters in another setting, evaluated like the finals.

    ``match_averages_of``: a cell whose method has a trigger. On each seed the methods average as often as the method of
    that cell did on this seed (``num_averages`` of `placed-dion`), in steps that the seed draws at random.
    """

    name: StageName
    methods: SomeNames
    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    match_averages_of: str = ""


class MeasuredStage(Spec):
    """Trainings of some methods with their chosen hyperparameters, as in the finals, that also record measures.

    ``measures`` and ``record_every`` are the fields of a training's ``watch``.
    """

    name: StageName
    methods: SomeNames
    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    measures: SomeNames
    record_every: int = Field(default=1, ge=1)


class Cell(NamedTuple):
    """A cell of the results: a method in the finals or, if ``extra`` names one, in an extra."""

    method: str
    extra: str = ""

    def __str__(self) -> str:
        return f"{self.method} @ {self.extra}" if self.extra else self.method


class Comparison(Spec):
    """A comparison ``lower + margin < higher + tolerance`` of losses, seed by seed.

    Each side is a cell, or a difference of two cells, as in ``a @ extra - a``. ``margin`` is what the comparison
    demands; ``tolerance`` is what it grants.
    """

    lower: str
    higher: str
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    margin: Annotated[float, Field(ge=0)] = 0.0

    def __str__(self) -> str:
        margin = f" + {self.margin:g}" if self.margin else ""
        tolerance = f" + {self.tolerance:g}" if self.tolerance else ""
        return f"{self.lower}{margin} < {self.higher}{tolerance}"


class Crossing(Spec):
    """A pair of cells, for the step of each seed from which ``lower`` stays below ``higher`` at all evaluations."""

    lower: str
    higher: str


def cells_of(side: str) -> list[Cell]:
    """Return the cells of a comparison's side: one, or two for a difference.

    >>> cells_of("mt-dao @ K128 - mt-dao")
    [Cell(method='mt-dao', extra='K128'), Cell(method='mt-dao', extra='')]
    """
    cells = []
    for term in side.split(" - "):
        method, _, extra = term.partition(" @ ")
        cells.append(Cell(method.strip(), extra.strip()))
    return cells


class ReplicatedClaim(Spec):
    """A claim. It holds if all comparisons hold on every seed, and fails if one comparison is reversed on every seed.

    Args:
        claim: the claim's ``id`` in the register of claims if the replication is of a paper; else its text.
        comparisons: comparisons that the claim implies.
        settled_by: experiment that would settle the claim.
    """

    claim: str = Field(min_length=1)
    comparisons: Annotated[tuple[Comparison, ...], Field(min_length=1)]
    settled_by: str = Field(min_length=1)

    def cells(self) -> Iterator[Cell]:
        """Yield the cells of all comparisons."""
        for comparison in self.comparisons:
            yield from (*cells_of(comparison.lower), *cells_of(comparison.higher))


class ReplicationSpec(Experiment):
    """A replication: search, finals and verdicts on a paper's claims, with equally many trials for every method.

    Args:
        paper: the paper of the claims in the register; empty if the claims are from no paper.
        training: fields of a run that all trainings share, without method and seeds.
        methods: methods to compare, with search ranges of equally many hyperparameters for each method, so that equal
            numbers of trials are equal effort.
        search: the search for hyperparameters.
        rerun: repetition of the best trials on other seeds; None if the search alone chooses.
        finals: trainings with the chosen hyperparameters.
        extras: trainings in other settings, see `ExtraStage`.
        measured: trainings that record measures, see `MeasuredStage`.
        crossings: pairs of cells whose losses are compared step by step.
        claims: claims to test.
        min_seeds: smallest number of seeds for a verdict.
        networks: networks for the losses over time, by name or fields; they are independent of the network on which
            trainings were timed.
        pipeline_clock: model and hardware for the times of a pipeline's stages on these networks; by default the
            problem's own model.
    """

    kind: Literal["replication"]
    paper: str = ""
    training: FieldsByName
    methods: Annotated[tuple[SearchedMethod, ...], Field(min_length=2)]
    search: SearchStage
    rerun: RerunStage | None
    finals: FinalStage
    extras: tuple[ExtraStage, ...] = ()
    measured: tuple[MeasuredStage, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    claims: Annotated[tuple[ReplicatedClaim, ...], Field(min_length=1)]
    min_seeds: int = Field(default=5, ge=1)
    networks: Annotated[tuple[str | FieldsByName, ...], Field(min_length=1)] = ("infiniband", "10gbe", "wan")
    pipeline_clock: TimedModelSpec | None = None

    @model_validator(mode="after")
    def _is_fair(self) -> ReplicationSpec:
        labels = self.labels
        for label, next_label in pairwise(sorted(labels)):
            if label == next_label:
                raise refusal("methods", label, "labels that differ from each other")
        knobs = {entry.label: len(entry.tune) for entry in self.methods}
        if len(set(knobs.values())) > 1 and not self.search.one_by_one:
            raise refusal("methods", knobs, "as many knobs searched for each method")
        for i, entry in enumerate(self.methods):
            if entry.contains:
                self._check_labels(f"methods.{i}.contains.method", [entry.contains.method])
        extra_names = [extra.name for extra in self.extras]
        if self.finals.rounding and self.finals.rounding not in extra_names:
            raise refusal("finals.rounding", self.finals.rounding, one_of(extra_names, self.finals.rounding))
        if self.rerun and self.rerun.top_trials > self.search.trials:
            raise refusal(
                "rerun.top_trials", self.rerun.top_trials, f"at most {self.search.trials}, the trials of a method"
            )
        self._check_apart()
        stages_of: dict[str, Sequence[ExtraStage | MeasuredStage]] = {"extras": self.extras, "measured": self.measured}
        for field, stages in stages_of.items():
            names = [entry.name for entry in stages]
            for i, stage in enumerate(stages):
                if names.index(stage.name) < i:
                    raise refusal(f"{field}.{i}.name", stage.name, "another name")
                self._check_labels(f"{field}.{i}.methods", stage.methods)
        self._check_labels("finals.methods", self.finals.methods)
        self._check_extras()
        self._check_claims()
        return self

    def _check_labels(self, path: str, labels: Sequence[str]) -> None:
        for label in labels:
            if label not in self.labels:
                raise refusal(path, label, one_of(self.labels, label))

    def _check_extras(self) -> None:
        """Refuse an extra that changes nothing, or that counts averages of a cell not trained before on its seeds."""
        trained_seeds = {Cell(label): self.finals.seeds for label in self.final_labels}
        for i, extra in enumerate(self.extras):
            if not extra.set and not extra.match_averages_of:
                raise refusal(f"extras.{i}.set", {}, "what is set otherwise, or match_averages_of")
            if extra.match_averages_of:
                matched = cells_of(extra.match_averages_of)[0]
                if matched not in trained_seeds:
                    expected = one_of(map(str, trained_seeds), str(matched))
                    raise refusal(f"extras.{i}.match_averages_of", str(matched), expected)
                missing = set(extra.seeds) - set(trained_seeds[matched])
                if missing:
                    expected = f"seeds of {matched}, whose averages are counted"
                    raise refusal(f"extras.{i}.seeds", sorted(missing), expected)
            trained_seeds |= {Cell(label, extra.name): extra.seeds for label in extra.methods}

    def _check_apart(self) -> None:
        """Refuse finals, extras and measured trainings that share seeds or held-out text with the search.

        Losses on seeds or text that chose the hyperparameters are biased.
        """
        search_seeds = {"search": self.search.seeds}
        if self.rerun:
            shared = set(self.search.seeds) & set(self.rerun.seeds)
            if shared:
                raise refusal("rerun.seeds", sorted(shared), "seeds that the search has not seen")
            search_seeds["rerun"] = self.rerun.seeds
        final_seeds = {"finals": self.finals.seeds}
        final_seeds |= {f"extras.{i}": extra.seeds for i, extra in enumerate(self.extras)}
        final_seeds |= {f"measured.{i}": measured.seeds for i, measured in enumerate(self.measured)}
        for path, seeds in final_seeds.items():
            for stage, used_seeds in search_seeds.items():
                shared = set(seeds) & set(used_seeds)
                if shared:
                    raise refusal(f"{path}.seeds", sorted(shared), f"seeds that {stage} has not seen")
        problem = self.training.get("problem")
        kind = problem.get("kind") if isinstance(problem, dict) else problem
        if kind == "text-gpt":
            halves = {self.search.set.get("problem.held_out"), self.finals.set.get("problem.held_out")}
            if halves != {"first-half", "second-half"}:
                half = "one half of the held-out text for the search, the other one for the finals"
                raise refusal("finals.set", self.finals.set, f"problem.held_out: {half}")

    def _check_claims(self) -> None:
        """Refuse claims and crossings that name a cell which no stage trains."""
        trained_cells = [Cell(label) for label in self.final_labels]
        for extra in self.extras:
            trained_cells += [Cell(label, extra.name) for label in extra.methods]
        named_cells = {f"claims.{i}.comparisons": list(claim.cells()) for i, claim in enumerate(self.claims)}
        for i, crossing in enumerate(self.crossings):
            named_cells[f"crossings.{i}"] = cells_of(crossing.lower) + cells_of(crossing.higher)
        for path, cells in named_cells.items():
            for cell in cells:
                if cell not in trained_cells:
                    raise refusal(path, str(cell), one_of(map(str, trained_cells), str(cell)))

    @model_validator(mode="after")
    def _times_stages(self) -> ReplicationSpec:
        if self.pipeline_clock is not None and not self.training.get("pipeline"):
            shown = self.pipeline_clock.model_dump(mode="json", exclude_defaults=True)
            raise refusal("pipeline_clock", shown, "none, as training has no pipeline whose stages could be timed")
        return self

    @property
    def network_names(self) -> list[str]:
        """Return the names of the networks."""
        return [network if isinstance(network, str) else str(network.get("name")) for network in self.networks]

    @property
    def labels(self) -> list[str]:
        """Return the labels of the methods."""
        return [method.label for method in self.methods]

    @property
    def final_labels(self) -> tuple[str, ...]:
        """Return the labels of the methods in the finals."""
        return self.finals.methods or tuple(self.labels)

    def num_trainings_by_stage(self) -> dict[str, int]:
        """Return the number of trainings by stage."""
        methods, rerun = len(self.methods), self.rerun
        trainings = {"search": methods * self.search.trials * len(self.search.seeds)}
        if rerun:
            trainings["rerun"] = methods * min(rerun.top_trials, self.search.trials) * len(rerun.seeds)
        trainings["finals"] = len(self.final_labels) * len(self.finals.seeds)
        for extra in self.extras:
            trainings[f"extra {extra.name}"] = len(extra.methods) * len(extra.seeds)
        for measured in self.measured:
            trainings[f"measured {measured.name}"] = len(measured.methods) * len(measured.seeds)
        return trainings


def load_replication(name: str | Path, scale: str | None = None, seeds: Sequence[int] | None = None) -> ReplicationSpec:
    """Return a replication by its bundled name or from a YAML file.

    Args:
        name: bundled name, or path of a YAML file.
        scale: name of one of the file's ``scales``; ``cpu`` is the file as it is if it has no scale of that name.
        seeds: seeds of the finals, in place of the file's.

    Raises:
        SynclineError: one line that names the problem, the field, and what would be accepted.
    """
    bundled_files, given_name = bundled_replications(), str(name)
    if given_name not in bundled_files and not given_name.endswith((".yaml", ".yml")):
        raise SpecError("NAME", given_name, f"a YAML file, or {one_of(bundled_files, given_name)}")
    fields = _fields(bundled_files.get(given_name, Path(given_name)), scale)
    if fields.get("kind") != "replication":
        raise SpecError("kind", fields.get("kind"), "replication")
    if seeds is not None:
        fields = with_overrides(fields, {"finals.seeds": list(seeds)})
    return validate(ReplicationSpec, fields)


def _fields(path: Path, scale: str | None) -> FieldsByName:
    if scale is not None:
        scales = scales_of(path)
        if scale == CPU and CPU not in scales:
            scale = None
        elif scale not in scales:
            raise SpecError("--scale", scale, one_of(sorted({CPU, *scales}), scale))
    return read_fields(path, scale)


def scales_of(path: Path) -> list[str]:
    """Return the names of a file's scales."""
    try:
        fields = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        read_fields(path)  # raises an error that names the problem
        raise SynclineError(f"spec: {path} cannot be read") from None
    scales = fields.get("scales", {}) if isinstance(fields, dict) else {}
    return list(scales) if isinstance(scales, dict) else []


DESCRIBED_FIELDS = ("text", "layers", "width", "context", "experts")
"""Fields of a problem that the description of a setting has, if the spec sets them."""


def setting(training: Mapping[str, Any]) -> str:
    """Return a short description of the setting of all trainings."""
    problem = training.get("problem")
    fields = problem if isinstance(problem, Mapping) else {"kind": problem}
    words = [str(fields.get("kind")), *(f"{name} {fields[name]}" for name in DESCRIBED_FIELDS if name in fields)]
    stages = (training.get("pipeline") or {}).get("stages")
    words.append(f"{training.get('workers')} workers" if stages is None else f"{stages} stages")
    words.append(f"{training.get('steps'):,} steps")
    return ", ".join(words)
