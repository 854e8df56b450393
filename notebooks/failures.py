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
# # When machines fail
#
# **How much of a training is left when machines fail, and does it pay to wait for nobody?**
#
# Each worker fails now and then. Of ten times as many workers somebody fails ten times as often. What is left of the time,
# the *goodput*, depends on how often the state is saved, and on what the others do meanwhile.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import pandas as pd

import syncline as sl
from syncline.analysis.style import figure_style

MACHINES = {
    "rates": "meta-rsc-1",
    "restart_time": "10 min",
    "detection_timeout": "1 min",
    "checkpoint": {"write_time": 30},
}
WORKERS = [256, 1024, 4096, 16384]
RECOVERIES = ["restart", "elastic", "alone"]

# %% [markdown]
# ## What is left, by what is done
#
# `restart`: all go back to the last checkpoint, saved as often as is best. `elastic`: those who are there go on.
# `alone`: workers at their own pace, who wait for nobody.

# %%
rows = pd.DataFrame(sl.goodput(MACHINES, WORKERS, recovery=RECOVERIES).rows)
left = rows.pivot(index="workers", columns="recovery", values="goodput")[RECOVERIES]
print(left.round(4))

with figure_style():
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for recovery, style in zip(RECOVERIES, ("solid", "dashed", "dashdot"), strict=True):
        axes.semilogx(WORKERS, 100 * left[recovery], marker="o", linestyle=style, label=recovery)
    axes.set(xlabel="workers", ylabel="goodput (%)")
    axes.legend()
plt.show()

# %% [markdown]
# Goodput counts steps, not what they are worth: a step with fewer workers, or with late gradients, may do less for the loss.
# That is a training's to say (docs/elastic.md).
#
# ## How often to save
#
# Too often, and time goes into saving; too seldom, and each failure takes much back. Around the best it is flat.

# %%
minutes = [2, 5, 10, 20, 40, 80, 160]
saved = [
    sl.goodput(MACHINES | {"checkpoint": {"write_time": 30, "interval": f"{one} min"}}, 4096).rows[0]["goodput"]
    for one in minutes
]
with figure_style():
    figure, axes = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    axes.semilogx(minutes, [100 * one for one in saved], "ko-")
    axes.set(xlabel="minutes between checkpoints", ylabel="goodput (%)", title="4,096 workers, restart")
plt.show()

# %% [markdown]
# ## What to change next
#
# - The rates: `"50000 h"` in the place of a published one; bursts with a `shape` below 1.
# - What a checkpoint takes, and whether training stops for it: `"mode": "asynchronous"`.
# - `spares`, `detection_timeout`, `restart_time`: docs/failures.md has every field.
