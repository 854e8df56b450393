# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---
# %% [markdown]
# # Staleness: what a pipeline pays for never standing still
#
# **What does a pipeline pay for never standing still?**
#
# A pipeline that waits for all its micro-batches before it updates has a bubble. One that updates after each has none,
# but its gradients are late: they belong to weights that have moved on. How late nobody chooses. It follows from the
# schedule, and here it is read off the events.

# %%
# %matplotlib inline
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from syncline.analysis.timelines import SchedulePanel, draw_schedules
from syncline.analysis.style import figure_style
from syncline.costmodel import Link
from syncline.costmodel.layouts.pipelines import pipeline_s, stage_delays
from replication.theory.basis_rotation import delayed_sgd_limit, effective_delay
from syncline.problems import DelayedTask, Quadratic, Rows
from syncline.seeds import generator
from syncline.sim import Durations, Pipeline, report, run_pipeline, schedule, task_spans
from syncline.sim.pipelines.gradients import PipelineMath

torch.set_num_threads(1)  # the tensors are small
COLORS, MARKERS = ("black", "#D55E00", "#0072B2", "#009E73"), "os^D"
FREE = Link(0.0, 1e15)  # no latency, and bytes take no time

# %% [markdown]
# ## Five schedules
#
# Four stages, eight micro-batches; a backward pass takes twice a forward, and half of it is the gradient of the
# weights, which `zb-h1` moves into the bubble. Dark boxes belong to a stage's second chunk, red marks are updates.

# %%
K, M = 4, 8
WHOLE, SPLIT = Durations(1.0, 2.0), Durations(1.0, 1.0, 1.0)


def play(name, stages=K, microbatches=M, durations=None, network=FREE, chunks=1):
    """The timeline of a schedule, its report and its tasks."""
    made = schedule(name, stages, microbatches, chunks)
    timeline = run_pipeline(Pipeline(made, stages, durations or (SPLIT if name == "zb-h1" else WHOLE)), network)
    return report(timeline, made, stages), task_spans(timeline, made)


NAMES = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1, "async-1f1b": 1}
panels = []
for name, chunks in NAMES.items():
    halves = Durations(0.5, 1.0) if chunks == 2 else None  # of one of two chunks
    told, tasks = play(name, durations=halves, chunks=chunks)
    form = pipeline_s(name, K, M, 1.0, 1.0 if name == "zb-h1" else 2.0, weight_s=1.0, chunks=chunks)
    panels.append(SchedulePanel(name, K, tasks))
    kept, versions = (max(getattr(s, what) for s in told.stages) for what in ("peak_activations", "weight_versions"))
    print(f"{name:12s} makespan {told.makespan_s:5.1f} (closed form {form:5.1f}), bubble {told.bubble:.3f}, ", end="")
    print(f"at most {kept} micro-batches kept, {versions} versions of weights")
draw_schedules(panels)

# %% [markdown]
# The asynchronous one takes as long as GPipe for these eight, but pays its bubble once, not at every update: it can go
# on with the ninth at once. What it pays with is versions of weights, and delay.

# %% [markdown]
# ## Delay against depth
#
# The delay of a gradient is the number of updates between its forward pass and its own update. At stage $k$ of $K$
# (counted from 1) it is $\min(i, K - k)$ for micro-batch $i$ from 0, and **no duration enters**: we draw every task's
# time from a wide log-normal distribution and put latency on the links, and count.

# %%
rng = generator(0, "staleness notebook")
for stages in (4, 16, 32):
    times = Durations(*(np.exp(rng.standard_normal((stages, 3 * stages))) * mean for mean in (1.0, 2.0)))
    told, _ = play("async-1f1b", stages, 3 * stages, times, Link(0.5, 1e15))
    counted = np.array([stage.delays for stage in told.stages])
    expected = np.minimum(np.arange(3 * stages), stage_delays(stages)[:, None])
    assert (counted == expected).all()
    print(f"K = {stages:2d}: delays of the last micro-batch, stage by stage: {counted[:, -1].tolist()}")

# %% [markdown]
# Theory wants one number for them: the effective delay $\tau' = \sqrt{\sum_k C_k^2 \tau_k^2 / \sum_k C_k^2}$, for equal
# curvatures $C_k$ of the stages $\sqrt{(K-1)(2K-1)/6}$. If the curvature sits in the first stage, it is the whole
# delay; if in the last, nothing is late.

# %%
for stages in (4, 8, 16, 32):
    delays = stage_delays(stages)
    steep_first, steep_last = (np.where(np.arange(stages) == k, 10.0, 1.0) for k in (0, stages - 1))
    parts = [effective_delay(delays, c) for c in (np.ones(stages), steep_first, steep_last)]
    print(
        f"K = {stages:2d}: tau' {parts[0]:5.2f}, with ten times the curvature in the first stage {parts[1]:5.2f}, ",
        end="",
    )
    print(f"in the last {parts[2]:5.2f}")

