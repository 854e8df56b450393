"""The search over compositions: steps without bounds of all layouts first, then of all methods in the best of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from syncline.costmodel.layouts.layout import Layout
from syncline.errors import SpecError
from syncline.experiments.advice.equal_loss import tokens_needed
from syncline.experiments.advice.failing import lasting_s
from syncline.experiments.advice.plans import (
    TrainingPlan,
    layouts_refused,
    layouts_tried,
    methods_tried,
    specs_of,
    unit_sizes,
)
from syncline.experiments.advice.priced import PlanRow, refused_row
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.projection.plan import Known, ProjectionPlan
from syncline.experiments.projection.played import HOW
from syncline.methods import MethodBase
from syncline.units import format_bytes

LAYOUTS_TRIED = 3
"""Layouts of a number of replicas, the fastest first, of which the first that a method fits into is taken."""

REFUSED_KEPT = 6
"""Plans that do not fit, of each number of replicas the one that needs least, that are told; the least first."""


class Glance(NamedTuple):
    """A plan's step, without bounds.

    Attributes:
        plan: which.
        step_s: infinite where it has no closed form, or does not fit.
        fits: into a worker's memory; True where nobody knows the memory.
        memory_bytes: of a worker.
    """

    plan: TrainingPlan
    step_s: float
    fits: bool
    memory_bytes: float


def glanced(question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> list[Glance]:
    """A step of each method in a plan's setting, without bounds; those that cannot be made are left out."""
    try:
        prepared = ProjectionPlan([specs_of(question, [plan], methods)])
    except SpecError:
        return [] if len(methods) == 1 else [one for each in methods for one in glanced(question, plan, [each])]
    machine = question.hardware
    out = []
    known: Known = {}
    for number, method in enumerate(methods):
        memory = prepared.held[number].memory
        fits = memory.fits(machine)
        able = True if fits is None else bool(np.all(fits))
        seconds = math.nan
        if able:
            step = prepared.step(number, question.network, known=known)
            _, how = prepared.known_by(number, question.network, known)
            if np.all(how < len(HOW)):
                seconds = float(np.reshape(step.step_time_s, (-1,))[0])
        needs = float(np.max(memory.total_bytes))
        out.append(Glance(replace(plan, method=method), math.inf if math.isnan(seconds) else seconds, able, needs))
    return out


def plans_searched(question: AdviceQuestion) -> tuple[list[TrainingPlan], list[PlanRow]]:
    """The plans that are priced whole, and rows of what does not divide.

    Of every layout data parallelism and a method with replicas are priced first, with activations computed again where
    they do not fit otherwise. Of each number of replicas a method takes the fastest layout that it fits into; and the
    number of replicas that is fastest to equal loss, one whose loss is known before others.
    """
    methods = question.methods or methods_tried()
    backward = [one for one in methods if one.sends_in_backward]
    between = [one for one in methods if not one.sends_in_backward]
    by_replicas: dict[int, list[Glance]] = {}
    parallel: list[Glance] = []
    large: dict[int, tuple[float, Layout]] = {}
    for layout in layouts_tried(question):
        replicas = layout.replicas(question.workers)
        firsts = [*backward, *(between[:1] if replicas > 1 else [])]
        if (room := question.hardware.memory_bytes) is not None:
            least = {one.name: least_bytes(question, layout, one) for one in firsts}
            firsts = [one for one in firsts if least[one.name] <= room]
            if between and least.get(between[0].name, 0.0) > room:
                needs = least[between[0].name], layout
                large[replicas] = min(large.get(replicas, needs), needs, key=lambda one: one[0])
        for one in glanced(question, TrainingPlan(firsts[0], layout), firsts) if firsts else []:
            held = one if one.fits else _recomputed(question, one)
            (parallel if held.plan.method.sends_in_backward else by_replicas.setdefault(replicas, [])).append(held)
    plans = _parallel(question, parallel)
    refused = sorted((one for one in parallel if not one.fits), key=lambda one: one.memory_bytes)[:1]
    best: dict[str, tuple[tuple[bool, float], TrainingPlan]] = {}
    for replicas, glances in by_replicas.items():
        glances.sort(key=lambda one: one.step_s)
        least_one = min(glances, key=lambda one: one.memory_bytes)
        refused += [least_one] if not least_one.fits else []
        left = list(between)
        for one in [one for one in glances if one.fits][:LAYOUTS_TRIED]:
            fitting = [each for each in glanced(question, one.plan, left) if each.fits]
            for each in fitting:
                method = each.plan.method
                needed = tokens_needed(question, method, replicas)
                steps = needed.tokens / question.batch_tokens
                rank = needed.unknown is not None, lasting_s(question, each.plan, each.step_s, steps)
                if method.name not in best or rank < best[method.name][0]:
                    best[method.name] = rank, each.plan
            found = {each.plan.method.name for each in fitting}
            if not (left := [each for each in left if each.name not in found]):
                break
    plans += [plan for _, plan in best.values()]
    refused.sort(key=lambda one: one.memory_bytes)
    too_large = [_too_large(question, *large[one]) for one in sorted(large) if one not in by_replicas]
    return plans + [one.plan for one in refused[:REFUSED_KEPT]], too_large[:REFUSED_KEPT] + _undivided(question)


