"""The question of ``syncline solve``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syncline.costmodel import Link, Network
from syncline.errors import SpecError, one_of
from syncline.methods import MethodBase
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.link_selection import link_places, place_of
from syncline.planner.solving.targets import SolveTargets
from syncline.planner.solving.variables import (
    DecisionVariable,
    bandwidth_variable,
    latency_variable,
    method_variable,
    workers_variable,
)
from syncline.questions.solve import VARIABLES
from syncline.specs import ProjectSpec

OF_METHODS = ("period", "delay")
"""Variables that are numbers of steps of a method."""


KNOWN, UNKNOWN = "equal loss", "loss unknown"
"""Lists of plans: plans on the tokens to data parallelism's loss, and plans on as many tokens as data parallelism."""


class OfferedLink(NamedTuple):
    """A link that a provider offers.

    Attributes:
        link: the link.
        month: price of a month, of all such links that the network needs; None: unknown.
    """

    link: Link
    month: float | None = None


@dataclass(frozen=True)
class InverseProblem:
    """An inverse question: the value at which a projection meets a target.

    Args:
        variable: the variable to solve for.
        specs: specs of projections; there is an answer for each, on each of its networks, for each of its methods.
        targets: the targets to meet.
        training: options of the whole training.
        baseline: baseline of speedups, for which there is no answer.
        level: level of the network with the link or the units that vary; the outermost by default.
        among: links to choose from, if the variable is the network.
        most: limit on the number of workers.
        batch_tokens: tokens of a step of all workers, whatever their number.
        best: whether to choose among the plans of `syncline advise`, instead of the specs' layouts.
        own_methods: whether these plans have the specs' methods; else they have all methods that advice tries.

    Raises:
        SpecError: an unknown variable, a target that cannot be evaluated, or an option that the variable does not have.
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
        if self.variable not in VARIABLES:
            raise SpecError("variable", self.variable, one_of(VARIABLES, self.variable))
        self.targets.check(self.training)
        if self.most is not None and self.most < 1:
            raise SpecError("most", self.most, "a number of workers, at least 1")
        for name, value, required in (
            ("among", [offer.link.name for offer in self.among], "network"),
            ("most", self.most, "workers"),
        ):
            if value and self.variable != required:
                raise SpecError(name, value, f"none, unless {required} is sought")
        if self.variable == "network" and not self.among:
            raise SpecError("among", None, "the networks to choose from: names of 'syncline list networks', or links")
        if any((offer.month is None) != (self.among[0].month is None) for offer in self.among):
            raise SpecError("among", [offer.link.name for offer in self.among], "a price of each network, or of none")
        if self.variable in OF_METHODS and self.level is not None:
            raise SpecError("level", self.level, f"none, as a {self.variable} has no level")
        if (self.targets.speedup is not None) != (self.baseline is not None):
            raise SpecError("over", self.baseline and self.baseline.name, "a baseline beside a speedup, and only there")
        for spec in self.specs:
            for network in spec.networks:
                if self.variable not in OF_METHODS and (self.variable != "workers" or self.level is not None):
                    place_of(network, self.level)  # raises an error if there is no such place

    def describe(self) -> str:
        """Return the targets, for people."""
        return self.targets.describe(self.training, self.baseline.name if self.baseline else "")

    def methods(self, spec: ProjectSpec) -> list[MethodBase]:
        """Return the methods that get an answer."""
        return [method for method in spec.methods if self.baseline is None or method.name != self.baseline.name]

    def decision_variable(self, spec: ProjectSpec, network: Network, method: MethodBase) -> DecisionVariable:
        """Return the variable to solve for, for a method on a network.

        Raises:
            SpecError: the method has no such number of steps, or no number of workers is possible.
        """
        if self.variable in OF_METHODS:
            return method_variable(spec, network, method, self.variable)
        if self.variable == "workers":
            level_index = None
            if self.level is not None:
                names = [link_place.name for link_place in link_places(network)]
                level_index = names.index(place_of(network, self.level).name)
            return workers_variable(spec, network, method, level_index, self.most, self.batch_tokens)
        place = place_of(network, self.level)
        link_variable = bandwidth_variable if self.variable == "bandwidth" else latency_variable
        return link_variable(spec, network, method, place)
