"""DeMo's numbers: bytes per step, errors of the k largest coefficients, and the small network on digits."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from replication.scoreboard.cells import study_cell
from replication.scoreboard.literal import literal_distance
from replication.scoreboard.small import median_loss
from replication.theory import top_k_error_bound
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import MODELS, mean_bytes_per_step
from syncline.methods import DDP, method_of
from syncline.optim import CoefficientMean, EveryStep, Method, demo_rule, sgdm
from syncline.optim.demo import dct_matrix, random_matrix
from syncline.planner.projection.memory_plan import memory_of
from syncline.planner.projection.project import project
from syncline.problems import Digits
from syncline.seeds import seed64
from syncline.specs import ProjectSpec
from syncline.training import rows_of, train

__all__ = ["literal_distance", "study_cell"]

PAIR_BYTES = 12
"""Bytes of an int64 index and an fp32 value."""


def parameters_of(model: str, unit: float) -> float:
    """Return the number of parameters of a shape, in multiples of ``unit``."""
    return MODELS[model].parameters / unit


def upload_cut(k: int, chunk: int, values_alone: bool = False) -> float:
    """Return the bytes of fp32 gradients over those of k pairs per block, or of k values without indices."""
    return 4 * chunk**2 / (k * (4 if values_alone else PAIR_BYTES))


def packed_cut(model: str = "olmo-300m", k: int = 32) -> float:
    """Return the bytes of fp32 gradients over those of packed indices and bf16 values, without the embedding."""
    tensors = [tensor for tensor in MODELS[model].tensors if tensor.name != "embedding"]
    spec = method_of({"kind": "demo", "lr": 0.001, "k": k, "index_bits": 0, "value_format": "bf16"})
    return 4 * sum(tensor.elements for tensor in tensors) / mean_bytes_per_step(spec.exchanges(tensors, 4))


def received_cut(k: int, chunk: int, workers: int) -> float:
    """Return the bytes of fp32 gradients over those that a worker receives from all workers, without indices."""
    return upload_cut(k, chunk, values_alone=True) / workers


def received_megabytes() -> dict[str, float]:
    """Return the MB that a worker receives per step of OLMo-300M at k 32, by the number of workers."""
    spec, tensors = method_of({"kind": "demo", "lr": 0.001, "k": 32}), MODELS["olmo-300m"].tensors
    return {f"{P} workers": mean_bytes_per_step(spec.exchanges(tensors, P)) * (P - 1) / 1e6 for P in (8, 64)}


def traffic_cut(model: str, k: int) -> float:
    """Return AdamW's bytes per step over DeMo's at blocks of 64, both computed by Syncline."""
    adamw = study_cell("demo-table1", "megabytes_per_step", model=model, method="adamw")
    return float(adamw / study_cell("demo-table1", "megabytes_per_step", model=model, k=k, chunk=64))


def power_sgd_cut(rank: int) -> float:
    """Return the bytes of fp32 gradients of OLMo-300M over PowerSGD's bytes per step."""
    spec, tensors = method_of({"kind": "powersgd", "lr": 0.01, "rank": rank}), MODELS["olmo-300m"].tensors
    return 4 * sum(tensor.elements for tensor in tensors) / mean_bytes_per_step(spec.exchanges(tensors, 8))


def memory_gb() -> dict[str, float]:
    """Return the GB of weights, gradients, states and buffers of the 160M shape in fp32 on 8 workers, by method."""
    tensors = MODELS["gpt-160m"].tensors
    memories = {"demo": memory_of(method_of("demo"), tensors, 8), "adamw": memory_of(method_of("ddp-adam"), tensors, 8)}
    return {name: float(memory.total_bytes) / 1e9 for name, memory in memories.items()}


def matrix_numbers(chunk: int, width: int) -> float:
    """Return the entries of a transform matrix of the whole width over those of a chunk's matrix."""
    return dct_matrix(width).numel() / dct_matrix(chunk).numel()


