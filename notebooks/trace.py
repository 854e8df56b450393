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
# # A script of your own
#
# **What would my own script take on a network that I do not have?**
#
# The function below is an ordinary training with `torch.distributed`; it knows nothing of Syncline. Each of two processes
# runs it with its real math, and what they send and wait for is timed on networks that are not here.

# %%
# %matplotlib inline
import syncline as sl


def training(every=1, steps=40):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    torch.manual_seed(dist.get_rank())
    for step in range(1, steps + 1):
        x = torch.randn(32, 64)
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            with torch.no_grad():
                for p in model.parameters():
                    dist.all_reduce(p)
                    p /= dist.get_world_size()


# %% [markdown]
# Two ways of it side by side: parameters are averaged in every step, or in every eighth.


# %%
def every_eighth():
    training(every=8)


result = sl.trace([training, every_eighth], workers=2, networks=["10gbe", "wan"])
result

# %%
assert [(row["network"], row["method"]) for row in result.rows[2:]] == [("wan", "training"), ("wan", "every_eighth")]
assert result.rows[3]["speedup"] > 5

# %% [markdown]
# What decides the steps, and what if the network had half the latency?

# %%
sl.whatif(result, networks="wan", scale_latency=0.5)

# %% [markdown]
# ## What to change next
#
# - The script: any that calls `torch.distributed`.
# - The networks, and the number of hosts.
# - `scale_bandwidth` and `scale_compute` of `whatif`.
