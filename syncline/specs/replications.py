"""Specs of replications: a paper's claims at equal effort, as data that is written down before the first training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from syncline.errors import SpecError, SynclineError, one_of
from syncline.fields import Spec, refusal, validate
from syncline.specs.experiment import Experiment, SeedsField
from syncline.specs.load import read_fields, with_overrides
from syncline.specs.stages import TimedModelSpec

REPLICATIONS = Path(__file__).parent / "replication"
"""The replications that come with the package."""

CPU = "cpu"
"""What the spec itself is sized for, if it has no scale of this name."""

FieldsByName = dict[str, Any]
SomeNames = Annotated[tuple[str, ...], Field(min_length=1)]


class SearchedMethod(Spec):
    """A method, and between which ends its knobs are searched: ``{lr: 1e-4..1e-2, rule.beta1: 1-0.2..1-0.03}``."""

    method: FieldsByName
    tune: Annotated[dict[str, str], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_a_label(self) -> SearchedMethod:
        if not isinstance(self.method.get("label"), str):
            raise refusal("method.label", self.method.get("label"), "what the method is called in this replication")
        return self

    @property
    def label(self) -> str:
        """What it is called."""
        return str(self.method["label"])


class SearchStage(Spec):
    """As many trials for each method, on seeds and a text of their own; the first takes what the spec says."""

    trials: int = Field(ge=1, le=10_000)
    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)


class AgainStage(Spec):
    """The ``best`` trials of each method, trained again on other seeds: the lowest mean of all losses is chosen."""

    best: int = Field(ge=1)
    seeds: SeedsField


class FinalStage(Spec):
    """What was chosen, on fresh seeds, judged on a text that no search has seen.

    ``methods``: all by default; those that are trained in extras alone are left out.
    """

    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    methods: tuple[str, ...] = ()


StageName = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")]


class ExtraStage(Spec):
    """Some methods with what was chosen for them, in another setting, judged as the finals are.

    ``as_many_as``: a cell, a method with a trigger; on each seed the methods average as often as it did on that seed
    (``averages`` of `placed-dion`), placed at random by that seed.
    """

    name: StageName
    methods: SomeNames
    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    as_many_as: str = ""


class AlongStage(Spec):
    """Some methods with what was chosen for them, as in the finals, with measures that look at them on their way.

    ``measures`` and ``every`` are a training's ``watch``.
    """

    name: StageName
    methods: SomeNames
    seeds: SeedsField
    set: FieldsByName = Field(default_factory=dict)
    measures: SomeNames
    every: int = Field(default=1, ge=1)


class Cell(NamedTuple):
    """A method in the finals or, with a name, in an extra."""

    method: str
    extra: str = ""

    def __str__(self) -> str:
        return f"{self.method} @ {self.extra}" if self.extra else self.method


class Comparison(Spec):
    """``less + by < than + within``, of losses seed by seed: each side a cell, or one less another, ``a @ extra - a``.

    ``within`` is granted, ``by`` is demanded.
    """

    less: str
    than: str
    within: Annotated[float, Field(ge=0)] = 0.0
    by: Annotated[float, Field(ge=0)] = 0.0

    def __str__(self) -> str:
        demanded, granted = (f" + {one:g}" if one else "" for one in (self.by, self.within))
        return f"{self.less}{demanded} < {self.than}{granted}"


class Crossing(Spec):
    """From which step on ``less`` is below ``than``, at every later evaluation, seed by seed: two cells."""

    less: str
    than: str


def cells_of(side: str) -> list[Cell]:
    """The cells of a side; of a difference two.

    >>> cells_of("mt-dao @ K128 - mt-dao")
    [Cell(method='mt-dao', extra='K128'), Cell(method='mt-dao', extra='')]
    """
    parts = [one.split(" @ ") for one in side.split(" - ")]
    return [Cell(*(name.strip() for name in part[:2])) for part in parts]


class ReplicatedClaim(Spec):
    """A claim: it holds if all of its comparisons do on every seed, and fails if one is the other way round on all.

    Args:
        claim: its ``id`` in the register of claims, where the replication is of a paper; else what is said.
        all: the comparisons.
        settled_by: what would settle it.
    """

    claim: str = Field(min_length=1)
    all: Annotated[tuple[Comparison, ...], Field(min_length=1)]
    settled_by: str = Field(min_length=1)

    def cells(self) -> Iterator[Cell]:
        """Those that it speaks of."""
        for one in self.all:
            yield from (*cells_of(one.less), *cells_of(one.than))


class ReplicationSpec(Experiment):
    """Search, choice, finals and verdicts on a paper's claims, with the same number of trials for every method.

    Args:
        paper: whose claims, of the register; empty for what no paper says.
        training: the fields of a run that all trainings have, without method and seeds.
        methods: what is compared, and the knobs of each; as many for each, so that equal trials are equal effort.
        again: None where the search alone chooses.
        least_seeds: with fewer than these no verdict is given.
        along: trainings that are looked at on their way, see `AlongStage`.
        crossings: pairs whose losses are compared step by step.
        networks: on which losses are told over time, whatever network trainings were timed on: names, or fields.
        timed: of trainings of a pipeline's stages, whose stages are timed on these networks; none: the problem's own.
    """

    kind: Literal["replication"]
    paper: str = ""
    training: FieldsByName
    methods: Annotated[tuple[SearchedMethod, ...], Field(min_length=2)]
    search: SearchStage
    again: AgainStage | None
    finals: FinalStage
    extras: tuple[ExtraStage, ...] = ()
    along: tuple[AlongStage, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    claims: Annotated[tuple[ReplicatedClaim, ...], Field(min_length=1)]
    least_seeds: int = Field(default=5, ge=1)
    networks: Annotated[tuple[str | FieldsByName, ...], Field(min_length=1)] = ("infiniband", "10gbe", "wan")
    timed: TimedModelSpec | None = None

    @model_validator(mode="after")
    def _is_fair(self) -> ReplicationSpec:
        labels = self.labels
        for here, after in pairwise(sorted(labels)):
            if here == after:
                raise refusal("methods", here, "labels that differ from each other")
        knobs = {one.label: len(one.tune) for one in self.methods}
        if len(set(knobs.values())) > 1:
            raise refusal("methods", knobs, "as many knobs searched for each method")
        if self.again and self.again.best > self.search.trials:
            raise refusal("again.best", self.again.best, f"at most {self.search.trials}, the trials of a method")
        self._check_apart()
        asked: dict[str, Sequence[ExtraStage | AlongStage]] = {"extras": self.extras, "along": self.along}
        for field, stages in asked.items():
            names = [one.name for one in stages]
            for i, stage in enumerate(stages):
                if names.index(stage.name) < i:
                    raise refusal(f"{field}.{i}.name", stage.name, "another name")
                self._check_labels(f"{field}.{i}.methods", stage.methods)
        self._check_labels("finals.methods", self.finals.methods)
        self._check_extras()
        self._check_claims()
        return self

    def _check_labels(self, path: str, given: Sequence[str]) -> None:
        for label in given:
            if label not in self.labels:
                raise refusal(path, label, one_of(self.labels, label))

    def _check_extras(self) -> None:
        """An extra changes something; what is counted was trained before, on the same seeds."""
        known = {Cell(label): self.finals.seeds for label in self.final_labels}
        for i, extra in enumerate(self.extras):
            if not extra.set and not extra.as_many_as:
                raise refusal(f"extras.{i}.set", {}, "what is set otherwise, or as_many_as")
            if extra.as_many_as:
                (counted,) = cells_of(extra.as_many_as)[:1]
                if counted not in known:
                    raise refusal(f"extras.{i}.as_many_as", str(counted), one_of(map(str, known), str(counted)))
                if missing := set(extra.seeds) - set(known[counted]):
                    raise refusal(
                        f"extras.{i}.seeds", sorted(missing), f"seeds of {counted}, whose averages are counted"
                    )
            known |= {Cell(label, extra.name): extra.seeds for label in extra.methods}

    def _check_apart(self) -> None:
        """Seeds and text that a choice has seen say nothing about what was chosen."""
        seen = {"search": self.search.seeds} | ({"again": self.again.seeds} if self.again else {})
        if shared := set(self.search.seeds) & set(seen.get("again", ())):
            raise refusal("again.seeds", sorted(shared), "seeds that the search has not seen")
        finals = [("finals", self.finals.seeds), *((f"extras.{i}", one.seeds) for i, one in enumerate(self.extras))]
        finals += [(f"along.{i}", one.seeds) for i, one in enumerate(self.along)]
        for path, seeds in finals:
            for stage, known in seen.items():
                if shared := set(seeds) & set(known):
                    raise refusal(f"{path}.seeds", sorted(shared), f"seeds that {stage} has not seen")
        problem = self.training.get("problem")
        if (problem.get("kind") if isinstance(problem, dict) else problem) == "text-gpt":
            halves = [one.set.get("problem.held_out") for one in (self.search, self.finals)]
            if sorted(map(str, halves)) != ["first-half", "second-half"]:
                expected = (
                    "problem.held_out: one half of the held-out text for the search, the other one for the finals"
                )
                raise refusal("finals.set", self.finals.set, expected)

    def _check_claims(self) -> None:
        known = [Cell(label) for label in self.final_labels]
        known += [Cell(label, extra.name) for extra in self.extras for label in extra.methods]
        asked = [(f"claims.{i}.all", cell) for i, one in enumerate(self.claims) for cell in one.cells()]
        for i, pair in enumerate(self.crossings):
            asked += [(f"crossings.{i}", cell) for side in (pair.less, pair.than) for cell in cells_of(side)]
        for path, cell in asked:
            if cell not in known:
                raise refusal(path, str(cell), one_of(map(str, known), str(cell)))

    @model_validator(mode="after")
    def _times_stages(self) -> ReplicationSpec:
        if self.timed is not None and not self.training.get("pipeline"):
            shown = self.timed.model_dump(mode="json", exclude_defaults=True)
            raise refusal("timed", shown, "none, as training has no pipeline whose stages could be timed")
        return self

    @property
    def network_names(self) -> list[str]:
        """What the networks are called."""
        return [one if isinstance(one, str) else str(one.get("name")) for one in self.networks]

    @property
    def labels(self) -> list[str]:
        """What the methods are called."""
        return [one.label for one in self.methods]

    @property
    def final_labels(self) -> tuple[str, ...]:
        """Those of the methods that the finals train."""
        return self.finals.methods or tuple(self.labels)

    def planned(self) -> dict[str, int]:
        """Trainings by stage."""
        methods, again = len(self.methods), self.again
        extras = {one.name: len(one.methods) * len(one.seeds) for one in self.extras}
        return {
            "search": methods * self.search.trials * len(self.search.seeds),
            **({"again": methods * min(again.best, self.search.trials) * len(again.seeds)} if again else {}),
            "finals": len(self.final_labels) * len(self.finals.seeds),
            **{f"extra {name}": number for name, number in extras.items()},
            **{f"along {one.name}": len(one.methods) * len(one.seeds) for one in self.along},
        }


def bundled_replications() -> dict[str, Path]:
    """Those of the package by name."""
    return {path.stem: path for path in sorted(REPLICATIONS.glob("*.yaml"))}


def load_replication(name: str | Path, scale: str | None = None, seeds: Sequence[int] | None = None) -> ReplicationSpec:
    """A replication by its bundled name, or of a YAML file.

    Args:
        name: of the replication.
        scale: one of the file's ``scales``; ``cpu`` is the file as it is where it has none of that name.
        seeds: of the finals, in place of the file's.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.
    """
    known, given = bundled_replications(), str(name)
    if given not in known and not given.endswith((".yaml", ".yml")):
        raise SpecError("NAME", given, f"a YAML file, or {one_of(known, given)}")
    fields = _fields(known.get(given, Path(given)), scale)
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
    """The names of a file's scales."""
    from syncline.yamls import parse_yaml

    try:
        fields = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        read_fields(path)  # says what is wrong
        raise SynclineError(f"spec: {path} cannot be read") from None
    scales = fields.get("scales", {}) if isinstance(fields, dict) else {}
    return list(scales) if isinstance(scales, dict) else []
