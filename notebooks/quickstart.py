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
# # Quickstart: the loss and the clock
#
# Four workers train a small network on handwritten digits. We let them talk in every step, or every 16 steps, and ask
# two questions: what does that do to the loss, and what does it do to the clock?

# %%
# %matplotlib inline
import numpy as np
import torch

from syncline.analysis import Curve, SeedSeries, distance_over_steps, loss_against_clock
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import MODELS, Link, ring_all_reduce_s
from syncline.methods import DDP, MTDAO, DiLoCo, Local
from syncline.optim import adam
from syncline.specs import network
from syncline.problems import Digits, Rosenbrock
from syncline.sim import clock
from syncline.training import rows_of, train

torch.set_num_threads(1)  # the tensors are small

# %% [markdown]
# ## One training
#
# All four workers live in this process: every parameter has a leading axis of four. `seeds` are independent repetitions
# of the whole training, side by side on the same axis. The communicator notes each collective in its ledger.

# %%
WORKERS, STEPS, SEEDS = 4, 192, (0, 1, 2)


def trained(make_method, problem, workers=WORKERS, steps=STEPS, seeds=SEEDS, eval_every=8):
    """The history of a training, and the ledger of what it sent."""
    comm = SimulatedCommunicator(workers, replicas=len(seeds))
    task = problem.build(rows_of(comm, seeds))
    method = make_method(task.params.values(), comm=comm, worker_axis=True)
    return train(task, method, seeds, steps, eval_every=eval_every), comm.ledger


METHODS = {
    "ddp-adam": lambda params, **world: DDP(params, 0.003, adam(), **world),
    "local-adam": lambda params, **world: Local(params, 0.003, adam(), period=16, **world),
    "diloco": lambda params, **world: DiLoCo(params, 0.003, period=16, **world),
    "mt-dao": lambda params, **world: MTDAO(params, 0.003, betas=[0.99], omegas=[0.9], period=16, **world),
}
results = {name: trained(make, Digits(skew=0.8)) for name, make in METHODS.items()}

for name, (history, ledger) in results.items():
    loss, accuracy = np.median(history.evaluation["loss"][-1]), np.median(history.evaluation["accuracy"][-1])
    print(f"{name:10}  loss {loss:.3f}  accuracy {accuracy:.1%}  {len(ledger):3} calls  {ledger.payload_bytes():9,} B")

# %% [markdown]
# ## Its clock, on any network
#
# A training does not know how long anything takes. The clock takes the calls of its ledger, the time that a worker
# computes (here 2 ms per step), and a link, and says when each step ends. So one training is timed on many networks.

# %%
networks = {name: network(name) for name in ("infiniband", "10gbe", "wan")}


def curve(name):
    """Loss against steps and against every network's clock."""
    history, ledger = results[name]
    clocks = {}
    for net, link in networks.items():
        step_end_s = clock(ledger.records, 2e-3, link, WORKERS, STEPS).step_end_s
        clocks[net] = np.concatenate([[0.0], step_end_s])[history.eval_step]
    return Curve(name, history.eval_step, history.evaluation["loss"].T, clocks)


curves = [curve(name) for name in results]
loss_against_clock(curves, networks, loss_label="validation loss (nats)")

# %% [markdown]
# Against steps data parallelism is ahead everywhere. Against the clock it is ahead where the network is fast, and far
# behind on the wide-area link, where each of its steps pays six latencies of 25 ms.

# %% [markdown]
# ## A sweep in one call
#
# For the clock alone no training is needed. The closed forms broadcast over NumPy arrays: here is the time in which 8
# workers average a model of 162 million parameters, for 1,000 bandwidths and two latencies at once.

# %%
nbytes = MODELS["gpt-160m"].parameter_bytes()
bandwidth = np.geomspace(1e8, 1e11, 1000)  # bytes per second
links = Link(latency_s=np.array([[50e-6], [25e-3]]), bandwidth_bytes_per_s=bandwidth)
all_reduce_s = ring_all_reduce_s(8, nbytes, links)
print(all_reduce_s.shape)

compute_s = 0.1
for latency, times_s in zip(("50 us", "25 ms"), all_reduce_s, strict=True):
    for period in (1, 32):
        fits = times_s / period < compute_s
        answer = f"from {bandwidth[fits][0] / 1e9:.2f} GB/s" if fits.any() else "on no bandwidth"
        print(f"latency {latency}, averaged every {period:2} steps: communication is under half of a step {answer}")

# %% [markdown]
# Fourteen latencies of 25 ms are more than the 100 ms of computing, so no bandwidth helps there; only talking less does.

# %% [markdown]
# ## A landscape
#
# Rosenbrock's valley with noisy gradients, after MT-DAO's Figure 1: a momentum that remembers 10,000 steps. Here 64
# workers and 3 seeds; `syncline compare mt-dao-fig1` is the whole of it.

# %%
valley = Rosenbrock(noise_std=2.0)
slow = {
    "local-adam": lambda params, **world: Local(params, 0.1, adam(0.9999, 0.999), period=32, **world),
    "mt-dao": lambda params, **world: MTDAO(params, 0.1, betas=[0.9999], omegas=[0.95], beta2=0.999, **world),
}
series = []
for name, make in slow.items():
    history, _ = trained(make, valley, workers=64, steps=20_000, eval_every=0)
    series.append(SeedSeries(name, np.arange(1, history.steps + 1), history.trace["distance"].T))
    print(f"{name:10}  mean distance over the last tenth: {history.trace['distance'][-2000:].mean():.3f}")
distance_over_steps(series)

# %% [markdown]
# It is a picture of momentum more than of communication: with one worker, no noise and a period of 1 Local Adam does
# the same (`docs/findings.md`). To find that out takes three flags:
#
# ```
# syncline run rosenbrock-local-adam --set problem.noise_std=0 --set workers=1 --set method.period=1
# ```

# %% [markdown]
# ## What to change next
#
# - `period` in `METHODS`: at which does the loss suffer?
# - The network: `Link(latency_s=..., bandwidth_bytes_per_s=...)` with yours.
# - The problem: `TorchProblem` takes your own module and data.
