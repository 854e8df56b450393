"""Rows of a projection at values of a variable, their margins, and the spans of values that meet a target.

Each end of a span between two values of the grid is found to a relative millionth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from syncline.costmodel import Network, StepTime
from syncline.costmodel.layouts.memory import usable_bytes
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.scaling.predict import TrainingAtScale
from syncline.costmodel.scaling.relative import relative_loss
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.bounds import at_bounds, combined_bounds
from syncline.planner.projection.bounds import communication_bounds, computing_bounds
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.pricing import PriceCache, by_link, network_groups
from syncline.planner.projection.project import project_all
from syncline.planner.projection.training_totals import WholeTraining, loss_fit_method, with_training
from syncline.planner.solving.targets import UNKNOWN_VALUE, BoundedValue, SolveTargets, margins, quantities
from syncline.planner.solving.variables import DecisionVariable, ProjectionSetting, Sense
from syncline.specs import ProjectSpec


class Evaluation(NamedTuple):
    """The projection at a value of the variable that the solver tried.

    Attributes:
        row: row of the projection, with the whole training if the question has one.
        margins: margin as predicted, at the optimistic bound and at the pessimistic bound, ``(3,)``; at least 0 if all
            targets are met, nan if unknown.
        tightest_target: name of the target with the smallest margin.
        quantities: quantity of each target, by its name.
        unknown_reason: the reason if the margin is unknown, else None.
    """

    row: dict[str, Any]
    margins: Floats
    tightest_target: str
    quantities: dict[str, BoundedValue]
    unknown_reason: str | None

    @property
    def is_met(self) -> bool | None:
        """Return whether all targets are met as predicted; None if this is unknown."""
        return None if np.isnan(self.predicted_margin) else self.predicted_margin >= 0

    @property
    def predicted_margin(self) -> float:
        """Return the margin as predicted, the first of `BOUNDS`."""
        return float(self.margins[0])


@dataclass
class Trials:
    """The evaluations at values of one variable, each value once.

    Args:
        evaluations: evaluations so far, by value.
    """

    variable: DecisionVariable
    targets: SolveTargets
    training: WholeTraining
    baseline: MethodBase | None = None
    evaluations: dict[float, Evaluation] = field(default_factory=dict)

    def evaluate(self, values: Sequence[float]) -> list[Evaluation]:
        """Return the projection and its margins at each value; the new values are priced together."""
        new_values = [value for value in dict.fromkeys(values) if value not in self.evaluations]
        settings = [self.variable.setting_at(value) for value in new_values]
        evaluations = evaluate_settings(settings, self.targets, self.training, self.baseline)
        self.evaluations |= dict(zip(new_values, evaluations, strict=True))
        return [self.evaluations[value] for value in values]


def evaluate_settings(
    settings: Sequence[ProjectionSetting],
    targets: SolveTargets,
    training: WholeTraining,
    baseline: MethodBase | None = None,
) -> list[Evaluation]:
    """Return each setting's projection with its margins.

    Args:
        settings: settings in order; adjacent settings of the same spec and method are priced at once.
        baseline: baseline of speedups; the method itself by default.
    """
    evaluations: list[Evaluation] = []
    for _, group in groupby(settings, key=lambda setting: (id(setting.spec), id(setting.method))):
        neighbours = list(group)
        spec, _, method = neighbours[0]
        networks = [setting.network for setting in neighbours]
        methods = (method,) if baseline is None else (baseline, method)
        projected_spec = spec.model_copy(update={"networks": tuple(networks), "methods": methods})
        rows = project_all([projected_spec], thresholds=False)
        rows = rows[len(methods) - 1 :: len(methods)]  # each baseline's row precedes the method's
        method_spec = projected_spec.model_copy(update={"methods": (method,)})
        if not training.is_empty:
            # One network at a time, because `with_training` finds a row's network by name, and these share one.
            rows = [
                with_training([row], [method_spec.model_copy(update={"networks": (network,)})], training).json_rows()[0]
                for row, network in zip(rows, networks, strict=True)
            ]
        network_shares: list[dict[str, BoundedValue]] = [{} for _ in networks]
        if targets.need_shares:
            network_shares = _step_shares(method_spec, networks)
        for row, step_shares in zip(rows, network_shares, strict=True):
            evaluations.append(_evaluation(dict(row), step_shares, method_spec, method, targets, training))
    return evaluations


def _evaluation(
    row: dict[str, Any],
    step_shares: dict[str, BoundedValue],
    spec: ProjectSpec,
    method: MethodBase,
    targets: SolveTargets,
    training: WholeTraining,
) -> Evaluation:
    """Return the evaluation of a row of a projection and of the shares of its step.

    Args:
        step_shares: for each target that limits a share of the step, this share.
    """
    values = quantities(row) | step_shares
    if row["step_time_s"] is None:  # a step of unknown time has no shares
        values |= dict.fromkeys(step_shares, UNKNOWN_VALUE)
    limit_bytes = usable_bytes(spec.memory_machine)
    memory_share = row["memory_bytes"] / limit_bytes if np.isfinite(limit_bytes) else None
    values["memory"] = BoundedValue(memory_share, memory_share, memory_share)
    no_loss_reason = None
    if targets.loss_penalty is not None:
        values["loss_penalty"], no_loss_reason = _loss_over_ddp(spec, method, row, training)
    if targets.memory and row["fits"] is False:
        targets = SolveTargets(memory=targets.memory)  # a plan that does not fit has no time; its memory alone decides
    target_margins, tightest_target = margins(targets, values)
    unknown_reason = None
    if np.isnan(target_margins[BOUNDS.index("predicted")]):
        unknown_reason = row["not_timed"] or no_loss_reason or _unknown_reason(row, tightest_target)
    return Evaluation(row, target_margins, tightest_target, quantities=values, unknown_reason=unknown_reason)


def _loss_over_ddp(
    spec: ProjectSpec, method: MethodBase, row: dict[str, Any], training: WholeTraining
) -> tuple[BoundedValue, str | None]:
    """Return the predicted loss over data parallelism's loss, with bounds, and None; or no value and the reason."""
    at_scale = TrainingAtScale(
        loss_fit_method(method), float(spec.model.parameters), training.tokens, replicas=float(row["replicas"]),
        period=float(getattr(method, "period", 1)),
    )  # fmt: skip
    try:
        ratio = relative_loss(at_scale, extrapolate=training.extrapolate)
    except SpecError as error:
        return UNKNOWN_VALUE, str(error)
    return BoundedValue(ratio.ratio, ratio.low, ratio.high), None


