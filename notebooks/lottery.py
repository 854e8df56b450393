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
# # The equal-effort lottery
#
# **How many trials of a search until the order of two optimizers is stable?**
#
# Eleven communication-efficient optimizers, 64 trials of each, eight seeds of each trial. Every probability below is that
# of searches with n of the 64 trials, without replacement.

# %%
# %matplotlib inline
import pandas as pd

from replication.lottery.figure import lottery_figure
from replication.lottery.resampling import Trials, pair_orders, smallest_difference
from replication.lottery.setting import RESULTS, lottery_setting

setting = lottery_setting()
table = pd.read_parquet(RESULTS / "trials.parquet")
trials = Trials.of_table(table, setting)
table.groupby("method")["loss"].describe(percentiles=[0.05, 0.5]).round(4)

# %% [markdown]
# The reference: the loss of each method's best trial, the median over all eight seeds.

# %%
reference = pd.Series(trials.reference, trials.methods).sort_values()
reference.round(4)

# %% [markdown]
# ## Who wins with five trials?
#
# A search of five trials at one seed, as many papers and our own older replications have it.

# %%
scores = trials.scores()["one seed"]
pairs = pd.DataFrame(pair_orders(trials, scores, 5))
pairs.sort_values("probability").head(10)

# %%
assert len(pairs) == 55
assert pairs["probability"].between(0, 1).all()

# %% [markdown]
# ## More trials

# %%
lottery_figure(table, setting)

# %%
{
    searched: (sum(pair.probability >= 0.95 for pair in found), smallest_difference(found))
    for searched in setting["sizes"]
    for found in [pair_orders(trials, scores, searched)]
}

# %% [markdown]
# ## What to change next
#
# - The score by which a search chooses: `trials.scores()["three seeds"]`.
# - The size of a search: the second argument of `pair_orders`.
# - A study of your own: any table with a row per method, trial and seed, and a setting with its seeds.
