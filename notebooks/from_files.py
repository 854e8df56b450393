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
# # Loss against the clock, from the files
#
# **How do I draw my own picture from a run, without Syncline?**
#
# A run folder needs nothing of Syncline to be read. Here is one: four workers, three seeds, two networks.

# %%
# %matplotlib inline
import tempfile

import matplotlib.pyplot as plt
import pandas as pd
import pyarrow.parquet as pq

import syncline as sl

folder = tempfile.mkdtemp() + "/run"
sl.compare(
    "digits-skewed",
    methods=["ddp-adam", "diloco", "mt-dao"],
    networks=["10gbe", "wan"],
    seeds=3,
    steps=96,
    eval_every=8,
    out=folder,
)

# %% [markdown]
# The headline figure is ten lines of pandas. `curves.parquet` has a row per network, method, seed and step; the
# evaluation `loss` is null between evaluations.

# %%
curves = pd.read_parquet(f"{folder}/curves.parquet").dropna(subset="loss")
figure, panels = plt.subplots(1, curves["network"].nunique(), sharey=True, figsize=(8, 3), layout="constrained")
for axes, (network, timed) in zip(panels, curves.groupby("network", sort=False)):
    for method, rows in timed.groupby("method", sort=False):
        band = rows.groupby("seconds")["loss"].agg(["median", "min", "max"])
        axes.plot(band.index, band["median"], label=method)
        axes.fill_between(band.index, band["min"], band["max"], alpha=0.2)
    axes.set(title=network, xlabel="seconds")
panels[0].set_ylabel("validation loss")
panels[0].legend()

# %% [markdown]
# What a column is measured in stands in the file; where each seed ended is a file of its own.

# %%
schema = pq.read_schema(f"{folder}/curves.parquet")
print({field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in schema})
summary = pd.read_parquet(f"{folder}/summary.parquet")
summary.groupby(["network", "method"], sort=False)[
    ["loss", "step_time_s", "bytes_per_worker", "time_to_target_s"]
].median()

# %% [markdown]
# `sl.load` reads the same folder as the object that `sl.compare` returned.

# %%
assert len(sl.load(folder).curves.dropna(subset="loss")) == len(curves)

# %% [markdown]
# ## What to change next
#
# - The folder: any run or comparison of yours has the same files.
# - The network, or the axis: `bytes_per_worker` in the place of seconds.
# - A column of `summary.parquet` beside it; docs/records.md has them all.