def _unknown_reason(row: dict[str, Any], target: str) -> str:
    """Return the reason why the quantity of a target is unknown in a row."""
    if row.get("loss_unknown") and row.get("training_s") is None:  # the tokens to a loss are unknown, too
        return str(row["loss_unknown"])
    reasons = {
        "utilisation": "no hardware is known, and so no peak",
        "memory": "no hardware's memory is known",
        "budget": "the cost is unknown: the list lacks a price, or the amount that a price is for is unknown",
    }
    return reasons.get(target, "the time of a step is unknown")


SHARES = {"exposed": "exposed_communication_s", "compute_utilisation": "compute_s"}
"""By target, the field of a step time; the target limits the field's share of the step."""

ROUNDING = 1e-12
"""Share of a step below which waiting is a rounding error of a difference of sums."""


def _step_shares(spec: ProjectSpec, networks: Sequence[Network]) -> list[dict[str, BoundedValue]]:
    """Return for each network, by target, the share of a step that the target limits; the spec has one method."""
    plan = ProjectionPlan([spec.model_copy(update={"networks": tuple(networks)})])
    computing = computing_bounds(plan)
    communication = communication_bounds(plan, networks)
    shares_by_network: list[dict[str, BoundedValue]] = [{} for _ in networks]
    for indices, network in network_groups(networks):
        cache = PriceCache()
        step = plan.step(0, network, cache=cache)
        variants = [
            plan.step(0, network, cache=cache, factors=factors)
            for factors in at_bounds(computing, communication.select(indices))
        ]
        for name in SHARES:
            share = _step_share(step, name)
            low, high = combined_bounds(share, [_step_share(variant, name) for variant in variants])
            high = np.minimum(high, 1.0)  # a part of a step is not longer than the step
            # A small share of waiting is good, but a large share of computing is.
            optimistic, pessimistic = (low, high) if name == "exposed" else (high, low)
            for column, index in enumerate(indices):  # each array is (1, n) for the n networks of this group
                bounded = (float(values[0, column]) for values in (share, optimistic, pessimistic))
                shares_by_network[index][name] = BoundedValue(*bounded)
    return shares_by_network


def _step_share(step: StepTime, name: str) -> Floats:
    """Return the share of a step that a target limits, ``(1, n)`` for n links; 0 if the step takes no time."""
    part_s, step_s = by_link(getattr(step, SHARES[name])), by_link(step.step_time_s)
    share = np.divide(part_s, step_s, out=np.zeros(step_s.shape), where=step_s > 0)
    if name == "exposed":  # a difference of sums, which may have a rounding error
        share = np.where(share < ROUNDING, 0.0, share)
    return share


Holds = Literal["always", "never", "from", "up to", "between", "in parts", "unknown"]
"""The values of the grid that meet a target, in words."""

BOUNDS = ("predicted", "optimistic", "pessimistic")
"""The step times to use, in the order of `Evaluation.margins`."""

MAX_ROUNDS = 80
"""Limit on the rounds of a search for the end of a span."""


class FeasibleSpan(NamedTuple):
    """A span of values that meet a target, from ``first`` to ``last``; None stands for that end of the grid."""

    first: float | None
    last: float | None


class FeasibleSpans(NamedTuple):
    """The values that meet a target.

    Attributes:
        holds: which values of the grid meet the target, one of `Holds`: for example ``from`` one value upwards.
        spans: all spans of values that meet the target, ascending.
        crossings: the ends of the spans, without the ends of the grid.
    """

    holds: Holds
    spans: tuple[FeasibleSpan, ...]
    crossings: tuple[float, ...]


