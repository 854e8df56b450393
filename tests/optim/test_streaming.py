"""Streaming against a literal derivation, against the methods that it is in its limits, and across a restart."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from functools import partial

import pytest
import torch

from syncline.comm import E3M0
from syncline.errors import SpecError
from syncline.methods import MTDAO, DiLoCo, Local, StreamingDiLoCo, StreamingMTDAO, method_of
from syncline.optim import Streaming, adam, muon, sgdm
from tests.optim.given import Given, assert_same, gaussian, gradients, run

M, LR = 3, 0.1
SHAPES = ((6, 4), (5,), (3, 3), (7,))


def stream(fragments: int = 1, tau: int = 0, alpha: float = 0.0) -> dict[str, float]:
    return {"fragments": fragments, "tau": tau, "alpha": alpha}


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("tau", [0, 1, 3])
def test_streaming_from_its_formula(tau: int, alpha: float) -> None:
    """Two fragments of one parameter each: the second is sent half a period later, both are merged tau steps later."""
    period, given = 4, gradients(14, M, (3,), (3,))
    build = partial(Streaming, lr=LR, rule=sgdm(), periods={"params": period}, fragments=2, tau=tau, alpha=alpha)
    got = run(build, given)
    x = [torch.zeros(M, 3).double() for _ in range(2)]
    flying: dict[tuple[int, int], torch.Tensor] = {}
    for t, step in enumerate(given):
        for f, sent_after in enumerate((3, 1)):
            x[f] = x[f] - LR * step[f]
            if t % period == sent_after:
                flying[f, t + tau] = x[f].mean(0)
            if (f, t) in flying:
                x[f] = alpha * x[f] + (1 - alpha) * flying.pop((f, t))
            torch.testing.assert_close(got.path[t][f], x[f])
    assert [r.step for r in got.records] == [t for t in range(14) if t % 4 in (1, 3)]


@pytest.mark.parametrize("tau", [0, 2])
def test_streaming_diloco_from_its_formula(tau: int) -> None:
    """The pseudo-gradient is of when it was sent; the outer step is on the start of the round."""
    period, alpha, lr, mu, given = 5, 0.5, 0.4, 0.9, gradients(17, M, (4,))
    start = gaussian(4, seed=9)
    build = partial(StreamingDiLoCo, lr=LR, rule=sgdm(), period=period, stream=stream(tau=tau, alpha=alpha))
    got = run(build, given, [start])
    x, anchor, b, flying = start.expand(M, 4), start, torch.zeros(4).double(), {}
    for t, (g,) in enumerate(given):
        x = x - LR * g
        if (t + 1) % period == 0:
            flying[t + tau] = (anchor - x).mean(0)
        if t in flying:
            b = mu * b + flying[t]
            anchor = anchor - lr * (flying[t] + mu * b)
            x = alpha * x + (1 - alpha) * anchor
        torch.testing.assert_close(got.path[t][0], x)


def test_one_fragment_at_once_is_the_plain_method() -> None:
    """Bit for bit: the same sums in the same order."""
    given = gradients(13, M, *SHAPES)
    plain = {"stream": stream()}
    mt_dao = {"betas": (0.9, 0.99), "omegas": (0.3, 0.5), "period": 3, "momentum_periods": (4, 5)}
    assert_same(
        run(partial(StreamingMTDAO, lr=LR, **plain, **mt_dao), given),
        run(partial(MTDAO, lr=LR, **mt_dao), given),
        exact=True,
    )
    diloco = {"period": 4, "outer_lr": 0.7, "outer_momentum": 0.8}
    assert_same(
        run(partial(StreamingDiLoCo, lr=LR, **plain, **diloco), given),
        run(partial(DiLoCo, lr=LR, **diloco), given),
        exact=True,
    )
    periods = dict.fromkeys(("params", "momentum_1", "second_moment"), 4)
    for rule in (adam(), muon()):
        streamed = run(partial(Streaming, lr=LR, rule=rule, periods=periods), given)
        assert_same(streamed, run(partial(Local, lr=LR, rule=rule, period=4), given), exact=True)


@pytest.mark.parametrize("tau", [0, 3])
def test_four_bits_from_their_formula(tau: int) -> None:
    """Every worker's outer gradient arrives as the nearest number of four bits; the mean of them is not rounded."""
    period, alpha, lr, mu, given = 5, 0.5, 0.4, 0.9, gradients(17, M, (4,))
    start, code = gaussian(4, seed=9), E3M0()
    streaming = stream(tau=tau, alpha=alpha) | {"in_backward": True}
    build = partial(StreamingDiLoCo, lr=LR, rule=sgdm(), period=period, wire="e3m0", stream=streaming)
    got = run(build, given, [start])
    x, anchor, b, flying = start.expand(M, 4), start, torch.zeros(4).double(), {}
    for t, (g,) in enumerate(given):
        x = x - LR * g
        if (t + 1) % period == 0:
            flying[t + tau] = code.decode(code.encode(anchor - x), 4, x.dtype).mean(0)
        if t in flying:
            b = mu * b + flying[t]
            anchor = anchor - lr * (flying[t] + mu * b)
            x = alpha * x + (1 - alpha) * anchor
        torch.testing.assert_close(got.path[t][0], x)
    assert {(r.collective, r.payload_bytes, r.encoded_bytes) for r in got.records} == {("all_gather", 6, 16)}


