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
# # DeMo: send the largest coefficients
#
# **How much of a momentum do a few coefficients hold, and what becomes of the rest?**
#
# A momentum changes slowly, and much of it may lie in few directions. DeMo cuts each worker's momentum into blocks,
# transforms them into another basis, sends the k largest coefficients of each, and takes out what it sent. What was not
# sent stays in the momentum and is sent when it has grown.
#
# $$m \leftarrow \beta m + g, \qquad c = \mathrm{top}_k(T m), \qquad m \leftarrow m - \alpha\, T^{-1} c, \qquad
#   q = T^{-1}\, \mathrm{mean}(c)$$
#
# and the base optimizer takes $q$ in place of the gradient.

# %%
# %matplotlib inline
import numpy as np
import torch
from matplotlib.figure import Figure

from syncline.analysis.style import figure_style
from replication.theory import (
    coin_mean_bias,
    compaction_gain,
    dct_variances,
    equal_sizes_bias,
    gaussian_top_share,
    kept_momentum_bound,
    signum_bound,
    signum_step,
    sparse_mean_bias_bound,
    top_k_error_bound,
)
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import MODELS
from syncline.methods import DDP
from syncline.optim import CoefficientMean, EveryStep, Method, demo_rule, sgdm
from syncline.optim.demo import dct_matrix, random_matrix
from syncline.problems import Digits
from syncline.seeds import generator
from syncline.methods import method_of
from replication.summaries import summary_figure
from syncline.training import rows_of, train

torch.set_num_threads(1)  # the tensors are small
WORKERS, SEEDS = 4, (0, 1, 2)
BASES, COLORS = ("dct", "random", "identity"), ("black", "#0072B2", "#D55E00")
MARKERS, STYLES = "o^s", ("solid", "dashdot", "dashed")


def trained(make_method, steps=128, seeds=SEEDS):
    """A training of the digits MLP: task, method and history."""
    comm = SimulatedCommunicator(WORKERS, replicas=len(seeds))
    task = Digits().build(rows_of(comm, seeds))
    method = make_method(task.params.values(), comm=comm, worker_axis=True)
    return task, method, train(task, method, seeds, steps)


# %% [markdown]
# ## The paper in one picture
#
# Its message in its own numbers beside ours, and the verdicts on all of them; `syncline reproduce demo` lists them.

# %%
summary_figure("demo")

# %% [markdown]
# ## The toy: how much of a real momentum do k coefficients hold?
#
# Data parallelism with momentum 0.9 on digits; the first layer is one block of 64 by 64. The k largest of d coefficients
# miss at most $\sqrt{1 - k/d}$ of the norm, in any orthonormal basis, and exactly that if all are equally large.

# %%
_, method, _ = trained(lambda p, **world: DDP(p, 0.05, sgdm(0.9), **world))
momentum = method.state[method.param_groups[0]["params"][0]]["momentum_1"][0].double()
MATRICES = {"dct": dct_matrix(64), "random": random_matrix(64, 0), "identity": torch.eye(64, dtype=torch.float64)}
ks = np.unique(np.geomspace(1, 4096, 49).astype(int))

with figure_style():
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.semilogx(ks, top_k_error_bound(ks, 4096), color="grey", linewidth=3, label=r"bound $\sqrt{1 - k/d}$")
    for basis, color, style in zip(BASES, COLORS, STYLES, strict=True):
        c = (MATRICES[basis] @ momentum @ MATRICES[basis].T).flatten().abs().sort(descending=True).values.square()
        missed = (1 - (c.cumsum(0) / c.sum()).numpy()).clip(0) ** 0.5
        assert np.all(missed[ks - 1] <= top_k_error_bound(ks, 4096) + 1e-6)
        axes.semilogx(ks, missed[ks - 1], color=color, linestyle=style, label=basis)
        print(
            f"{basis:8}  missed with k = 32: {missed[31]:.3f}, 128: {missed[127]:.3f}, 512: {missed[511]:.3f}", end=""
        )
        print(f"  (bound {top_k_error_bound(np.array([32, 128, 512]), 4096).round(3)})")
    axes.set(xlabel="coefficients kept, of 4,096", ylabel="share of the norm that is missed")
    axes.legend()
figure

# %% [markdown]
# With few coefficients all are close to the bound, so these momenta are spread out in every basis. Of the three, the
# cosine transform holds most in its few largest, until the identity overtakes it.

# %% [markdown]
# ## Energy compaction: why should a DCT hold more?
#
# Coefficients that are gaussian and equally large in the mean miss what the top of a normal distribution misses, in
# any basis. A DCT compacts a chunk whose neighbours are correlated: for $\rho^{|i - j|}$ the variances of its
# coefficients have a closed form. How correlated are a real momentum's neighbours, and does that explain its DCT?

