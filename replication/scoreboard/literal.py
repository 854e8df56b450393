"""Algorithms written in NumPy as papers print them, with loops over workers, and their distance from Syncline's.

Three workers train a matrix of 8 by 12 in double precision, on gradients drawn beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.seeds import seed64

WORKERS, SHAPE, STEPS, RATE = 3, (8, 12), 12, 0.02

PrintedStep = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""A function of the step t, parameters x and gradients g, both ``(workers, 8, 12)``, that returns the next x."""


def literal_distance(algorithm: str, *knobs: Any) -> float:
    """Return the largest difference of Syncline's parameters from the printed algorithm's, over steps and workers."""
    return distance(*ALGORITHMS[algorithm](*knobs))


def distance(spec: dict[str, Any], step: PrintedStep) -> float:
    """Return the largest parameter difference of the method built from ``spec`` from the printed ``step``.

    The maximum is over all steps and workers.
    """
    start = _drawn(-1)[:1].repeat(WORKERS, axis=0)
    x, furthest = start.copy(), 0.0
    param = torch.nn.Parameter(torch.from_numpy(start.copy()))
    method = method_of(spec).build([param], SimulatedCommunicator(WORKERS), True)
    for t in range(STEPS):
        g = _drawn(t)
        param.grad = torch.from_numpy(g.copy())
        method.step()
        x = step(t, x, g)
        furthest = max(furthest, float(np.abs(param.detach().numpy() - x).max()))
    return furthest


def _drawn(t: int) -> np.ndarray:
    return np.random.default_rng(seed64(0, "literal algorithms", t)).normal(size=(WORKERS, *SHAPE))


def _mean(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x.mean(0, keepdims=True), x.shape).copy()


# MT-DAO, Algorithms 1 to 3, in the form of 2 and 3.