def transform_work(chunk: int, width: int) -> float:
    """Return the multiplications to transform a square matrix as a whole over those in chunks."""
    unchunked, chunked = 2 * width**3, (width // chunk) ** 2 * 2 * chunk**3
    return unchunked / chunked


# Lemma 8.1 and Remark 4.


def _missed(x: np.ndarray, k: int) -> np.ndarray:
    """Return the share of each row's norm that its k largest entries miss."""
    squares = np.sort(x**2, axis=-1)
    return np.sqrt(squares[..., :-k].sum(-1) / squares.sum(-1))


def worst_over_bound(dimension: int = 64, draws: int = 200) -> float:
    """Return the largest missed share over the bound, over all k and Gaussian and heavy-tailed random vectors."""
    rng = np.random.default_rng(seed64(0, "top-k bound"))
    vectors = np.concatenate([rng.normal(size=(draws, dimension)), rng.standard_cauchy(size=(draws, dimension))])
    return max(float((_missed(vectors, k) / top_k_error_bound(k, dimension)).max()) for k in range(1, dimension))


def equal_magnitudes_over_bound(dimension: int = 64) -> float:
    """Return the largest relative difference of the missed share from the bound, over all k.

    The vector has entries of plus and minus one, for which the missed share equals the bound.
    """
    rng = np.random.default_rng(seed64(0, "top-k bound"))
    vector = rng.choice([-1.0, 1.0], size=dimension)
    ratios = [_missed(vector, k) / top_k_error_bound(k, dimension) for k in range(1, dimension)]
    return float(np.abs(np.array(ratios) - 1).max())


def isometry_error(basis: str, size: int = 64) -> float:
    """Return the largest difference of a basis matrix times its transpose from the identity."""
    matrix = dct_matrix(size) if basis == "dct" else random_matrix(size, 0)
    return float((matrix @ matrix.T - torch.eye(size, dtype=matrix.dtype)).abs().max())


# The small network on digits: four workers, three seeds, 128 steps.


@cache
def _momentum() -> np.ndarray:
    method, _ = _trained(lambda params, **world: DDP(params, 0.05, sgdm(0.9), **world))
    momentum = method.state[method.param_groups[0]["params"][0]]["momentum_1"][0].double()
    return np.asarray(momentum)


def missed_norms(k: int) -> dict[str, float]:
    """Return the share of the first layer's momentum that its k largest coefficients miss, by basis."""
    matrices = {"dct": np.asarray(dct_matrix(64)), "random": np.asarray(random_matrix(64, 0)), "identity": np.eye(64)}
    return {name: float(_missed((m @ _momentum() @ m.T).ravel(), k)) for name, m in matrices.items()}


@cache
def _loss(base: str, rate: float, k: int, alpha: float, basis: str, beta: float) -> float:
    reducer = CoefficientMean(k=k, beta=beta, alpha=alpha, basis=basis)  # type: ignore[arg-type]
    rule = demo_rule(base)  # type: ignore[arg-type]
    _, losses = _trained(lambda params, **world: Method(params, rate, rule, EveryStep(), reducer=reducer, **world))
    return median_loss(losses)


def _trained(make, seeds=(0, 1, 2)):
    comm = SimulatedCommunicator(4, replicas=len(seeds))
    task = Digits().build(rows_of(comm, seeds))
    method = make(task.params.values(), comm=comm, worker_axis=True)
    return method, train(task, method, seeds, 128).evaluation["loss"][-1]


RATES = {"sgd": (0.2, 0.4, 0.8), "signum": (0.01, 0.03, 0.1)}


def digits_loss(base: str, k: int, alpha: float, basis: str, beta: float = 0.9) -> float:
    """Return the median final loss of three seeds at the best of three learning rates."""
    return min(_loss(base, rate, k, alpha, basis, beta) for rate in RATES[base])


def losses_by_alpha(base: str, basis: str) -> dict[str, float]:
    """Return the losses of `digits_loss` at k 4 by alpha, the share of sent values that leaves the momentum."""
    return {f"{alpha:g}": digits_loss(base, 4, alpha, basis) for alpha in (1.0, 0.2, 0.0)}


def losses_by_basis(base: str, k: int) -> dict[str, float]:
    """Return the losses of `digits_loss` with alpha 1, by basis."""
    return {basis: digits_loss(base, k, 1.0, basis) for basis in ("dct", "random", "identity")}


def losses_by_k(base: str, basis: str) -> dict[str, float]:
    """Return the losses of `digits_loss` with alpha 1, by k."""
    return {f"k {k}": digits_loss(base, k, 1.0, basis) for k in (1, 4, 16)}


def losses_by_beta() -> dict[str, float]:
    """Return the losses of `digits_loss` for Signum at k 4, by the decay of the momentum."""
    return {f"{beta:g}": digits_loss("signum", 4, 1.0, "dct", beta) for beta in (0.9, 0.99, 0.999)}


def hybrid_step_times() -> dict[str, float]:
    """Return the seconds per step of gpt-160m on two sites of eight workers, by method.

    The methods are data parallelism, DeMo among all workers, and DeMo between the sites.
    """
    methods = {"ddp": "ddp-adam", "demo": "demo", "hybrid": {"kind": "demo", "per_node": 8, "lr": 0.001}}
    fields = {
        "model": "gpt-160m", "tokens_per_worker": 32768, "workers": 16, "networks": ["two-sites"],
        "compute": {"hardware": "h100", "mfu": 0.4},
    }  # fmt: skip
    spec = {"kind": "project", "name": "hybrid", **fields, "methods": [*methods.values()]}
    rows = project(ProjectSpec.model_validate(spec))
    return {name: float(row["step_time_s"]) for name, row in zip(methods, rows, strict=True)}
