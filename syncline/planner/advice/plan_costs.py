"""Rows of plans: time, traffic, memory and cost with bounds, and the goodput if machines fail; the least of values."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from syncline.costmodel import ModelShape
from syncline.costmodel.layouts.groups import data_centre_sizes
from syncline.costmodel.layouts.layout import GIVEN
from syncline.costmodel.layouts.memory import usable_bytes
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray
from syncline.costmodel.prices import Prices
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.advice.equal_loss import TokensNeeded, tokens_needed
from syncline.planner.advice.plans import TrainingPlan, spec_of_setting
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.bounds import bound_ratio
from syncline.planner.goodput.goodput import (
    GOODPUT_FIELDS,
    FailingTraining,
    Goodput,
    KeptState,
    failing_training,
    kept_state,
    with_failures,
)
from syncline.planner.projection.columns import ColumnRows
from syncline.planner.projection.plan import ProjectionPlan
from syncline.planner.projection.plan_columns import plan_columns
from syncline.planner.projection.pricing import first_value
from syncline.planner.projection.training_totals import (
    below_computing,
    egress_per_step,
    level_bytes_per_step,
    training_cost,
)
from syncline.specs import ProjectSpec
from syncline.units import format_bytes, format_seconds


def failing_plan(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float, steps: float, sharding: str = "none"
) -> FailingTraining:
    """Return a plan's training as inputs of the failure model.

    Args:
        step_s: seconds of a step in which nothing fails.
        sharding: the states that are sharded over workers, see `failing_training`.
    """
    replicas = plan.layout.replicas(question.workers)
    state = _cached_kept_state(question.model, plan.method, replicas)
    return failing_training(plan.method, state, question.network, question.workers, replicas, sharding, step_s, steps)


@lru_cache(maxsize=4096)
def _cached_kept_state(model: ModelShape, method: MethodBase, replicas: int) -> KeptState:
    """Return the bytes of a checkpoint of a model and of a method's states, from a cache."""
    return kept_state(method, model.tensors, replicas)


def plan_goodput(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float | None, steps: float, sharding: str = "none"
) -> Goodput | None:
    """Return a plan's goodput, or None if nothing fails or the step time is unknown; see `failing_plan`."""
    if question.failures is None or step_s is None:
        return None
    from syncline.planner.goodput.planned import estimate_goodput

    return estimate_goodput(question.failures, failing_plan(question, plan, step_s, steps, sharding))


def time_with_failures_s(
    question: AdviceQuestion, plan: TrainingPlan, step_s: float, steps: float, sharding: str = "none"
) -> float:
    """Return the seconds of a plan's training with failures, as in `failing_plan`; infinite if it makes no progress."""
    if question.failures is None or not math.isfinite(step_s):
        return steps * step_s
    estimate = plan_goodput(question, plan, step_s, steps, sharding)
    assert estimate is not None
    return steps * step_s / estimate.goodput if estimate.goodput else math.inf


MOST_FAILURES = 20_000
"""Limit on the simulated failures, which take less than a second; above it only the formula gives the goodput."""


def goodput_by_events(question: AdviceQuestion, row: PlanRow) -> float | None:
    """Return the simulated goodput of a row's plan with the failures of one seed.

    The result is None if nothing fails, or if failures are so frequent that the simulation would take minutes.
    """
    if question.failures is None or not row["goodput"]:
        return None
    from syncline.planner.goodput.planned import simulated_goodput

    step_s, steps = row["step_time_s"], row["steps"]
    expected_failures = steps * step_s / row["goodput"] / question.failures.mtbf_s(question.workers)
    if expected_failures > MOST_FAILURES:
        return None
    failures = question.failures.model_copy(update={"recovery": row["recovery"]})
    training = failing_plan(question, row["plan"], step_s, steps, sharding=row["sharding"])
    goodput, _ = simulated_goodput(failures, training)
    return goodput


def failure_words(question: AdviceQuestion, row: PlanRow) -> list[str]:
    """Return a sentence on the rate of failures and the plan's goodput, or no sentence without failures."""
    if question.failures is None or row["goodput"] is None:
        return []
    interval_s = row["checkpoint_interval_s"]
    saves = "only at its end" if interval_s is None else f"every {format_seconds(interval_s)}"
    mtbf = format_seconds(question.failures.mtbf_s(question.workers))
    text = (
        f"Something fails every {mtbf}: of the first's time {row['goodput']:.1%} is in steps that count. "
        f"{RECOVERY_TEXTS[row['recovery']]}; it saves {saves}."
    )
    if row["recovery"] == "elastic":
        text += f" A replica that returns fetches its state in {format_seconds(row['rejoin_s'])}."
    return [text]