def _mt_dao(base: str = "adam") -> tuple[dict[str, Any], PrintedStep]:
    betas, omegas, periods, k_x, k_v = (0.9, 0.99), (0.3, 0.5), (4, 5), 3, 7
    beta2, eps = {"adam": (0.95, 1e-8), "adopt": (0.95, 1e-6), "sgdm": (0.0, 0.0)}[base]
    spec = {
        "kind": "mt-dao", "base": base, "lr": RATE, "betas": betas, "omegas": omegas, "period": k_x,
        "momentum_periods": periods, "bias_correction": False, "phase": "paper",
    }  # fmt: skip
    if base != "sgdm":
        spec |= {"beta2": beta2, "eps": eps, "second_moment_period": k_v}
    u, v = [np.zeros((WORKERS, *SHAPE)) for _ in betas], np.zeros((WORKERS, *SHAPE))

    def step(t: int, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal v
        if base == "adam":
            v = beta2 * v + (1 - beta2) * g**2
        if base == "adopt":  # divides by the second moment before this gradient; the first step only initialises it
            old_v, v = v, (beta2 * v + (1 - beta2) * g**2 if t else g**2)
            scaled = np.clip(g / np.maximum(np.sqrt(old_v), eps), -(t**0.25), t**0.25) if t else np.zeros_like(g)
        else:
            scaled = g
        mixture = (1 - sum(omegas)) * scaled
        for j, (beta, omega) in enumerate(zip(betas, omegas, strict=True)):
            u[j] = beta * u[j] + (1 - beta) * scaled if base != "adopt" or t else u[j]
            mixture = mixture + omega * u[j]
        x = x - RATE * (mixture / (np.sqrt(v) + eps) if base == "adam" else mixture)
        for j, k in enumerate(periods):
            u[j] = _mean(u[j]) if t % k == 0 else u[j]
        v = _mean(v) if t % k_v == 0 else v
        return _mean(x) if (t + 1) % k_x == 0 else x

    return spec, step


def spread_as_printed() -> float:
    """Return the spread of parameters between workers at a step that averages in Algorithm 1 as printed.

    The printed algorithm assigns the averages but does not read them.
    """
    beta, omega, beta2, eps, k = 0.9, 0.95, 0.95, 1e-8, 4
    x, u, v = np.zeros((WORKERS, *SHAPE)), np.zeros((WORKERS, *SHAPE)), np.zeros((WORKERS, *SHAPE))
    for t in range(k):
        g = _drawn(t)
        u, v = beta * u + (1 - beta) * g, beta2 * v + (1 - beta2) * g**2
        _averages = _mean(x), _mean(u), _mean(v)  # assigned, as the algorithm has it
        x = x - RATE * ((1 - omega) * g + omega * u) / (np.sqrt(v) + eps)
    return float(np.ptp(x, axis=0).max())


def _local_adam() -> tuple[dict[str, Any], PrintedStep]:
    beta1, beta2, eps, k = 0.9, 0.99, 1e-8, 4
    spec = {
        "kind": "local", "lr": RATE, "period": k,
        "rule": {"kind": "adam", "beta1": beta1, "beta2": beta2, "eps": eps},
    }  # fmt: skip
    m, v = np.zeros((WORKERS, *SHAPE)), np.zeros((WORKERS, *SHAPE))

    def step(t: int, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m, v
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        x = x - RATE * m / (1 - beta1 ** (t + 1)) / (np.sqrt(v / (1 - beta2 ** (t + 1))) + eps)
        if (t + 1) % k == 0:
            x, m, v = _mean(x), _mean(m), _mean(v)
        return x

    return spec, step


def _diloco() -> tuple[dict[str, Any], PrintedStep]:
    rate, momentum, k = 0.7, 0.9, 4
    outer = {"outer_lr": rate, "outer_momentum": momentum}
    spec = {"kind": "diloco", "lr": RATE, "period": k, "rule": {"kind": "sgdm", "momentum": 0.0}, **outer}
    anchor, velocity = _drawn(-1)[:1].repeat(WORKERS, axis=0), np.zeros((WORKERS, *SHAPE))

    def step(t: int, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal anchor, velocity
        x = x - RATE * g
        if (t + 1) % k == 0:
            gradient = anchor - _mean(x)
            velocity = momentum * velocity + gradient
            anchor = anchor - rate * (gradient + momentum * velocity)
            x = anchor
        return x

    return spec, step


# DeMo, Algorithm 4, for one matrix in blocks of 4 by 4.


def _demo(base: str, basis: str, average: str, alpha: float) -> tuple[dict[str, Any], PrintedStep]:
    k, chunk, beta = 3, 4, 0.9
    spec = {"kind": "demo", "lr": RATE, "base": base, "k": k, "chunk": chunk, "beta": beta, "alpha": alpha,
            "basis": basis, "average": average}  # fmt: skip
    c = np.array([[math.cos(math.pi * (j + 0.5) * i / chunk) for j in range(chunk)] for i in range(chunk)])
    c *= np.sqrt(np.where(np.arange(chunk) == 0, 1, 2) / chunk)[:, None]
    matrix = c if basis == "dct" else np.eye(chunk)
    momenta = np.zeros((WORKERS, *SHAPE))

    def step(t: int, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        momenta[:] = beta * momenta + g
        q = np.zeros(SHAPE)
        for block in _blocks(chunk):
            total, senders = np.zeros((chunk, chunk)), np.zeros((chunk, chunk))
            for momentum in momenta:
                coefficients = matrix @ momentum[block] @ matrix.T
                mask = np.abs(coefficients) >= np.sort(np.abs(coefficients), axis=None)[-k]
                sent = np.where(mask, coefficients, 0).astype(np.float32)  # values travel in fp32
                momentum[block] -= alpha * (matrix.T @ sent @ matrix)
                total, senders = total + sent, senders + mask
            q[block] = matrix.T @ (total / (np.maximum(senders, 1) if average == "senders" else WORKERS)) @ matrix
        return x - RATE * (np.sign(q) if base == "signum" else q)

    return spec, step


def _blocks(chunk: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, SHAPE[0], chunk):
        for j in range(0, SHAPE[1], chunk):
            yield slice(i, i + chunk), slice(j, j + chunk)


# Lion Cub: Lion and the votes on its update.


def _lion(kind: str) -> tuple[dict[str, Any], PrintedStep]:
    beta1, beta2 = 0.9, 0.99
    specs = {
        "lion": {"kind": "ddp", "lr": RATE, "rule": {"kind": "lion", "beta1": beta1, "beta2": beta2}},
        "server": {"kind": "lion-cub", "lr": RATE, "vote": "server-efficient"},
        "direct": {"kind": "lion-cub", "lr": RATE, "vote": "direct"},
        "one-bit": {"kind": "lion-cub", "lr": RATE, "vote": "one-bit"},
        "sign-sgd": {"kind": "sign-sgd", "lr": RATE},
    }
    m = np.zeros((WORKERS, *SHAPE))

    def step(t: int, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        nonlocal m
        g = _mean(g) if kind == "lion" else g
        update = beta1 * m + (1 - beta1) * g if kind != "sign-sgd" else g
        m = beta2 * m + (1 - beta2) * g
        return x - RATE * (np.sign(update) if kind == "lion" else np.sign(np.sign(update).sum(0, keepdims=True)))

    return specs[kind], step


ALGORITHMS: dict[str, Callable[..., tuple[dict[str, Any], PrintedStep]]] = {
    "mt-dao": _mt_dao, "local-adam": _local_adam, "diloco": _diloco, "demo": _demo, "lion": _lion,
}  # fmt: skip