def test_strided_fragments_travel_as_their_tensors_are_spread() -> None:
    """Four parameters in two fragments of two: the first and third are sent together, then the second and fourth."""
    given, shapes = gradients(8, M, (3,), (3,), (3,), (3,)), (3, 3, 3, 3)
    build = partial(Streaming, lr=LR, rule=sgdm(), periods={"params": 4}, fragments=2, strides=2, in_backward=True)
    got = run(build, given)
    assert [(r.step, r.spans) for r in got.records[:2]] == [
        (1, ((0.0, 0.25), (0.5, 0.75))),
        (3, ((0.25, 0.5), (0.75, 1.0))),
    ]
    agreed = [[bool((x == x[:1]).all()) for x in step] for step in got.path]
    assert agreed[1] == [False, True, False, True] and agreed[3] == [True, False, True, False]
    assert len(got.path[0]) == len(shapes)


def test_one_fragment_has_no_strides_and_a_lone_worker_no_network() -> None:
    given = gradients(13, M, *SHAPES)
    diloco = {"period": 4, "outer_lr": 0.7, "outer_momentum": 0.8}
    strided = stream() | {"strides": 3, "in_backward": True}
    assert_same(
        run(partial(StreamingDiLoCo, lr=LR, stream=strided, **diloco), given),
        run(partial(DiLoCo, lr=LR, **diloco), given),
        exact=True,
    )
    alone = gradients(13, 1, *SHAPES)
    late = stream(2, 0, 0.0)
    assert_same(
        run(partial(StreamingDiLoCo, lr=LR, stream=late, period=4, outer_lr=1.0, outer_momentum=0.0), alone),
        run(partial(Local, lr=LR, rule=adam(), period=100), alone),
    )


