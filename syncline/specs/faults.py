"""What goes wrong in a training: stragglers, slow links, late messages, workers that leave and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from syncline.fields import Positive, Seconds, Spec, refusal
from syncline.methods import METHOD_KINDS, MethodBase
from syncline.seeds import generator

if TYPE_CHECKING:
    import numpy as np

    from syncline.comm import Membership
    from syncline.costmodel.network.topology import Network, Topology
    from syncline.sim.workers.stragglers import Straggler


class SlowdownsSpec(Spec):
    """Now and then a step takes ``factor`` times as long."""

    probability: Annotated[float, Field(ge=0, le=1)]
    factor: Positive


class StragglersSpec(Spec):
    """Random factors on the compute time, each with a random stream of its own; those that are given multiply.

    ``exponential``: scale of a shifted exponential, mean ``1 + scale``. ``pareto``: shape of a Pareto tail above 1,
    mean ``shape / (shape - 1)``. ``slowdowns``: mean ``1 + probability (factor - 1)``. ``speeds``: sigma of a
    log-normal factor that a worker keeps for all steps, mean 1.
    """

    exponential: Annotated[float, Field(ge=0)] | None = None
    pareto: Annotated[float, Field(gt=1)] | None = None
    slowdowns: SlowdownsSpec | None = None
    speeds: Annotated[float, Field(ge=0)] | None = None

    def factors(self, steps: int, workers: int, seed: int) -> np.ndarray:
        """The factor of each worker in each step, ``(T, P)``."""
        import numpy as np

        factors: np.ndarray = np.broadcast_to(1.0, (steps, workers))  # of a million steps nothing is to be kept
        for name, straggler in self._parts().items():
            factors = straggler.disturb(factors, generator(seed, "stragglers", name))
        return factors

    def _parts(self) -> dict[str, Straggler]:
        from syncline.sim.workers.stragglers import ExponentialTail, ParetoTail, PersistentSpeeds, Slowdowns

        parts: dict[str, Straggler] = {}
        if self.exponential is not None:
            parts["exponential"] = ExponentialTail(self.exponential)
        if self.pareto is not None:
            parts["pareto"] = ParetoTail(self.pareto)
        if self.slowdowns is not None:
            parts["slowdowns"] = Slowdowns(self.slowdowns.probability, self.slowdowns.factor)
        if self.speeds is not None:
            parts["speeds"] = PersistentSpeeds(self.speeds)
        return parts


class SlowLinkSpec(Spec):
    """A worker's link with ``1 / factor`` of its bandwidth and ``latency_factor`` times its latency."""

    worker: int = Field(ge=0)
    factor: Positive = 1.0
    latency_factor: Annotated[float, Field(ge=0)] = 1.0


class LatencyJitterSpec(Spec):
    """Each message's latency: times a log-normal factor (``sigma``, mean 1), plus an exponential time (``mean``)."""

    sigma: float = Field(default=0.0, ge=0)
    mean: Seconds = 0.0


def _jitter(value: Any) -> Any:
    """A bare number is the sigma."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"sigma": value} if is_number else value


class AbsenceSpec(Spec):
    """A worker that is away in the steps from ``leaves`` to ``returns - 1``; without ``returns``, to the end."""

    worker: int = Field(ge=0)
    leaves: int = Field(default=0, ge=0)
    returns: int | None = None

    @model_validator(mode="after")
    def _some_steps(self) -> AbsenceSpec:
        if self.returns is not None and self.returns <= self.leaves:
            raise refusal("returns", self.returns, f"a step after leaves ({self.leaves})")
        return self

    def covers(self, step: int) -> bool:
        """Whether the worker is away in this step."""
        return self.leaves <= step and (self.returns is None or step < self.returns)


def sends_means(method: MethodBase) -> bool:
    """Whether a method sends means alone, uncompressed, so that workers may be absent."""
    return method.means_alone and getattr(method, "compressor", None) is None


class FaultsSpec(Spec):
    """What goes wrong. Draws are of the first seed and the same for every method and network."""

    stragglers: StragglersSpec = StragglersSpec()
    slow_links: tuple[SlowLinkSpec, ...] = ()
    latency_jitter: Annotated[LatencyJitterSpec, BeforeValidator(_jitter)] | None = None
    absences: tuple[AbsenceSpec, ...] = ()

    def check(self, workers: int, steps: int) -> None:
        """Refuse faults of workers or steps that there are not.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        named = [(f"slow_links.{i}.worker", slow.worker, workers) for i, slow in enumerate(self.slow_links)]
        for i, absence in enumerate(self.absences):
            named += [
                (f"absences.{i}.worker", absence.worker, workers),
                (f"absences.{i}.leaves", absence.leaves, steps),
            ]
        for path, index, length in named:
            if index >= length:
                raise refusal(f"faults.{path}", index, f"a number from 0 to {length - 1}")
        for leaves in sorted({absence.leaves for absence in self.absences}):  # the fewest are there when one has left
            away = {one.worker for one in self.absences if one.covers(leaves)}
            if len(away) == workers:
                self.refuse_absences(f"somebody present in step {leaves}")

    def refuse_absences(self, expected: str, error: Callable[[str, Any, str], Exception] = refusal) -> None:
        """Refuse absences where there cannot be any, or not these.

        Raises:
            PydanticCustomError: or another ``error``, with the path from the spec's root.
        """
        if self.absences:
            raise error("faults.absences", [absence.model_dump() for absence in self.absences], expected)

    def check_method(self, method: MethodBase, path: str) -> None:
        """Refuse absences that a method cannot have.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        if self.absences and not sends_means(method):
            able = ", ".join(sorted(kind for kind in METHOD_KINDS.names() if METHOD_KINDS.get(kind).means_alone))
            expected = f"{able}, uncompressed: where workers are absent, a method may send means alone"
            raise refusal(path, method.name, expected)

    def membership(self, workers: int) -> Membership | None:
        """Who takes part in which step; None: everybody in all."""
        from syncline.comm import Absence, Membership

        if not self.absences:
            return None
        return Membership(workers, [Absence(one.worker, one.leaves, one.returns) for one in self.absences])

    def network(self, network: Network | Topology, workers: int) -> Network | Topology:
        """The network with its slow links; itself, if there are none."""
        from syncline.costmodel.network.topology import topology
        from syncline.sim.workers.faults import SlowLink, with_slow_links

        if not self.slow_links:
            return network
        slow = [SlowLink(one.worker, one.factor, one.latency_factor) for one in self.slow_links]
        return with_slow_links(topology(network, workers), slow)

    def delay(self, network: Network | Topology, workers: int, seed: int) -> Callable[[int, int], float] | None:
        """By how much each message is late; None if none is."""
        from syncline.costmodel.network.topology import topology
        from syncline.sim.workers.faults import LatencyJitter

        jitter = self.latency_jitter
        if jitter is None or not (jitter.sigma or jitter.mean):
            return None
        late = LatencyJitter(jitter.sigma, jitter.mean)
        return late.delay(topology(network, workers), generator(seed, "latency jitter"))
