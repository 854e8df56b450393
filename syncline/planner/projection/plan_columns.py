"""The rows of a plan as columns, sorted by settings, then networks, then methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Network, bytes_per_step
from syncline.costmodel.collectives.prices import TIME_SOURCES
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices
from syncline.costmodel.traffic.sharded import SHARDINGS
from syncline.planner.bounds import FactorBounds, StepTimesAtBounds, basis_text, combined_bounds
from syncline.planner.periods import period_of
from syncline.planner.projection.bounds import communication_bounds, computing_bounds, step_time_variants
from syncline.planner.projection.columns import Categorical, Columns, categorical, flattened, reshaped
from syncline.planner.projection.memory_plan import memory_record
from syncline.planner.projection.plan import ProjectionPlan, shared_codes
from syncline.planner.projection.pricing import NetworkGroup, PriceCache, by_link, network_groups, value_per_spec
from syncline.planner.projection.thresholds import speedup_ratio, threshold_columns
from syncline.specs import ProjectSpec

STEP_TIMES = (
    "step_time_s", "compute_s", "encode_s", "trigger_s", "optimizer_s", "inside_s", "communication_s",
    "exposed_communication_s",
)  # fmt: skip
"""Fields of a `syncline.costmodel.StepTime` with a column."""

INSIDE_TIMES = ("tensor_s", "context_s", "expert_s", "pipeline_s")
"""Fields of `syncline.costmodel.layouts.replica_step.ReplicaTimes` with a column.

``inside_s`` is their sum plus the wait for the slowest worker if computing has jitter.
"""

ExtraColumns = Mapping[str, tuple[Indices, tuple[Any, ...]]]
"""Further columns by name: the index of each row's value, which broadcasts to ``(S, N, M)``, and the values."""


class _Prices(NamedTuple):
    """Prices of M methods on N networks in S settings; arrays of ``(S, N, M)``.

    Attributes:
        times: seconds by the names in `STEP_TIMES` and `INSIDE_TIMES`.
        variants: step times if computing and communication take the bounds of their intervals.
        algorithms: names of the algorithms that carry the calls.
        evaluators: source of each time, one of ``TIME_SOURCES``, or the reason why the time is unknown.
    """

    times: dict[str, Floats]
    variants: StepTimesAtBounds
    algorithms: Categorical
    evaluators: Categorical

    @property
    def is_unknown(self) -> NDArray[np.bool_]:
        """Return a mask ``(S, N, M)`` of the step times that are unknown."""
        return self.evaluators.codes >= len(TIME_SOURCES)


def plan_columns(
    plan: ProjectionPlan, networks: Sequence[Network], with_thresholds: bool, extra_columns: ExtraColumns | None = None
) -> Columns:
    """Return the rows of a projection as columns: each method on each network in each setting of a plan.

    Speedups are over the first method, in the same setting on the same network.

    Args:
        with_thresholds: whether to find the bandwidths at which a method is worth it.
        extra_columns: further columns of the rows, which come first.
    """
    spec, groups = plan.spec, network_groups(networks)
    computing = computing_bounds(plan)
    communication = communication_bounds(plan, networks)
    prices = _price_methods(plan, networks, groups, computing, communication)
    times, evaluators = prices.times, prices.evaluators
    for name in ("step_time_s", "communication_s", "exposed_communication_s"):
        times[name][prices.is_unknown] = np.nan
    step_s = times["step_time_s"]
    step_low_s, step_high_s = combined_bounds(step_s, prices.variants)
    speedup = speedup_ratio(step_s[:, :, :1], step_s)
    speedup_variants = [speedup_ratio(variant_s[:, :, :1], variant_s) for variant_s in prices.variants]
    speedup_low, speedup_high = combined_bounds(speedup, speedup_variants)
    bases = [basis_text(first, second) for first in computing.basis for second in communication.basis]
    takes_time = ~(step_s <= 0)  # also true for an unknown time, nan
    # Codes of `evaluators` below this one are sources of a time; the others are reasons why it is unknown.
    first_reason = len(TIME_SOURCES)
    hardware = [setting.compute.hardware for setting in plan.specs]
    peak_s = value_per_spec(plan.specs, _step_s_at_peak)
    columns: Columns = {
        **{name: Categorical(codes, values) for name, (codes, values) in (extra_columns or {}).items()},
        "model": reshaped(categorical([setting.model.name for setting in plan.specs]), -1, 1, 1),
        "hardware": reshaped(categorical([machine.name if machine else None for machine in hardware]), -1, 1, 1),
        "method": categorical([method.name for method in plan.methods]),
        "period": categorical([period_of(method) for method in plan.methods]),
        "network": reshaped(categorical([network.name for network in networks]), -1, 1),
        "workers": plan.workers[:, None, None],
        "tokens_per_worker": reshaped(categorical([setting.worker_tokens for setting in plan.specs]), -1, 1, 1),
        "layout": categorical([plan.layout.describe() if plan.layout.workers > 1 else None]),
        "replicas": plan.replicas[:, None, None],
        "overlap": categorical([spec.overlap]),
        "precision": categorical([spec.number_format]),
        "algorithm": prices.algorithms,
        "timed_by": Categorical(np.minimum(evaluators.codes, first_reason), (*TIME_SOURCES, None)),
        "not_timed": Categorical(  # code 0, None, for a known time
            np.maximum(evaluators.codes - first_reason + 1, 0), (None, *evaluators.values[first_reason:])
        ),
        **{name: times[name] for name in (*STEP_TIMES[:-1], *INSIDE_TIMES)},  # the last follows below
        "communication_share": np.divide(times["communication_s"], step_s, out=np.zeros_like(step_s), where=takes_time),
        "exposed_communication_s": times["exposed_communication_s"],
        "utilisation": np.array(peak_s)[:, None, None] / np.where(step_s > 0, step_s, np.nan),
        "bytes_per_worker": _bytes_per_worker(plan)[:, None, :],
        "wall_clock_s": step_s * spec.steps,
        "speedup": speedup,
        "step_time_low_s": step_low_s,
        "step_time_high_s": step_high_s,
        "wall_clock_low_s": step_low_s * spec.steps,
        "wall_clock_high_s": step_high_s * spec.steps,
        "speedup_low": speedup_low,
        "speedup_high": speedup_high,
        "basis": reshaped(categorical(bases), len(plan.specs), len(networks), 1),
    }
    if with_thresholds:
        is_closed_form = evaluators.codes == 0  # the first of `TIME_SOURCES`
        columns |= threshold_columns(plan, groups, is_closed_form, computing, communication)
    columns |= _memory_columns(plan)
    included = np.broadcast_to(plan.included[:, None, :], step_s.shape)
    return {name: flattened(column, included) for name, column in columns.items()}


