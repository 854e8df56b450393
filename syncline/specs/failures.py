"""Specs of machine failures: failure rates, listed outages, the recovery of the training, and its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from syncline.costmodel.failures import (
    FAILURE_RATES,
    REPAIR_S,
    FailureRate,
    FaultTolerantGroup,
    Per,
    best_interval_s,
    group_mtbf_s,
    repair_text,
    spares_always_suffice,
)
from syncline.errors import SpecError
from syncline.fields import Seconds, Spec, Workers, parsed, refusal, validate
from syncline.methods import MethodBase
from syncline.specs.clock import BandwidthField, BytesField
from syncline.specs.cluster.reading import fields_of_file, is_file, name_or_file, parse_fields
from syncline.specs.faults import OutageSpec, parse_outages, sends_only_means
from syncline.units import parse_seconds

if TYPE_CHECKING:
    from syncline.sim.failures.costs import CheckpointTimes
    from syncline.sim.failures.outages import FailingGroup, Outage


def interval_or_word(value: Any, path: str) -> Any:
    """Return the words ``best`` and ``never`` unchanged, and any other interval in seconds."""
    if value in ("best", "never"):
        return value
    try:
        return parse_seconds(value, path)
    except SpecError as error:
        raise SpecError(path, value, f"best, never, or {error.expected}") from None


IntervalField = Annotated[Literal["best", "never"] | float, parsed(interval_or_word)]
"""Seconds of work between checkpoints; or ``best``, or ``never``."""


class CheckpointSpec(Spec):
    """Checkpoints of a training's state: their interval, their cost, their mode.

    A checkpoint takes ``write_time``, or its ``size`` over the ``bandwidth`` of all writing workers together. The
    default ``size`` is that of the parameters and of all states of the method. ``mode`` is ``blocking``: the training
    stops while the checkpoint is written; ``asynchronous``: the training stops only while the state is copied
    (``snapshot_time``), the checkpoint is then written during the next steps, and can be restored once it is complete;
    ``peer``: like ``asynchronous``, but into the memory of another worker, whose rank is half of the ranks away; the
    checkpoint is lost if both fail. ``restore_time``: the time to read it; by default the time to write it.
    """

    interval: IntervalField = "best"
    write_time: Seconds | None = None
    size: BytesField | None = None
    bandwidth: BandwidthField | None = None
    mode: Literal["blocking", "asynchronous", "peer"] = "blocking"
    snapshot_time: Seconds = 0.0
    restore_time: Seconds | None = None

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> CheckpointSpec:
        """Refuse two sources of the time to write a checkpoint, and times that the mode excludes."""
        if self.write_time is not None and (self.size is not None or self.bandwidth is not None):
            raise refusal("write_time", self.write_time, "none with size and bandwidth, from which it follows")
        if self.size is not None and self.bandwidth is None:
            raise refusal("bandwidth", None, "a rate as well, with which the size is written")
        # An interval that is no number is ``best`` or ``never``.
        if isinstance(self.interval, float) and not 0 < self.interval < math.inf:
            raise refusal("interval", self.interval, "a positive time, best, or never")
        if self.snapshot_time and self.mode == "blocking":
            expected = "none where checkpoints are blocking; or mode: asynchronous"
            raise refusal("snapshot_time", self.snapshot_time, expected)
        return self

    def write_s(self, nbytes: float | None) -> float:
        """Return the seconds to write a checkpoint; ``nbytes`` is the size of the training's state, None if unknown."""
        if self.bandwidth is None:
            return self.write_time or 0.0
        size_bytes = nbytes if self.size is None else self.size
        if size_bytes is None:
            raise SpecError("failures.checkpoint.size", None, "a size with the bandwidth, or write_time")
        return size_bytes / self.bandwidth

    def load_s(self, nbytes: float | None) -> float:
        """Return the seconds to read a checkpoint; ``nbytes`` is the size of the training's state, None if unknown."""
        return self.write_s(nbytes) if self.restore_time is None else self.restore_time

    def blocking_s(self, nbytes: float | None) -> float:
        """Return the seconds for which a checkpoint stops the training; ``nbytes`` is the size of its state."""
        return self.write_s(nbytes) if self.mode == "blocking" else self.snapshot_time


