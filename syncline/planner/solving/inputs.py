"""The inputs of a question, as text and numbers, for the command line and for Python alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.errors import SpecError
from syncline.methods import named
from syncline.planner.projection.projections import Options, names_of, variants, with_batch
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.question import InverseProblem, OfferedLink
from syncline.planner.solving.targets import SolveTargets
from syncline.questions.solve import Solve
from syncline.specs import Experiment, ProjectSpec
from syncline.specs.cluster.links import parse_network_link, preset_link
from syncline.specs.prices import parse_prices
from syncline.units import parse_count, parse_seconds, parse_share

METHODS_ASKED = ("ddp-adam", "diloco", "streaming-diloco")
"""Default methods of a question."""

BASELINE = "ddp-adam"
"""Default baseline of a speedup."""


@dataclass(frozen=True)
class InverseInputs:
    """The values of a question as targets, options and specs.

    Attributes:
        asked: the question of a command line or of `sl.solve`.
    """

    asked: Solve

    def targets(self) -> SolveTargets:
        """Return the targets to meet.

        Raises:
            SpecError: there is no target, or a text is not such a quantity.
        """

        def read(name: str, parse: Any) -> Any:
            value = getattr(self.asked, name)
            return None if value is None else parse(value, name)

        speedup = self.asked.speedup.removesuffix("x") if isinstance(self.asked.speedup, str) else self.asked.speedup
        return SolveTargets(
            deadline_s=read("deadline", parse_seconds),
            budget=read("budget", parse_count),
            step_time_s=read("step_time", parse_seconds),
            utilisation=read("utilisation", parse_share),
            compute_utilisation=read("compute_utilisation", parse_share),
            exposed=read("exposed", parse_share),
            speedup=None if speedup is None else parse_count(speedup, "speedup"),
            loss_penalty=read("loss_penalty", parse_share),
            memory=1.0 if self.asked.fits else None,
        )

    def training(self) -> WholeTraining:
        """Return the options of the whole training.

        Raises:
            SpecError: as `WholeTraining` and lists of prices do.
        """
        return WholeTraining(
            None if self.asked.tokens is None else parse_count(self.asked.tokens, "tokens"),
            self.asked.target_loss,
            None if self.asked.prices is None else parse_prices(self.asked.prices),
            self.asked.extrapolate,
        )

    def question(self, variable: str, specs: Sequence[Experiment], own_methods: bool = True) -> InverseProblem:
        """Return the question about specs that are ready; the first of their methods is the baseline of a speedup.

        Args:
            variable: the variable to solve for.
            specs: specs of projections.
            own_methods: whether the user named the methods.

        Raises:
            SpecError: an input is invalid; the error names it and the accepted values.
        """
        targets, projections = self.targets(), [spec for spec in specs if isinstance(spec, ProjectSpec)]
        if len(projections) < len(specs):
            raise SpecError("spec", specs[0].name, "a projection; a paper's table has nothing to solve for")
        if self.asked.over is not None and targets.speedup is None:
            raise SpecError("over", self.asked.over, "none, unless a speedup is asked for")
        if variable == "workers" and self.asked.fits is None and all(map(_memory_known, projections)):
            targets = replace(targets, memory=1.0)
        baseline = projections[0].methods[0] if targets.speedup is not None else None
        if baseline is not None and all(len(spec.methods) < 2 for spec in projections):
            raise SpecError("methods", baseline.name, f"a method beside {baseline.name}, which speedups are over")
        batch = None if self.asked.batch_tokens is None else parse_count(self.asked.batch_tokens, "batch_tokens")
        if batch is not None and variable != "workers" and not self.asked.best:
            projections = [with_batch(spec, batch) for spec in projections]
        return InverseProblem(
            variable,
            projections,
            targets,
            self.training(),
            baseline,
            self.asked.level,
            offered_links(self.asked.among),
            self.asked.most,
            batch,
            self.asked.best,
            own_methods,
        )

    def specs(self, spec: Experiment, options: Options, own_methods: bool) -> Sequence[Experiment]:
        """Return the specs that the options select, with the baseline of a speedup in front of their methods.

        Args:
            spec: spec that the options change.
            options: see `variants`.
            own_methods: whether the spec's methods apply if the options name none.

        Raises:
            SpecError: an input is invalid; the error names it and the accepted values.
        """
        if not isinstance(spec, ProjectSpec):
            raise SpecError("spec", spec.name, "a projection; a paper's table has nothing to solve for")
        methods: list[Any] = names_of(options.methods)
        if not methods:
            methods = list(spec.methods) if own_methods else list(METHODS_ASKED)
        if self.asked.speedup is not None:
            baseline = self.asked.over or BASELINE
            named(baseline, "over")
            methods = [baseline, *(method for method in methods if getattr(method, "name", method) != baseline)]
        return variants(spec, Options(**vars(options) | {"methods": methods}))


def _memory_known(spec: ProjectSpec) -> bool:
    machine = spec.memory_machine
    return machine is not None and machine.memory_bytes is not None


def offered_links(choices: Any) -> list[OfferedLink]:
    """Return the links to choose from.

    Args:
        choices: names with commas between, or ``latency,bandwidth``; a list of these, or of links; ``=`` and a number
            behind a link is the price of a month; or a mapping of names to prices.

    Raises:
        SpecError: an invalid link, a price that is not a number, or a link that appears twice.
    """
    if choices is None:
        return []
    if isinstance(choices, Mapping):
        offers = [_offered(name, price) for name, price in choices.items()]
    else:
        items = choices if isinstance(choices, list | tuple) else [choices]
        parts = [part for item in items for part in _parts(item)]
        offers = [_offered(*part) for part in parts]
    names = [offer.link.name for offer in offers]
    for name in names:
        if names.count(name) > 1:
            raise SpecError("among", name, "different networks; this one is there twice")
    return offers


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return each link with its price, or None if it has no price."""
    if not isinstance(value, str):
        return [(value, None)]
    pieces = [piece.strip() for piece in value.split(",")]
    try:
        parse_seconds(pieces[0])
    except SpecError:
        named_links = pieces
    else:
        named_links = [value]  # a latency, and its bandwidth
    return [(name.strip(), price if equals else None) for name, equals, price in map(_split, named_links)]


def _split(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def _offered(value: Any, price: Any) -> OfferedLink:
    month = None if price is None else parse_count(price, f"among.{value}")
    if isinstance(value, str) and "," not in value:
        return OfferedLink(preset_link(value, "among"), month)
    return OfferedLink(parse_network_link(value, "among"), month)
