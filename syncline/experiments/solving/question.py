"""What is asked of ``syncline solve``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from syncline.costmodel import Link, Network
from syncline.errors import SpecError, one_of
from syncline.experiments.projection.answers import WholeTraining
from syncline.experiments.solving.places import link_places, place_of
from syncline.experiments.solving.sought import Sought, sought_bandwidth, sought_latency, sought_period, sought_workers
from syncline.experiments.solving.targets import SolveTargets
from syncline.methods import MethodBase
from syncline.specs import ProjectSpec

Variable = Literal["bandwidth", "latency", "period", "workers", "network"]

VARIABLES: tuple[str, ...] = get_args(Variable)


KNOWN, UNKNOWN = "equal loss", "loss unknown"
"""Lists of plans: on the tokens that take them to data parallelism's loss, and on as many tokens as it."""


class OfferedLink(NamedTuple):
    """A link that may be had.

    Attributes:
        link: it.
        month: what a month of it costs, of all such links that the network needs; None: nobody says.
    """

    link: Link
    month: float | None = None


@dataclass(frozen=True)
class Inverse:
    """A question the other way round: what meets a target.

    Args:
        variable: what is sought.
        specs: of projections; an answer for each, on each of its networks, for each of its methods.
        targets: to be met.
        training: what is asked of the whole training.
        baseline: of speedups, which is not asked about itself.
        level: whose link, or units; the outermost unless given.
        among: of a network, the links that may be there.
        most: workers.
        batch_tokens: of a step of all workers, whatever their number.
        best: whether plans of `syncline advise` are asked about, in place of the specs' layouts.
        own_methods: whether these are of the specs' methods; else of all that advice tries.

    Raises:
        SpecError: an unknown variable, a target that cannot be told, or an option that the variable does not have.
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
        for name, value, of in (
            ("among", [one.link.name for one in self.among], "network"),
            ("most", self.most, "workers"),
        ):
            if value and self.variable != of:
                raise SpecError(name, value, f"none, unless {of} is sought")
        if self.variable == "network" and not self.among:
            raise SpecError("among", None, "the networks to choose from: names of 'syncline list networks', or links")
        if any((one.month is None) != (self.among[0].month is None) for one in self.among):
            raise SpecError("among", [one.link.name for one in self.among], "a price of each network, or of none")
        if self.variable == "period" and self.level is not None:
            raise SpecError("level", self.level, "none, as a period has no level")
        if (self.targets.speedup is not None) != (self.baseline is not None):
            raise SpecError("over", self.baseline and self.baseline.name, "a baseline beside a speedup, and only there")
        for spec in self.specs:
            for network in spec.networks:
                if self.variable != "period" and (self.variable != "workers" or self.level is not None):
                    place_of(network, self.level)  # refuses what is none

    def describe(self) -> str:
        """What is to be met, for people."""
        return self.targets.describe(self.training, self.baseline.name if self.baseline else "")

    def methods(self, spec: ProjectSpec) -> list[MethodBase]:
        """Those that are asked about."""
        return [one for one in spec.methods if self.baseline is None or one.name != self.baseline.name]

    def sought(self, spec: ProjectSpec, network: Network, method: MethodBase) -> Sought:
        """The variable, of a method on a network.

        Raises:
            SpecError: the method has no period, or no number of workers will do.
        """
        if self.variable == "period":
            return sought_period(spec, network, method)
        if self.variable == "workers":
            number = None
            if self.level is not None:
                names = [one.name for one in link_places(network)]
                number = names.index(place_of(network, self.level).name)
            return sought_workers(spec, network, method, number, self.most, self.batch_tokens)
        place = place_of(network, self.level)
        of = sought_bandwidth if self.variable == "bandwidth" else sought_latency
        return of(spec, network, method, place)
