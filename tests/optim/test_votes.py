"""Majority votes: literal counts, equal bits in all worlds, and what becomes of zeros and ties."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given as given_
from hypothesis import strategies as st

from syncline.comm import DENSE, Communicator, ProcessGroupCommunicator, ShapesCommunicator, SimulatedCommunicator
from syncline.costmodel import Call
from syncline.errors import SpecError
from syncline.optim import DirectVote, OneBitVote, QuantisedVote, ServerVote, UpdateRule, Vote, sgdm
from syncline.optim.base import ParamRow
from syncline.optim.quantisers import random_bools, uniform
from syncline.optim.votes import TIES
from syncline.seeds import seed64
from tests.optim.given import assert_same, gaussian, gradients, lion_cub, run
from tests.processes import run_processes

SHAPES = ((7, 5), (3,), ())
VOTES: dict[str, Vote] = {
    **{f"one-bit {ties}": OneBitVote(ties) for ties in TIES},
    **{f"direct {ties}": DirectVote(ties) for ties in TIES},
    **{f"efficient {ties}": ServerVote("efficient", ties) for ties in TIES},
    "naive": ServerVote("naive"),
    "quantised": QuantisedVote(8),
    "geometric": QuantisedVote(6, 0.0),
    "root": QuantisedVote(7, 0.5),
    "maximum": QuantisedVote(31, math.inf),
    "stochastic": QuantisedVote(5, math.inf, stochastic=True),
}
every_vote = pytest.mark.parametrize("name", VOTES)


def rows_of(*tensors: torch.Tensor) -> list[ParamRow]:
    rule: UpdateRule = sgdm()
    return [ParamRow(x, x, {}, {}, rule, number) for number, x in enumerate(tensors)]


def voted(vote: Vote, comm: Communicator, t: int, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return vote.reduce(rows_of(*tensors), comm, DENSE, t)


def some_zeros(steps: int, workers: int) -> list[list[torch.Tensor]]:
    """Gradients of small whole numbers: many zeros and many ties."""
    return [[(2 * g).round() / 2 for g in step] for step in gradients(steps, workers, *SHAPES)]


def play(name: str, comm: Communicator, steps: int = 11) -> tuple[list[torch.Tensor], list[Call]]:
    params = [torch.nn.Parameter(torch.zeros(len(comm.local_workers), *s)) for s in SHAPES]
    method = lion_cub(params, 0.1, vote=VOTES[name], beta1=0.5, beta2=0.5, comm=comm, worker_axis=True)
    for step in some_zeros(steps, comm.world_size):
        for p, g in zip(params, step, strict=True):
            p.grad = g[list(comm.local_workers)].float()
        method.step()
    return [p.detach() for p in params], comm.ledger.records


def play_all(workers_per_process: int) -> dict[str, tuple[list[torch.Tensor], list[Call]]]:
    return {name: play(name, ProcessGroupCommunicator(workers_per_process)) for name in VOTES}


def in_processes() -> list[dict[str, tuple[list[torch.Tensor], list[Call]]]]:
    return [play_all(1), play_all(2)]


@pytest.fixture(scope="module")
def launched() -> list[list[dict[str, tuple[list[torch.Tensor], list[Call]]]]]:
    return run_processes(in_processes, 4)


@every_vote
@pytest.mark.parametrize("per_process", [1, 2])
def test_given_the_same_gradients_processes_and_simulator_agree_in_every_bit(
    name: str, per_process: int, launched: list
) -> None:
    """4 processes against 4 rows in one, and 4 processes of 2 workers against 8 rows in one."""
    expected, ledger = play(name, SimulatedCommunicator(4 * per_process))
    parts = [rank[per_process - 1][name] for rank in launched]
    for i, tensor in enumerate(expected):
        assert torch.equal(torch.cat([params[i] for params, _ in parts]), tensor)
        assert torch.equal(tensor, tensor[:1].expand_as(tensor)) and tensor.any()
    assert all(records == ledger for _, records in parts)


@every_vote
def test_replicas_vote_apart(name: str) -> None:
    one, two = gradients(1, 3, (6, 4))[0][0], gradients(1, 3, (6, 4), (6, 4))[0][1]
    (both,) = voted(VOTES[name], SimulatedCommunicator(3, replicas=2), 1, torch.cat([one, two]))
    (first,), (second,) = (voted(VOTES[name], SimulatedCommunicator(3), 1, g) for g in (one, two))
    assert torch.equal(both, torch.cat([first, second]))


@every_vote
def test_shapes_alone_leave_the_same_ledger(name: str) -> None:
    comm, shapes = SimulatedCommunicator(3), ShapesCommunicator(3)
    voted(VOTES[name], comm, 0, torch.ones(3, 7, 5), torch.ones(3))
    (out, _) = voted(VOTES[name], shapes, 0, torch.ones(1, 7, 5, device="meta"), torch.ones(1, device="meta"))
    assert (out.shape, out.dtype, out.device.type) == ((1, 7, 5), torch.float32, "meta")
    assert shapes.ledger.records == comm.ledger.records


def broken(value: int, ties: str, t: int) -> int:
    return value or {"zero": 0, "plus": 1, "minus": -1, "alternate": 1 - 2 * (t % 2)}[ties]


@pytest.mark.parametrize("ties", ["zero", "plus", "minus", "alternate"])
def test_votes_from_a_literal_count(ties: str) -> None:
    for t, workers in product([0, 1], [1, 2, 3, 4, 8]):
        check_votes(ties, t, workers)


def check_votes(ties: str, t: int, workers: int) -> None:
    """Check every vote by signs against a count of the signs of each element."""
    g = gaussian(workers, 11).round()  # about a third of it zeros
    packed, direct, words = [], [], []
    for column in g.T.numpy():
        signs = [int(np.sign(one)) for one in column]
        total = sum(broken(sign, ties, t) for sign in signs)
        packed.append(broken(int(np.sign(total)), ties, t))
        direct.append(int(np.sign(total)))
        words.append(int(np.sign(sum(signs))))
    for vote, expected in [
        (OneBitVote(ties), packed),
        (ServerVote("efficient", ties), packed),
        (DirectVote(ties), direct),
        (ServerVote("naive"), words),
    ]:
        (got,) = voted(vote, SimulatedCommunicator(workers), t, g)
        assert got.dtype == g.dtype
        assert got.tolist() == [expected] * workers


def test_without_zeros_and_ties_all_votes_by_signs_are_one() -> None:
    """An odd number of workers cannot tie."""
    given = gradients(6, 5, (3, 4), (7,))
    expected = run(partial(lion_cub, lr=0.1, vote=ServerVote("naive")), given)
    for ties in TIES:
        for vote in (OneBitVote(ties), DirectVote(ties), ServerVote("efficient", ties)):
            assert_same(run(partial(lion_cub, lr=0.1, vote=vote), given), expected, exact=True)


@pytest.mark.parametrize("vote", [OneBitVote("alternate"), ServerVote("efficient", "alternate")])
def test_alternating_ties_cancel_over_two_steps(vote: Vote) -> None:
    comm, g = SimulatedCommunicator(4), gaussian(4, 500)
    tied = g.sign().sum(0) == 0
    even, odd = (voted(vote, comm, t, g)[0][0] for t in (6, 7))
    assert tied.any() and not (even + odd)[tied].any()
    assert torch.equal(even[~tied], odd[~tied]) and even.all()


@pytest.mark.parametrize(("workers", "percent"), [(4, 37.5), (8, 27.34)])
def test_fair_votes_tie_as_often_as_coins(workers: int, percent: float) -> None:
    """``C(P, P/2) / 2^P``; Lion Cub's Table 3 measured 37.18 and 27.10. A tie broken at random is fair."""
    g = gaussian(workers, 100_000)
    kept = voted(DirectVote(), SimulatedCommunicator(workers), 0, g)[0][0]
    tied = kept == 0
    assert 100 * float(tied.double().mean()) == pytest.approx(percent, abs=5 * 100 / math.sqrt(4 * 100_000))
    fair = voted(OneBitVote("random"), SimulatedCommunicator(workers), 0, g)[0][0]
    assert torch.equal(fair[~tied], kept[~tied])
    assert float(fair[tied].mean()) == pytest.approx(0, abs=5 / math.sqrt(int(tied.sum())))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("bits", [24, 31])
