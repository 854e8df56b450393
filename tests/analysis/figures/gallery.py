"""Every figure of the package on small data, usual and extreme: a short run, one seed, eleven methods, long names.

`GALLERY` maps a name to a function that draws; ``python -m tests.analysis.figures.gallery FOLDER`` saves all of them,
to be looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.headline.step_times import step_times
from replication.figures.alignment import LATE, ON_TIME, Panel, Plot, Scatter, measured_over, swings
from replication.figures.alignment import trajectory_grid as ways_on_contours
from replication.figures.layers import measures_by_layer
from replication.figures.losses import last_losses, last_losses_over_bytes
from replication.figures.over_steps import Placed, averages_over_steps, measures_over_steps
from replication.figures.papers import paper_summary
from replication.figures.rates import loss_over_tails, sign_shares
from replication.figures.staleness import over_stages
from replication.figures.trials import TriedTrial, trials_over_knob
from replication.figures.votes import votes_over_workers
from replication.figures.wall_clock import time_over_bandwidth
from syncline.analysis import Curve, SeedSeries, save
from syncline.analysis.costs import SizePanel, SpeedupPanel, cost_against_size, speedup_over_bandwidth
from syncline.analysis.landscape import Surface, distance_over_steps, landscape_convergence
from syncline.analysis.loss import loss_against_clock, loss_against_steps
from syncline.analysis.timelines import (
    SchedulePanel,
    ages_and_contributions,
    draw_schedules,
    timeline_strip,
    waiting_matrix,
)
from syncline.analysis.validation import predicted_against_measured
from syncline.costmodel.network.link import Link
from syncline.sim.pipelines.report import TaskSpan

FEW = ("ddp-adam", "diloco", "demo")
ELEVEN = (
    "ddp-adam", "ddp-muon", "local-adam", "diloco", "mt-dao", "des-loc", "demo", "powersgd", "lion-cub",
    "one-bit-adam", "curvadion",
)  # fmt: skip
LONG = ("rotation by the second moment, bilateral, every step", "compensation of strength one thousand, late", "short")
NETWORKS = {"infiniband": Link(2e-6, 12.5e9), "10gbe": Link(50e-6, 1.25e9), "wan": Link(25e-3, 125e6)}
DESCRIBED = {
    "infiniband": "100 Gbit/s, latency 2 µs",
    "wan": "2 sites, 10gbe inside, 12.5 ms one way, 1 Gbit/s to the core, two network cards in each node",
}
SPEEDS = {"infiniband": 0.01, "10gbe": 0.3, "wan": 9.5}


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape)


def curves(
    labels=FEW, evaluations: int = 15, seeds: int = 3, *, scale: float = 1.0, spread: float = 0.05, slower: float = 1.0
) -> list[Curve]:
    """Losses that fall from 5.5 to about 2, and clocks on three networks."""
    step = np.arange(evaluations) * 50
    found = []
    for place, label in enumerate(labels):
        fall = 2 + 0.1 * place + 3.5 * np.exp(-step / (100 + 40 * place))
        loss = scale * (fall + spread * np.abs(noise(seeds, step.size)) * (step > 0))
        clock = {name: step * (0.1 + slow * slower / (1 + place) ** 2) for name, slow in SPEEDS.items()}
        found.append(Curve(label, step, loss, clock))
    return found


def _losses(draw: Callable[..., Figure], **always) -> dict[str, Callable[[], Figure]]:
    def exploding() -> list[Curve]:
        two = curves(spread=4.0)
        lost = Curve("local-adam", two[0].step, np.where(two[0].step < 400, two[0].loss, np.nan), two[0].clock_s)
        return [*two, lost]

    return {
        "few": lambda: draw(curves(), target=2.5, **always),
        "one seed": lambda: draw(curves(seeds=1), target=2.5, **always),
        "short": lambda: draw(curves(evaluations=3), target=3.9, **always),
        "one evaluation": lambda: draw(curves(evaluations=2, seeds=1), target=4.0, **always),
        "eleven": lambda: draw(curves(ELEVEN), target=2.7, **always),
        "long names": lambda: draw(curves(LONG), target=2.5, title="a title that says what all of them are", **always),
        "wide bands": lambda: draw(exploding(), target=2.5, **always),
        "huge": lambda: draw(curves(scale=1e9, slower=1e5), target=2.5e9, **always),
        "tiny": lambda: draw(curves(scale=1e-9, slower=1e-7), target=2.5e-9, log_loss=True, **always),
    }


def _series(labels=FEW, *, seeds: int = 3, points: int = 200, scale: float = 1.0) -> list[SeedSeries]:
    step = np.arange(1, points + 1)
    return [
        SeedSeries(label, step, scale * np.exp(-step / (10 + 5 * place)) * np.exp(0.3 * noise(seeds, points)))
        for place, label in enumerate(labels)
    ]


def _valley(labels=FEW, *, seeds: int = 3, points: int = 200, scale: float = 1.0, start: float = 1.0) -> Figure:
    turn = np.linspace(0, 1, points)[:, None]
    ways = {
        label: scale * ((1 - turn) * [[-1, 1 + place]] + turn * [[1, 1]] + 0.05 * noise(points, 2))
        for place, label in enumerate(labels)
    }
    surface = Surface(lambda x, y: (x - scale) ** 2 + 5 * (y - scale) ** 2, (-start * scale, scale), (scale, scale))
    return landscape_convergence(_series(labels, seeds=seeds, points=points), surface, ways)


def _sizes(count: int, names, at_nbytes: float = 0.0, scale: float = 1.0, title: str = "") -> Figure:
    sizes = np.geomspace(1, 1e9, 31)
    lines = {name: scale * (1e-5 / (1 + place) + sizes * 1e-10 * (1 + place)) for place, name in enumerate(names)}
    meets = float(scale * (1e-5 + 5e4 * 1e-10))
    panels = [SizePanel(f"all_reduce, network {panel}", sizes, lines, [(5e4, meets)]) for panel in range(count)]
    return cost_against_size(panels, at_nbytes=at_nbytes, title=title)


def _speedups(labels, count: int, *, least: float = 1.0, most: float = 20.0) -> Figure:
    bandwidths = np.geomspace(1e6, 1e11, 41)
    share = bandwidths / (bandwidths + 1e9)
    panels = []
    for panel in range(count):
        lines = {name: least + (most - least) * (1 - share) / (1 + place) for place, name in enumerate(labels)}
        points = {name: [(float(bandwidths[20]), float(line[20]))] for name, line in lines.items()}
        panels.append(SpeedupPanel(f"gpt-160m, {8 << panel} workers", lines, points))
    marks = {"home-broadband": 1.25e7, "wan": 1.25e8, "10gbe": 1.25e9, "25gbe": 3.1e9, "infiniband": 1.25e10}
    return speedup_over_bandwidth(
        bandwidths, panels, marks, label="speedup over ddp-adam", title="lines: 50 µs one way"
    )


def _stages(labels, stages=(1, 8, 16), *, lost: bool = False, log: bool = False, scale: float = 1.0) -> Figure:
    losses, slow = {}, {}
    for place, label in enumerate(labels):
        middle = {one: scale * (2.5 + 0.1 * place + 0.02 * one) for one in stages}
        losses[label] = {one: (m, 0.95 * m, 1.1 * m) for one, m in middle.items()}
        slow[label] = {one: 1.0 + 0.1 * place * np.log2(one) for one in stages}
        if lost and place % 2:
            losses[label][stages[-1]] = (np.inf, 2.5 * scale, np.inf)
            slow[label][stages[-1]] = np.inf
    return over_stages(losses, slow, loss_label="validation loss (nats per byte)", log_loss=log)


def _strip(workers: int, *, scale: float = 1.0) -> Figure:
    spans = [
        (worker, *span)
        for worker in range(workers)
        for span in (
            ("compute", "compute", 0.0, 1.0 + 0.1 * (worker % 3)),
            ("compute", "wait", 1.0 + 0.1 * (worker % 3), 2.0),
            ("network", "all_reduce", 1.2, 2.0),
        )
    ]
    columns = dict(
        zip(("worker", "stream", "what", "start_s", "end_s"), map(np.array, zip(*spans, strict=True)), strict=True)
    )
    columns |= {name: scale * columns[name] for name in ("start_s", "end_s")}
    return timeline_strip(columns, title="steps 0 to 1, first 16 of the workers")


def _schedules(stages: int, microbatches: int, panels: int) -> Figure:
    tasks = [
        TaskSpan(stage, kind, microbatch, chunk, start, start + length, kind == "weight")
        for stage in range(stages)
        for microbatch in range(microbatches)
        for kind, chunk, start, length in (
            ("forward", microbatch % 2, float(stage + microbatch), 1.0),
            ("backward", 0, float(stages + microbatches + stage + 2 * microbatch), 1.0),
            ("weight", 0, float(stages + microbatches + stage + 2 * microbatch + 1), 1.0),
        )
    ]
    groups = ["near", "near", "far"]
    return draw_schedules([SchedulePanel(f"schedule {n}", stages, tasks, groups[n % 3]) for n in range(panels)])


def _ages(labels, workers: int = 8, *, oldest: int = 12) -> Figure:
    ages = np.arange(oldest + 1)
    counts = {name: (400 * np.exp(-((ages - i) ** 2) / 9)).astype(int).tolist() for i, name in enumerate(labels)}
    whose = {name: [100 // (m + 1 + i) + 1 for m in range(workers)] for i, name in enumerate(labels)}
    return ages_and_contributions(counts, whose)


def _waits(labels, workers: int = 8, *, seconds: float = 1.0) -> Figure:
    slower = np.arange(workers, dtype=np.float64)
    waits = np.maximum(slower[None] - slower[:, None], 0.0) * seconds
    return waiting_matrix({name: waits / (i + 1) for i, name in enumerate(labels)})


def _shares(panels: int, bars) -> Figure:
    rates = {"match": 0.71, "zero": 0.2, "flip": 0.09}
    return sign_shares({f"{4 << panel} workers": dict.fromkeys(bars, rates) for panel in range(panels)})


def _tails(labels, scale: float = 1.0) -> Figure:
    return loss_over_tails(
        {
            label: {alpha: [scale * (1 + place) / alpha, scale * (0.9 + place) / alpha, scale * (1.3 + place) / alpha]
                    for alpha in (2.0, 1.5, 1.2, 1.0)}
            for place, label in enumerate(labels)
        },
        loss_label="final loss, median and range",
    )  # fmt: skip


def _votes(workers, ratios=(0.1, 10.0, 1000.0), marks: Mapping[str, float] | None = None) -> Figure:
    rows = [
        {"ratio": ratio, "workers": count, "crossover_ratio": count / 32, "naive_over_alpha": ratio * count**2,
         "direct_over_alpha": 2 * np.log2(count) + ratio, "one_bit_over_alpha": count + ratio / 2}
        for ratio in ratios
        for count in workers
    ]  # fmt: skip
    return votes_over_workers(rows, marks)


def _clocks(methods, panels=("Adam", "ADOPT"), *, hidden: bool = False, scale: float = 1.0) -> Figure:
    bandwidths = np.geomspace(1e8, 4e10, 12)
    found = {}
    for panel in panels:
        found[panel] = {}
        for place, method in enumerate(methods):
            whole = scale * (3e5 / (1 + place) * 1e8 / bandwidths + (0.0 if hidden else 6e4))
            found[panel][method] = {"equation": list(whole), "events": list(whole), "overlap": list(0.98 * whole)}
            if hidden:
                found[panel][method]["overlap"] = [max(0.0, one - scale * 2e4) for one in whole]
    return time_over_bandwidth(
        list(bandwidths), found, time_label="total time", title="total time of 40,960 steps: gpt"
    )


def _validation(kinds, groups: int, *, error: float = 0.05, names=("1", "2", "16"), last_s: float = 60.0) -> Figure:
    measured = np.geomspace(0.05, last_s, 40)
    points = {
        kind: (list(measured * (1 + place)), list(measured * (1 + place) * np.exp(error * noise(40))))
        for place, kind in enumerate(kinds)
    }
    errors = {f"grouping {number}": {name: list(error * noise(30)) for name in names} for number in range(groups)}
    return predicted_against_measured(points, errors, title="errors of a mean step")


def _beside_computing(methods, networks, panels: int, *, most: float = 20.0) -> Figure:
    of = {
        name: {net: 1 + most * n / (1 + place) for n, net in enumerate(networks)} for place, name in enumerate(methods)
    }
    return step_times({f"gpt-{160 << panel}m": of for panel in range(panels)}, title="4 workers")


def _paper(groups: int, series=("paper", "Syncline"), *, log: bool = False, scale: float = 1.0, **look) -> Figure:
    bars = {f"group {n}": {name: scale * (1 + n) * 3.0**n for name in series} for n in range(groups)}
    verdicts = {"agree": 80, "trend": 3, "differ": 14, "not checkable": 60}
    message = (
        "What a reader takes away from this picture in ten seconds, in a sentence that is as long as such ones are"
    )
    return paper_summary(message, bars, verdicts, value_label="speedup (times)", group_label="network", log=log, **look)


def _bowl(x: np.ndarray) -> np.ndarray:
    return x[..., 0] ** 2 + 10 * x[..., 1] ** 2


def _grid(rows: int, columns: int, *, scale: float = 1.0, smooth: bool = True) -> Figure:
    turn = np.linspace(1, 0, 30)[:, None]
    ways = {"on time": scale * 30 * turn * [[1, 0.5]], "2 steps late": scale * 30 * turn * [[1, 0.6]]}
    panel = Panel(_bowl, ways, np.array([0.0, 1.0]), scale**2 * 15, "29 and 48 steps")
    labels = {"on time": ON_TIME, "2 steps late": LATE}
    names = ["AdaSGD", "Adam", "Adam, Hessian's basis", "Adam, basis of $gg^T$"]
    return ways_on_contours(
        [[panel] * columns] * rows, names[:rows], [f"{10 * one}°" for one in range(columns)], labels, smooth=smooth
    )


def _points(labels, plots: int, *, wide: bool = False, scale: float = 1.0) -> Figure:
    x = np.linspace(0, 355, 30)
    found = []
    for number in range(plots):
        decades = 3 if wide and number % 2 else 0.1
        y = [scale * 10 ** (decades * np.sin(x / 60 + place)) for place in range(len(labels))]
        scatters = {label: Scatter(x, one, (x, one)) for label, one in zip(labels, y, strict=True)}
        found.append(
            Plot(scatters, "polar angle on the spiral (degrees)",
                 ("steps, on time", "slowdown, late / on time")[number % 2],
                 [90.0 * k for k in range(5)], (180.0, "$r^*$"), f"learning rate {0.1 ** (1 + number // 2):g}")
        )  # fmt: skip
    return measured_over(found, mark_label="the valley lies along an axis")


def _swings(panels: int, *, scale: float = 1.0) -> Figure:
    x = np.arange(60)
    lines = {"on time": scale * np.exp(-x / 20.0), "2 steps late": scale * np.sin(x / 3)}
    titles = [f"Adam, Hessian's basis, {number}°" for number in range(panels)]
    return swings(dict.fromkeys(titles, lines), {"on time": ON_TIME, "2 steps late": LATE}, label="update along\nv")


def _replicated(labels, settings=("",), *, seeds: int = 5, scale: float = 1.0, diverged: bool = False) -> Figure:
    """Last losses of every method at every setting; with ``diverged`` one seed of the first method has none."""
    lost = [float("inf")] * diverged
    return last_losses(
        {
            setting: {
                label: [*(lost if at == 0 else []), *(scale * (2.4 + 0.05 * at + 0.01 * noise(seeds)))]
                for at, label in enumerate(labels)
            }
            for setting in settings
        },
        title="Losses at the end of 400 steps",
    )


def _along(labels, measures: int = 4, *, steps: int = 12, seeds: int = 3, scale: float = 1.0) -> Figure:
    """Measures of every method in every 32nd step; the first spans decades."""
    ends = [32 * (at + 1) for at in range(steps)]
    return measures_over_steps(
        {
            f"measure_number_{number}": {
                label: {
                    t: scale * (1 + at + 0.1 * noise(seeds)) * (10.0 ** (t / 99) if not number else 1) for t in ends
                }
                for at, label in enumerate(labels)
            }
            for number in range(measures)
        },
        title="From average to average",
    )


def _averaged(labels, *, steps: int = 400, seeds: int = 5, triggered: int = 2, scale: float = 1.0) -> Figure:
    """Placements of every method; the first have triggers, the very first value of which is infinite."""
    values = scale * np.exp(noise(steps))
    values[0] = np.inf
    return averages_over_steps(
        [
            Placed(label, [(noise(seeds, steps)[seed] > 1.5).tolist() for seed in range(seeds)],
                   values.tolist() if at < triggered else [], scale if at < triggered else None)
            for at, label in enumerate(labels)
        ],
        title="When it was averaged",
    )  # fmt: skip


BLOCKS = ["token.weight", *(f"blocks.{i}.{name}.weight" for i in range(3) for name in ("attention.qkv", "up", "down"))]


def _layers(methods, layers, *, measures: int = 1, span: float = 1e3, scale: float = 1.0) -> Figure:
    """Values of three seeds that fall over the layers."""
    of = {
        method: {
            layer: list(scale * (1.2 + place) * span ** (-at / max(len(layers) - 1, 1)) * (1 + 0.1 * noise(3)))
            for at, layer in enumerate(layers)
        }
        for place, method in enumerate(methods)
    }
    return measures_by_layer(dict.fromkeys([f"largest_spread_{i}" for i in range(measures)], of))


def _over_bytes(labels, settings=("",), *, seeds: int = 5, scale: float = 1.0) -> Figure:
    return last_losses_over_bytes(
        {
            setting: {
                label: (
                    1.5e6 / 3**at / (1 + place),
                    list(scale * (2.2 + 0.05 * at + 0.02 * place + 0.01 * noise(seeds))),
                )
                for at, label in enumerate(labels)
            }
            for place, setting in enumerate(settings)
        },
        title="Losses at the end of 400 steps",
    )


def _tried(labels, trials: int = 6, *, scale: float = 1.0, diverged: bool = False) -> Figure:
    """Trials of every method over three decades of a rate; with ``diverged`` half of them have no loss."""
    lost = [float("inf")] * trials if diverged else []
    return trials_over_knob(
        {
            label: [
                TriedTrial(scale * 10.0 ** (-3 * i / trials), i / trials, loss)
                for i, loss in enumerate([*(2.4 + 0.05 * at + 0.2 * noise(trials)), *lost])
            ]
            for at, label in enumerate(labels)
        },
        {label: ("lr", "rule.beta1") for label in labels},
        title="Trials of a search",
    )


_FAMILIES: dict[str, dict[str, Callable[[], Figure]]] = {
    "loss against steps": _losses(loss_against_steps, loss_label="validation loss (nats per byte)"),
    "loss against clock": _losses(
        lambda *args, **kwargs: loss_against_clock(
            *args, NETWORKS, loss_label="validation loss (nats per byte)", **kwargs
        )
    ),
    "loss against a described clock": {
        "two": lambda: loss_against_clock(curves(), DESCRIBED, target=2.5, loss_label="loss of the workers' mean"),
        "one evaluation": lambda: loss_against_clock(curves(evaluations=2, seeds=1), DESCRIBED, time_scale="log"),
    },
    "loss against one clock": _losses(
        lambda *args, **kwargs: loss_against_clock(*args, {"wan": NETWORKS["wan"]}, **kwargs)
    ),
    "loss against a logarithmic clock": _losses(
        lambda *args, **kwargs: loss_against_clock(*args, {"wan": "a\ncluster"}, time_scale="log", **kwargs)
    ),
    "distance": {
        "few": lambda: distance_over_steps(_series()),
        "one seed, short": lambda: distance_over_steps(_series(seeds=1, points=2)),
        "eleven": lambda: distance_over_steps(_series(ELEVEN)),
        "long names": lambda: distance_over_steps(_series(LONG)),
        "huge": lambda: distance_over_steps(_series(scale=1e30), log=False),
    },
    "landscape": {
        "few": _valley,
        "one seed, short": partial(_valley, seeds=1, points=2),
        "eleven": partial(_valley, ELEVEN),
        "long names": partial(_valley, LONG),
        "huge": partial(_valley, scale=1e6),
        "start at the optimum": partial(_valley, ("ddp-sgdm",), start=-0.95),
        "tiny": partial(_valley, scale=1e-6),
    },
    "collectives": {
        "one": partial(_sizes, 1, ("ring", "tree", "recursive doubling"), 1e6, title="64 workers on 10gbe"),
        "three": partial(_sizes, 3, ("ring", "tree"), 1e6),
        "eleven": partial(_sizes, 5, [f"algorithm {n}" for n in range(11)]),
        "long names": partial(_sizes, 1, LONG, 1.0),
        "slow": partial(_sizes, 2, ("ring", "tree"), 1e9, scale=1e9),
    },
    "speedup": {
        "one": partial(_speedups, ("mt-dao", "diloco"), 1),
        "four": partial(_speedups, ("mt-dao", "diloco", "demo", "lion-cub"), 4),
        "eleven": partial(_speedups, ELEVEN, 2),
        "long names": partial(_speedups, LONG, 1),
        "huge": partial(_speedups, FEW, 3, most=1e6),
        "none": partial(_speedups, FEW, 2, least=0.001, most=0.002),
    },
    "stages": {
        "few": partial(_stages, FEW, (1, 2, 4, 8)),
        "eleven": partial(_stages, ELEVEN),
        "eleven, lost": partial(_stages, ELEVEN, lost=True),
        "long names": partial(_stages, LONG, lost=True),
        "one depth": partial(_stages, FEW, (4,)),
        "tiny": partial(_stages, FEW, log=True, scale=1e-12),
    },
    "timeline": {
        "two": partial(_strip, 2),
        "many": partial(_strip, 40),
        "long": partial(_strip, 16, scale=1e7),
    },
    "schedules": {
        "three": partial(_schedules, 4, 8, 3),
        "one": partial(_schedules, 2, 2, 1),
        "many stages": partial(_schedules, 80, 2, 1),
    },
    "sign shares": {
        "one": partial(_shares, 1, ("direct votes",)),
        "five": partial(_shares, 5, ("deterministic", "stochastic", "the paper's GPT")),
        "eleven": partial(_shares, 2, ELEVEN),
        "long names": partial(_shares, 3, LONG),
    },
    "tails": {
        "few": partial(_tails, FEW),
        "eleven": partial(_tails, ELEVEN),
        "long names": partial(_tails, LONG),
        "huge": partial(_tails, FEW, 1e12),
        "tiny": partial(_tails, FEW, 1e-12),
    },
    "ages": {
        "few": partial(_ages, FEW),
        "one, punctual": partial(_ages, ("async-diloco",), oldest=0),
        "eleven": partial(_ages, ELEVEN, 64, oldest=200),
        "long names": partial(_ages, LONG, 1),
    },
    "waits": {
        "few": partial(_waits, FEW),
        "one, of many": partial(_waits, FEW[:1], 64),
        "eleven": partial(_waits, ELEVEN),
        "long names, one worker": partial(_waits, LONG, 1),
        "tiny": partial(_waits, FEW, seconds=1e-12),
        "huge": partial(_waits, FEW, seconds=1e12),
    },
    "votes": {
        "usual": partial(_votes, [2**n for n in range(1, 15)], marks={"gpt-160m, wan": 6.5, "gpt-160m, 10gbe": 300.0}),
        "two workers": partial(_votes, [2]),
        "near marks": partial(_votes, [2, 4, 8], (1.0,), {"one, wan": 1.0, "two, wan": 1.1, "three, wan": 1.2}),
    },
    "wall clock": {
        "two": partial(_clocks, ("Local Adam", "DES-LOC", "MT-DAO (half-life)")),
        "hidden": partial(_clocks, ("Local Adam", "DES-LOC"), hidden=True),
        "eleven": partial(_clocks, ELEVEN),
        "long names": partial(_clocks, LONG, ("Adam",)),
        "fast": partial(_clocks, FEW, scale=1e-9),
    },
    "validation": {
        "six": partial(_validation, FEW, 6),
        "four": partial(_validation, ELEVEN, 4, names=("100 Mbit/s", "1 Gbit/s")),
        "one": partial(_validation, LONG, 1, error=0.4, names=("communication", "compute")),
        "none": partial(_validation, ("a",), 0),
        "within a decade": partial(_validation, FEW, 2, last_s=0.4),
        "far off": partial(_validation, FEW, 2, error=0.0, names=("own",)),
    },
    "step times": {
        "two": partial(_beside_computing, FEW, ("infiniband", "10gbe", "wan"), 2),
        "eleven": partial(_beside_computing, ELEVEN, ("infiniband", "10gbe", "wan"), 3),
        "long names": partial(_beside_computing, LONG, ("wan",), 1),
        "slow": partial(_beside_computing, FEW, ("10gbe", "wan"), 3, most=1e5),
    },
    "papers": {
        "usual": partial(_paper, 4, span=(6.0, 27.0, "printed: 6 to 27")),
        "one": partial(_paper, 1, ("Syncline",)),
        "logarithmic": partial(_paper, 5, ("paper", "Syncline", "by a ring of two"), log=True, scale=1e3),
        "tiny": partial(_paper, 2, scale=1e-7),
    },
    "last losses": {
        "two": partial(_replicated, FEW),
        "eleven": partial(_replicated, ELEVEN),
        "settings": partial(_replicated, FEW, ("1 worker", "4 workers", "8 workers"), diverged=True),
        "long names": partial(_replicated, LONG, ("period 8", "period 128")),
        "one seed": partial(_replicated, FEW[:1], seeds=1),
        "huge": partial(_replicated, FEW, scale=1e7),
    },
    "measures along": {
        "few": partial(_along, FEW, 11),
        "one": partial(_along, FEW[:1], 1, steps=1, seeds=1),
        "eleven": partial(_along, ELEVEN, 2),
        "long names": partial(_along, LONG, 3),
        "huge": partial(_along, FEW, scale=1e9),
    },
    "averages along": {
        "few": partial(_averaged, FEW),
        "one": partial(_averaged, FEW[:1], steps=3, seeds=1, triggered=1),
        "no trigger": partial(_averaged, FEW, triggered=0),
        "eleven": partial(_averaged, ELEVEN, triggered=4),
        "long names": partial(_averaged, LONG, scale=1e6),
    },
    "layers": {
        "two methods": partial(_layers, FEW[:2], BLOCKS, measures=2),
        "eleven": partial(_layers, ELEVEN, BLOCKS[:4]),
        "one": partial(_layers, FEW[:1], BLOCKS[:1], span=1.0),
        "five measures": partial(_layers, FEW[:1], BLOCKS, measures=5, span=10.0),
        "long names": partial(_layers, LONG, BLOCKS, scale=1e-7),
        "huge": partial(_layers, FEW, BLOCKS[:3], scale=1e8),
    },
    "last losses over bytes": {
        "two": partial(_over_bytes, FEW),
        "eleven": partial(_over_bytes, ELEVEN),
        "settings": partial(_over_bytes, FEW, ("", "k-4", "k-128")),
        "long names": partial(_over_bytes, LONG, ("", "period 128")),
        "one seed": partial(_over_bytes, FEW[:1], seeds=1),
        "huge": partial(_over_bytes, FEW, scale=1e7),
    },
    "trials over a knob": {
        "two": partial(_tried, FEW),
        "eleven": partial(_tried, ELEVEN, diverged=True),
        "long names": partial(_tried, LONG, 16),
        "one trial": partial(_tried, FEW[:1], 1),
        "huge": partial(_tried, FEW, scale=1e7),
    },
    "ways": {
        "twenty": partial(_grid, 4, 5),
        "one": partial(_grid, 1, 1),
        "rough": partial(_grid, 2, 3, smooth=False),
        "huge": partial(_grid, 2, 2, scale=1e6),
        "tiny": partial(_grid, 2, 3, scale=1e-5),
    },
    "points": {
        "two": partial(_points, ("AdaSGD", "Adam", "Adam, basis of $gg^T$"), 2),
        "four": partial(_points, ("Adam", "Adam, Hessian's basis"), 4, wide=True),
        "one": partial(_points, ("learning rate 0.05",), 1),
        "eleven": partial(_points, ELEVEN, 3, scale=1e8),
        "long names": partial(_points, LONG, 1, scale=1e-8),
    },
    "swings": {
        "four": partial(_swings, 4),
        "one": partial(_swings, 1),
        "huge": partial(_swings, 2, scale=1e9),
        "tiny": partial(_swings, 4, scale=1e-9),
    },
}

GALLERY: dict[str, Callable[[], Figure]] = {
    f"{figure}: {case}": draw for figure, cases in _FAMILIES.items() for case, draw in cases.items()
}


def main(folder: Path) -> None:
    for name, draw in GALLERY.items():
        save(draw(), folder / (name.replace(": ", "-").replace(", ", "-").replace(" ", "_") + ".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