# %% [markdown]
# ## What links and luck do to utilisation
#
# Eight stages, asynchronous. Each message is on the way for a part of a forward's time; then each task's time varies.
# The order is fixed, so a stage that is late makes others wait.

# %%
STAGES, COUNT, DRAWS = 8, 256, 3
latencies, spreads = np.linspace(0, 1, 9), np.linspace(0, 0.6, 7)


def utilisation(latency_s, spread):
    """The mean over stages, and over draws."""
    found = []
    for _ in range(DRAWS if spread else 1):
        factors = np.exp(spread * rng.standard_normal((2, STAGES, COUNT)) - spread**2 / 2)
        told, _ = play("async-1f1b", STAGES, COUNT, Durations(factors[0], 2 * factors[1]), Link(latency_s, 1e15))
        found.append(1 - told.bubble)
    return np.mean(found)


with figure_style():
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot(latencies, [utilisation(latency, 0) for latency in latencies], "o-", color=COLORS[0])
    left.set(xlabel="latency of a message / forward", ylabel="utilisation", ylim=(0, 1.05))
    for latency, color, marker in zip((0, 0.5), COLORS, MARKERS, strict=False):
        line = [utilisation(latency, spread) for spread in spreads]
        right.plot(spreads, line, f"{marker}-", color=color, label=f"latency {latency:g}")
    right.set(xlabel="spread of task times (log-normal)")
    right.legend()
print(
    f"latency of half a forward: {utilisation(0.5, 0):.3f}; with a spread of .3 besides: {utilisation(0.5, 0.3):.3f}; ",
    end="",
)
print(f"a spread of .3 alone: {utilisation(0, 0.3):.3f}")
figure

# %% [markdown]
# ## The math in the order of the events
#
# Tasks can carry their math: then what a forward pass reads is what the updates before it have left, and staleness
# emerges. Without a clock the same comes from a *delay line* that keeps old weights. On a linear network of four
# stages, trained with Adam, both agree to rounding.


# %%
def linear_parts():
    source = torch.Generator().manual_seed(1)
    parts = [nn.Linear(6, 6, bias=False, dtype=torch.float64) for _ in range(K)]
    for part in parts:
        part.weight.data = torch.randn(6, 6, generator=source, dtype=torch.float64) / 6**0.5
    return parts


UPDATES = 200
source = torch.Generator().manual_seed(2)
teacher = torch.randn(6, 6, generator=source, dtype=torch.float64) / 6**0.5
x = torch.randn(UPDATES, 16, 6, generator=source, dtype=torch.float64)
y = x @ teacher.T


def square(out, i):
    return (out - y[i]).square().mean()


def by_events(weights, name="async-1f1b"):
    """Losses of the micro-batches, and the trained parts."""
    parts, made = linear_parts(), schedule(name, K, UPDATES)
    optimizers = [torch.optim.Adam(part.parameters(), lr=0.02) for part in parts]
    math = PipelineMath(made, parts, lambda i: x[i], square, optimizers, weights)
    run_pipeline(Pipeline(made, K, WHOLE, effects=math.effect), FREE)
    return torch.stack([math.losses[i] for i in range(UPDATES)]), parts, math


class Chain:
    """The same network as a task whose parameters have a worker axis of one."""

    matrices = ()

    def __init__(self):
        self.params = {str(k): nn.Parameter(p.weight.detach()[None].clone()) for k, p in enumerate(linear_parts())}

    def step_gradients(self, step):
        out = x[step]
        for p in self.params.values():
            out = out @ p[0].T
        loss = square(out, step)
        for p, g in zip(self.params.values(), torch.autograd.grad(loss, list(self.params.values())), strict=True):
            p.grad = g
        return loss.detach()[None]


def by_delay_line(delays):
    line = DelayedTask(Chain(), delays)
    optimizer = torch.optim.Adam(line.params.values(), lr=0.02)
    losses = []
    for step in range(UPDATES):
        losses.append(line.step_gradients(step))
        optimizer.step()
    return torch.cat(losses), line.params


stashed, parts, math = by_events("stashed")
losses, params = by_delay_line({str(k): int(tau) for k, tau in enumerate(stage_delays(K))})
apart = max(float((part.weight - p[0]).detach().abs().max()) for part, p in zip(parts, params.values(), strict=True))
print("delays counted by the math:", [delays[-1] for delays in math.delays])
print(f"after {UPDATES} updates the weights of events and delay line differ by at most {apart:.1e}")
assert apart < 1e-10

