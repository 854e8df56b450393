"""The figures of a staleness study."""

from __future__ import annotations

import math
from dataclasses import replace

from replication.figures.staleness import over_stages
from replication.studies.staleness.spec import LateMethod, StalenessSpec
from replication.studies.staleness.study import BestPaths, Path, clocks, paths, target_of
from syncline.analysis import Curve, MethodStyle, loss_against_clock, loss_against_steps, method_styles
from syncline.analysis.style import Dashes
from syncline.specs import Figures, Record

HUES = {"nothing": "data parallel", "a remedy": "compressed", "no scale": "triggered", "a basis": "rotated"}
"""Families of methods whose hues mark the kinds of methods in these figures."""

DASHED: Dashes = (0, (4, 1.5))


def staleness_figures(spec: StalenessSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield the figures: loss and slowdown over the stages, loss against steps, and loss against time.

    ``loss_over_stages`` has all methods. ``loss_against_steps`` has the first method at every depth.
    ``loss_against_clock`` has the first method on both kinds of pipeline, at every depth but 1.
    ``methods_against_clock`` has all methods at the largest depth, with the synchronous path of the first method.
    """
    best = paths(spec, records)
    target = target_of(spec, best)
    landscape = hasattr(spec.problem, "start_point")
    label = "validation loss (nats per byte)" if spec.problem.name == "text-gpt" else "loss"
    losses: dict[str, dict[int, tuple[float, float, float]]] = {}
    slowdowns: dict[str, dict[int, float]] = {}
    for row in rows:
        losses.setdefault(row["method"], {})[row["stages"]] = row["loss"], row["loss_min"], row["loss_max"]
        slowdown = math.nan if row["slowdown"] is None else row["slowdown"]
        slowdowns.setdefault(row["method"], {})[row["stages"]] = slowdown
    yield "loss_over_stages", over_stages(losses, slowdowns, loss_label=label, log_loss=landscape, styles=_styles(spec))
    first = spec.methods[0]
    depths = [stages for stages in spec.stages if (first.name, stages) in best]
    if depths:
        curves = [_curve(_stages(depth), best[first.name, depth]) for depth in depths]
        figure = loss_against_steps(curves, loss_label=label, log_loss=landscape, target=target, title=first.name)
        yield "loss_against_steps", figure
    if spec.clock is not None:
        yield from _against_clock(spec, best, label, target)


def _against_clock(spec: StalenessSpec, best: BestPaths, label: str, target: float | None) -> Figures:
    assert spec.clock is not None
    first, deepest = spec.methods[0], max(spec.stages)
    depth_styles = method_styles(f"{stages}" for stages in spec.stages)
    both_clocks = []
    for stages in (count for count in spec.stages if count > 1):
        depth_style = depth_styles[f"{stages}"]
        both_clocks += _drawn(
            spec, best, first, stages, True, f"synchronous, {_stages(stages)}", replace(depth_style, linestyle=DASHED)
        )
        both_clocks += _drawn(
            spec, best, first, stages, False, f"asynchronous, {_stages(stages)}",
            replace(depth_style, linestyle="solid"),
        )  # fmt: skip
    styles_by_method = _styles(spec)
    plain = replace(styles_by_method[first.name], linestyle=DASHED)
    methods = _drawn(spec, best, first, deepest, True, f"{first.name}, synchronous", plain)
    for delayed_method in spec.methods:
        methods += _drawn(
            spec, best, delayed_method, deepest, False, f"{delayed_method.name}, asynchronous",
            styles_by_method[delayed_method.name],
        )  # fmt: skip
    networks = {network.name: network for network in spec.clock.networks}
    for name, drawn, title in (
        ("loss_against_clock", both_clocks, first.name),
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
    delayed_method: LateMethod,
    stages: int,
    synchronous: bool,
    label: str,
    style: MethodStyle,
) -> list[tuple[Curve, MethodStyle]]:
    """Return the curve of a method over time, with its style, or an empty list if the path is missing.

    The synchronous clock has the path of one stage, which has no delay. The asynchronous clock has that of ``stages``.
    """
    assert spec.clock is not None
    path = best.get((delayed_method.name, 1 if synchronous else stages))
    if path is None:
        return []
    times = {
        network.name: clocks(spec, delayed_method, stages, network)[synchronous] for network in spec.clock.networks
    }
    clock_s = {name: updates.seconds_until(path.step) for name, updates in times.items()}
    return [(Curve(label, path.step, path.loss, clock_s), style)]


def _stages(count: int) -> str:
    return f"{count} stage" + ("s" if count > 1 else "")


def _styles(spec: StalenessSpec) -> dict[str, MethodStyle]:
    """Return a style per method, with the hue of its measure against delay.

    The measures are: nothing, a remedy, steps without scale, a basis.
    """
    hues = {delayed_method.name: HUES[_against_lateness(delayed_method)] for delayed_method in spec.methods}
    # A hue that all methods share would not distinguish them.
    return method_styles(hues, hues if len(set(hues.values())) > 1 else None)


def _against_lateness(delayed_method: LateMethod) -> str:
    if delayed_method.method.kind in ("basis-rotation", "soap", "galore"):
        return "a basis"
    rule = getattr(getattr(delayed_method.method, "rule", None), "kind", "")
    if rule in ("muon", "scion", "uscion"):
        return "no scale"
    return (
        "a remedy"
        if delayed_method.remedy or delayed_method.backward_weights != "stashed" or rule == "nadam"
        else "nothing"
    )


def _curve(label: str, path: Path) -> Curve:
    return Curve(label, path.step, path.loss)
