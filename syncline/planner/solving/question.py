"""The question of ``syncline solve``, and its inputs as text and numbers from the command line or Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from syncline.costmodel import Link, Network
from syncline.errors import SpecError, require_one_of
from syncline.methods import MethodBase, preset_of
from syncline.planner.projection.projections import Options, names_of, variants, with_batch
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving import variables
from syncline.planner.solving.link_selection import link_place, link_places
from syncline.planner.solving.targets import SolveTargets
from syncline.questions.declare import listed
from syncline.questions.projections import VARIABLES, Solve
from syncline.specs import Experiment, ProjectSpec
from syncline.specs.cluster.hardware import parse_prices
from syncline.specs.cluster.links import parse_network_link, preset_link
from syncline.units import parse_count, parse_seconds, parse_share

METHOD_VARIABLES = ("period", "delay")
"""Variables that are numbers of steps of a method."""


KNOWN, UNKNOWN = "equal loss", "loss unknown"
"""Lists of plans: plans on the tokens to data parallelism's loss, and plans on as many tokens as data parallelism."""


class OfferedLink(NamedTuple):
    """A link that a provider offers.

    Attributes:
        month_price: price of a month for all such links that the network needs, in the currency of the other prices;
            None: unknown.
    """

    link: Link
    month_price: float | None = None


@dataclass(frozen=True)
class InverseProblem:
    """A question for ``syncline solve``: the value of a variable at which a projection meets its targets.

    Args:
        specs: specs of projections; there is an answer for each, on each of its networks, for each of its methods.
        baseline: baseline of speedups, for which there is no answer.
        level: level of the network with the link or the units that vary; the outermost by default.
        among: links to choose from, if the variable is the network.
        most: limit on the number of workers.
        batch_tokens: tokens of a step of all workers, rounded in the specs; the same for any number of workers.
        best: whether to choose among the plans of `syncline advise`, instead of the specs' layouts.
        own_methods: whether these plans have the specs' methods; else they have all methods that advice tries.
    """

    variable: str
    specs: Sequence[ProjectSpec]
    targets: SolveTargets
    training: WholeTraining
    baseline: MethodBase | None = None
    level: str | int | None = None
    among: Sequence[OfferedLink] = ()
    most: int | None = None
    batch_tokens: float | None = None
    best: bool = False
    own_methods: bool = False

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        require_one_of("variable", self.variable, VARIABLES)
        self.targets.check(self.training)
        if self.most is not None and self.most < 1:
            raise SpecError("most", self.most, "a number of workers, at least 1")
        names = [offer.link.name for offer in self.among]
        if names and self.variable != "network":
            raise SpecError("among", names, "none, unless network is sought")
        if self.most is not None and self.variable != "workers":
            raise SpecError("most", self.most, "none, unless workers is sought")
        if self.variable == "network" and not names:
            raise SpecError("among", None, "the networks to choose from: names of 'syncline list networks', or links")
        if len({offer.month_price is None for offer in self.among}) > 1:
            raise SpecError("among", names, "a price for each network, or for none")
        if self.variable in METHOD_VARIABLES and self.level is not None:
            raise SpecError("level", self.level, f"none, as a {self.variable} has no level")
        if (self.targets.speedup is not None) != (self.baseline is not None):
            raise SpecError("over", self.baseline and self.baseline.name, "a baseline with a speedup, and only then")
        if self.variable in METHOD_VARIABLES or (self.variable == "workers" and self.level is None):
            return  # no link has the variable
        for spec in self.specs:
            for network in spec.networks:
                link_place(network, self.level)  # raises an error if there is no such place

    def describe(self) -> str:
        """Return the targets as a phrase: ``140 B tokens within 30 d``."""
        return self.targets.describe(self.training, self.baseline.name if self.baseline else "")

    def methods(self, spec: ProjectSpec) -> list[MethodBase]:
        """Return the methods of a spec for which the question is solved: all but the baseline."""
        return [method for method in spec.methods if self.baseline is None or method.name != self.baseline.name]

    def keeps_batch(self, spec: ProjectSpec) -> bool:
        """Return whether all numbers of workers have the batch of the present number, not its tokens per worker."""
        return self.batch_tokens is not None or spec.tokens_per_worker is None

    def decision_variable(self, spec: ProjectSpec, network: Network, method: MethodBase) -> variables.DecisionVariable:
        """Return the variable to solve for, for a method on a network.

        Raises:
            SpecError: the method lacks the period or delay to solve for, or no number of workers is possible.
        """
        if self.variable in METHOD_VARIABLES:
            return variables.method_variable(spec, network, method, name=self.variable)
        if self.variable == "workers":
            level_index = None
            if self.level is not None:  # a name or an index
                level_names = [place.name for place in link_places(network)]
                level_index = level_names.index(link_place(network, self.level).name)
            batch_tokens = spec.batch_tokens if self.keeps_batch(spec) else None
            return variables.workers_variable(spec, network, method, level_index, self.most, batch_tokens)
        place = link_place(network, self.level)
        link_variable = variables.bandwidth_variable if self.variable == "bandwidth" else variables.latency_variable
        return link_variable(spec, method, place)


DEFAULT_METHODS = ("ddp-adam", "diloco", "streaming-diloco")
"""Methods of a question that names none."""

BASELINE = "ddp-adam"
"""Default baseline of a speedup."""


