"""Lion Cub's numbers: costs and results of votes, signs of sums after quantisation, and zeros in one bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from replication.scoreboard.cells import rows_of_study, study_cell
from replication.scoreboard.literal import literal_distance
from replication.theory import momentum_noise_variance, vote_against_sum, vote_shares
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import MODELS
from syncline.costmodel.traffic.packing import sum_levels
from syncline.methods import method_of
from syncline.optim import quantise_lp
from syncline.planner.projection.memory_plan import memory_of
from syncline.seeds import seed64

__all__ = ["literal_distance", "study_cell"]


def shape_millions(model: str) -> float:
    """Return the number of parameters of a model shape, in millions."""
    return MODELS[model].parameters / 1e6


def table3_percent(entry: str, workers: int) -> float:
    """Return a cell of Table 3 for votes on independent Gaussian updates, per sign, in percent.

    ``entry`` is ``kept``, ``flipped`` or ``tied``.
    """
    return 50 * float(getattr(vote_against_sum(workers, "gaussian"), entry))


def independent_ties(workers: int) -> float:
    """Return the share of ties of independent fair votes, in percent."""
    return 100 * float(vote_shares(workers).tied)


def table3_sums(entry: str, workers: int, law: str = "gaussian") -> float:
    """Return an entry of Table 3 added up over both signs, for independent updates of a law, in percent."""
    return 100 * float(getattr(vote_against_sum(workers, law), entry))  # type: ignore[arg-type]


def largest_integer(workers: int, bits: int = 8) -> int:
    """Return the largest integer of a worker if the sum over the workers has to fit in signed ``bits`` bits."""
    return sum_levels(bits, workers)


def naive_worst_share() -> float:
    """Return the share of Figure 2's grid in which the naive server costs most, in percent."""
    rows = rows_of_study("lion-cub-fig2")
    worst = [row["naive_over_alpha"] >= max(v for k, v in row.items() if k.endswith("_over_alpha")) for row in rows]
    return 100 * float(np.mean(worst))


def vote_costs(ratio: float, workers: int) -> dict[str, float]:
    """Return the costs of the direct and the one-bit vote in latencies, at a ratio N beta / alpha."""
    cell = {"ratio": ratio, "workers": workers}
    return {name: float(study_cell("lion-cub-fig2", f"{name.replace('-', '_')}_over_alpha", **cell))
            for name in ("direct", "one-bit")}  # fmt: skip


def memory_by_bits() -> dict[str, float]:
    """Return the GB of weights, gradients, states and buffers of the 160M shape on 8 workers, by method."""
    names = {"1-bit": "lion-cub-1bit", "8-bit": "lion-cub", "lion": "ddp-lion"}
    tensors = MODELS["gpt-160m"].tensors
    return {name: float(memory_of(method_of(method), tensors, 8).total_bytes) / 1e9 for name, method in names.items()}


def printed_share(name: str, bandwidth: float) -> float:
    """Return the share of communication in a step by Table 4's two fitted constants, in percent."""
    return 100 * float(
        study_cell("lion-cub-table4", "communication_share", method=name, bandwidth_bytes_per_s=bandwidth)
    )


def momentum_deviation() -> dict[str, float]:
    """Return the standard deviation of a worker's momentum over that of a gradient, by beta2.

    The gradients are noise, and the momentum is that after 10,000 steps.
    """
    return {f"{beta:g}": float(np.sqrt(momentum_noise_variance(beta, 10_000))) for beta in (0.9, 0.95, 0.99)}


# Quantisers.


@cache
def _vectors() -> dict[tuple[str, str], dict[str, Any]]:
    from syncline.specs import Override, load_spec, study_of

    spec: Any = load_spec("lion-cub-quantisers", [Override.parse("seeds=[0, 1]"), Override.parse("training=null")])
    study = study_of(spec)
    rows = study.rows(spec, study.records(spec))
    return {(row["distribution"], row["quantiser"]): row for row in rows}


