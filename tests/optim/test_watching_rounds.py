"""Measures of rounds against MT-DAO's closed forms, and against a loop over the workers."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from replication.theory import momentum_information_nats, momentum_noise_variance
from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import method_of
from syncline.optim.measures import MEASURES, Rounds, Watch
from syncline.problems import Digits
from syncline.runs.run import run
from syncline.specs import RunSpec, validate
from syncline.specs.experiment import WatchSpec
from syncline.training import parameter_groups, rows_of, train

EMA = {"kind": "local", "lr": 0.5, "rule": {"kind": "sgdm", "momentum": 0.9, "form": "ema"}}


def watched(fields: dict[str, Any], gradients: torch.Tensor, replicas: int = 1) -> dict[str, list[list[float]]]:
    """What a method's rounds are on gradients ``(T, R, d)`` that are given: by measure, round and replica."""
    comm = SimulatedCommunicator(gradients.shape[1] // replicas, replicas)
    x = torch.nn.Parameter(torch.ones(gradients.shape[1:], dtype=gradients.dtype))
    method, watch = method_of(fields).build([x], comm), Watch([Rounds()])
    method.on_average = watch.before_average
    for t, given in enumerate(gradients):
        x.grad = given.clone()
        watch.before_step(method, t)
        method.step()
        watch.after_step(method, t)
    found: dict[str, dict[int, list[float]]] = {}
    for one in watch.values(range(replicas)):
        found.setdefault(one.measure, {}).setdefault(one.step, []).append(one.value)
    return {measure: list(steps.values()) for measure, steps in found.items()}


@pytest.mark.parametrize(("beta", "period"), [(0.9, 4), (0.95, 16), (0.5, 3)])
def test_noise_and_information_are_those_of_gaussian_momenta(beta: float, period: int) -> None:
    """Independent gradients on 200,000 coordinates: a few thousandths of either closed form."""
    workers, sigma, rounds = 4, 3.0, 3
    drawn = torch.Generator().manual_seed(1)
    gradients = sigma * torch.randn(rounds * period, workers, 200_000, generator=drawn, dtype=torch.float64)
    fields = EMA | {"period": period, "rule": EMA["rule"] | {"momentum": beta}}
    found = watched(fields, gradients)
    noise = float(momentum_noise_variance(beta, period, sigma**2))
    spread = np.array(found["momentum_variance"])[:, 0] / 200_000
    np.testing.assert_allclose(
        spread, noise * (1 - 1 / workers), rtol=0.02
    )  # about a mean of four, not about the truth
    signal = [0.0]  # of the common momentum: what remains, and a quarter of the noise
    for _ in range(rounds):
        signal.append(beta ** (2 * period) * signal[-1] + noise / workers)
    expected = [float(momentum_information_nats(beta, period, one, noise)) for one in signal[1:rounds]]
    measured = np.array(found["momentum_information_nats"])[:, 0]
    np.testing.assert_allclose(measured, expected, rtol=0.05, atol=2e-5)


@pytest.mark.parametrize("outer", [False, True])
def test_rounds_are_those_of_a_loop_over_the_workers(outer: bool) -> None:
    """Two seeds side by side, with Nesterov's outer momentum or without."""
    gradients = torch.randn(6, 6, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    fields = EMA | {"period": 3} | ({"kind": "diloco", "outer_lr": 0.7, "outer_momentum": 0.5} if outer else {})
    found = watched(fields, gradients, replicas=2)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    for seed in range(2):
        x, u, anchor, b = np.ones((3, 5)), np.zeros((3, 5)), np.ones(5), np.zeros(5)
        for turn in range(2):
            x0, u0 = x.copy(), u.copy()
            for t in range(3 * turn, 3 * turn + 3):
                u = 0.9 * u + 0.1 * gradients[t].numpy()[3 * seed : 3 * seed + 3]
                x = x - 0.5 * u
            delta, pairs = x0 - x, {}
            b = 0.5 * b + delta.mean(0)
            shared = b if outer else u.mean(0)
            pairs["parameter_change"] = [np.linalg.norm(d) / np.linalg.norm(s) for d, s in zip(delta, x0, strict=True)]
            pairs["parameter_variance"] = [((one - x.mean(0)) ** 2).sum() for one in x]
            pairs["momentum_variance"] = [((one - u.mean(0)) ** 2).sum() for one in u]
            pairs["momentum_norm"] = [float(np.linalg.norm(u.mean(0)))]
            pairs["local_update_global_momentum"] = [cosine(one, shared) for one in delta]
            pairs["local_update_local_momentum"] = [cosine(d, v) for d, v in zip(delta, u, strict=True)]
            pairs["local_update_global_update"] = [cosine(one, delta.mean(0)) for one in delta]
            pairs["global_update_global_momentum"] = [cosine(delta.mean(0), shared)]
            pairs["local_momentum_global_momentum"] = [cosine(one, shared) for one in u]
            for measure, values in pairs.items():
                assert found[measure][turn][seed] == pytest.approx(np.mean(values), rel=1e-9), measure
            if turn:
                changes = [np.linalg.norm(v - w) / np.linalg.norm(w) for v, w in zip(u, u0, strict=True)]
                assert found["momentum_change"][0][seed] == pytest.approx(np.mean(changes), rel=1e-9)
            if outer:
                anchor = anchor - 0.7 * (delta.mean(0) + 0.5 * b)
                x = np.tile(anchor, (3, 1))
            else:
                x, u = np.tile(x.mean(0), (3, 1)), np.tile(u.mean(0), (3, 1))


def test_watching_moves_nothing() -> None:
    def trained(watch: Watch | None) -> tuple[Any, list[Any]]:
        comm = SimulatedCommunicator(3)
        task = Digits(hidden=6, batch_size=4).build(rows_of(comm, (1,)))
        method = method_of({"kind": "mt-dao", "lr": 0.01, "period": 4}).build(parameter_groups(task), comm)
        history = train(task, method, (1,), 12, watch=watch)
        return history, [p.detach().clone() for p in task.params.values()]

    (seen, there), (unseen, here) = trained(Watch([Rounds()])), trained(None)
    assert all(torch.equal(x, y) for x, y in zip(there, here, strict=True)) and unseen.watched == []
    assert {one.step for one in seen.watched} == {4, 8, 12} and {one.seed for one in seen.watched} == {1}


def test_a_run_keeps_what_was_measured(tmp_path: Any) -> None:
    fields = {
        "kind": "run", "name": "it", "problem": {"kind": "quadratic", "spectrum": [1.0, 0.1]}, "workers": 2,
        "steps": 8, "seeds": [3, 4], "method": {"kind": "local", "period": 4, "lr": 0.01}, "network": "10gbe",
        "compute": {"seconds": 0.001}, "watch": {"measures": ["rounds"]},
    }  # fmt: skip
    run(validate(RunSpec, fields), tmp_path / "out", exact=True, figures=False)
    rows = pq.read_table(tmp_path / "out" / "watched.parquet").to_pylist()
    assert set(rows[0]) == {"method", "seed", "step", "measure", "layer", "value"}
    assert {(row["seed"], row["step"]) for row in rows} == {(s, t) for s in (3, 4) for t in (4, 8)}
    asynchronous = {"kind": "ddp", "lr": 0.01, "asynchronous": {}}
    with pytest.raises(SpecError, match=r"^watch.measures: got .* expected none with"):
        validate(RunSpec, fields | {"method": asynchronous})


def test_specs_know_the_measures_that_there_are() -> None:
    (names,) = {get_args(one) for one in get_args(WatchSpec.model_fields["measures"].annotation) if get_args(one)}
    assert set(names) == set(MEASURES)