def test_wide_fields_have_the_sign_of_the_sum(p: float, bits: int) -> None:
    """Of each worker's c over its own mean, cut off at twice the mean; but where the sum is within rounding of 0."""
    workers, g = 8, gaussian(8, 4000)
    vote = QuantisedVote(bits, p)
    levels = vote.levels(workers, g.dtype)
    assert levels == (2**bits - 1) // 16
    mean = g.abs().log().mean(1).exp() if p == 0 else g.abs().pow(p).mean(1) ** (1 / p)
    total = (g / mean[:, None]).clamp(-2, 2).sum(0)
    clear = total.abs() > workers / levels  # half a step each, a step is 2 / s
    got = voted(vote, SimulatedCommunicator(workers), 0, g)[0][0]
    assert clear.double().mean() > 0.999
    assert torch.equal(got[clear], total.sign()[clear])


@pytest.mark.parametrize(("bits", "workers"), [(4, 7), (5, 8), (8, 8), (8, 127), (4, 1), (16, 3), (31, 5)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_at_the_limits_of_their_range(bits: int, workers: int, sign: float) -> None:
    """All workers send the largest integer there is, beside the smallest, in one word."""
    g = torch.tensor([sign, -sign, 0.0, 1e-30, sign]).double().expand(workers, 5)
    for vote in (QuantisedVote(bits), QuantisedVote(bits, math.inf, stochastic=True)):
        (got,) = voted(vote, SimulatedCommunicator(workers), 0, g)
        assert got.tolist() == [[sign, -sign, 0, 0, sign]] * workers


def test_single_precision_gets_no_more_levels_than_it_can_count() -> None:
    assert QuantisedVote(31).levels(1, torch.float32) == 2**24
    assert QuantisedVote(31).levels(1, torch.float64) == 2**30 - 1


def test_no_sum_overflows_silently() -> None:
    for vote, workers, enough in [(QuantisedVote(8), 128, 9), (QuantisedVote(4), 8, 5), (DirectVote(bits=4), 16, 5),
                                  (DirectVote("zero", bits=4), 8, 5)]:  # fmt: skip
        with pytest.raises(SpecError, match=f"^bits: got {vote.bits}; expected at least {enough} "):
            voted(vote, SimulatedCommunicator(workers), 0, torch.ones(workers, 3))
        one_less = workers - 1
        (fits,) = voted(vote, SimulatedCommunicator(one_less), 0, torch.tensor([1.0, 1.0, 9.0]).expand(one_less, 3))
        assert fits[:, 2].eq(1).all()  # with one level, what is no larger than the mean abstains


@given_(st.integers(1, 9), st.integers(1, 70), st.sampled_from(sorted(VOTES)), st.integers(0, 3))
def test_a_unanimous_vote_is_obeyed(workers: int, count: int, name: str, t: int) -> None:
    """Whatever the number of workers and parameters, so whatever the padding of chunks and words."""
    g = gaussian(1, count).sign().expand(workers, count)
    assert torch.equal(voted(VOTES[name], SimulatedCommunicator(workers), t, g)[0], g)


@pytest.mark.parametrize("name", [name for name in VOTES if "plus" not in name and "random" not in name])
def test_a_worker_without_numbers_does_not_disturb_the_others(name: str) -> None:
    """Nor does it go on as if nothing had happened: its own loss will tell."""
    g = torch.tensor([[math.nan, math.nan, math.inf], [5.0, -5.0, 5.0], [5.0, -5.0, 5.0]])
    own, *others = voted(VOTES[name], SimulatedCommunicator(3), 0, g)[0]
    assert [x.tolist() for x in others] == [[1, -1, 1]] * 2
    assert own.isnan().all()


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: OneBitVote("never"), "ties"),
        (lambda: DirectVote(bits=32), "bits"),
        (lambda: ServerVote("lazy"), "server"),
        (lambda: ServerVote("naive", "plus"), "ties"),
        (lambda: QuantisedVote(0), "bits"),
        (lambda: QuantisedVote(8, -1.0), "p"),
        (lambda: QuantisedVote(8, 1.0, stochastic=True), "stochastic"),
    ],
)
def test_refusals(make, path: str) -> None:
    with pytest.raises((SpecError, TypeError), match=path):
        make()