# %% [markdown]
# What the backward pass multiplies with is a choice: the forward's weights, kept (*stashed*), those there are by then
# (*current*), or an estimate of the former from the latter and their velocity (*corrected*, PipeMare; here it hides the
# line of the stashed ones). Dotted: no delay.

# %%
serial, _ = by_delay_line({})
with figure_style():
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    ax = figure.subplots()
    ax.semilogy(serial, ":", color="gray", label="no delay")
    for weights, color in zip(("stashed", "current", "corrected"), COLORS, strict=False):
        found, _, _ = by_events(weights)
        ax.semilogy(found, color=color, label=weights)
        print(
            f"{weights:9s}: loss {found[-20:].mean():.2e} in the last 20 updates (no delay: {serial[-20:].mean():.2e})"
        )
    ax.set(xlabel="update", ylabel="loss")
    ax.legend()
figure

# %% [markdown]
# ## The delayed quadratic
#
# Gradient descent on $\frac12\lambda x^2$ whose gradient is $\tau$ updates late, $x_{t+1} = x_t - a\,x_{t-\tau}$ with $a
# = \eta\lambda$, is stable below
#
# $$a_{\max} = 2 \sin\frac{\pi}{2(2\tau + 1)} \approx \frac{\pi}{2\tau + 1}.$$
#
# We bisect for the largest step from which the delay line comes back to rest.


# %%
def comes_back(delay, a):
    task = DelayedTask(
        Quadratic(spectrum=(1.0,), start=(1.0,)).build(Rows.whole_group(1), dtype=torch.float64), {"x": delay}
    )
    p, period = task.params["x"], 8 * (delay + 1)
    steps = 150 * (2 * delay + 1)
    seen = np.empty(steps)
    for step in range(steps):
        task.step_gradients(step)
        p.data -= a * p.grad
        seen[step] = abs(p.item())
    return seen[-period:].max() < seen[period : 2 * period].max()


def largest_stable(delay):
    low, high = 0.5 * delayed_sgd_limit(delay), 1.5 * delayed_sgd_limit(delay)
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if comes_back(delay, middle) else (low, middle)
    return low


DELAYS = (0, 1, 2, 4, 8)
found = [largest_stable(delay) for delay in DELAYS]
for delay, a in zip(DELAYS, found, strict=True):
    print(f"tau {delay}: largest stable step times curvature {a:.4f}, closed form {delayed_sgd_limit(delay):.4f}")
assert np.allclose(found, delayed_sgd_limit(np.array(DELAYS)), rtol=0.01)

# %% [markdown]
# The limit falls like $1/\tau$, and so does the speed: the fastest that $x_{t+1} = x_t - a\,x_{t-\tau}$ can shrink is by
# $\tau/(\tau+1)$ per update, at $a = \tau^\tau/(\tau+1)^{\tau+1}$ (there the two largest roots of $z^{\tau+1} - z^\tau +
# a$ meet). Below we look for the best step by the roots themselves.

# %%
taus = np.arange(1, 33)
best = []
for tau in taus:
    steps = np.linspace(0.2, 1.8, 161) * float(tau) ** tau / (tau + 1.0) ** (tau + 1)
    polynomial = np.zeros((len(steps), tau + 2))
    polynomial[:, 0], polynomial[:, 1], polynomial[:, -1] = 1, -1, steps
    best.append(min(np.abs(np.roots(p)).max() for p in polynomial))
shrink = taus / (taus + 1)
assert np.allclose(best, shrink, rtol=0.01)
with figure_style():
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.loglog(np.arange(33) + 1, delayed_sgd_limit(np.arange(33)), color=COLORS[0], label="closed form")
    left.loglog(np.array(DELAYS) + 1, found, "o", color=COLORS[1], fillstyle="none", label="delay line")
    left.set(xlabel=r"$\tau + 1$", ylabel="largest stable step x curvature")
    left.legend()
    right.plot(taus, np.log(0.1) / np.log(shrink), color=COLORS[0], label=r"$\ln .1\, /\, \ln \frac{\tau}{\tau + 1}$")
    right.plot(taus, np.log(0.1) / np.log(best), "o", color=COLORS[1], fillstyle="none", label="roots, best step")
    right.set(xlabel=r"delay $\tau$", ylabel="updates per factor of 10, at best")
    right.legend()
figure

# %% [markdown]
# So on one curvature plain gradient descent needs, at best, about $2.3\,(\tau + 1)$ updates per digit, where without
# delay a single update would do: what a pipeline wins in bubble, it can lose in updates. Which of the two wins on which
# network is measured on a language model in [staleness.md](../docs/staleness.md).

# %% [markdown]
# ## What to change next
#
# - The number of stages, and of micro-batches.
# - The curvature of the quadratic; the rate that is best at each delay.
# - The schedule: one of your own is a function (docs/own.md).
