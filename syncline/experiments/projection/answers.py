"""What rows of a projection come to for a whole training: time to a loss, money, energy, carbon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncline.costmodel.egress import egress_bytes, site_sizes
from syncline.costmodel.network.topology import Network
from syncline.costmodel.prices import BOARD_POWER_W, Prices, Usage, carbon_kg, cost, energy_j
from syncline.costmodel.scaling.inverse import time_to_loss_s, tokens_for_loss
from syncline.costmodel.scaling.predict import PredictedLoss, TrainingAtScale, predicted_loss
from syncline.errors import SpecError
from syncline.experiments.goodput.left import FailingTraining, WhatIsLeft, kept_state, with_failures
from syncline.experiments.projection.columns import ColumnRows, columns_of_rows, length
from syncline.experiments.projection.level_traffic import level_bytes_per_step
from syncline.experiments.projection.plan import ProjectionPlan
from syncline.methods import MethodBase, tensors_of
from syncline.specs import Experiment, ProjectSpec
from syncline.specs.failures import FailuresSpec


@dataclass(frozen=True)
class WholeTraining:
    """What is asked of a training beyond its steps.

    Args:
        tokens: D, all that are trained on; without it and a target the steps of the spec.
        target_loss: what it is trained to, in nats per token.
        prices: by which it is paid for.
        extrapolate: whether losses are told beyond what fits have seen.
        failures: of the machines, whose cost is in times, money and energy; none: nothing fails.

    Raises:
        SpecError: tokens beside a target, which decides them, or a number that is not positive.
    """

    tokens: float | None = None
    target_loss: float | None = None
    prices: Prices | None = None
    extrapolate: bool = False
    failures: FailuresSpec | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "target_loss"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise SpecError(name, value, "a positive number")
        if self.tokens is not None and self.target_loss is not None:
            raise SpecError("tokens", self.tokens, "nothing beside a target loss, which decides how many")

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is asked."""
        return self.tokens is None and self.target_loss is None and self.prices is None and self.failures is None


def with_training(rows: Sequence[Mapping[str, Any]], specs: Sequence[Experiment], asked: WholeTraining) -> ColumnRows:
    """The rows of a projection, with what the whole training takes.

    Args:
        rows: of `project`.
        specs: that they are of.
        asked: what is asked.

    Raises:
        SpecError: specs of a study.
    """
    known: dict[tuple[Any, ...], ProjectSpec] = {}
    for spec in specs:
        if not isinstance(spec, ProjectSpec):
            raise SpecError("spec", spec.name, "a projection: a paper's table has no training to pay for")
        machine = spec.compute.hardware
        layout = spec.layout.made()
        shared = layout.describe() if layout.workers > 1 else None
        known[spec.model.name, machine.name if machine else None, spec.workers, shared] = spec
    told = [_training(row, known[row["model"], row["hardware"], row["workers"], row["layout"]], asked) for row in rows]
    if not isinstance(rows, ColumnRows):
        return ColumnRows([columns_of_rows([{**row, **more} for row, more in zip(rows, told, strict=True)])])
    parts, begin = [], 0
    for part in rows.parts:
        end = begin + length(part)
        parts.append(part | columns_of_rows(told[begin:end]))
        begin = end
    return ColumnRows(parts)


def method_covered(method: MethodBase) -> str:
    """A method by the name that fits of losses have for it, where its losses are theirs; else its own name.

    Those of DiLoCo are of an outer Nesterov step on numbers in full precision; those of Streaming DiLoCo of fragments
    that are a step late, and in 4 bits, so that any number format does.
    """
    fields = dict(method)
    plain = getattr(fields.get("rule"), "kind", None) == "adam" and fields.get("compressor") is None
    nesterov = fields.get("outer_momentum") == NESTEROV
    covered = {
        "ddp": plain,
        "diloco": plain and nesterov and method.wire in (None, "dense"),
        "streaming-diloco": plain and nesterov and getattr(fields.get("stream"), "tau", 0) == 1,
    }
    if covered.get(method.kind):
        return "ddp-adam" if method.kind == "ddp" else method.kind
    return f"{method.name}, otherwise" if method.name in (*covered, "ddp-adam") else method.name


NESTEROV = 0.9
"""Outer momentum of all trainings that fits of DiLoCo are of."""


def _training(row: Mapping[str, Any], spec: ProjectSpec, asked: WholeTraining) -> dict[str, Any]:
    method = next(one for one in spec.methods if one.name == row["method"])
    network = next(one for one in spec.networks if one.name == row["network"])
    tokens_per_step = float(spec.tokens_per_worker * spec.workers)
    steps = float(spec.steps) if asked.tokens is None else asked.tokens / tokens_per_step
    told: dict[str, Any] = {}
    left = None
    step_s, low_s, high_s = (row[f"step_time{end}_s"] for end in ("", "_low", "_high"))
    seconds = None if step_s is None else (steps * step_s, steps * low_s, steps * high_s)
    if asked.tokens is not None or asked.target_loss is not None:
        told = _losses(method, spec, asked)
        if asked.target_loss is not None:
            steps, seconds = 0.0, None
            if (reached := told.pop("_reached")) is not None:
                steps = reached.value / tokens_per_step
                if step_s is not None:
                    seconds = time_to_loss_s(reached, tokens_per_step / step_s, low_s / step_s, high_s / step_s)
    if asked.failures is not None:
        left = _left(method, spec, row, asked.failures, steps) if steps else None
        seconds = with_failures(seconds, left)
        told |= dict.fromkeys(FAILURE_FIELDS) if left is None else left.fields() | {"stuck": left.stuck}
    if asked.tokens is not None or asked.target_loss is not None or asked.failures is not None:
        told |= dict(zip(("training_s", "training_low_s", "training_high_s"), seconds or (None,) * 3, strict=True))
    if asked.prices is not None:
        sent = egress_per_step(method, spec, network, row)
        told |= paid(row, asked.prices, steps, seconds, None if sent is None else sent * steps)
    return told


