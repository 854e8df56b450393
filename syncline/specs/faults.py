"""Specs of faults in a training: stragglers, slow links, delayed messages, absent workers; and of listed outages."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from syncline.costmodel.network.link import topology
from syncline.costmodel.network.paths import Network, Topology
from syncline.fields import Positive, Seconds, Spec, refusal
from syncline.methods import METHOD_KINDS, MethodBase
from syncline.seeds import generator
from syncline.specs.cluster.reading import read_text
from syncline.units import number_or_text

if TYPE_CHECKING:
    import numpy as np

    from syncline.comm import Membership
    from syncline.sim.program.disturbances import Straggler


class SlowdownsSpec(Spec):
    """Random slowdowns: with this ``probability``, a worker's step takes ``factor`` times as long."""

    probability: Annotated[float, Field(ge=0, le=1)]
    factor: Positive


class StragglersSpec(Spec):
    """Random factors on the compute time, each from its own random stream. The factors that are set multiply.

    ``exponential_scale``: scale of a shifted exponential, mean ``1 + scale``. ``pareto_shape``: shape of a Pareto tail
    above 1, mean ``shape / (shape - 1)``. ``slowdowns``: mean ``1 + probability (factor - 1)``. ``speed_sigma``: sigma
    of a log-normal factor that a worker keeps for all steps, mean 1.
    """

    exponential_scale: Annotated[float, Field(ge=0)] | None = None
    pareto_shape: Annotated[float, Field(gt=1)] | None = None
    slowdowns: SlowdownsSpec | None = None
    speed_sigma: Annotated[float, Field(ge=0)] | None = None

    def factors(self, steps: int, workers: int, seed: int) -> np.ndarray:
        """Return the factor on the compute time of each worker in each step, ``(T, P)``."""
        import numpy as np

        from syncline.sim.program.disturbances import ExponentialTail, ParetoTail, PersistentSpeeds, Slowdowns

        stragglers: dict[str, Straggler] = {}  # by the name of its random stream
        if self.exponential_scale is not None:
            stragglers["exponential"] = ExponentialTail(self.exponential_scale)
        if self.pareto_shape is not None:
            stragglers["pareto"] = ParetoTail(self.pareto_shape)
        if self.slowdowns is not None:
            stragglers["slowdowns"] = Slowdowns(self.slowdowns.probability, self.slowdowns.factor)
        if self.speed_sigma is not None:
            stragglers["speeds"] = PersistentSpeeds(self.speed_sigma)
        factors: np.ndarray = np.broadcast_to(1.0, (steps, workers))  # a view, so that a million steps take no memory
        for name, straggler in stragglers.items():
            factors = straggler.disturb(factors, generator(seed, "stragglers", name))
        return factors


class SlowLinkSpec(Spec):
    """The slow link of a worker, by its number from 0.

    Its bandwidth is divided by ``bandwidth_divisor``, its latency is multiplied by ``latency_factor``.
    """

    worker: int = Field(ge=0)
    bandwidth_divisor: Positive = 1.0
    latency_factor: Annotated[float, Field(ge=0)] = 1.0


class LatencyJitterSpec(Spec):
    """Random latencies: a log-normal factor (``sigma``, mean 1), then an added exponential time (``mean_delay``)."""

    sigma: float = Field(default=0.0, ge=0)
    mean_delay: Seconds = 0.0