@pytest.mark.parametrize("fragments", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("base", ["adam", "muon"])
def test_a_period_sends_the_plain_methods_bytes(fragments: int, base: str) -> None:
    """More fragments than parameters leave some empty; nothing is sent for those."""
    given = gradients(24, M, *SHAPES)
    options = {"base": base, "period": 6, "second_moment_period": 12}
    plain = run(partial(MTDAO, lr=LR, **options), given)
    streamed = run(partial(StreamingMTDAO, lr=LR, stream=stream(fragments, 2, 0.5), **options), given)
    assert streamed.comm.ledger.payload_bytes() == plain.comm.ledger.payload_bytes()
    for first in (0, 12):  # the longest period
        sent = Counter(r.label for r in streamed.records if first <= r.step < first + 12)
        assert set(sent.values()) == {1, 2}
    if fragments > 1:
        assert max(r.payload_bytes for r in streamed.records) < max(r.payload_bytes for r in plain.records)


STREAMING = partial(
    StreamingMTDAO, lr=LR, betas=(0.99,), omegas=(0.9,), period=6, second_moment_period=8, stream=stream(3, 3, 0.4)
)
ROUNDS = partial(StreamingDiLoCo, lr=LR, period=5, stream=stream(2, 4, 0.5))


@pytest.mark.parametrize("build", [STREAMING, ROUNDS, partial(STREAMING, base="muon")])
def test_a_state_dict_continues_identically_whatever_is_in_flight(build: partial) -> None:
    given = gradients(22, M, *SHAPES)
    straight = run(build, given)
    in_flight = set()
    for stop in range(5, 14):
        first = Given(build, given).run(0, stop)
        in_flight.add(len(first.method._in_flight))
        second = Given(build, given, [x[:1] for x in straight.params])
        second.method.load_state_dict(copy.deepcopy(first.method.state_dict()))
        with torch.no_grad():
            for p, q in zip(second.params, first.params, strict=True):
                p.copy_(q)
        second.run(stop)
        third = Given(build, given, [p.detach()[:1] for p in first.params])
        third.params, third.method = pickle.loads(pickle.dumps((first.params, first.method)))
        third.run(stop)
        first.run(stop)  # looking changes nothing for who goes on
        for *copies, p in zip(second.params, third.params, first.params, straight.params, strict=True):
            assert all(torch.equal(copied, p) for copied in copies)
        assert second.records == [r for r in straight.records if r.step >= stop]
    assert max(in_flight) > 0


def test_an_optimizer_can_be_loaded_before_its_model() -> None:
    """A parameter that has had no gradient is at its period's start when the next step begins, not when this loads."""

    def build(value: float) -> tuple[list[torch.nn.Parameter], Streaming]:
        params = [torch.nn.Parameter(torch.full((n,), value)) for n in (3, 4)]
        return params, StreamingDiLoCo(params, lr=LR, period=4, stream=stream(2, 1, 0.0))

    params, method = build(1.0)
    params[0].grad = torch.ones(3)
    method.step()
    others, resumed = build(5.0)
    resumed.load_state_dict(copy.deepcopy(method.state_dict()))
    with torch.no_grad():
        for p, q in zip(others, params, strict=True):
            p.copy_(q)
    others[0].grad = torch.ones(3)
    for _ in range(8):
        method.step()
        resumed.step()
    assert torch.equal(others[0], params[0])
    assert torch.equal(others[1], params[1])
    assert torch.equal(params[1], torch.ones(4))


def test_what_has_landed_is_not_kept() -> None:
    """A copy of what was in flight lives as long as the flight, not in every state dict after it."""
    given = gradients(10, M, (4,))
    build = partial(Streaming, lr=LR, rule=sgdm(), periods={"params": 6}, tau=2)
    flying = Given(build, given).run(0, 6)
    assert "pending_params" in flying.method.state_dict()["state"][0]
    flying.run(6, 8)
    assert "pending_params" not in flying.method.state_dict()["state"][0]


def test_parameters_without_gradient_stay_and_do_not_move_the_cut() -> None:
    """A parameter that loses its gradient is averaged all the same; one without any never moves."""
    params = [torch.nn.Parameter(torch.ones(M, 4).double()) for _ in range(4)]
    build = partial(Streaming, lr=LR, rule=sgdm(), periods={"params": 4}, fragments=2, tau=2)
    method = Given(lambda _, **options: build(params, **options), [[torch.zeros(M, 1)]]).method
    for t in range(9):
        for number, p in enumerate(params):
            used = number != 0 and not (number == 1 and t > 3)
            p.grad = gaussian(M, 4, seed=10 * t + number) if used else None
        method.step()
        method.state_dict()
    assert torch.equal(params[0], torch.ones_like(params[0]))
    assert torch.equal(params[1], params[1][:1].expand_as(params[1]))
    sent = [(r.step, r.label, r.payload_bytes) for r in method.comm.ledger.records]
    assert sent == [
        (1, "params 2/2", 64), (3, "params 1/2", 64), (5, "params 2/2", 64), (7, "params 1/2", 64),
    ]  # fmt: skip


P = [torch.nn.Parameter(torch.zeros(1))]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StreamingDiLoCo(P, LR, stream=stream(0)), "stream.fragments: got 0; expected at least 1"),
        (
            lambda: StreamingDiLoCo(P, LR, period=4, stream=stream(tau=4)),
            "stream.tau: got 4; expected less than every.*most 3",
        ),
        (lambda: StreamingDiLoCo(P, LR, stream=stream(tau=-1)), "stream.tau: got -1"),
        (lambda: StreamingDiLoCo(P, LR, stream=stream(alpha=1.5)), "stream.alpha: got 1.5; expected .*1"),
        (lambda: StreamingDiLoCo(P, LR, stream={"strides": 0}), "stream.strides: got 0; expected at least 1"),
        (
            lambda: StreamingDiLoCo(P, LR, clip_norm=1.0, stream={"in_backward": True}),
            "clip_norm: got 1.0; expected none with stream.in_backward",
        ),
        (lambda: StreamingMTDAO(P, LR, wire="e3m0"), "wire: got 'e3m0'; expected"),
        (
            lambda: Streaming(P, LR, sgdm(), {"params": 3}, four_bits=True),
            "four_bits: got True; expected false without",
        ),
        (lambda: StreamingDiLoCo(P, LR, period=0), "period: got 0; expected at least 1"),
        (
            lambda: StreamingMTDAO(P, LR, period=8, momentum_periods=(2,), stream=stream(tau=3)),
            "tau: got 3; expected .*most 1",
        ),
        (lambda: Streaming(P, LR, sgdm(), {"velocity": 3}), "sync: got 'velocity'"),
    ],
)
def test_misuse_is_one_helpful_line(call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_switch_that_streaming_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError, match="switch_step"):
        method_of({"kind": "streaming-mt-dao", "lr": LR, "switch_step": 9})