Recovery = Literal["restart", "elastic"]
"""Recovery of a synchronous method after a failure."""

EXAMPLE = "a published rate's name, the mean time between failures of a worker as in 50000 h, or fields"


class FailureRateSpec(Spec):
    """The failure rate of each worker, node or site (``per``): exponential, or Weibull with a ``shape`` other than 1.

    ``mtbf`` is the mean time between failures of one unit; ``repair_time`` the time until a failed machine can be used
    again, by default ``FailuresSpec.repair_time``.
    """

    per: Per = "worker"
    mtbf: Annotated[float, parsed(parse_seconds), Field(gt=0)]
    shape: Annotated[float, Field(ge=0.1, le=100)] = 1.0
    repair_time: Seconds | None = None


def _parse_rates(value: Any, path: str) -> Any:
    """Return the fields of each rate from a published name, a mean time between failures or the fields of one rate.

    Other values, such as a list, are returned unchanged.
    """
    if isinstance(value, str) and value[:1].isalpha():  # a name, as a time begins with a digit
        if value.lower() not in FAILURE_RATES:
            fields = "the mean time between failures of a worker as in 50000 h, or fields, or a .yaml file"
            raise SpecError(path, value, name_or_file(FAILURE_RATES, value, fields, code=False))
        rates = FAILURE_RATES[value.lower()].rates
        return [{"per": rate.per, "mtbf": rate.mtbf_s, "shape": rate.shape} for rate in rates]
    if isinstance(value, dict):
        return [value]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return [{"mtbf": value}]
    return value


