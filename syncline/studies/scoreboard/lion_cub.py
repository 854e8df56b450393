"""Lion Cub's numbers: what votes cost and say, what quantisers keep of a sum's sign, and zeros in one bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from syncline.analysis.theory import momentum_noise_variance, speedup_limit, vote_against_sum, vote_shares
from syncline.costmodel import MODELS
from syncline.costmodel.traffic.packing import sum_levels
from syncline.methods import method_of
from syncline.planner.projection.memory import memory_of
from syncline.seeds import seed64
from syncline.studies.scoreboard.cells import rows_of_study, study_cell
from syncline.studies.scoreboard.literal import literal_distance

__all__ = ["literal_distance", "study_cell"]


def shape_millions(model: str) -> float:
    """Parameters of a GPT-2 of that width and depth, in millions."""
    return MODELS[model].parameters / 1e6


def table3_percent(entry: str, workers: int) -> float:
    """A cell of Table 3 if votes are on independent Gaussian updates: ``kept``, ``flipped`` or ``tied``, each sign."""
    return 50 * float(getattr(vote_against_sum(workers, "gaussian"), entry))


def independent_ties(workers: int) -> float:
    """Share of ties of independent fair votes, in percent."""
    return 100 * float(vote_shares(workers).tied)


def table3_sums(entry: str, workers: int, law: str = "gaussian") -> float:
    """The same added up, in percent."""
    return 100 * float(getattr(vote_against_sum(workers, law), entry))  # type: ignore[arg-type]


def largest_integer(workers: int, bits: int = 8) -> int:
    """Of a worker whose integers are summed in so many bits, signs and all."""
    return sum_levels(bits, workers)


def naive_worst_share() -> float:
    """In how much of Figure 2's grid the naive server costs most, in percent."""
    rows = rows_of_study("lion-cub-fig2")
    worst = [row["naive_over_alpha"] >= max(v for k, v in row.items() if k.endswith("_over_alpha")) for row in rows]
    return 100 * float(np.mean(worst))


def vote_costs(ratio: float, workers: int) -> dict[str, float]:
    """Cost in latencies of the direct and the one-bit vote, by N beta / alpha."""
    at = {"ratio": ratio, "workers": workers}
    return {name: float(study_cell("lion-cub-fig2", f"{name.replace('-', '_')}_over_alpha", **at))
            for name in ("direct", "one-bit")}  # fmt: skip


def memory_by_bits() -> dict[str, float]:
    """GB of weights, gradients, states and buffers of the 160M shape on 8 workers."""
    names = {"1-bit": "lion-cub-1bit", "8-bit": "lion-cub", "lion": "ddp-lion"}
    tensors = MODELS["gpt-160m"].tensors
    return {name: float(memory_of(method_of(one), tensors, 8).total_bytes) / 1e9 for name, one in names.items()}


def free_communication_speedup(share_percent: float) -> float:
    """What a step could gain if its communication became free."""
    return float(speedup_limit(share_percent / 100))


def printed_share(name: str, bandwidth: float) -> float:
    """Share of communication in Table 4's two constants, in percent."""
    return 100 * float(
        study_cell("lion-cub-table4", "communication_share", method=name, bandwidth_bytes_per_s=bandwidth)
    )


def momentum_deviation() -> dict[str, float]:
    """Standard deviation of a worker's momentum, over a gradient's, by beta2, after many steps on noise."""
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
    """Share of entries whose sum keeps its sign (``match``), turns (``flip``) or vanishes (``zero``), in percent."""
    return 100 * float(_vectors()[distribution, quantiser][rate])


def sign_rates(rate: str, distribution: str) -> dict[str, float]:
    """The same by quantiser, whose names lose their commas."""
    return {
        quantiser.replace(", ", "-").replace(" ", "-"): 100 * float(row[rate])
        for (of, quantiser), row in _vectors().items()
        if of == distribution
    }


def fates(distribution: str, quantiser: str) -> dict[str, float]:
    """What becomes of the entries, in percent."""
    return {rate: sign_rate(rate, distribution, quantiser) for rate in ("match", "flip", "zero")}


def quantiser_distance(p: float) -> float:
    """Largest difference of Syncline's integers from equation 1's, of a Laplace vector of 4,096 entries at 5 bits."""
    import torch

    from syncline.optim import quantise_lp

    x = np.random.default_rng(seed64(0, "equation 1")).laplace(size=4096)
    size = np.abs(x)
    mean = size.max() if p == np.inf else np.exp(np.log(size).mean()) if p == 0 else (size**p).mean() ** (1 / p)
    printed = np.clip(np.round(15 / (2 * mean) * x), -15, 15)
    ours = quantise_lp(torch.from_numpy(x)[None], 15, float(p))[0].numpy()
    return float(np.abs(ours - printed).max())


def mean_of_signs(votes: tuple[float, ...]) -> float:
    """The mean of the signs of these gradients; an unbiased sign would follow their mean."""
    return float(np.sign(votes).mean())


# Zeros in one bit.


@cache
def _positions(zeros: str, steps: int = 1024, workers: int = 8) -> np.ndarray:
    import torch

    from syncline.comm import SimulatedCommunicator

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
    """How far a coordinate without gradient has moved, over the learning rate times the steps."""
    path = _positions(zeros)
    return float(abs(path[-1]) * 2**8 / len(path))


def furthest_drift(zeros: str) -> float:
    """How far it ever was, in learning rates."""
    return float(np.abs(_positions(zeros)).max() * 2**8)


def direct_saves(workers: int, word_bits: int) -> float:
    """How many times fewer bits a direct vote sends than an all-reduce of words, by both collectives."""
    row = study_cell("lion-cub-table1", "bits_per_parameter", vote="direct", workers=workers, network="10gbe")
    return 2 * (workers - 1) / workers * word_bits / float(row)


def smallest_integer(workers: int, bits: int = 8) -> int:
    """Of a worker whose integers are summed in so many bits."""
    return -sum_levels(bits, workers)