def test_noise_is_uniform_independent_and_of_the_worker_not_of_its_row() -> None:
    cpu = torch.device("cpu")
    u = uniform(range(4), 50_000, cpu, "noise", 3)
    assert u.dtype == torch.float64 and float(u.min()) >= 0 and float(u.max()) < 1
    counts = torch.stack([torch.histc(row, 16, 0, 1) for row in u])
    chi_square = (counts - 3125).square().sum(1) / 3125
    assert chi_square.max() < 50  # 15 degrees of freedom
    across = torch.corrcoef(torch.cat([u, u[:1].roll(1, 1), uniform([0], 50_000, cpu, "noise", 4)]))
    assert (across - torch.eye(6).double()).abs().max() < 5 / math.sqrt(50_000)
    assert torch.equal(uniform([2, 1], 100, cpu, "noise", 3), u[[2, 1], :100])
    heads = random_bools(range(2), 50_000, cpu, "coins").double().mean(1)
    assert (heads - 0.5).abs().max() < 5 / math.sqrt(4 * 50_000)


def test_noise_is_splitmix64() -> None:
    """Against the generator's published recurrence, in Python's integers."""

    def mixed(z: int) -> int:
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) % 2**64
        return z ^ z >> 31

    gamma, worker = 0x9E3779B97F4A7C15, 5
    start = mixed((worker * gamma + seed64(0, "name", 7)) % 2**64)
    expected = [(mixed((start + i * gamma) % 2**64) >> 11) / 2**53 for i in range(1, 20)]
    assert uniform([worker], 19, torch.device("cpu"), "name", 7)[0].tolist() == expected
