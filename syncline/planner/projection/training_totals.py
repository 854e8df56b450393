"""Totals of a whole training from the rows of a projection: time to a loss, traffic between sites, money, energy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from syncline.costmodel import ModelShape, Network
from syncline.costmodel.layouts import groups
from syncline.costmodel.layouts.partition import stage_layers
from syncline.costmodel.layouts.replica_step import replica_calls
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.prices import BOARD_POWER_W, Prices, Usage, carbon_kg, cost, energy_j
from syncline.costmodel.scaling.predict import LossReached, TrainingAtScale, predicted_loss, time_to_loss_s
from syncline.costmodel.scaling.relative import TokenFactor, tokens_for_equal_loss
from syncline.errors import SpecError
from syncline.methods import MethodBase, tensors_of
from syncline.planner.goodput.goodput import Goodput, failing_training, kept_state, with_failures
from syncline.planner.projection.columns import ColumnRows, columns_of_rows, length
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import first_value
from syncline.planner.projection.project import subject_of
from syncline.specs import Experiment, ProjectSpec
from syncline.specs.failures import FailuresSpec
from syncline.units import format_seconds


@dataclass(frozen=True)
class WholeTraining:
    """The options of a projection that concern the whole training, from its tokens to its price.

    Args:
        tokens: D, tokens of the training; None: those of the spec's steps, or those that reach the target loss.
        target_loss: loss at which the training ends, in nats per token.
        prices: prices of machines, electricity and traffic.
        extrapolate: whether to predict losses outside the range that the fits have seen.
        failures: failure model of the machines, which affects time, money and energy; None: nothing fails.
    """

    tokens: float | None = None
    target_loss: float | None = None
    prices: Prices | None = None
    extrapolate: bool = False
    failures: FailuresSpec | None = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and tokens together with a target loss."""
        for name in ("tokens", "target_loss"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SpecError(name, value, "a positive number")
        if self.tokens is not None and self.target_loss is not None:
            raise SpecError("tokens", self.tokens, "none with a target loss, from which the number follows")

    @property
    def is_empty(self) -> bool:
        """Return whether no option about a whole training is set."""
        return self.tokens is None and self.target_loss is None and self.prices is None and self.failures is None


def below_computing(
    time_s: float | None,
    computing_s: float,
    factor: float | None,
    bounds: tuple[float | None, float | None],
    source: str | None,
) -> str | None:
    """Return why a training takes less time than the computing of data parallelism alone, or None if it takes more.

    Args:
        time_s: duration of the training; None if it is unknown.
        computing_s: seconds in which data parallelism only computes, without any exchange.
        factor: tokens, divided by those of data parallelism for the same loss; None if they are unknown.
        source: fit of the factor, with the measurements that limit it.

    >>> print(below_computing(9e5, 1e6, 0.94, (0.7, None), "fit a"))
    less than the 11.6 d of data parallelism's computing: 0.94 times its tokens to the same loss (0.7 or more), fit a
    """
    if time_s is None or time_s >= computing_s:
        return None
    text = f"less than the {format_seconds(computing_s)} of data parallelism's computing: "
    if factor is None or factor >= 1:
        return f"{text}a step of its layout computes faster"
    low, high = bounds
    bounds_text = ""
    if low is not None:
        bounds_text = f" ({low:.2g} or more)" if high is None else f" ({low:.2g} to {high:.2g})"
    return f"{text}{factor:.2g} times its tokens to the same loss{bounds_text}, {source}"


def level_bytes_per_step(plan: ProjectionPlan, method_index: int, network: Network) -> Floats | None:
    """Return the mean bytes of a step that leave the units of a network at each level, ``(levels,)``, innermost first.

    The units of a level are for example nodes or sites. The bytes are those of all workers together: messages between
    replicas, gradients and weights inside a replica, and the traffic of the layout (sums over tensor and context,
    tokens to experts, activations from stage to stage and back). If units of a level differ in size, the bytes cannot
    be counted and the result is None.

    Args:
        plan: plan of one setting.
    """
    workers, steps = int(plan.workers[0]), plan.spec.steps
    unit_workers = groups.workers_of_units(network, workers)
    if unit_workers is None:
        return None
    totals = np.zeros(len(unit_workers))
    method_plan = plan.method_plans[method_index]
    for traffic in method_plan.traffic:
        for exchange in traffic.exchanges:
            # Without a group of its own, an exchange joins one worker of each replica.
            group = plan.layout.replica_group(workers) if exchange.first_group is None else exchange.first_group
            step_bytes = first_value(exchange.payload_bytes) * exchange.num_runs(steps) / steps
            totals += groups.level_bytes(exchange.collective, step_bytes, group, workers, unit_workers)
    if isinstance(plan.intra_replica.model, ModelShape):
        totals += _layout_bytes(plan, plan.intra_replica.model, method_plan.memory_plan, workers, unit_workers)
    return totals


def _layout_bytes(
    plan: ProjectionPlan, model: ModelShape, memory_plan: MemoryPlan, workers: int, unit_workers: tuple[int, ...]
) -> Floats:
    """Return the part of `level_bytes_per_step` that is the traffic of the layout, ``(levels,)``."""
    intra_replica, layout, stages = plan.intra_replica, plan.layout, plan.layout.pipeline
    micro_batches = int(memory_plan.micro_batches[0])
    micro_tokens = intra_replica.tokens / micro_batches
    layers = stage_layers(model, layout)
    recomputed_layers = stage_layers(model, layout, memory_plan.policy(0).most_recomputed)
    totals = np.zeros(len(unit_workers))
    for call in replica_calls(model, layout, micro_tokens, intra_replica.bytes_per_number):
        num_calls = micro_batches * sum(call.counts(layers, recomputed_layers)) / stages
        totals += num_calls * groups.level_bytes(call.collective, call.payload_bytes, call.ranks, workers, unit_workers)
    if stages > 1:
        # The bytes between two stages; the workers of a stage, over tensor and context, each send a part.
        message_bytes = intra_replica.bytes_per_number * micro_tokens * model.width
        pipelines = workers // (stages * layout.tensor * layout.context)
        ranks = layout.pipeline_group
        # Levels that messages between stages cross, once per chunk. Between chunks the last stage sends to the first.
        crossed_levels = layout.chunks * groups.message_levels(ranks, unit_workers)
        crossed_levels += (layout.chunks - 1) * groups.message_levels((ranks[0], ranks[-1]), unit_workers)
        for level in crossed_levels:
            totals[level] += 2 * micro_batches * pipelines * message_bytes  # forward and backward
    return totals


def with_training(rows: Sequence[Mapping[str, Any]], specs: Sequence[Experiment], options: WholeTraining) -> ColumnRows:
    """Return the rows of a projection with the totals of the whole training."""
    spec_by_row_key: dict[tuple[Any, ...], ProjectSpec] = {}
    for spec in specs:
        if not isinstance(spec, ProjectSpec):
            raise SpecError("spec", spec.name, "a projection: a paper's table has no training to pay for")
        spec_by_row_key[*subject_of(spec), spec.workers] = spec
    totals = []
    for row in rows:
        row_key = row["model"], row["hardware"], row["layout"], row["workers"]
        totals.append(_training_fields(row, spec_by_row_key[row_key], options))
    if not isinstance(rows, ColumnRows):  # plain dictionaries
        return ColumnRows([columns_of_rows([{**row, **total} for row, total in zip(rows, totals, strict=True)])])
    remaining = iter(totals)
    return ColumnRows([part | columns_of_rows([*islice(remaining, length(part))]) for part in rows.parts])


def loss_fit_method(method: MethodBase) -> str:
    """Return the name of a method in fits of losses; if no fit covers the method, a name that no fit has.

    Fits of DiLoCo cover an outer Nesterov step on numbers in full precision. Fits of Streaming DiLoCo cover fragments
    that are a step late, in any number format down to 4 bits.
    """
    method_fields = dict(method)
    rule_kind = getattr(method_fields.get("rule"), "kind", None)
    is_plain_adam = rule_kind == "adam" and method_fields.get("compressor") is None
    has_fitted_outer_step = is_plain_adam and method_fields.get("outer_momentum") == FITTED_OUTER_MOMENTUM
    fragment_delay = getattr(method_fields.get("stream"), "tau", 0)
    is_covered = {
        "ddp": is_plain_adam,
        "diloco": has_fitted_outer_step and method.wire in (None, "dense"),
        "streaming-diloco": has_fitted_outer_step and fragment_delay == 1,
    }
    if is_covered.get(method.kind):
        return "ddp-adam" if method.kind == "ddp" else method.kind
    if method.name in (*is_covered, "ddp-adam"):  # a label that is by chance the name of a fit's method
        return f"{method.name}, otherwise"
    return method.name


FITTED_OUTER_MOMENTUM = 0.9
"""Outer momentum of all trainings behind the fits of DiLoCo."""


def _training_fields(row: Mapping[str, Any], spec: ProjectSpec, options: WholeTraining) -> dict[str, Any]:
    """Return the fields of a row's whole training: its loss or tokens, its time with failures, and its cost."""
    method = {candidate.name: candidate for candidate in spec.methods}[row["method"]]
    network = {candidate.name: candidate for candidate in spec.networks}[row["network"]]
    tokens_per_step = float(spec.batch_tokens)
    steps = float(spec.steps) if options.tokens is None else options.tokens / tokens_per_step
    fields: dict[str, Any] = {}
    step_s, low_s, high_s = row["step_time_s"], row["step_time_low_s"], row["step_time_high_s"]
    seconds = None if step_s is None else (steps * step_s, steps * low_s, steps * high_s)  # time and its bounds
    has_loss = options.tokens is not None or options.target_loss is not None
    if has_loss:
        fields, tokens_to_target = _loss_fields(method, spec, options)
        if options.target_loss is not None:  # both are unknown unless a fit gives the tokens
            steps, seconds = 0.0, None
        if tokens_to_target is not None:
            reached_loss, token_factor = tokens_to_target
            steps = reached_loss.value / tokens_per_step
            if step_s is not None:
                tokens_per_s = tokens_per_step / step_s
                seconds = time_to_loss_s(reached_loss, tokens_per_s, low=low_s / step_s, high=high_s / step_s)
                data_parallel_steps = steps / token_factor.factor
                fields["below_computing"] = below_computing(
                    seconds[0], data_parallel_steps * row["compute_s"], token_factor.factor,
                    bounds=(token_factor.low, token_factor.high), source=token_factor.source,
                )  # fmt: skip
    if options.failures is not None:
        goodput = _goodput(method, spec, network, row, options.failures, steps) if steps else None
        seconds = with_failures(seconds, goodput)
        if goodput is None:
            fields |= dict.fromkeys(FAILURE_FIELDS)
        else:
            fields |= goodput.fields() | {"stuck": goodput.stuck}
    if has_loss or options.failures is not None:
        names = ("training_s", "training_low_s", "training_high_s")
        fields |= dict.fromkeys(names) if seconds is None else dict(zip(names, seconds, strict=True))
    if options.prices is not None:
        step_bytes = egress_per_step(method, spec, network, row)
        sent_bytes = None if step_bytes is None else step_bytes * steps
        fields |= training_cost(row, options.prices, steps, seconds, egress_bytes=sent_bytes)
    return fields


def _goodput(
    method: MethodBase,
    spec: ProjectSpec,
    network: Network,
    row: Mapping[str, Any],
    failures: FailuresSpec,
    steps: float,
) -> Goodput | None:
    """Return the goodput of a training under failures, or None if its step time is unknown."""
    if row["step_time_s"] is None:
        return None
    from syncline.planner.goodput.planned import estimate_goodput  # only here: most projections have no failures

    replicas = spec.layout.build().replicas(spec.workers)
    state = kept_state(method, spec.model.tensors, replicas)
    training = failing_training(
        method, state, network, spec.workers, replicas, sharding=row["sharding"], step_s=row["step_time_s"], steps=steps
    )
    return estimate_goodput(failures, training)


FAILURE_FIELDS = ("recovery", "checkpoint_interval_s", "goodput", "repair_s", "spares", "rejoin_s", "stuck")
"""Fields of a row if failures are an option; null if the step time is unknown."""


def training_at_scale(method: MethodBase, spec: ProjectSpec, tokens: float | None) -> TrainingAtScale:
    """Return a training of a spec's model as the input of loss fits."""
    return TrainingAtScale(
        loss_fit_method(method), float(spec.model.parameters), tokens,
        replicas=float(spec.layout.build().replicas(spec.workers)), period=float(getattr(method, "period", 1)),
        batch_tokens=float(spec.batch_tokens),
    )  # fmt: skip


def _loss_fields(
    method: MethodBase, spec: ProjectSpec, options: WholeTraining
) -> tuple[dict[str, Any], tuple[LossReached, TokenFactor] | None]:
    """Return the fields of a training's loss; for a target loss also the tokens to it, and their `TokenFactor`.

    If no fit gives the loss, the field ``loss_unknown`` has the reason, and the second item is None.
    """
    training = training_at_scale(method, spec, options.tokens)
    columns: dict[str, Any] = {"tokens": options.tokens} | dict.fromkeys(LOSS_FIELDS)
    tokens_to_target = None
    try:
        if options.target_loss is None:
            prediction = predicted_loss(training, extrapolate=options.extrapolate)
        else:
            tokens_to_target = tokens_for_equal_loss(options.target_loss, training, options.extrapolate)
            reached_loss, token_factor = tokens_to_target
            prediction = reached_loss.prediction
            columns |= {"tokens": reached_loss.value, "tokens_factor": token_factor.factor}
    except SpecError as error:
        return columns | {"loss_unknown": str(error)}, None
    columns |= {
        "loss": prediction.loss,
        "loss_low": prediction.low,
        "loss_high": prediction.high,
        "loss_fit": prediction.fit.name,
        "extrapolation": prediction.extrapolation,
        "beyond": ", ".join(f"{excess.field} {excess.factor:.3g}x" for excess in prediction.beyond),
    }
    return columns, tokens_to_target


LOSS_FIELDS = (
    "loss", "loss_low", "loss_high", "loss_fit", "extrapolation", "beyond", "loss_unknown", "tokens_factor",
    "below_computing",
)  # fmt: skip
"""Fields of a row if tokens or a target loss are an option; null if unknown."""


def egress_per_step(method: MethodBase, spec: ProjectSpec, network: Network, row: Mapping[str, Any]) -> float | None:
    """Return the mean bytes that leave sites in a step, summed over the sites; None if they cannot be counted.

    Without a layout and sharding, this is the row's bytes per worker times the share of the payload that leaves sites.
    """
    workers_of_sites = groups.data_centre_sizes(network, spec.workers)
    if workers_of_sites is None:
        return None
    if len(workers_of_sites) == 1:
        return 0.0
    if spec.layout.build().workers > 1 or row["sharding"] != "none":  # then workers also gather inside replicas
        plan = ProjectionPlan([spec], [method])
        bytes_by_level = level_bytes_per_step(plan, method_index=0, network=network)
        return None if bytes_by_level is None else float(bytes_by_level[-1])  # the outermost units are sites
    exchanges = method.exchanges(tensors_of(spec.model.tensors), spec.workers)
    if any(exchange.first_group is not None for exchange in exchanges):  # a group need not span all sites
        return None
    total_bytes = leaving_bytes = 0.0
    for exchange in exchanges:
        payload_bytes = exchange.payload_bytes * exchange.num_runs(spec.steps)
        total_bytes += payload_bytes
        leaving_bytes += groups.egress_bytes(exchange.collective, payload_bytes, workers_of_sites)
    return float(row["bytes_per_worker"] * leaving_bytes / total_bytes) if total_bytes else 0.0


def training_cost(
    row: Mapping[str, Any],
    prices: Prices,
    steps: float,
    seconds: tuple[float, float | None, float | None] | None,
    egress_bytes: float | None,
) -> dict[str, Any]:
    """Return the money, energy and carbon of a training as fields of a row, with bounds from those of its time.

    Args:
        prices: prices of machines, electricity and traffic.
        seconds: duration with its lower and upper bound; None if it is unknown.
        egress_bytes: bytes that leave sites in the whole training, all sites together; None if unknown.
    """
    board_power_w, _source = BOARD_POWER_W.get(row["hardware"], (None, ""))
    busy_power_w = prices.busy_power_w(board_power_w)
    busy_s = steps * (row["compute_s"] or 0.0)  # unknown for a layout without a closed form
    sent_bytes = None if seconds is None else egress_bytes  # if the duration is unknown, `steps` may be 0
    columns: dict[str, Any] = {"currency": prices.currency, "egress_bytes": sent_bytes}
    for suffix, duration_s in zip(("", "_low", "_high"), seconds or (None,) * 3, strict=True):
        money = joules = None
        if duration_s is not None:
            usage = Usage(row["workers"], duration_s, busy_s, egress_bytes=egress_bytes)
            if busy_power_w is not None:
                idle_power_w = prices.idle_power_w
                if idle_power_w is None:  # unknown: between nothing and the power of a busy worker
                    idle_power_w = 0.0 if suffix == "_low" else busy_power_w
                joules = energy_j(prices, usage, busy_power_w, idle_power_w=idle_power_w)
            money = cost(prices, usage, joules)
        columns |= {
            f"cost{suffix}": money,
            f"energy{suffix}_j": joules,
            f"carbon{suffix}_kg": None if joules is None else carbon_kg(prices, joules),
        }
    return columns