def least_bytes(question: AdviceQuestion, layout: Layout, method: MethodBase) -> float:
    """Least memory of a worker without activations: ``16 N / w``, all that is kept shared out over all who can.

    Of a pipeline, whose weights are not gathered for each micro-batch, ``2 N / (t k e) + 14 N / w``.

    Args:
        question: of what model.
        layout: of a replica, of w workers.
        method: data parallelism shares out over all replicas, w is P, where a replica has no copies.
    """
    alone = method.sends_in_backward and layout.sharers == 1
    kept = 16.0 * question.model.parameters / (question.workers if alone else layout.workers)
    if layout.pipeline == 1:
        return kept
    return kept * 14 / 16 + 2.0 * question.model.parameters / (layout.tensor * layout.pipeline * layout.expert)


def _too_large(question: AdviceQuestion, least: float, layout: Layout) -> PlanRow:
    why = f"memory: {format_bytes(least)} at least of {format_bytes(question.hardware.memory_bytes or 0.0)}"
    replicas = layout.replicas(question.workers)
    return refused_row("any with replicas", f"{replicas} replicas of {layout.describe()}", why) | {
        "memory_bytes": least
    }


def _recomputed(question: AdviceQuestion, one: Glance) -> Glance:
    """With activations computed again, if it fits so; else as it is."""
    again = glanced(question, replace(one.plan, activations="recomputed"), [one.plan.method])
    return again[0] if again and again[0].fits else one


def _parallel(question: AdviceQuestion, glances: Sequence[Glance]) -> list[TrainingPlan]:
    """Of data parallelism the fastest plan by what crosses the outermost level, and of gradients also without overlap.

    Gradients cross it, or a pipeline does, or what is shared out more finely.
    """
    fitting = sorted((one for one in glances if one.fits), key=lambda one: one.step_s)
    kept: dict[str, TrainingPlan] = {}
    for one in fitting:
        kept.setdefault(outermost(question, one.plan), one.plan)
    return [*kept.values(), *(replace(plan, overlap="none") for name, plan in kept.items() if name == "gradients")]


def outermost(question: AdviceQuestion, plan: TrainingPlan) -> str:
    """What of a layout's parallelism crosses the network's outermost level: of several the finest."""
    layout, below = plan.layout, unit_sizes(question.network, question.workers)[:-1]
    inside = below[-1] if below else 1
    groups = {
        "tensor": layout.tensor_group,
        "context": layout.context_group,
        "experts": layout.expert_group,
        "a pipeline": layout.pipeline_group,
    }
    return next((name for name, of in groups.items() if of[-1] >= inside), "gradients")


def _undivided(question: AdviceQuestion) -> list[PlanRow]:
    """Rows of layouts that do not divide what they share, the first of each reason."""
    found: dict[str, PlanRow] = {}
    for layout, why in layouts_refused(question):
        found.setdefault(why, refused_row("any method", layout.describe(), why))
    return list(found.values())[:REFUSED_KEPT]
