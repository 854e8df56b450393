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
# # When, or how often?
#
# **At equal numbers of averages, does it matter in which steps workers average?**
#
# CurvaDion averages when the norm of a momentum changes much. Here its trigger is compared with placements that have
# exactly as many averages, over batches from 2k to 64k tokens per step. [docs/when.md](../docs/when.md) has the rule.

# %%
# %matplotlib inline
import pandas as pd

from replication.theory import noise_rmmc
from replication.when.figure import when_figure
from replication.when.results import (
    Cell,
    decide,
    equal_workers,
    losses,
    noise,
    over_even,
    stored_finals,
    stored_trainings,
)
from replication.when.setting import when_setting

setting = when_setting("gpu")
frame = stored_finals()
frame.groupby(["form", "tokens", "arm"])["loss"].median().unstack().round(3)

# %% [markdown]
# ## Each placement less the even schedule
#
# Below 0 the placement ends lower than as many even averages. The numbers are of each seed.

# %%
cell = Cell("gradients", 2048, 12)
pd.DataFrame({arm: over_even(frame, cell, arm) for arm in ("trigger", "mean-trigger", "early", "random")}).round(3)

# %%
assert (over_even(frame, cell, "even") == 0).all()

# %%
when_figure(stored_trainings(), setting)

# %% [markdown]
# Dion with an average in every step, for comparison:

# %%
losses(frame, cell, "every").round(3)

# %% [markdown]
# ## The rule
#
# The thesis "when matters more than how often" holds at a batch if the trigger ends below the even schedule at both
# counts, and by more than four times as many even averages gain.

# %%
batches = sorted(frame["tokens"].unique())
pd.DataFrame({batch: decide(frame, "gradients", int(batch), setting["counts"])._asdict() for batch in batches})

# %% [markdown]
# ## What does the trigger see?
#
# If the change of a momentum came from the loss surface, all workers would see it in the same step. `share` is the
# share of the variance that they have in common.

# %%
pd.DataFrame(noise(frame, "gradients", setting["tokens"], setting["counts"])).T

# %% [markdown]
# Workers that average in every step stay equal: deviation and shared share, by batch.

# %%
equal_workers(stored_trainings())

# %% [markdown]
# In closed form, noise beside a coherent signal q: the deviation falls with the batch only from q = 0.026 on.

# %%
pd.Series({q: float(noise_rmmc(0.95, 6, q)) for q in (0.0, 0.01, 0.026, 0.1, 1.0)}, name="deviation").round(4)

# %% [markdown]
# ## What to change next
#
# - The count and the form: `Cell("parameters", 65536, 50)`.
# - A batch of your own: `python -m replication.when --tokens 16384 ...`, as in `replication/when/__main__.py`.