def feasible_spans(trials: Trials, bound_index: int = 0) -> FeasibleSpans:
    """Return the spans of values that meet a target."""
    grid = trials.variable.grid
    evaluations = trials.evaluate(grid)
    if np.isnan([evaluation.margins[bound_index] for evaluation in evaluations]).all():
        return FeasibleSpans("unknown", (), ())
    is_met = [_is_met(evaluation, bound_index) for evaluation in evaluations]
    spans: list[FeasibleSpan] = []
    first: float | None = None  # start of the current span; None: it began with the grid
    for (low, is_low_met), (high, is_high_met) in pairwise(zip(grid, is_met, strict=True)):
        if is_high_met and not is_low_met:
            first = _span_end(trials, low, high, bound_index)
        elif is_low_met and not is_high_met:
            spans.append(FeasibleSpan(first, _span_end(trials, low, high, bound_index)))
            first = None
    if is_met[-1]:
        spans.append(FeasibleSpan(first, None))
    crossings = tuple(end for span in spans for end in span if end is not None)
    holds: Holds
    if not crossings:
        holds = "always" if spans else "never"
    elif len(spans) > 1:
        holds = "in parts"
    elif spans[0].last is None:
        holds = "from"
    else:
        holds = "up to" if spans[0].first is None else "between"
    return FeasibleSpans(holds, tuple(spans), crossings)


def _is_met(evaluation: Evaluation, bound_index: int) -> bool:
    """Return whether all targets are met at a bound; an unknown margin (nan) meets none."""
    return bool(evaluation.margins[bound_index] >= 0)


def _span_end(trials: Trials, low: float, high: float, bound_index: int) -> float:
    """Return the end of a span, by bisection between a value that meets the target and one that does not."""
    for _ in range(MAX_ROUNDS):
        at_low, at_high = trials.evaluate([low, high])
        inner_values = trials.variable.values_between(
            low, high, float(at_low.margins[bound_index]), float(at_high.margins[bound_index])
        )
        if not inner_values:  # low and high are as close as the answer needs
            break
        values = [low, *inner_values, high]
        is_met = [_is_met(evaluation, bound_index) for evaluation in trials.evaluate(values)]
        change = is_met.index(not is_met[0])  # the first value on the other side of the end
        low, high = values[change - 1], values[change]
    (at_low,) = trials.evaluate([low])
    return low if _is_met(at_low, bound_index) else high


class SolvedValue(NamedTuple):
    """The value that answers the question, and the values at both bounds of the step time, in ascending order.

    Attributes:
        value: the value; None if no value meets the target, or if this is unknown. If all values meet the target, it is
            the fewest workers or the least delay, and None for other variables.
        low: lower bound; None if all values, or none, would meet the target at that bound.
        high: upper bound; None as for ``low``.
        met_above: whether the value and all larger values meet the target; else the value and all smaller ones do.
    """

    value: float | None
    low: float | None
    high: float | None
    met_above: bool


def solved_value(spans_by_bound: Sequence[FeasibleSpans], sense: Sense, lowest: float) -> SolvedValue:
    """Return the value that answers the question, among the values that meet a target.

    The answer is the least bandwidth from which all higher bandwidths meet the target, the longest latency up to which
    all shorter latencies do, the fewest workers or steps of delay, and the longest period, or the shortest if every
    longer period meets the target.

    Args:
        spans_by_bound: the values that meet the target at each of `BOUNDS`.
        sense: the value that is the answer: the ``least``, ``most``, ``fewest`` or ``longest``.
        lowest: the least value of the grid.
    """
    met_above = _is_met_above(spans_by_bound, sense)
    value, optimistic, pessimistic = (
        _answer_among(feasible.spans, sense, met_above, smallest=lowest) for feasible in spans_by_bound
    )
    if met_above:
        return SolvedValue(value, low=optimistic, high=pessimistic, met_above=True)
    return SolvedValue(value, low=pessimistic, high=optimistic, met_above=False)


def _is_met_above(spans_by_bound: Sequence[FeasibleSpans], sense: Sense) -> bool:
    """Return whether values larger than the answer meet the target; else smaller values do."""
    if sense == "fewest":
        return True
    for feasible in spans_by_bound:  # the first bound at which only a part of the values meets the target decides
        if feasible.holds in ("from", "up to"):
            return feasible.holds == "from"
        if feasible.crossings:
            return sense == "least" and feasible.spans[-1].last is None
    return sense == "least"


def _answer_among(spans: Sequence[FeasibleSpan], sense: Sense, met_above: bool, smallest: float) -> float | None:
    """Return the answer among the values that meet a target: an end of a span, or None if the grid ends there, too."""
    if not spans:
        return None
    lowest_span, highest_span = spans[0], spans[-1]
    if sense == "fewest":
        return smallest if lowest_span.first is None else lowest_span.first
    if met_above:
        # The least value from which on all values meet the target; for a period the first value that meets it.
        return highest_span.first if sense == "least" else lowest_span.first
    # The most up to which all values meet the target, or else the last value that meets it.
    return lowest_span.last if sense == "most" and lowest_span.first is None else highest_span.last
