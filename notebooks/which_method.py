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
# # Which method on my network?
#
# You have eight workers and a model of 160M parameters. Should they average gradients in every step, or talk less? It
# depends on the line between them. First the clock says which methods are worth a look, in an instant; then a small
# training says what they do to a loss.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

import syncline as sl
from syncline.analysis.style import figure_style

MODEL, WORKERS = "gpt-160m", 8
METHODS = ["ddp-adam", "diloco", "mt-dao", "demo"]
LATENCY = "20 ms"

# %% [markdown]
# ## The clock: from which bandwidth on does it not matter?

# %%
GBIT_S = np.geomspace(0.1, 100, 7).round(2)
links = [sl.Link(LATENCY, f"{rate} Gbit/s", name=f"{rate:g}") for rate in GBIT_S]
clock = sl.project(model=MODEL, workers=WORKERS, methods=METHODS, networks=links)
steps = clock.summary.pivot(index="network", columns="method", values="step_time_s").loc[[link.name for link in links]]
print(steps.map("{:.3g} s".format))

with figure_style():
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for method, style in zip(steps, ("solid", "dashed", "dashdot", "dotted"), strict=True):
        axes.loglog(GBIT_S, steps[method], marker="o", linestyle=style, label=method)
    axes.set(xlabel="bandwidth (Gbit/s)", ylabel="time of a step (s)", title=f"{MODEL}, {WORKERS} workers, {LATENCY}")
    axes.legend()
plt.show()

# %% [markdown]
# Bandwidth helps each of them, until what is left is latency and computing. With 20 ms of latency the plain method stays
# behind on every line, because it waits in every step. With 50 us it would not: try it.
#
# ## The loss: what does talking less cost?
#
# Formulas do not know. A small network on digits shows the mechanism, with three seeds, on a slow line and a fast one. Its
# own steps take microseconds; on the clock each computes for 35 ms, as the large model does.

# %%
trained = sl.compare(
    problem="digits",
    methods=["ddp-adam", sl.diloco(lr=0.003, period=16), sl.mt_dao(lr=0.003, period=16)],
    networks=["10gbe", sl.Link(LATENCY, "1 Gbit/s", name="mine")],
    workers=4,
    steps=96,
    seeds=3,
    eval_every=8,
    compute="35 ms",
)
trained.plot()
print(trained.summary.groupby(["network", "method"])[["loss", "wall_clock_s"]].median())

# %% [markdown]
# One training, two clocks: the losses in the table are the same on both. On the fast line all take about equally long, and
# the loss decides; on the slow line the clock does. Bands that overlap are no difference.
#
# ## The decision

# %%
sl.advise(MODEL, network=f"{LATENCY.replace(' ', '')},1Gbit/s", hardware="h100", workers=WORKERS)

# %% [markdown]
# ## What to change next
#
# - `LATENCY`, `WORKERS` and `MODEL`: yours. A `config.json` is a model, too.
# - The period of DiLoCo: longer is faster, until the loss says no.
# - `skew` of the digits (`problem={"kind": "digits", "skew": 0.8}`): workers that see different data.
# - The network: what `syncline calibrate` measured of your cluster.