@dataclass(frozen=True)
class InverseInputs:
    """The inputs of ``syncline solve`` as text and numbers, from which its methods make targets, options and specs.

    Attributes:
        inputs: the arguments of the command line or of `sl.solve`.
    """

    inputs: Solve

    def targets(self) -> SolveTargets:
        """Return the targets to meet."""

        def read(name: str, parse: Any) -> Any:
            value = getattr(self.inputs, name)
            return None if value is None else parse(value, name)

        speedup: Any = self.inputs.speedup
        if isinstance(speedup, str):  # such as 1.5x
            speedup = speedup.removesuffix("x")
        return SolveTargets(
            deadline_s=read("deadline", parse_seconds), budget=read("budget", parse_count),
            step_time_s=read("step_time", parse_seconds), utilisation=read("utilisation", parse_share),
            compute_utilisation=read("compute_utilisation", parse_share), exposed=read("exposed", parse_share),
            speedup=None if speedup is None else parse_count(speedup, "speedup"),
            loss_penalty=read("loss_penalty", parse_share), memory=1.0 if self.inputs.fits else None,
        )  # fmt: skip

    def training(self) -> WholeTraining:
        """Return the options of the whole training."""
        return WholeTraining(
            None if self.inputs.tokens is None else parse_count(self.inputs.tokens, "tokens"),
            self.inputs.target_loss,
            prices=None if self.inputs.prices is None else parse_prices(self.inputs.prices),
            extrapolate=self.inputs.extrapolate,
        )

    def problem(self, variable: str, specs: Sequence[Experiment], own_methods: bool = True) -> InverseProblem:
        """Return the question about these specs; the first of their methods is the baseline of a speedup.

        Args:
            own_methods: whether `syncline solve --best` tries the specs' methods; else it tries those of `advise`.
        """
        targets = self.targets()
        projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
        if len(projections) < len(specs):
            raise SpecError("spec", specs[0].name, "a projection; a paper's table has nothing to solve for")
        if self.inputs.over is not None and targets.speedup is None:
            raise SpecError("over", self.inputs.over, "none, unless a speedup is asked for")
        machines = [spec.memory_machine for spec in projections]
        memory_known = all(machine is not None and machine.memory_bytes is not None for machine in machines)
        if variable == "workers" and self.inputs.fits is None and memory_known:
            targets = replace(targets, memory=1.0)
        baseline = projections[0].methods[0] if targets.speedup is not None else None
        if baseline is not None and all(len(spec.methods) < 2 for spec in projections):
            raise SpecError(
                "methods", baseline.name, f"a method other than {baseline.name}, the baseline of the speedups"
            )
        batch = None if self.inputs.batch_tokens is None else parse_count(self.inputs.batch_tokens, "batch_tokens")
        if batch is not None and not self.inputs.best:
            projections = [with_batch(spec, batch) for spec in projections]
        return InverseProblem(
            variable, projections, targets, self.training(), baseline, self.inputs.level,
            among=offered_links(self.inputs.among), most=self.inputs.most, batch_tokens=batch, best=self.inputs.best,
            own_methods=own_methods,
        )  # fmt: skip

    def specs(self, spec: Experiment, options: Options, own_methods: bool) -> Sequence[Experiment]:
        """Return the specs that the options select; with a target speedup, the first method of each is its baseline.

        Args:
            options: see `variants`.
            own_methods: whether the spec's methods apply if the options name none.
        """
        if not isinstance(spec, ProjectSpec):
            raise SpecError("spec", spec.name, "a projection; a paper's table has nothing to solve for")
        methods: list[Any] = names_of(options.methods)
        if not methods:
            methods = list(spec.methods) if own_methods else list(DEFAULT_METHODS)
        if self.inputs.speedup is not None:
            baseline = self.inputs.over or BASELINE
            preset_of(baseline, "over")  # raises an error for an unknown name
            # Options give names of methods, a spec gives the methods themselves.
            methods = [baseline, *(method for method in methods if getattr(method, "name", method) != baseline)]
        return variants(spec, Options(**vars(options) | {"methods": methods}))


def offered_links(choices: Any) -> list[OfferedLink]:
    """Return the links to choose from.

    Args:
        choices: text, a list of texts or links, or a mapping of names to prices. A text is ``NAME,NAME,...`` or
            ``LATENCY,BANDWIDTH``; ``NAME=PRICE`` gives a link's price per month.
    """
    links_and_prices: list[tuple[Any, Any]] = []
    if isinstance(choices, Mapping):
        links_and_prices += choices.items()
    else:
        for choice in listed(choices):
            links_and_prices += _links_with_prices(choice)
    offers = []
    for value, price in links_and_prices:
        month_price = None if price is None else parse_count(price, f"among.{value}")
        is_name = isinstance(value, str) and "," not in value
        link = preset_link(value, "among") if is_name else parse_network_link(value, "among")
        offers.append(OfferedLink(link, month_price))
    names = [offer.link.name for offer in offers]
    for name in names:
        if names.count(name) > 1:
            raise SpecError("among", name, "different networks; this one is named twice")
    return offers


def _links_with_prices(value: Any) -> list[tuple[Any, Any]]:
    """Split a text into the links that it names, each with the text of its price or None.

    Args:
        value: one network, or a text: ``NAME=PRICE,...``, ``NAME,...`` or a link as ``LATENCY,BANDWIDTH``.
    """
    if not isinstance(value, str):
        return [(value, None)]
    texts = [text.strip() for text in value.split(",")]
    with suppress(SpecError):
        parse_seconds(texts[0])  # raises an error unless a latency comes first, as in LATENCY,BANDWIDTH
        texts = [value]
    links_and_prices: list[tuple[Any, Any]] = []
    for text in texts:
        name, equals, price = text.partition("=")
        links_and_prices.append((name.strip(), price if equals else None))
    return links_and_prices
