"""Lion, Lion Cub and signSGD against literal derivations and in their limits."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import TensorShape
from syncline.costmodel.compute.tensors import chosen_layers
from syncline.errors import SpecError
from syncline.methods import DDP, LionCub, Local, SignSGD, method_of
from syncline.optim import (
    DirectVote,
    EveryStep,
    MeanGradient,
    Method,
    MomentumRule,
    OneBitVote,
    QuantisedVote,
    ServerVote,
    Signed,
    lion,
    sgdm,
)
from tests.optim.given import assert_same, gaussian, gradients, lion_cub, run

LR, BETA1, BETA2 = 0.1, 0.9, 0.99
cub = partial(lion_cub, lr=LR, beta1=BETA1, beta2=BETA2)


def literal_lion(grads: list[np.ndarray], weight_decay: float = 0.0) -> list[np.ndarray]:
    x = m = np.zeros_like(grads[0])
    path = []
    for g in grads:
        c = BETA1 * m + (1 - BETA1) * g
        x = x - LR * (np.sign(c) + weight_decay * x)
        m = BETA2 * m + (1 - BETA2) * g
        path.append(x)
    return path


def test_lion_from_its_formula() -> None:
    given = gradients(8, 3, (4, 5), ())
    got = run(partial(DDP, lr=LR, rule=lion(BETA1, BETA2), weight_decay=0.5), given)
    for i in range(2):
        expected = literal_lion([step[i].mean(0).numpy() for step in given], 0.5)
        for positions, x in zip(got.path, expected, strict=True):
            np.testing.assert_allclose(positions[i][0].numpy(), x, rtol=1e-12)


def test_lion_s_update_by_hand() -> None:
    """Gradients 1, then -3: ``c = .1``, ``m = .01``, then ``c = .009 - .3 < 0``; a zero gradient does not move."""
    given = [[torch.tensor([[1.0, 0.0]]).double()], [torch.tensor([[-3.0, 0.0]]).double()]]
    got = run(partial(DDP, lr=LR, rule=lion(BETA1, BETA2)), given)
    assert [x[0].tolist() for x in got.path] == [[[-LR, 0.0]], [[0.0, 0.0]]]
    torch.testing.assert_close(got.state(0, "momentum_1"), torch.tensor([[0.0099 - 0.03, 0.0]]).double())


def test_lion_is_the_sign_of_a_quasi_hyperbolic_momentum() -> None:
    quasi_hyperbolic = MomentumRule((BETA2,), (BETA1 / BETA2,), Signed())
    given = gradients(12, 2, (6, 7))
    lions = run(partial(DDP, lr=LR, rule=lion(BETA1, BETA2)), given)
    assert_same(lions, run(partial(DDP, lr=LR, rule=quasi_hyperbolic), given))


@pytest.mark.parametrize("vote", [OneBitVote("zero"), DirectVote("zero"), ServerVote("naive"), OneBitVote("plus")])
def test_one_worker_s_vote_is_lion(vote: OneBitVote) -> None:
    given = gradients(8, 1, (4, 5), (3,))
    assert_same(run(partial(cub, vote=vote), given), run(partial(DDP, lr=LR, rule=lion(BETA1, BETA2)), given))


def test_one_worker_s_quantised_vote_is_lion_but_for_what_it_rounds_to_zero() -> None:
    given = gradients(1, 1, (50, 40))
    quantised, serial = (
        run(method, given).path[0][0]
        for method in (partial(cub, vote=QuantisedVote(8)), partial(DDP, lr=LR, rule=lion(BETA1, BETA2)))
    )
    g = given[0][0]
    abstains = g.abs() < 0.5 * 2 * g.abs().mean() / 127
    assert torch.equal(quantised, torch.where(abstains, 0.0, serial)) and abstains.any()


def test_averaging_momenta_in_every_step_is_lion_on_the_mean_gradient_if_the_directions_are_averaged() -> None:
    """Lion's mixture is linear: the mean of the workers' c is the c of the mean gradient."""

    class SignOfMean(MeanGradient):
        def reduce(self, rows, comm, wire, t):
            return [mean.sign() for mean in super().reduce(rows, comm, wire, t)]

    given = gradients(8, 4, (5, 6))
    averaged = run(partial(cub, vote=SignOfMean(), momentum_layers="all", momentum_period=1), given)
    assert_same(averaged, run(partial(DDP, lr=LR, rule=lion(BETA1, BETA2)), given))


def test_equal_rates_are_signum() -> None:
    """``beta1 = beta2``: the new momentum itself is what a worker votes on."""
    given = gradients(10, 5, (4, 3))
    got = run(partial(cub, beta1=0.9, beta2=0.9, vote=OneBitVote()), given)
    assert_same(got, run(partial(SignSGD, lr=LR, momentum=0.9), given))
    alone = [[step[0][:1]] for step in given]
    signum = MomentumRule((0.9,), (1.0,), Signed())
    assert_same(run(partial(SignSGD, lr=LR, momentum=0.9), alone), run(partial(Local, lr=LR, rule=signum), alone))


def test_sign_sgd_is_data_parallel_sgd_on_voted_gradients() -> None:
    given = gradients(6, 5, (4, 3))
    voted = run(partial(Method, lr=LR, rule=sgdm(), sync=EveryStep(), reducer=OneBitVote()), given)
    assert_same(run(partial(SignSGD, lr=LR), given), voted, exact=True)


def test_only_the_momenta_of_chosen_layers_are_averaged_and_only_when_due() -> None:
    names = ("embedding", "0.up", "0.down", "head")
    given = gradients(5, 3, *[(2, 3)] * 4)
    for layers, chosen in [
        ("all", names), ("none", ()), ("first-and-last", ("embedding", "head")), (("0.*",), ("0.up", "0.down"))
    ]:  # fmt: skip
        params = [torch.nn.Parameter(torch.zeros(3, 2, 3).double()) for _ in names]
        comm = SimulatedCommunicator(3)
        method = cub(
            list(zip(names, params, strict=True)),
            momentum_layers=layers,
            momentum_period=5,
            comm=comm,
            worker_axis=True,
        )
        for t, step in enumerate(given):
            for p, g in zip(params, step, strict=True):
                p.grad = g.clone()
            method.step()
            for name, p in zip(names, params, strict=True):
                momentum = method.state[p]["momentum_1"]
                assert torch.equal(momentum, momentum[:1].expand_as(momentum)) == (t == 4 and name in chosen)
        spec = method_of({"kind": "lion-cub", "lr": LR, "momentum_layers": layers, "momentum_period": 5})
        exchanges = spec.exchanges([TensorShape(name, (2, 3)) for name in names], 3)
        sent = [r.payload_bytes for r in comm.ledger.records if r.label == "momentum_1"]
        assert sent == [2 * e.payload_bytes for e in exchanges if e.label == "momentum_1"]  # float64 here
        assert sent == ([8 * 6 * len(chosen)] if chosen else [])


@pytest.mark.parametrize(("steps", "plus", "alternate"), [(20, -20 * LR, 0.0), (21, -21 * LR, -LR)])
def test_dead_coordinates_drift_with_plus_and_not_with_alternate(steps: int, plus: float, alternate: float) -> None:
    """Always plus moves a coordinate without gradient by ``lr T``; a third value not at all."""
    given = gradients(steps, 4, (6,))
    for (g,) in given:
        g[:, 2] = 0
    for votes in (OneBitVote, DirectVote, partial(ServerVote, "efficient")):
        for ties, drift in [("plus", plus), ("alternate", alternate), ("zero", 0.0)]:
            got = run(partial(cub, vote=votes(ties=ties)), given)
            torch.testing.assert_close(
                got.path[-1][0][:, 2], torch.full((4,), drift, dtype=torch.float64), atol=1e-12, rtol=0
            )
    for vote in (QuantisedVote(8), QuantisedVote(8, float("inf"), stochastic=True), ServerVote("naive")):
        assert not run(partial(cub, vote=vote), given).path[-1][0][:, 2].any()


def test_refusals() -> None:
    x = [torch.nn.Parameter(torch.zeros(2))]
    for bad, path in [
        ({"beta1": 1.0}, "beta1"),
        ({"beta2": -0.1}, "beta2"),
        ({"momentum_layers": "first-and-last"}, "momentum_layers"),
        ({"momentum_layers": "all", "momentum_period": 0}, "momentum_period"),
    ]:
        with pytest.raises(SpecError, match=f"^{path}: "):
            LionCub(x, LR, **bad)
    with pytest.raises(SpecError, match=r"^momentum_layers: got 'some'"):
        chosen_layers(["x"], "some")
    with pytest.raises(SpecError, match=r"^momentum_layers: got 'head\*'; expected a pattern .* like 'x'"):
        LionCub([("x", x[0])], LR, momentum_layers=("head*",))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"vote": "one-bit", "bits": 8}, "bits"),
        ({"vote": "direct", "p": 1}, "p"),
        ({"ties": "plus"}, "ties"),
        ({"stochastic": True}, "stochastic"),
        ({"wire": "bf16"}, "wire"),
        ({"kind": "sign-sgd", "wire": "bf16"}, "wire"),
        ({"kind": "sign-sgd", "clip_norm": 1.0}, "clip_norm"),
    ],
)
def test_a_knob_that_would_change_nothing_is_refused(fields: dict, path: str) -> None:
    with pytest.raises(SpecError, match=r"none|false|dense") as error:
        method_of({"kind": "lion-cub", "lr": LR, **fields})
    assert error.value.path == path


@pytest.mark.parametrize(
    ("fields", "bits"),
    [
        ({"vote": "one-bit"}, 1 + 1 / 8),
        ({"vote": "one-bit", "ties": "zero"}, 2 + 2 / 8),
        ({"vote": "direct"}, 4),
        ({"vote": "direct", "ties": "zero"}, 32 / 6),
        ({"vote": "server-naive"}, 64),
        ({"vote": "server-efficient"}, 2),
        ({}, 8),
        ({"bits": 5}, 32 / 6),
    ],
)
def test_bits_per_parameter_of_eight_workers(fields: dict, bits: float) -> None:
    spec, count = method_of({"kind": "lion-cub", "lr": LR, **fields}), 960_000
    assert 8 * sum(e.payload_bytes for e in spec.exchanges(count, 8)) == bits * count
    terms = [float(term.removesuffix(" N")) for term in spec.traffic_formula(8).split(" + ")]
    assert 8 * sum(terms) == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize(("bits", "workers", "enough"), [(4, 8, 5), (8, 128, 9), (1, 1, 2)])
def test_a_width_without_room_for_all_workers_names_one_that_would_do(bits: int, workers: int, enough: int) -> None:
    spec = method_of({"kind": "lion-cub", "lr": LR, "bits": bits})
    with pytest.raises(SpecError, match=f"^bits: got {bits}; expected at least {enough} "):
        spec.exchanges(10, workers)
    x = torch.nn.Parameter(torch.zeros(workers, 3))
    method = spec.build([x], SimulatedCommunicator(workers))
    x.grad = torch.ones_like(x)
    with pytest.raises(SpecError, match=f"^bits: got {bits}; expected at least {enough} "):
        method.step()
    assert method_of({"kind": "lion-cub", "lr": LR, "bits": enough}).exchanges(10, workers)


def test_lion_as_the_other_rule_of_muon_and_dion_keeps_one_number_per_parameter() -> None:
    tensors = [TensorShape("w", (6, 4), is_matrix=True), TensorShape("b", (5,))]
    for fields in (
        {"kind": "ddp", "rule": {"kind": "muon", "other_rule": "lion"}},
        {"kind": "dion", "other_rule": "lion"},
    ):
        spec = method_of({**fields, "lr": LR})
        params = [torch.nn.Parameter(torch.zeros(1, *t.shape)) for t in tensors]
        method: Method = spec.build(params, SimulatedCommunicator(1))
        for p in params:
            p.grad = gaussian(*p.shape).float()
        method.step()
        assert sum(s.numel() for state in method.state.values() for s in state.values()) == spec.kept_elements(
            tensors, 1
        )
        torch.testing.assert_close(params[1], -LR * params[1].grad.sign())
