"""Machines that fail: how often, for how long, how the state of a training is kept, and how it goes on."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from syncline.costmodel.presets import preset
from syncline.costmodel.reliability.checkpoints import best_interval_s, intervals_within
from syncline.costmodel.reliability.rates import FAILURE_RATES, FailureRate, Per, group_mtbf_s
from syncline.errors import SpecError
from syncline.fields import Seconds, Spec, Workers, parsed, refusal, validate
from syncline.specs.clock import BandwidthField, BytesField
from syncline.specs.cluster.files import fields_of, is_file, text_in
from syncline.specs.faults import sends_means
from syncline.units import parse_seconds

if TYPE_CHECKING:
    from syncline.methods import MethodBase
    from syncline.sim.failures.outages import Outage
    from syncline.sim.failures.roster import FailingGroup
    from syncline.sim.failures.work import CheckpointTimes
from syncline.costmodel.reliability.fault_tolerant import FaultTolerantGroup

Recovery = Literal["restart", "reform"]
"""How a synchronous method goes on."""

EXAMPLE = "a published rate's name, the mean time between failures of a worker as in 50000 h, or fields"


class FailureRateSpec(Spec):
    """Failures of each worker, node or site: exponential, or Weibull with a ``shape``; away for ``repair``."""

    per: Per = "worker"
    mtbf: Annotated[float, parsed(parse_seconds), Field(gt=0)]
    shape: Annotated[float, Field(ge=0.1, le=100)] = 1.0
    repair: Seconds | None = None


class OutageSpec(Spec):
    """A worker, node or site that is away from ``leaves`` until ``returns``; without it, to the end."""

    worker: int | None = Field(default=None, ge=0)
    node: int | None = Field(default=None, ge=0)
    site: int | None = Field(default=None, ge=0)
    leaves: Seconds = 0.0
    returns: Seconds | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> OutageSpec:
        given = [name for name in ("worker", "node", "site") if getattr(self, name) is not None]
        if len(given) != 1:
            raise refusal("", given, "one of worker, node and site, by its number")
        if self.returns is not None and self.returns <= self.leaves:
            raise refusal("returns", self.returns, f"a time after leaves ({self.leaves:g} s)")
        return self

    def workers(self, of_node: int, of_site: int) -> tuple[int, int]:
        """The first of its workers, and the one after its last."""
        number, width = next(
            (number, width)
            for number, width in ((self.worker, 1), (self.node, of_node), (self.site, of_site))
            if number is not None
        )
        return number * width, (number + 1) * width


def _interval(value: Any, path: str) -> Any:
    return value if value in ("best", "never") else parse_seconds(value, path)


IntervalField = Annotated[Literal["best", "never"] | float, parsed(_interval)]
"""Seconds of work between checkpoints; ``best``, or ``never``."""


class CheckpointSpec(Spec):
    """How the state of a training is kept.

    It takes ``seconds`` to be written; or its ``size`` over the ``bandwidth`` of all who write together, where a
    training without a size takes its parameters and all that its method keeps. ``blocking``: nobody steps meanwhile;
    ``asynchronous``: only while it is copied aside (``snapshot``), then it is written beside the steps, and can be
    returned to when that is done; ``peer``: the same into the memory of the worker half-way round; gone if both fail.
    ``load``: to read it again; unless given as long as writing.
    """

    interval: IntervalField = "best"
    seconds: Seconds | None = None
    size: BytesField | None = None
    bandwidth: BandwidthField | None = None
    mode: Literal["blocking", "asynchronous", "peer"] = "blocking"
    snapshot: Seconds = 0.0
    load: Seconds | None = None

    @model_validator(mode="after")
    def _one_cost(self) -> CheckpointSpec:
        if self.seconds is not None and (self.size is not None or self.bandwidth is not None):
            raise refusal("seconds", self.seconds, "nothing beside size and bandwidth, which say it, too")
        if self.size is not None and self.bandwidth is None:
            raise refusal("bandwidth", None, "a rate, beside the size that is written at it")
        if isinstance(self.interval, float) and not 0 < self.interval < math.inf:
            raise refusal("interval", self.interval, "a positive time, best, or never")
        if self.snapshot and self.mode == "blocking":
            raise refusal("snapshot", self.snapshot, "none where checkpoints are blocking; or mode: asynchronous")
        return self

    def write_s(self, nbytes: float | None) -> float:
        """Seconds to write it, where the training's own state has so many bytes."""
        size = self.size if self.size is not None else nbytes
        if self.bandwidth is None:
            return self.seconds or 0.0
        if size is None:
            raise SpecError("failures.checkpoint.size", None, "a size beside the bandwidth, or seconds")
        return size / self.bandwidth

    def load_s(self, nbytes: float | None) -> float:
        """Seconds to read it again."""
        return self.write_s(nbytes) if self.load is None else self.load

    def stop_s(self, nbytes: float | None) -> float:
        """Seconds in which it stops the training."""
        return self.write_s(nbytes) if self.mode == "blocking" else self.snapshot