def sign_rate(rate: str, distribution: str, quantiser: str) -> float:
    """Return the share of entries whose sum keeps its sign after quantisation, flips or vanishes, in percent.

    ``rate`` is ``match``, ``flip`` or ``zero``.
    """
    return 100 * float(_vectors()[distribution, quantiser][rate])


def sign_rates(rate: str, distribution: str) -> dict[str, float]:
    """Return the share of entries by quantiser, in percent; hyphens replace commas and spaces of the names."""
    return {
        quantiser.replace(", ", "-").replace(" ", "-"): 100 * float(row[rate])
        for (row_distribution, quantiser), row in _vectors().items()
        if row_distribution == distribution
    }


def sign_outcomes(distribution: str, quantiser: str) -> dict[str, float]:
    """Return the shares of entries whose sum keeps its sign, flips and vanishes, in percent."""
    return {rate: sign_rate(rate, distribution, quantiser) for rate in ("match", "flip", "zero")}


def quantiser_distance(p: float) -> float:
    """Return the largest difference of Syncline's integers from those of equation 1.

    The vector has 4,096 Laplace entries, quantised to 5 bits.
    """
    import torch

    x = np.random.default_rng(seed64(0, "equation 1")).laplace(size=4096)
    size = np.abs(x)
    if p == np.inf:
        mean = size.max()
    elif p == 0:
        mean = np.exp(np.log(size).mean())
    else:
        mean = (size**p).mean() ** (1 / p)
    printed = np.clip(np.round(15 / (2 * mean) * x), -15, 15)
    ours = quantise_lp(torch.from_numpy(x)[None], 15, float(p))[0].numpy()
    return float(np.abs(ours - printed).max())


def mean_of_signs(votes: tuple[float, ...]) -> float:
    """Return the mean of the signs of these gradients; an unbiased sign would follow the mean gradient."""
    return float(np.sign(votes).mean())


# Figure 11.


def quantiser_losses(alpha: float, norms: tuple[str, ...] = ("L0.01", "L1", "L10", "Linf")) -> dict[str, float]:
    """Return the median final losses under stable noise of index ``alpha``, by the norm that scales the integers."""
    rows = rows_of_study("lion-cub-quantisers", "vectors=null")
    return {row["quantiser"]: row["loss"] for row in rows if row["alpha"] == alpha and row["quantiser"] in norms}


def largest_norm_over_l1(alpha: float) -> float:
    """Return the loss of `quantiser_losses` scaled by the maximum, over that scaled by the mean size."""
    losses = quantiser_losses(alpha)
    return losses["Linf"] / losses["L1"]


# Zeros in one bit.


@cache
def _positions(zeros: str, steps: int = 1024, workers: int = 8) -> np.ndarray:
    import torch

    spec = method_of({"kind": "lion-cub", "lr": 2.0**-8, "vote": "one-bit", "ties": zeros})
    param = torch.nn.Parameter(torch.zeros(workers, 1, dtype=torch.float64))
    method = spec.build([param], SimulatedCommunicator(workers), True)
    path = []
    for _ in range(steps):
        param.grad = torch.zeros_like(param)
        method.step()
        path.append(param.detach()[0, 0].item())
    return np.array(path)


def dead_drift(zeros: str) -> float:
    """Return the final displacement of a coordinate without gradient, over the learning rate times the steps."""
    path = _positions(zeros)
    return float(abs(path[-1]) * 2**8 / len(path))


def furthest_drift(zeros: str) -> float:
    """Return the largest displacement of a coordinate without gradient, in learning rates."""
    return float(np.abs(_positions(zeros)).max() * 2**8)


def direct_saves(workers: int, word_bits: int) -> float:
    """Return the bits of an all-reduce of words over those of a direct vote, both from their collectives."""
    row = study_cell("lion-cub-table1", "bits_per_parameter", vote="direct", workers=workers, network="10gbe")
    return 2 * (workers - 1) / workers * word_bits / float(row)


def smallest_integer(workers: int, bits: int = 8) -> int:
    """Return the smallest integer of a worker if the sum over the workers has to fit in signed ``bits`` bits."""
    return -sum_levels(bits, workers)