class FailuresSpec(Spec):
    """Failures of machines, and the recovery of a training. The first seed draws them, the same for all trainings.

    ``rates``: see `FailureRateSpec`; or the name of published rates, or a worker's mean time between failures.
    ``outages``: a list of outages, or a CSV file of them; a worker that joins late has an outage from 0 s on.
    ``workers_per_node``: workers of a node. ``sites``: number of sites, with equal numbers of workers. ``spares``:
    machines that replace failed ones at once; published rates set those of their cluster.

    ``recovery`` of synchronous methods: with ``restart`` all workers wait until the failed ones are back, and return to
    the last checkpoint; with ``elastic`` the present workers form a new group in ``regroup_time`` and go on, if there
    are at least ``min_workers`` of them. Asynchronous methods go on without recovery.

    Times in seconds. ``repair_time``: time until a failed machine can be used again, for rates without a repair time;
    by default 5.7 h, a published mean (`syncline.costmodel.failures.REPAIR_S`). ``rejoin_time``: time to fetch the
    state of a returning worker; by default the state's bytes over the worker's link if a network is known, else the
    time to read a checkpoint. ``detection_timeout``: time until the other workers detect a failure. ``restart_time``:
    time to start processes.
    """

    rates: Annotated[tuple[FailureRateSpec, ...], parsed(_parse_rates)] = ()
    outages: Annotated[tuple[OutageSpec, ...], parsed(parse_outages)] = ()
    repair_time: Seconds = REPAIR_S
    rejoin_time: Seconds | None = None
    workers_per_node: Workers = 1
    sites: Workers = 1
    spares: int = Field(default=0, ge=0, le=10**9)
    recovery: Recovery = "restart"
    detection_timeout: Seconds = 0.0
    restart_time: Seconds = 0.0
    regroup_time: Seconds = 0.0
    min_workers: Workers = 1
    checkpoint: CheckpointSpec = CheckpointSpec()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_published(cls, value: Any) -> Any:
        """Set ``workers_per_node`` and ``spares`` to those of the published rates, unless the spec sets them."""
        if not isinstance(value, dict) or not isinstance(value.get("rates"), str):
            return value
        published = FAILURE_RATES.get(value["rates"].lower())
        if published is None:  # a time, or a name that the field's validator refuses
            return value
        return {"workers_per_node": published.node_accelerators, "spares": published.spares} | value

    def check(self, workers: int) -> None:
        """Refuse failures of workers that do not exist."""
        for name in ("workers_per_node", "sites", "min_workers"):
            if getattr(self, name) > workers:
                raise refusal(f"failures.{name}", getattr(self, name), f"at most {workers}, the workers")
        for i, outage in enumerate(self.outages):
            first_worker, _ = outage.workers(self.workers_per_node, self.workers_per_site(workers))
            if first_worker >= workers:
                fields = outage.model_dump(exclude_none=True, include={"worker", "node", "site"})
                raise refusal(f"failures.outages.{i}", fields, f"a number of one of the {workers} workers")

    def check_method(self, method: MethodBase, path: str) -> None:
        """Refuse ``recovery: elastic`` for a method whose workers cannot form a new group."""
        if self.recovery == "elastic" and not sends_only_means(method):
            expected = "restart; a group forms anew only for methods that send means, uncompressed, or are asynchronous"
            raise refusal("failures.recovery", f"elastic, of {path} {method.name}", expected)

    def workers_per_site(self, workers: int) -> int:
        """Return the number of workers of the largest site."""
        return math.ceil(workers / self.sites)

    def failure_rates(self) -> tuple[FailureRate, ...]:
        """Return the rates as the cost model's `FailureRate`."""
        rates = []
        for rate in self.rates:
            repair_s = self.repair_time if rate.repair_time is None else rate.repair_time
            rates.append(FailureRate(rate.mtbf, rate.per, rate.shape, repair_s))
        return tuple(rates)

    def repair_s(self) -> float:
        """Return the seconds until a failed machine can be used again, the longest of all rates; 0 without rates."""
        return max((rate.repair_s for rate in self.failure_rates()), default=0.0)

    def assumptions(self) -> list[str]:
        """Return sentences on repairs and spares, with the sources of default values."""
        return [repair_text(self.repair_s(), self.spares)] if self.rates else []

    def mtbf_s(self, workers: int) -> float:
        """Return the mean seconds between failures of any machine of the group; infinite without rates."""
        return group_mtbf_s(self.failure_rates(), workers, self.workers_per_node, self.sites)

    def all_lost_mtbf_s(self, workers: int) -> float:
        """Return the mean seconds between failures that stop all workers at once."""
        node, sites = self.workers_per_node, self.sites
        # A failure stops all workers if all are in a single unit of its kind: one worker, node or site.
        single_unit_rates = [rate for rate in self.failure_rates() if rate.units(workers, node, sites) == 1]
        return group_mtbf_s(single_unit_rates, workers, node, sites)

    def failing_group(self, workers: int) -> FailingGroup:
        """Return the group of workers, its spares, and the times that recovery takes, for the simulation."""
        from syncline.sim.failures.outages import FailingGroup

        return FailingGroup(
            workers, self.spares, self.detection_timeout, self.restart_time,
            reform_s=self.regroup_time, min_workers=self.min_workers,
        )  # fmt: skip

    def checkpoint_costs(
        self,
        step_s: float,
        workers: int,
        nbytes: float | None = None,
        copies: int | None = None,
        rejoin_s: float | None = None,
    ) -> CheckpointTimes:
        """Return the checkpoints of a training: their interval in steps, and the seconds that each costs.

        Args:
            step_s: seconds of a step.
            workers: number of workers, P.
            nbytes: bytes of the training's state, for checkpoints without a ``size``; None if unknown.
            copies: number of model replicas, each on equally many workers; P by default.
            rejoin_s: seconds to fetch a returning replica's state over the network, if ``rejoin_time`` is not set; None
                if no network is known.
        """
        from syncline.sim.failures.costs import CheckpointTimes, checkpoint_steps

        checkpoint = self.checkpoint
        # Seconds until a new checkpoint can be restored; meanwhile the training goes on.
        lag_s = 0.0 if checkpoint.mode == "blocking" else checkpoint.write_s(nbytes)
        interval_s = self.interval_s(workers, nbytes, copies)
        return CheckpointTimes(
            None if interval_s is None else checkpoint_steps(interval_s, step_s, lag_s),
            checkpoint.blocking_s(nbytes), lag_s, checkpoint.load_s(nbytes), peers=checkpoint.mode == "peer",
            rejoin_s=rejoin_s if self.rejoin_time is None else self.rejoin_time,
        )  # fmt: skip

    def interval_s(self, workers: int, nbytes: float | None, copies: int | None) -> float | None:
        """Return the seconds of work between checkpoints, not rounded to steps; None if there are no checkpoints.

        For ``nbytes`` and ``copies`` see `checkpoint_costs`.
        """
        interval = self.checkpoint.interval
        if isinstance(interval, float):
            return interval
        if interval == "never":
            return None
        best_s = self.best_interval_s(workers, nbytes, copies)
        return None if math.isinf(best_s) else best_s

    def best_interval_s(self, workers: int, nbytes: float | None = None, copies: int | None = None) -> float:
        """Return the cheapest interval between checkpoints at a constant failure rate, in seconds of work.

        It is infinite without failures. For ``nbytes`` and ``copies`` see `checkpoint_costs`.
        """
        return best_interval_s(self.checkpoint.blocking_s(nbytes), self.rollback_mtbf_s(workers, nbytes, copies))

    def rollback_mtbf_s(self, workers: int, nbytes: float | None = None, copies: int | None = None) -> float:
        """Return the mean seconds between failures after which the training returns to a checkpoint.

        With ``recovery: elastic`` the training returns when no worker is left. Failures that stop all workers at once
        count, and, if there is a closed form, smaller failures that overlap. For ``nbytes`` and ``copies`` see
        `checkpoint_costs`.
        """
        if self.recovery == "restart":
            return self.mtbf_s(workers)
        if not has_closed_form(self, workers):
            return self.all_lost_mtbf_s(workers)
        load_s = self.checkpoint.load_s(nbytes)
        return fault_tolerant_group(self, workers, load_s, step_s=0.0, copies=copies).total_loss_mtbf_s

    def outages_of(self, workers: int, seed: int) -> Iterator[Outage]:
        """Yield all outages in the order of time; the sequence is endless if there are rates."""
        from syncline.sim.failures.outages import Outage, all_outages

        listed = []
        for outage in self.outages:
            first_worker, end_worker = outage.workers(self.workers_per_node, self.workers_per_site(workers))
            end_worker = min(end_worker, workers)  # the last node or site may have fewer workers than the others
            back_s = math.inf if outage.end is None else outage.end
            listed.append(Outage(outage.start, first_worker, stop=end_worker, back_s=back_s))
        return all_outages(self.failure_rates(), listed, workers, self.workers_per_node, self.sites, seed)