def _left(
    method: MethodBase, spec: ProjectSpec, row: Mapping[str, Any], failures: FailuresSpec, steps: float
) -> WhatIsLeft | None:
    """What failures leave of a row's training; None where nobody knows its step."""
    if row["step_time_s"] is None:
        return None
    from syncline.experiments.goodput.planned import what_is_left  # only here: most projections play nothing

    replicas = spec.layout.made().replicas(spec.workers)
    copies = 1 if method.sends_in_backward and row["sharding"] != "none" else replicas
    state = kept_state(method, spec.model.tensors, replicas)
    step_s = row["step_time_s"]
    of = FailingTraining(spec.workers, copies, state.exchanges_every, state.nbytes, step_s, steps)
    return what_is_left(failures, of)


FAILURE_FIELDS = ("recovery", "checkpoint_interval_s", "goodput", "stuck")
"""Of a row, where failures are asked about; null where nobody knows the step."""


def at_scale(method: MethodBase, spec: ProjectSpec, tokens: float | None) -> TrainingAtScale:
    """A method's training of so many tokens, as fits of losses know it."""
    return TrainingAtScale(
        method_covered(method),
        float(spec.model.parameters),
        tokens,
        replicas=float(spec.layout.made().replicas(spec.workers)),
        period=float(getattr(method, "period", 1)),
        batch_tokens=float(spec.tokens_per_worker * spec.workers),
    )


def _losses(method: MethodBase, spec: ProjectSpec, asked: WholeTraining) -> dict[str, Any]:
    """The loss of so many tokens, or the tokens of a loss; or why nobody can tell."""
    of = at_scale(method, spec, asked.tokens)
    reached, at, unknown = None, None, None
    try:
        if asked.target_loss is None:
            at = predicted_loss(of, extrapolate=asked.extrapolate)
        else:
            reached = tokens_for_loss(asked.target_loss, of, extrapolate=asked.extrapolate)
            at = reached.at
    except SpecError as error:
        unknown = str(error)
    return {
        "tokens": asked.tokens if reached is None else reached.value,
        **_loss_record(at),
        "loss_unknown": unknown,
        **({} if asked.target_loss is None else {"_reached": reached}),
    }


def _loss_record(at: PredictedLoss | None) -> dict[str, Any]:
    return {
        "loss": at and at.loss,
        "loss_low": at and at.low,
        "loss_high": at and at.high,
        "loss_fit": at and at.fit.name,
        "extrapolation": at and at.extrapolation,
        "beyond": at and ", ".join(f"{one.field} {one.factor:.3g}x" for one in at.beyond),
    }


def egress_per_step(method: MethodBase, spec: ProjectSpec, network: Network, row: Mapping[str, Any]) -> float | None:
    """Mean bytes that leave sites in a step, all sites together; None where nobody counts them.

    What a worker sends in a step, as the row has it, times what its collectives multiply it by on their way out.

    Args:
        method: it.
        spec: whose model and workers.
        network: whose sites.
        row: of the method there.
    """
    sizes = site_sizes(network, spec.workers)
    if sizes is None:
        return None
    if len(sizes) == 1:
        return 0.0
    if spec.layout.made().workers > 1 or row["sharding"] != "none":  # what replicas and those who share gather, too
        plan = ProjectionPlan([spec], [method])
        levels = level_bytes_per_step(plan, 0, network)
        return None if levels is None else float(levels[-1])
    exchanges = method.exchanges(tensors_of(spec.model.tensors), spec.workers)
    if any(one.part is not None for one in exchanges):
        return None
    payloads = [one.payload_bytes * one.times(spec.steps) for one in exchanges]
    if not (sent := sum(payloads)):
        return 0.0
    out = sum(egress_bytes(one.collective, each, sizes) for one, each in zip(exchanges, payloads, strict=True))
    return float(row["bytes_per_worker"] * out / sent)


def paid(
    row: Mapping[str, Any],
    prices: Prices,
    steps: float,
    seconds: tuple[float, float | None, float | None] | None,
    sent: float | None,
) -> dict[str, Any]:
    """Money, energy and carbon, with bounds from those of the time.

    Args:
        row: of a projection.
        prices: the list.
        steps: of the training.
        seconds: it lasts, and between which bounds; None if nobody knows.
        sent: bytes that leave sites, all together.
    """
    power, idle = prices.powered(BOARD_POWER_W.get(row["hardware"], (None, ""))[0])
    busy_s = steps * (row["compute_s"] or 0.0)  # of a layout that has no closed form nothing is known
    told: dict[str, Any] = {"currency": prices.currency, "egress_bytes": None if seconds is None else sent}
    for end, at in zip(("", "_low", "_high"), seconds or (None,) * 3, strict=True):
        money = joules = None
        if at is not None:
            usage = Usage(row["workers"], at, busy_s, sent)
            if power is not None:
                waiting = idle if idle is not None else 0.0 if end == "_low" else power
                joules = energy_j(prices, usage, power, waiting)
            money = cost(prices, usage, joules)
        told |= {
            f"cost{end}": money,
            f"energy{end}_j": joules,
            f"carbon{end}_kg": None if joules is None else carbon_kg(prices, joules),
        }
    return told