def _rates(value: Any, path: str) -> Any:
    """A published rate, or the mean time of a worker."""
    if isinstance(value, str) and value.lower() in FAILURE_RATES:
        rates = preset(value, FAILURE_RATES, path).rates
        return [{"per": one.per, "mtbf": one.mtbf_s, "shape": one.shape} for one in rates]
    if isinstance(value, str) and value[:1].isalpha():
        preset(value, FAILURE_RATES, path)
    if isinstance(value, dict):
        return [value]
    is_number = isinstance(value, str | int | float) and not isinstance(value, bool)
    return [{"mtbf": value}] if is_number else value


def _outages(value: Any, path: str) -> Any:
    """Rows of a file with columns ``leaves``, ``returns`` and one of ``worker``, ``node``, ``site``."""
    if not (isinstance(value, str) and value.endswith(".csv")):
        return value
    rows = csv.DictReader(text_in(Path(value), path).splitlines())
    # A bare number is one of seconds, as in a column of a log; an empty cell is not given.
    return [{name: _plain(cell) for name, cell in row.items() if name and cell and cell.strip()} for row in rows]


def _plain(cell: str) -> Any:
    try:
        return int(cell) if cell.strip().isdecimal() else float(cell)
    except ValueError:
        return cell.strip()


class FailuresSpec(Spec):
    """When machines fail, and how a training goes on. Draws are of the first seed, and the same for all who train.

    ``rates``: see `FailureRateSpec`; or the name of published ones, or the mean time between failures of a worker.
    ``outages``: given ones, or a CSV file of them; who joins late is away from 0 s. ``repair``: until a machine can be
    used again, where its rate does not say. ``node``: workers of one; ``sites``: equal parts of the workers.
    ``recovery`` of synchronous methods: ``restart``: all wait for all, and go back to the last checkpoint; ``reform``:
    those who are there go on, in a group that takes ``reform`` seconds to form, if they are ``at_least`` so many.
    Asynchronous ones go on by themselves. ``timeout``: until others notice; ``restart``: to start processes.
    """

    rates: Annotated[tuple[FailureRateSpec, ...], parsed(_rates)] = ()
    outages: Annotated[tuple[OutageSpec, ...], parsed(_outages)] = ()
    repair: Seconds = 0.0
    node: Workers = 1
    sites: Workers = 1
    spares: int = Field(default=0, ge=0, le=10**9)
    recovery: Recovery = "restart"
    timeout: Seconds = 0.0
    restart: Seconds = 0.0
    reform: Seconds = 0.0
    at_least: Workers = 1
    checkpoint: CheckpointSpec = CheckpointSpec()

    @model_validator(mode="before")
    @classmethod
    def _published(cls, value: Any) -> Any:
        """Published rates know the size of their nodes."""
        if not isinstance(value, dict) or not isinstance(value.get("rates"), str):
            return value
        known = FAILURE_RATES.get(value["rates"].lower())
        return {"node": known.node} | value if known is not None else value

    def check(self, workers: int) -> None:
        """Refuse failures of workers that there are not.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        for name in ("node", "sites", "at_least"):
            if getattr(self, name) > workers:
                raise refusal(f"failures.{name}", getattr(self, name), f"at most {workers}, the workers")
        for i, outage in enumerate(self.outages):
            if outage.workers(self.node, self.of_site(workers))[0] >= workers:
                given = outage.model_dump(exclude_none=True, include={"worker", "node", "site"})
                raise refusal(f"failures.outages.{i}", given, f"a number of one of the {workers} workers")

    def check_method(self, method: MethodBase, path: str) -> None:
        """Refuse groups of a method that cannot form anew.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        if self.recovery == "reform" and not sends_means(method):
            expected = "restart; a group forms anew where a method sends means alone, uncompressed, or is asynchronous"
            raise refusal("failures.recovery", f"reform, of {path} {method.name}", expected)

    def of_site(self, workers: int) -> int:
        """Workers of a site, at most."""
        return -(-workers // self.sites)

    def failure_rates(self) -> tuple[FailureRate, ...]:
        """As the cost model has them."""
        return tuple(
            FailureRate(one.mtbf, one.per, one.shape, self.repair if one.repair is None else one.repair)
            for one in self.rates
        )

    def mtbf_s(self, workers: int) -> float:
        """Mean seconds between failures of anything that so many workers need; infinite without rates."""
        return group_mtbf_s(self.failure_rates(), workers, self.node, self.sites)

    def all_lost_mtbf_s(self, workers: int) -> float:
        """Mean seconds between failures of all workers at once."""
        whole = [one for one in self.failure_rates() if one.units(workers, self.node, self.sites) == 1]
        return group_mtbf_s(whole, workers, self.node, self.sites)

    def group(self, workers: int) -> FailingGroup:
        """Those who train, and what it takes to begin again."""
        from syncline.sim.failures.roster import FailingGroup

        return FailingGroup(workers, self.spares, self.timeout, self.restart, self.reform, self.at_least)

    def saving(
        self, step_s: float, workers: int, nbytes: float | None = None, copies: int | None = None
    ) -> CheckpointTimes:
        """How the state is kept, of steps of so many seconds.

        Args:
            step_s: of a step.
            workers: P.
            nbytes: of the training's own state.
            copies: of the model, each on as many workers; P of one worker each unless given.
        """
        from syncline.sim.failures.work import CheckpointTimes, checkpoint_steps

        one = self.checkpoint
        write_s, blocking = one.write_s(nbytes), one.mode == "blocking"
        stop_s, lag_s = one.stop_s(nbytes), 0.0 if blocking else write_s
        interval_s = self.interval_s(workers, nbytes, copies)
        every = None if interval_s is None else checkpoint_steps(interval_s, step_s, lag_s)
        return CheckpointTimes(every, stop_s, lag_s, one.load_s(nbytes), one.mode == "peer")

    def interval_s(self, workers: int, nbytes: float | None = None, copies: int | None = None) -> float | None:
        """Seconds of work between checkpoints, before steps are counted; none: never."""
        given = self.checkpoint.interval
        if isinstance(given, float):
            return given
        best_s = math.inf if given == "never" else self.best_interval_s(workers, nbytes, copies)
        return None if math.isinf(best_s) else best_s

    def best_interval_s(self, workers: int, nbytes: float | None = None, copies: int | None = None) -> float:
        """The interval that costs least by the exact formula, of failures at a constant rate; infinite: never."""
        return best_interval_s(self.checkpoint.stop_s(nbytes), self.returning_mtbf_s(workers, nbytes, copies))

    def best_intervals_s(self, workers: int, nbytes: float | None = None) -> tuple[float, float]:
        """The intervals that cost at most 1 % more."""
        return intervals_within(0.01, self.checkpoint.stop_s(nbytes), self.returning_mtbf_s(workers, nbytes))

    def returning_mtbf_s(self, workers: int, nbytes: float | None = None, copies: int | None = None) -> float:
        """Mean seconds between failures after which a checkpoint is needed.

        Of a group that goes on, between instants at which nobody is there: that all are away by chance is counted
        where a closed form holds, else only what all fail of at once.
        """
        if self.recovery == "restart":
            return self.mtbf_s(workers)
        if not has_formula(self):
            return self.all_lost_mtbf_s(workers)
        load_s = self.checkpoint.load_s(nbytes)
        return group_going_on(self, workers, load_s, step_s=0.0, copies=copies).lost_mtbf_s

    def outages_of(self, workers: int, seed: int) -> Iterator[Outage]:
        """All outages in the order of time, without end where there are rates."""
        from syncline.sim.failures.outages import Outage, all_outages

        site = self.of_site(workers)
        given = []
        for one in self.outages:
            first, stop = one.workers(self.node, site)
            back_s = math.inf if one.returns is None else one.returns
            given.append(Outage(one.leaves, first, min(stop, workers), back_s))
        return all_outages(self.failure_rates(), given, workers, self.node, self.sites, seed)


def _fields(value: Any) -> Any:
    """What a name, or a time, stands for."""
    is_word = isinstance(value, str | int | float) and not isinstance(value, bool)
    return {"rates": value} if is_word else value


def check_workers(failures: FailuresSpec, workers: int) -> None:
    """Refuse failures of workers that there are not, outside of a spec.

    Raises:
        SpecError: with the path from ``failures`` on.
    """
    try:
        failures.check(workers)
    except PydanticCustomError as error:
        told = error.context or {}
        raise SpecError(told["path"], told["value"], told["expected"]) from None


FailuresField = Annotated[FailuresSpec, BeforeValidator(_fields)]
"""Failures; ``llama-3``, or ``50000 h``, is short for ``{rates: ...}``."""


def failures_of(given: Any, path: str = "failures") -> FailuresSpec:
    """Failures as users write them: a name, a time, fields, a YAML file.

    Raises:
        SpecError: none of these, or a field that there is not.
    """
    if isinstance(given, FailuresSpec):
        return given
    if is_file(given):
        given = dict(fields_of(text_in(Path(given), path), str(given), path, "a file", EXAMPLE))
    try:
        return validate(FailuresSpec, _fields(given))
    except SpecError as error:
        raise SpecError(f"{path}.{error.path}", error.value, error.expected) from None


def has_formula(failures: FailuresSpec) -> bool:
    """Whether a closed form holds: of rates without bursts, and repairs that all take as long; not of given outages."""
    rates = failures.failure_rates()
    if failures.outages or any(rate.shape != 1 for rate in rates):
        return False
    return bool(failures.spares) or len({rate.repair_s for rate in rates}) <= 1


def down_s(failures: FailuresSpec) -> float:
    """Seconds from a failure until processes start: who waits for a repair is down as long; with spares nobody is."""
    waited_s = 0.0 if failures.spares else max((rate.repair_s for rate in failures.failure_rates()), default=0.0)
    return max(failures.timeout, waited_s)


def group_going_on(
    failures: FailuresSpec, workers: int, load_s: float, step_s: float, copies: int | None = None, period: int = 1
) -> FaultTolerantGroup:
    """The copies of a training that goes on with those who are there.

    Args:
        failures: of which machines.
        workers: P.
        load_s: until who comes back has the state.
        step_s: of a step.
        copies: of the model, each on as many workers; P of one worker each unless given.
        period: steps from one exchange to the next.
    """
    copies = workers if copies is None else copies
    each = -(-workers // copies)
    per_s = sum(
        max(each / rate.width(workers, failures.node, failures.sites), 1.0) / rate.mtbf_s
        for rate in failures.failure_rates()
    )
    return FaultTolerantGroup(
        copies,
        1 / per_s if per_s else math.inf,
        failures.mtbf_s(workers),
        failures.all_lost_mtbf_s(workers),
        step_s,
        failures.timeout + 2 * failures.reform,
        failures.restart + load_s,
        down_s(failures),
        period,
    )
