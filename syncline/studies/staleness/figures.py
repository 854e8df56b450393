"""The figures of a staleness study."""

from __future__ import annotations

import math
from dataclasses import replace

from syncline.analysis import Curve, loss_against_clock, loss_against_steps
from syncline.analysis.figures.staleness import over_stages
from syncline.analysis.figures.style import Dashes, MethodStyle, method_styles
from syncline.specs.study import Figures, Record
from syncline.studies.staleness.spec import LateMethod, StalenessSpec
from syncline.studies.staleness.study import BestPaths, Path, clocks, paths, target_of

HUES = {"nothing": "data parallel", "a remedy": "compressed", "no scale": "triggered", "a basis": "rotated"}
"""Of which family the hue is taken for each kind of method: a study of stages has none of the others' methods."""

DASHED: Dashes = (0, (4, 1.5))


def staleness_figures(spec: StalenessSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Loss and slowdown over the stages, loss against steps, and against both clocks.

    ``loss_over_stages``; ``loss_against_steps``: the first method at every depth; ``loss_against_clock``: the first
    method on both kinds of pipeline, at every depth but 1; ``methods_against_clock``: all methods at the deepest, with
    the first one's synchronous path.
    """
    best = paths(spec, records)
    target = target_of(spec, best)
    landscape = hasattr(spec.problem, "start_point")
    label = "validation loss (nats per byte)" if spec.problem.name == "text-gpt" else "loss"
    losses: dict[str, dict[int, tuple[float, float, float]]] = {}
    slowdowns: dict[str, dict[int, float]] = {}
    for row in rows:
        losses.setdefault(row["method"], {})[row["stages"]] = row["loss"], row["loss_min"], row["loss_max"]
        slow = math.nan if row["slowdown"] is None else row["slowdown"]
        slowdowns.setdefault(row["method"], {})[row["stages"]] = slow
    yield "loss_over_stages", over_stages(losses, slowdowns, loss_label=label, log_loss=landscape, styles=_styles(spec))
    first = spec.methods[0]
    depths = [one for one in spec.stages if (first.name, one) in best]
    if depths:
        curves = [_curve(_stages(one), best[first.name, one]) for one in depths]
        drawn = loss_against_steps(curves, loss_label=label, log_loss=landscape, target=target, title=first.name)
        yield "loss_against_steps", drawn
    if spec.clock is not None:
        yield from _against_clock(spec, best, label, target)


def _against_clock(spec: StalenessSpec, best: BestPaths, label: str, target: float | None) -> Figures:
    assert spec.clock is not None
    first, deepest = spec.methods[0], max(spec.stages)
    of_depth = method_styles(f"{stages}" for stages in spec.stages)
    both = []
    for stages in (one for one in spec.stages if one > 1):
        own = of_depth[f"{stages}"]
        both += _drawn(
            spec, best, first, stages, True, f"synchronous, {_stages(stages)}", replace(own, linestyle=DASHED)
        )
        both += _drawn(
            spec, best, first, stages, False, f"asynchronous, {_stages(stages)}", replace(own, linestyle="solid")
        )
    of_method = _styles(spec)
    plain = replace(of_method[first.name], linestyle=DASHED)
    methods = _drawn(spec, best, first, deepest, True, f"{first.name}, synchronous", plain)
    for late in spec.methods:
        methods += _drawn(spec, best, late, deepest, False, f"{late.name}, asynchronous", of_method[late.name])
    networks = {network.name: network for network in spec.clock.networks}
    for name, drawn, title in (
        ("loss_against_clock", both, first.name),
        ("methods_against_clock", methods, f"{deepest} stages"),
    ):
        if drawn:
            curves, styles = [curve for curve, _ in drawn], {curve.label: style for curve, style in drawn}
            yield (
                name,
                loss_against_clock(
                    curves, networks, loss_label=label, target=target, time_scale="log", title=title, styles=styles
                ),
            )


def _drawn(
    spec: StalenessSpec,
    best: BestPaths,
    late: LateMethod,
    stages: int,
    synchronous: bool,
    label: str,
    style: MethodStyle,
) -> list[tuple[Curve, MethodStyle]]:
    """The plain path on the synchronous clock, or the late one on the asynchronous; nothing if it is not there."""
    assert spec.clock is not None
    path = best.get((late.name, 1 if synchronous else stages))
    if path is None:
        return []
    times = {network.name: clocks(spec, late, stages, network)[synchronous] for network in spec.clock.networks}
    clock_s = {name: one.at(path.step) for name, one in times.items()}
    return [(Curve(label, path.step, path.loss, clock_s), style)]


def _stages(count: int) -> str:
    return f"{count} stage" + ("s" if count > 1 else "")


def _styles(spec: StalenessSpec) -> dict[str, MethodStyle]:
    """Hues by what is done against lateness: nothing, a remedy, steps without scale, a basis."""
    hues = {late.name: HUES[_against_lateness(late)] for late in spec.methods}
    # What all have in common tells none from another.
    return method_styles(hues, hues if len(set(hues.values())) > 1 else None)


def _against_lateness(late: LateMethod) -> str:
    if late.method.kind in ("basis-rotation", "soap", "galore"):
        return "a basis"
    rule = getattr(getattr(late.method, "rule", None), "kind", "")
    if rule in ("muon", "scion", "uscion"):
        return "no scale"
    return "a remedy" if late.remedy or late.weights != "stashed" or rule == "nadam" else "nothing"


def _curve(label: str, path: Path) -> Curve:
    return Curve(label, path.step, path.loss)