def _expand_shorthand(value: Any, path: str = "") -> Any:
    """Return the fields of failures from a published rate's name, a mean time between failures, or text of fields."""
    if is_file(value):
        return dict(fields_of_file(Path(value), path, EXAMPLE))
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return dict(parse_fields(value, path, EXAMPLE))
    is_shorthand = isinstance(value, str | int | float) and not isinstance(value, bool)
    return {"rates": value} if is_shorthand else value


def check_workers(failures: FailuresSpec, workers: int) -> None:
    """Raise a `SpecError` if a failing worker does not exist; for callers outside of a spec."""
    try:
        failures.check(workers)
    except PydanticCustomError as error:  # what `refusal` makes
        context = error.context or {}
        raise SpecError(context["path"], context["value"], context["expected"]) from None


FailuresField = Annotated[FailuresSpec, parsed(_expand_shorthand)]
"""Failures of machines; ``llama-3`` or ``50000 h`` is short for ``{rates: ...}``; or a YAML file with the fields."""


def parse_failures(value: Any, path: str = "failures") -> FailuresSpec:
    """Return the failures that a user describes by a name, a time, fields or a YAML file."""
    if isinstance(value, FailuresSpec):
        return value
    fields = _expand_shorthand(value, path)
    try:
        return validate(FailuresSpec, fields)
    except SpecError as error:
        raise SpecError(f"{path}.{error.path}", error.value, error.expected) from None


CHECKPOINT_OPTIONS = {"checkpoint": "write_time", "size": "size", "bandwidth": "bandwidth", "mode": "mode"}
"""Field of a checkpoint by the name of the option that sets it."""