def _price_methods(
    plan: ProjectionPlan,
    networks: Sequence[Network],
    groups: Sequence[NetworkGroup],
    computing: FactorBounds,
    communication: FactorBounds,
) -> _Prices:
    shape = len(plan.specs), len(networks), len(plan.methods)
    times = {name: np.zeros(shape) for name in (*STEP_TIMES, *INSIDE_TIMES)}
    variants = StepTimesAtBounds(*(np.zeros(shape) for _ in StepTimesAtBounds._fields))
    algorithms, evaluators = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    algorithm_codes: dict[str, int] = {}
    evaluator_codes = {evaluator: code for code, evaluator in enumerate(TIME_SOURCES)}
    for network_indices, network in groups:
        cache = PriceCache()
        group_communication = communication.select(network_indices)
        for method_index in range(len(plan.methods)):
            cells = np.s_[:, network_indices, method_index]
            step = plan.step(method_index, network, cache=cache)
            for name in STEP_TIMES:
                times[name][cells] = by_link(getattr(step, name))
            replica_times = plan.replica_times(method_index, network, cache)
            for name in INSIDE_TIMES:
                times[name][cells] = by_link(getattr(replica_times, name))
            method_variants = step_time_variants(
                plan, method_index, network, cache, step, computing, communication=group_communication
            )
            for variant, method_variant in zip(variants, method_variants, strict=True):
                variant[cells] = method_variant
            algorithms[cells] = plan.algorithms(method_index, network, cache, code_by_text=algorithm_codes)
            texts, codes = plan.evaluators(method_index, network, cache)
            evaluators[cells] = shared_codes(evaluator_codes, texts)[codes]
    return _Prices(
        times, variants, algorithms=Categorical(algorithms, tuple(algorithm_codes)),
        evaluators=Categorical(evaluators, tuple(evaluator_codes)),
    )  # fmt: skip


def _step_s_at_peak(spec: ProjectSpec) -> float:
    """Return the seconds of a step at the hardware's peak rate; nan if no hardware is known."""
    machine = spec.compute.hardware
    return spec.flops_per_token * spec.worker_tokens / machine.peak_flops if machine else np.nan


def _bytes_per_worker(plan: ProjectionPlan) -> Floats:
    """Return the mean bytes that a worker sends between replicas in a step, ``(S, M)``."""
    nbytes = np.zeros((len(plan.specs), len(plan.methods)))
    for index, method_plan in enumerate(plan.method_plans):
        for traffic in method_plan.traffic:
            exchanges = traffic.exchanges
            if plan.layout.workers > 1:  # leave out exchanges inside a replica: they have a group
                exchanges = [exchange for exchange in exchanges if exchange.first_group is None]
            nbytes[traffic.settings, index] = bytes_per_step(exchanges, plan.spec.steps)
    return nbytes


def _memory_columns(plan: ProjectionPlan) -> Columns:
    """Return the columns of the memory and the memory plans of all methods in all settings, ``(S, 1, M)`` each."""
    machine_of_setting = np.array([id(spec.memory_machine) for spec in plan.specs])
    machines = {id(spec.memory_machine): spec.memory_machine for spec in plan.specs}
    method_columns: dict[str, list[NDArray[Any]]] = {}  # by name, a column ``(S,)`` for each method
    for method_plan in plan.method_plans:
        memory_plan = method_plan.memory_plan
        columns: dict[str, NDArray[Any]] = {}
        for machine_id, machine in machines.items():
            record = memory_record(memory_plan.memory, machine)
            record["fits"] = 0 if record["fits"] is None else 1 + np.asarray(record["fits"])  # an index into FITS
            for name, value in record.items():
                known_value = np.nan if value is None else value
                columns[name] = np.where(machine_of_setting == machine_id, known_value, columns.get(name, 0))
        columns |= {name: getattr(memory_plan, name) for name in ("micro_batches", "sharding", "activations")}
        for name, column in columns.items():
            method_columns.setdefault(name, []).append(column)
    stacked = {name: np.stack(columns_of_name, axis=1)[:, None, :] for name, columns_of_name in method_columns.items()}
    policies = [None if policy is None else policy.describe() for policy in plan.method_plans[0].memory_plan.policies]
    values_by_code = {"fits": FITS, "sharding": SHARDINGS, "activations": policies}
    return stacked | {name: Categorical(stacked[name], tuple(values)) for name, values in values_by_code.items()}


FITS = (None, False, True)
"""Values of the column ``fits``: whether the memory is enough; None: unknown."""