RECOVERY_TEXTS = {"restart": "All go back to the last checkpoint", "elastic": "The replicas that are there go on"}
"""Ways in which a training continues after a failure, in words."""


PlanRow = dict[str, Any]
"""The time, traffic, memory and cost of a plan by the names of columns, with the fields in `OBJECTS`."""

PROJECTION_COLUMNS = (
    "workers", "replicas", "precision", "timed_by", "not_timed", "step_time_s", "step_time_low_s", "step_time_high_s",
    "compute_s", "encode_s", "trigger_s", "optimizer_s", "inside_s", "tensor_s", "context_s", "expert_s", "pipeline_s",
    "communication_s", "exposed_communication_s", "utilisation", "fits", "micro_batches", "sharding", "activations",
    "basis",
)  # fmt: skip
"""Columns of a projection that a plan's row takes over."""


OBJECTS = ("plan", "prepared")
"""Fields of a row that are not plain values: the plan, and its projection with the plan's index in it."""


def price_plans(question: AdviceQuestion, plans: Sequence[TrainingPlan]) -> list[PlanRow]:
    """Return a table row with time, traffic, memory and cost for each training plan, in order."""
    indices_by_setting: dict[Any, list[int]] = {}
    for index, plan in enumerate(plans):
        indices_by_setting.setdefault(plan.setting, []).append(index)
    row_by_index: dict[int, PlanRow] = {}
    for indices in indices_by_setting.values():  # plans of one setting are priced at once
        setting_rows = _price_setting(question, [plans[index] for index in indices])
        row_by_index |= zip(indices, setting_rows, strict=True)
    return [row_by_index[index] for index in range(len(plans))]


def _price_setting(question: AdviceQuestion, plans: Sequence[TrainingPlan]) -> list[PlanRow]:
    """Return the table rows of training plans that differ only in their methods; one projection prices them all."""
    first_plan = plans[0]
    try:
        spec = spec_of_setting(question, first_plan, [plan.method for plan in plans])
        prepared = ProjectionPlan([spec])
    except SpecError as error:
        # Price the plans one by one, so that only those with an error are refused.
        if len(plans) == 1:
            return [refused_row(first_plan.method.name, first_plan.layout.describe(), f"{error}")]
        return [row for plan in plans for row in _price_setting(question, [plan])]
    network = first_plan.on(question.network, question.workers)
    projected = ColumnRows([plan_columns(prepared, [network], with_thresholds=False)]).tolist()
    return [_plan_row(question, plan, prepared, index, projected[index]) for index, plan in enumerate(plans)]