FAILURE_OPTIONS = {
    "recovery": "recovery", "restart": "restart_time", "timeout": "detection_timeout", "repair": "repair_time",
    "spares": "spares",
}  # fmt: skip
"""Field of the failures by the name of the option that sets it."""


def failures_of(question: Any) -> FailuresSpec | None:
    """Return the failures that a command simulates, with the fields that its options set; None without failures."""
    options = {}
    for name in (*FAILURE_OPTIONS, *CHECKPOINT_OPTIONS):
        value = getattr(question, name, None)
        if value is not None:
            options[name] = value
    if question.failures is None:
        for name, value in options.items():
            raise SpecError(name, value, "--failures as well, which says what fails")
        return None
    failures = parse_failures(question.failures, "failures")
    return failures_with(failures, options) if options else failures


def failures_with(failures: FailuresSpec, options: Mapping[str, Any]) -> FailuresSpec:
    """Return the failures with changed fields; a key of ``options`` is the name of a field or of its option."""
    fields = failures.model_dump(mode="json", exclude_unset=True)
    for name, value in options.items():
        if name not in CHECKPOINT_OPTIONS:
            field = FAILURE_OPTIONS.get(name, name)  # other names are fields
            fields[field] = value
    checkpoint_fields = {field: options[name] for name, field in CHECKPOINT_OPTIONS.items() if name in options}
    if isinstance(checkpoint_fields.get("write_time"), Mapping):  # the option may hold all fields of a checkpoint
        checkpoint_fields |= checkpoint_fields.pop("write_time")
    if checkpoint_fields:
        fields["checkpoint"] = fields.get("checkpoint", {}) | checkpoint_fields
    return parse_failures(fields)


def has_closed_form(failures: FailuresSpec, workers: int) -> bool:
    """Return whether the mean time between losses of all of ``workers`` workers at once has a closed form.

    It has one for exponential rates without listed outages, if all machines have the same repair time and no spares, or
    if nobody waits for a repair because there are always spares.
    """
    rates = failures.failure_rates()
    if failures.outages or any(rate.shape != 1 for rate in rates):
        return False
    if not failures.spares:
        return len({rate.repair_s for rate in rates}) <= 1
    return spares_always_suffice(rates, failures.spares, workers, failures.workers_per_node, failures.sites)


def downtime_s(failures: FailuresSpec) -> float:
    """Return the seconds from a failure until processes start: the longer of detection and repair.

    With spares a replica does not wait for a repair.
    """
    repair_s = 0.0 if failures.spares else failures.repair_s()
    return max(failures.detection_timeout, repair_s)


def fault_tolerant_group(
    failures: FailuresSpec, workers: int, load_s: float, step_s: float, copies: int | None = None, period: int = 1
) -> FaultTolerantGroup:
    """Return the parameters of a training whose present replicas go on while others are down.

    Args:
        workers: number of workers, P.
        load_s: seconds until a returning replica has its state.
        step_s: seconds of a step.
        copies: number of model replicas, each on equally many workers; P by default.
        period: number of steps from one exchange to the next.
    """
    num_replicas = workers if copies is None else copies
    workers_per_replica = math.ceil(workers / num_replicas)
    replica_failures_per_s = 0.0
    for rate in failures.failure_rates():
        # A replica spans several units of this kind, such as nodes, or shares a unit with other replicas.
        workers_per_unit = rate.unit_workers(workers, failures.workers_per_node, failures.sites)
        units_per_replica = max(workers_per_replica / workers_per_unit, 1.0)
        replica_failures_per_s += units_per_replica / rate.mtbf_s
    return FaultTolerantGroup(
        num_replicas, copy_mtbf_s=1 / replica_failures_per_s if replica_failures_per_s else math.inf,
        any_mtbf_s=failures.mtbf_s(workers), all_mtbf_s=failures.all_lost_mtbf_s(workers), step_s=step_s,
        # The group forms twice: without the failed replica, and again when the replica is back.
        pause_s=failures.detection_timeout + 2 * failures.regroup_time,
        restart_s=failures.restart_time + load_s, down_s=downtime_s(failures), period=period,
    )  # fmt: skip