def _expand_jitter(value: Any) -> Any:
    """Return the fields of a latency jitter that is written as a number, its sigma; other values unchanged."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"sigma": value} if is_number else value


class AbsenceSpec(Spec):
    """An absence of a worker from ``first_step`` to ``end_step - 1``, by default to the end.

    Workers and steps are numbered from 0.
    """

    worker: int = Field(ge=0)
    first_step: int = Field(default=0, ge=0)
    end_step: int | None = None

    @model_validator(mode="after")
    def _check_order(self) -> AbsenceSpec:
        """Refuse an absence that ends before it begins."""
        if self.end_step is not None and self.end_step <= self.first_step:
            raise refusal("end_step", self.end_step, f"a step after first_step ({self.first_step})")
        return self

    def covers(self, step: int) -> bool:
        """Return whether the worker is absent in this step."""
        return self.first_step <= step and (self.end_step is None or step < self.end_step)


def check_number(path: str, number: int, count: int) -> None:
    """Refuse the number of a worker or a step, from 0, that is not below their count; ``path`` is its field."""
    if number >= count:
        raise refusal(path, number, f"a number from 0 to {count - 1}")


def sends_only_means(method: MethodBase) -> bool:
    """Return whether a method sends only means, uncompressed, so that workers may be absent."""
    return method.sends_only_means and getattr(method, "compressor", None) is None


class FaultsSpec(Spec):
    """Faults of a training. The training's first seed draws them, the same for every method and network."""

    stragglers: StragglersSpec = StragglersSpec()
    slow_links: tuple[SlowLinkSpec, ...] = ()
    latency_jitter: Annotated[LatencyJitterSpec, BeforeValidator(_expand_jitter)] | None = None
    absences: tuple[AbsenceSpec, ...] = ()

    def check(self, workers: int, steps: int) -> None:
        """Refuse faults of workers or steps that do not exist."""
        for i, slow in enumerate(self.slow_links):
            check_number(f"faults.slow_links.{i}.worker", slow.worker, count=workers)
        for i, absence in enumerate(self.absences):
            check_number(f"faults.absences.{i}.worker", absence.worker, count=workers)
            check_number(f"faults.absences.{i}.first_step", absence.first_step, count=steps)
        # The number of absent workers is largest at a step in which an absence begins.
        for step in sorted({absence.first_step for absence in self.absences}):
            absent_workers = {absence.worker for absence in self.absences if absence.covers(step)}
            if len(absent_workers) == workers:
                self.refuse_absences(f"a worker present in step {step}")

    def refuse_absences(self, expected: str, error: Callable[[str, Any, str], Exception] = refusal) -> None:
        """Raise an error if there are absences, which the rest of a spec or a command rules out.

        Args:
            expected: accepted value, for the error line.
            error: function that makes the exception from path, value and ``expected``; a command passes `SpecError`.
        """
        if self.absences:
            raise error("faults.absences", [absence.model_dump() for absence in self.absences], expected)

    def check_method(self, method: MethodBase, path: str) -> None:
        """Refuse absences together with a method that needs all workers in each step."""
        if self.absences and not sends_only_means(method):
            kinds = ", ".join(sorted(kind for kind in METHOD_KINDS.names() if METHOD_KINDS.get(kind).sends_only_means))
            expected = f"{kinds}, uncompressed: if workers may be absent, a method may send only means"
            raise refusal(path, method.name, expected)

    def membership(self, workers: int) -> Membership | None:
        """Return the workers that take part in each step; None if all workers take part in all steps."""
        from syncline.comm import Absence, Membership

        absences = [Absence(absence.worker, absence.first_step, absence.end_step) for absence in self.absences]
        return Membership(workers, absences) if absences else None

    def network(self, network: Network | Topology, workers: int) -> Network | Topology:
        """Return the network with the slow links; the network itself if there are none."""
        from syncline.sim.program.disturbances import SlowLink, with_slow_links

        if not self.slow_links:
            return network
        slow_links = [SlowLink(link.worker, link.bandwidth_divisor, link.latency_factor) for link in self.slow_links]
        return with_slow_links(topology(network, workers), slow_links)

    def delay(self, network: Network | Topology, workers: int, seed: int) -> Callable[[int, int], float] | None:
        """Return a function that draws the extra seconds of a message from sender to receiver; None without jitter."""
        from syncline.sim.program.disturbances import LatencyJitter

        jitter = self.latency_jitter
        if jitter is None or not (jitter.sigma or jitter.mean_delay):
            return None
        rng = generator(seed, "latency jitter")
        return LatencyJitter(jitter.sigma, jitter.mean_delay).delay(topology(network, workers), rng)


class OutageSpec(Spec):
    """An outage of a worker, node or site from ``start`` until ``end``; without ``end``, forever.

    Exactly one of ``worker``, ``node`` and ``site`` is set, a number from 0. ``start`` and ``end`` are seconds from the
    beginning of the training.
    """

    worker: int | None = Field(default=None, ge=0)
    node: int | None = Field(default=None, ge=0)
    site: int | None = Field(default=None, ge=0)
    start: Seconds = 0.0
    end: Seconds | None = None

    @model_validator(mode="after")
    def _check_unit_and_order(self) -> OutageSpec:
        """Refuse an outage that is not of exactly one worker, node or site, or that ends before it begins."""
        units = [name for name in ("worker", "node", "site") if getattr(self, name) is not None]
        if len(units) != 1:
            raise refusal("", units, "one of worker, node and site, by its number")
        if self.end is not None and self.end <= self.start:
            raise refusal("end", self.end, f"a time after start ({self.start:g} s)")
        return self

    def workers(self, node_workers: int, site_workers: int) -> tuple[int, int]:
        """Return the first rank of the outage, and the rank after its last; ranks of a unit are consecutive."""
        for number, unit_workers in ((self.worker, 1), (self.node, node_workers), (self.site, site_workers)):
            if number is not None:
                return number * unit_workers, (number + 1) * unit_workers
        raise AssertionError("an outage has a worker, a node or a site")


def parse_outages(value: Any, path: str) -> Any:
    """Return the rows of a CSV file with columns ``start``, ``end``, and ``worker``, ``node`` or ``site``.

    A value that names no CSV file is returned unchanged. A bare number is in seconds. An empty cell is a missing field.
    """
    if not (isinstance(value, str) and value.endswith(".csv")):
        return value
    outages = []
    for row in csv.DictReader(read_text(Path(value), path).splitlines()):
        fields: dict[str, Any] = {}
        for name, cell in row.items():
            text = (cell or "").strip()
            if name and text:
                fields[name] = int(text) if text.isdecimal() else number_or_text(text)
        outages.append(fields)
    return outages