def with_computing_alone(question: AdviceQuestion, rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the rows with ``below_computing``: why a plan takes less time than data parallelism needs to compute.

    The field is None for plans that take longer. Of the data-parallel plans, the one that computes fastest counts.
    """
    computing_s = []  # of data-parallel plans
    for row in rows:
        if row["plan"] and row["plan"].method.sends_in_backward and row["tokens_factor"] and row["compute_s"]:
            ddp_steps = row["tokens"] / row["tokens_factor"] / question.batch_tokens  # on data parallelism's tokens
            computing_s.append(ddp_steps * row["compute_s"])
    least_s = min(computing_s, default=0.0)  # no plan takes less than 0 s
    result = []
    for row in rows:
        reason = None
        if row["plan"]:  # not a layout that is refused
            bounds = row["tokens_factor_low"], row["tokens_factor_high"]
            reason = below_computing(row["time_s"], least_s, row["tokens_factor"], bounds, row["tokens_source"])
        result.append(row | {"below_computing": reason})
    return result


NULL_FIELDS = (
    "time_s", "low_s", "high_s", "utilisation", "memory_bytes", "wan_bytes", "cost", "energy_j", "loss_unknown",
)  # fmt: skip
"""Fields that are null in the row of an infeasible plan."""


def refused_row(method: str, layout: str, reason: str) -> PlanRow:
    """Return a table row for a plan that cannot run, with the reason in place of times and costs."""
    names = {"method": method, "layout": layout, "placement": GIVEN}
    return names | dict.fromkeys(NULL_FIELDS) | {"infeasible": reason, "why": reason, "plan": None, "prepared": None}


def _plan_row(
    question: AdviceQuestion, plan: TrainingPlan, prepared: ProjectionPlan, method_index: int, projected: PlanRow
) -> PlanRow:
    """Return the time, traffic, memory and cost of a plan, with bounds."""
    needed = tokens_needed(question, plan.method, plan.layout.replicas(question.workers))
    steps = needed.tokens / question.batch_tokens
    goodput = plan_goodput(question, plan, step_s=projected["step_time_s"], steps=steps, sharding=projected["sharding"])
    seconds = with_failures(_training_seconds(steps, needed, projected), goodput)
    step_bytes = level_bytes_per_step(prepared, method_index, plan.on(question.network, question.workers))
    step_egress_bytes = _egress_bytes_per_step(question, plan, step_bytes, prepared.spec, projected)
    egress_bytes = None if step_egress_bytes is None else step_egress_bytes * steps
    cost_fields = training_cost(projected, question.prices or Prices(), steps, seconds, egress_bytes)
    cost_fields.pop("egress_bytes")  # the field ``wan_bytes`` replaces it
    level_bytes = None if step_bytes is None else [float(nbytes) * steps for nbytes in step_bytes]
    outermost_bytes = egress_bytes if level_bytes is None else level_bytes[-1]
    time_s, low_s, high_s = (None, None, None) if seconds is None else seconds
    row = {
        "method": plan.method.name,
        "layout": plan.layout.describe(),
        "placement": plan.placement,
        "overlap": plan.overlap,
        "algorithm": plan.algorithm,
        "period": dict(plan.method).get("period", 1),
        "time_s": time_s,
        "low_s": low_s,
        "high_s": high_s,
        "memory_bytes": projected["memory_bytes"],
        "utilisation_low": _utilisation_at(projected, projected["step_time_high_s"]),
        "utilisation_high": _utilisation_at(projected, projected["step_time_low_s"]),
        "wan_bytes": outermost_bytes,
    }
    for sign, end in BOUNDS:
        factor = bound_ratio(sign, *_token_ratios(needed, end))
        row[f"wan_bytes_{end}"] = None if outermost_bytes is None or factor is None else outermost_bytes * factor
    row |= {"level_bytes": level_bytes, **cost_fields, "steps": steps, **needed.record()}
    row |= {name: projected[name] for name in PROJECTION_COLUMNS}
    row["carried_by"] = projected["algorithm"]  # the algorithms in use; that of a plan may be None
    row |= dict.fromkeys(GOODPUT_FIELDS) if goodput is None else goodput.fields()
    if goodput and goodput.stuck:
        row["infeasible"] = f"failures: {goodput.stuck}"
    else:
        row["infeasible"] = infeasibility(question, row)
    row["why"] = row["infeasible"] or step_time_parts(row)
    return row | {"plan": plan, "prepared": (prepared, method_index)}


def _egress_bytes_per_step(
    question: AdviceQuestion, plan: TrainingPlan, step_bytes: Floats | None, spec: ProjectSpec, projected: PlanRow
) -> float | None:
    """Return the billed bytes of a step that leave sites: 0 if all workers are at one site, None if unknown."""
    sizes = data_centre_sizes(question.network, question.workers)
    if sizes is not None and len(sizes) == 1:
        return 0.0
    if sizes is not None and step_bytes is not None:
        return float(step_bytes[-1])  # those between the units of the outermost level
    return egress_per_step(plan.method, spec, plan.on(question.network, question.workers), row=projected)


def _utilisation_at(projected: PlanRow, step_s: float | None) -> float | None:
    """Return the utilisation of the hardware if a step took ``step_s`` seconds; None if it is unknown."""
    if not projected["utilisation"] or not step_s:
        return None
    return float(projected["utilisation"] * projected["step_time_s"] / step_s)


def _token_ratios(needed: TokensNeeded, end: str) -> tuple[float | None, ...]:
    """Return the ratios of bound to prediction for the token factor and for data parallelism's tokens.

    The result is empty if the question sets the tokens.
    """
    if needed.unknown is not None:
        return ()
    factor, base_ratio = getattr(needed, f"factor_{end}"), getattr(needed, f"base_{end}")
    return None if factor is None else factor / needed.factor, base_ratio


def _training_seconds(
    steps: float, needed: TokensNeeded, projected: PlanRow
) -> tuple[float, float | None, float | None] | None:
    """Return the seconds of a training with bounds, from the bounds of a step and of the tokens; None if unknown."""
    step_s = projected["step_time_s"]
    if step_s is None:
        return None
    time_s = steps * step_s
    if needed.unknown is not None:  # the question sets the tokens: only the step is uncertain
        return time_s, steps * projected["step_time_low_s"], steps * projected["step_time_high_s"]
    bounds_s = []
    for sign, end in BOUNDS:
        factor = bound_ratio(sign, projected[f"step_time_{end}_s"] / step_s, *_token_ratios(needed, end))
        bounds_s.append(None if factor is None else time_s * factor)
    low_s, high_s = bounds_s
    return time_s, low_s, high_s


BOUNDS = ((-1, "low"), (1, "high"))
"""The bounds of a value: sign of their deviation, and end of their names."""


def infeasibility(question: AdviceQuestion, row: PlanRow) -> str | None:
    """Return the reason why a plan is infeasible, in words, or None if it is feasible."""
    if row["fits"] is False:
        return f"memory: {format_bytes(row['memory_bytes'])} of {format_bytes(usable_bytes(question.hardware))}"
    if row["time_s"] is None:
        return f"not timed: {row['not_timed'] or 'no closed form here'}"
    if question.deadline_s is not None and row["time_s"] > question.deadline_s:
        return f"deadline: {format_seconds(row['time_s'])} of {format_seconds(question.deadline_s)}"
    if question.budget is not None and (row["cost"] is None or row["cost"] > question.budget):
        cost = "the cost is unknown" if row["cost"] is None else f"{row['cost']:,.0f}"
        return f"budget: {cost} of {question.budget:,.0f} {row['currency']}"
    return None


def step_time_parts(row: PlanRow) -> str:
    """Return, as text, the parts of a step that take at least `LEAST_SHARE` of its time, the largest first."""
    step_s = row["step_time_s"]
    shares = sorted(((row[name] / step_s, text) for name, text in PARTS.items() if row[name]), reverse=True)
    return ", ".join(f"{share:.0%} {text}" for share, text in shares if share >= LEAST_SHARE)


PARTS = {
    "compute_s": "computing",
    "exposed_communication_s": "waiting for exchanges",
    "encode_s": "packing",
    "trigger_s": "reading the trigger back",
    "optimizer_s": "updating",
    "tensor_s": "sums over tensor",
    "context_s": "keys and values over context",
    "expert_s": "tokens to experts",
    "pipeline_s": "the pipeline's bubble and messages",
}
"""The parts of a step's time, in words."""

LEAST_SHARE = 0.02
"""Smallest share of a step that is reported."""


def indices_by_value(bounds_then_values: Sequence[Iterator[tuple[Any, bool]]]) -> Iterator[int]:
    """Yield the indices of values, from the least value to the largest; equal values stay in their order.

    Args:
        bounds_then_values: for each value an iterator that yields lower bounds with False and then the value with True.
            An iterator that ends without a value is left out. Iterators advance only as far as needed.

    >>> bounds_then_values = [(1.0, False), (4.0, True)], [(3.0, True)], [(2.0, False), (3.0, True)]
    >>> indices = indices_by_value([iter(bounds) for bounds in bounds_then_values])
    >>> next(indices), next(indices)
    (1, 2)
    """
    bounds: list[tuple[Any, bool, int]] = []

    def narrow(index: int) -> None:
        """Replace the bound of a value by its next one."""
        narrower = next(bounds_then_values[index], None)
        if narrower is not None:
            heapq.heappush(bounds, (*narrower, index))

    for index in range(len(bounds_then_values)):
        narrow(index)
    while bounds:
        # A value that comes out first is the least; an equal bound, whose flag is False, would come out before it.
        _, is_value, index = heapq.heappop(bounds)
        if is_value:
            yield index
        else:
            narrow(index)


def lower_bound_s(seconds: FloatOrArray) -> float:
    """Return a step's seconds without what rounding may have added; infinity if the seconds are unknown (NaN)."""
    least_s = first_value(seconds)
    return math.inf if math.isnan(least_s) else least_s * (1 - ROUNDING)


ROUNDING = 1e-9
"""Relative difference, above that by rounding, from which a lower bound that is longer rules a plan out."""