# %%
weights = momentum.numpy()
rho = [
    float((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()))
    for x, y in ((weights[1:], weights[:-1]), (weights[:, 1:], weights[:, :-1]))
]
print(f"correlation of neighbours: units {rho[0]:.2f}, pixels {rho[1]:.2f}")
rng, parts = generator(0, "demo notebook"), np.array([32, 128, 512])
with figure_style():
    figure = Figure(figsize=(9.2, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for of, color, style in ((0.0, "#D55E00", "dashed"), (0.5, "#0072B2", "dashdot"), (0.9, "black", "solid")):
        variances = np.sort(dct_variances(64, of))[::-1]
        left.semilogy(np.arange(1, 65), variances, color=color, linestyle=style, label=rf"$\rho$ = {of}")
        print(
            f"rho {of}: gain {compaction_gain(variances):.2f}, 8 of 64 coefficients hold {variances[:8].sum() / 64:.0%}"
        )
    left.set(xlabel="coefficient, by size", ylabel="its variance")
    left.legend()
    variances = np.outer(dct_variances(64, rho[0]), dct_variances(64, rho[1])).ravel()
    drawn = np.sort(rng.normal(size=(20, 4096)) ** 2 * variances, axis=1)[:, ::-1]
    compacted = np.sqrt(np.clip(1 - np.cumsum(drawn, 1) / drawn.sum(1, keepdims=True), 0, None)).mean(0)
    flat = np.sqrt(np.clip(1 - gaussian_top_share(ks / 4096), 0, None))
    right.semilogx(ks, flat, color="#D55E00", linestyle="dashed", label="nothing compacted")
    right.semilogx(ks, compacted[ks - 1], color="#0072B2", linestyle="dashdot", label="its neighbours' correlation")
    c = (MATRICES["dct"] @ momentum @ MATRICES["dct"].T).flatten().abs().sort(descending=True).values.square()
    missed = ((1 - c.cumsum(0) / c.sum()).clamp_min(0) ** 0.5).numpy()
    right.semilogx(ks, missed[ks - 1], color="black", label="its DCT")
    right.set(xlabel="coefficients kept, of 4,096", ylabel="share of the norm that is missed")
    right.legend()
for name, of in (("nothing compacted", np.sqrt(1 - gaussian_top_share(parts / 4096))), ("correlation", compacted[parts - 1]),
                 ("DCT", missed[parts - 1])):  # fmt: skip
    print(f"{name:18} misses", ", ".join(f"{share:.3f} with k = {k}" for share, k in zip(of, parts, strict=True)))
figure

# %% [markdown]
# Pixels of a row are neighbours, hidden units are not: so the DCT compacts one side only, and by little. It finds more
# than these correlations, as does the identity, since the momentum has large and small rows and low rank.
#
# ## What stays back
#
# Lemma 1 bounds the momentum that is not sent, in units of the gradient's norm: $\chi / (1 - \beta\chi)$, where
# $\chi^2 = 1 - \alpha(2 - \alpha) k / d$. How close do gradients come?

# %%
D, BETA = 64, 0.99
kept_ks = np.array([1, 2, 4, 8, 16, 32])


def kept_norm(k, alpha, kind, steps=1500):
    """Mean norm of what is kept in the last half of the steps, for gradients of norm 1."""
    m, found = np.zeros(D), []
    for step in range(steps):
        g = np.ones(D) if kind == "same" or not m.any() else m if kind == "along" else rng.normal(size=D)
        whole = BETA * m + g / np.linalg.norm(g)
        at = np.argsort(-np.abs(whole))[:k]
        m = whole.copy()
        m[at] *= 1 - alpha
        if step >= steps // 2:
            found.append(np.linalg.norm(m))
    return np.mean(found)


with figure_style():
    figure = Figure(figsize=(4.8, 3.3), layout="constrained")
    axes = figure.subplots()
    for alpha, color in ((1.0, "black"), (0.2, "#D55E00")):
        bound = kept_momentum_bound(BETA, kept_ks, D, alpha=alpha)
        axes.loglog(kept_ks, bound, color=color, label=rf"bound, $\alpha$ = {alpha}")
        for kind, marker in (("random", "o"), ("along", "^")):
            found = [kept_norm(int(k), alpha, kind) for k in kept_ks]
            axes.loglog(kept_ks, found, marker, color=color, fillstyle="none", label=kind if alpha == 1 else None)
            assert np.all(np.array(found) <= bound)
            print(
                f"alpha {alpha}, {kind:6} gradients: bound over found {bound[0] / found[0]:.1f} at k 1, {bound[4] / found[4]:.1f} at k 16"
            )
    axes.set_xscale("log", base=2)
    axes.set(xlabel="k of 64 coefficients", ylabel="norm kept back / gradient's")
    axes.legend()
figure

# %% [markdown]
# Gradients along what is left come within a fifth of the bound at $\alpha$ = 0.2, and to a third or a sixth at 1; random ones
# leave a tenth of it and less. With the paper's $\beta$ of 0.999, k = 32 of 4,096 could keep back 200 gradients.
#
# ## The bias of a sparse mean
#
# Lemma 2 says that the mean of what was sent misses the mean of everything by at most $C B \frac{d - k}{d} /
# \sqrt n$, for n workers, with a universal C. We ask entries of plus or minus 1, and coins that are 0 or 1: averages over
# those who sent (public code) and over all (the paper's equation 5).

# %%
MANY, K = 2 ** np.arange(1, 11), 16


def found_bias(entries, n, average, draws=60):
    """Mean absolute bias of a coordinate."""
    x = entries(size=(draws, n, D)) + 1e-9 * rng.uniform(-1, 1, size=(draws, n, D))  # ties at random
    sent = np.abs(x) >= np.partition(np.abs(x), -K, axis=-1)[..., -K, None]
    mean = (x * sent).sum(1) / (np.maximum(sent.sum(1), 1) if average == "senders" else n)
    return np.abs(mean - x.mean(1)).mean()


LAWS = {
    "signs": lambda size: 2.0 * rng.integers(2, size=size) - 1,
    "coins": lambda size: rng.integers(2, size=size).astype(float),
}
with figure_style():
    figure = Figure(figsize=(9.2, 3.3), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (name, entries) in zip(panels, LAWS.items(), strict=True):
        panel.loglog(MANY, sparse_mean_bias_bound(MANY, K, D, form="printed"), color="grey", label="Lemma 2, C = 1")
        for average, color, marker in (("senders", "black", "o"), ("all", "#D55E00", "s")):
            found = [found_bias(entries, int(n), average) for n in MANY]
            panel.loglog(MANY, found, marker, color=color, fillstyle="none", label=f"mean over {average}")
            if name == "signs":  # a mean absolute value is sqrt(2 / pi) of the root mean square, for many
                exact = [equal_sizes_bias(int(n), K, D, average) * (2 / np.pi) ** 0.5 for n in MANY]
            else:
                exact = [abs(coin_mean_bias(K, D, 0.5, average))] * len(MANY)
            panel.loglog(MANY, exact, color=color)
            print(
                f"{name}, {average:7}: bias {found[1]:.3f} with 4 workers, {found[-1]:.3f} with 1,024 (closed form {exact[-1]:.3f})"
            )
            assert abs(found[-1] / exact[-1] - 1) < 0.1
        panel.set_xscale("log", base=2)
        panel.set_title(name, loc="left")
        panel.set(xlabel="workers n")
    panels[0].set_ylabel("mean bias of a coordinate")
    panels[1].legend()
figure

# %% [markdown]
# For signs the rate is as said, though not the factor: $\sqrt{(d - k)/d}$ over all, and more over the senders. Coins
# keep their bias with any number of workers: the largest entries are no fair sample, so Lemma 2 needs a symmetric law.
#
# ## The rate
#
# What the steps of Theorem 2's proof give for sign updates, on a bowl, beside a run: the first part falls like
# $1/\sqrt T$, the others stay.

# %%
STEPS, BOWL = (100, 1000, 10_000), {"gap": 32.0, "smoothness": 1.0, "dimension": 64}


def mean_gradient(steps, k, beta, sigma=0.5):
    """Mean of the gradient's 1-norm on the way, four workers; and the largest norm of a gradient."""
    x, m, norms, largest = np.ones(D), np.zeros((4, D)), [], 0.0
    eta = float(signum_step(steps, **BOWL))
    for _ in range(steps):
        norms.append(np.abs(x).sum())
        noise = rng.normal(size=(4, D))
        g = x + sigma * noise / np.linalg.norm(noise, axis=1, keepdims=True)
        largest = max(largest, np.linalg.norm(g, axis=1).max())
        whole = beta * m + g
        sent = np.where(np.abs(whole) >= np.partition(np.abs(whole), -k, axis=1)[:, -k, None], whole, 0.0)
        m, x = whole - sent, x - eta * np.sign(sent.mean(0))
    return np.mean(norms), largest


with figure_style():
    figure = Figure(figsize=(4.8, 3.3), layout="constrained")
    axes = figure.subplots()
    for (k, beta), color, marker in zip(((64, 0.0), (16, 0.0), (16, 0.9)), COLORS, MARKERS, strict=True):
        runs = [mean_gradient(steps, k, beta) for steps in STEPS]
        parts_of = [
            signum_bound(signum_step(t, **BOWL), t, **BOWL, noise=0.5, workers=4, beta=beta,
                         kept_momentum=kept_momentum_bound(beta, k, D, largest))
            for t, (_, largest) in zip(STEPS, runs, strict=True)
        ]  # fmt: skip
        found = [norm for norm, _ in runs]
        axes.loglog(STEPS, [of.total for of in parts_of], color=color)
        axes.loglog(STEPS, found, marker, color=color, fillstyle="none", label=rf"k = {k}, $\beta$ = {beta}")
        last = parts_of[-1]
        print(f"k {k}, beta {beta}: found", ", ".join(f"{norm:.2f}" for norm in found), f"at T = {STEPS};", end=" ")
        print(f"bound at the last {last.descent:.2f} + {last.noise:.2f} + {last.left_out:.0f}")
        assert np.all(np.array(found) < [of.total for of in parts_of])
    axes.loglog(STEPS, [of.descent for of in parts_of], color="grey", linestyle="dotted", label="descent alone")
    axes.set(xlabel="steps T", ylabel=r"mean of $\|\nabla f\|_1$")
    axes.legend()
figure

# %% [markdown]
# The part that is left out does not fall with T, and neither does the noise: with k < d the proof promises no
# $1/\sqrt T$. Runs do better than the proof, with any k here.

# %% [markdown]
# ## Loss against k
#
# DeMo-SGD, each basis at its own best of three learning rates; medians over three seeds after 128 steps.

# %%
RATES = (0.2, 0.4, 0.8)


def best_loss(k, basis, alpha=1.0):
    """The least of the median final losses over the learning rates, and its rate."""
    found = []
    for lr in RATES:
        reducer = CoefficientMean(k=k, beta=0.9, alpha=alpha, basis=basis)
        _, _, history = trained(
            lambda p, **world: Method(p, lr, demo_rule("sgd"), EveryStep(), reducer=reducer, **world)
        )
        final = history.evaluation["loss"][-1]
        found.append((np.median(np.nan_to_num(final, nan=np.inf)), lr))
    return min(found)


KS = (1, 4, 16)
with figure_style():
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for basis, color, style, marker in zip(BASES, COLORS, STYLES, MARKERS, strict=True):
        best = [best_loss(k, basis) for k in KS]
        print(
            f"{basis:8}  " + ", ".join(f"k {k}: {loss:.3f} (lr {lr})" for k, (loss, lr) in zip(KS, best, strict=True))
        )
        axes.loglog(KS, [loss for loss, _ in best], marker, color=color, linestyle=style, label=basis)
    axes.set(xlabel="coefficients per block k", ylabel="validation loss (nats)")
    axes.legend()
figure

# %% [markdown]
# ## Taking out what was sent
#
# With $\alpha = 0$ nothing is taken out, so the same coefficients win again and again.

# %%
for basis in ("dct", "identity"):
    found = [(alpha, *best_loss(4, basis, alpha)) for alpha in (1.0, 0.2, 0.0)]
    print(f"{basis:8}  k 4: " + ", ".join(f"alpha {alpha}: {loss:.3f} (lr {lr})" for alpha, loss, lr in found))

# %% [markdown]
# ## Bytes
#
# A pair of int64 index and fp32 value takes 12 bytes; a block of 64 by 64 needs only 12 bits of index. On a fast network
# an all-gather of all workers' pairs grows with the workers, where an all-reduce does not.

# %%
shape = MODELS["olmo-300m"]
tensors = [tensor for tensor in shape.tensors if tensor.name != "embedding"]
dense = 4 * sum(tensor.elements for tensor in tensors)
for fields in ({}, {"index_bits": 0}, {"index_bits": 0, "value_format": "bf16"}, {"k": 1}):
    demo = method_of({"kind": "demo", "lr": 0.001, **fields})
    nbytes = demo.exchanges(tensors, workers=4)[0].payload_bytes
    print(f"{str(fields):40} {nbytes / 1e6:7.2f} MB per worker and step, {dense / nbytes:6.1f} times less than fp32")

# %% [markdown]
# ## What did not reproduce
#
# - *The DCT is the basis to take.* It holds more of a single momentum in few coefficients, and yet trains worse than both
#   others at every k. The random basis, which holds least, is new in each step and so sends other directions each time.
# - *Taking out 0.2 is better than 1.* Not for SGD at this k. Taking out nothing is worst, as the paper says.
# - *The bias of a sparse mean falls like $\frac{d - k}{d} / \sqrt n$*: like $\sqrt{(d - k)/d} / \sqrt n$ for symmetric
#   entries, and not at all for others. *$O(1/\sqrt T)$*: of one part of three.
# - *128 times less* counts values only: with int64 indices they are a third of the bytes.

# %% [markdown]
# ## What to change next
#
# - `k` and `alpha` of `demo_rule`, or the basis: what does a random one lose?
# - The layer: convolutions and embeddings are correlated in other ways.
# - The bits of an index: `DeMo(..., index_bits=0)` sends the fewest.
