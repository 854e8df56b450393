"""DeMo against a literal derivation and in its limits."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.fft
import torch

from syncline.comm import SimulatedCommunicator, SparsePairs
from syncline.costmodel import TensorShape, calls_at
from syncline.costmodel.traffic.call import bytes_of_worker
from syncline.costmodel.traffic.exchanges import bytes_per_step
from syncline.errors import SpecError
from syncline.methods import DDP, method_of
from syncline.optim import CoefficientMean, EveryStep, Method, demo_rule, sgdm
from tests.optim.given import assert_same, gaussian, gradients, run

M, LR, BETA = 3, 0.1, 0.9
FP64 = SparsePairs(64, "fp64")


def demo(base: str = "sgd", *, lr: float = LR, **options) -> partial[Method]:
    options = {"beta": BETA, "pairs": FP64, **options}
    return partial(Method, lr=lr, rule=demo_rule(base), sync=EveryStep(), reducer=CoefficientMean(**options))


def literal_demo(
    given: list, chunk: int, k: int, alpha: float, average: str, base: str, basis: str = "dct"
) -> list[np.ndarray]:
    """DeMo's section 2.1 with loops over workers and blocks of one matrix, and SciPy's transform."""
    into, back = (scipy.fft.dctn, scipy.fft.idctn) if basis == "dct" else (lambda x, norm: x.copy(),) * 2
    workers, rows, columns = given[0][0].shape
    x, momenta, path = np.zeros((rows, columns)), np.zeros((workers, rows, columns)), []
    blocks = [
        (slice(i, i + chunk), slice(j, j + chunk)) for i in range(0, rows, chunk) for j in range(0, columns, chunk)
    ]
    for (g,) in given:
        q = np.zeros((rows, columns))
        for block in blocks:
            sent = []
            for worker in range(workers):
                momenta[worker][block] = BETA * momenta[worker][block] + g[worker].numpy()[block]
                c = into(momenta[worker][block], norm="ortho")
                largest = np.sort(np.abs(c).ravel())[-k]
                kept = np.where(np.abs(c) >= largest, c, np.nan)
                momenta[worker][block] -= alpha * back(np.nan_to_num(kept), norm="ortho")
                sent.append(kept)
            total, senders = np.nansum(sent, axis=0), (~np.isnan(sent)).sum(axis=0)
            mean = total / np.maximum(senders, 1) if average == "senders" else total / workers
            q[block] = back(mean, norm="ortho")
        x = x - LR * (np.sign(q) if base == "signum" else q)
        path.append(x)
    return path


@pytest.mark.parametrize(
    ("k", "alpha", "average", "base"),
    [(3, 1.0, "senders", "signum"), (3, 0.2, "all", "sgd"), (1, 1.0, "all", "signum"), (5, 0.5, "senders", "sgd")],
)
def test_demo_from_its_formula(k: int, alpha: float, average: str, base: str) -> None:
    given = gradients(4, M, (8, 12))
    got = run(demo(base, k=k, chunk=4, alpha=alpha, average=average), given)
    for positions, expected in zip(got.path, literal_demo(given, 4, k, alpha, average, base), strict=True):
        for worker in positions[0]:
            np.testing.assert_allclose(worker.numpy(), expected, atol=1e-11)


@pytest.mark.parametrize("chunk", [4, 8])  # several blocks, and the whole matrix as one
@pytest.mark.parametrize("basis", ["dct", "identity"])
def test_what_is_not_sent_stays_in_the_momentum(basis: str, chunk: int) -> None:
    given = gradients(4, M, (8, 8))
    got = run(demo(k=3, chunk=chunk, basis=basis), given)
    expected = literal_demo(given, chunk, 3, 1.0, "senders", "sgd", basis)
    for positions, one in zip(got.path, expected, strict=True):
        np.testing.assert_allclose(positions[0][0].numpy(), one, atol=1e-11)


@pytest.mark.parametrize("basis", ["identity", "dct", "random"])
@pytest.mark.parametrize("average", ["senders", "all"])
def test_sending_whole_blocks_and_keeping_them_is_momentum_averaging(basis: str, average: str) -> None:
    """Heavy-ball momentum is linear, and so the mean of the workers' momenta is that of the mean gradient."""
    given = gradients(6, M, (8, 6), (7,), ())
    whole = run(demo(k=10**6, chunk=4, alpha=0.0, basis=basis, average=average), given)
    assert_same(whole, run(partial(DDP, lr=LR, rule=sgdm(BETA)), given))


def test_sending_whole_blocks_and_taking_them_out_is_plain_sgd() -> None:
    """Nothing is left of the momentum: every step sends its gradient alone."""
    given = gradients(5, M, (8, 6), (7,))
    got = run(demo(k=10**6, chunk=4, alpha=1.0), given)
    assert_same(got, run(partial(DDP, lr=LR, rule=sgdm()), given))
    torch.testing.assert_close(got.state(0, "demo_momentum"), torch.zeros(M, 8, 6).double())


@pytest.mark.parametrize("basis", ["identity", "dct", "random"])
@pytest.mark.parametrize("chunk", [4, 8])
def test_without_decay_what_was_sent_and_what_is_left_is_all_that_came(basis: str, chunk: int) -> None:
    """``beta`` near 1 and the average over all: positions and momenta add up to the sum of gradients.

    Also where a block is the whole parameter, so that its coefficients need no copy of it.
    """
    given, beta = gradients(6, M, (8, 8)), 1 - 2**-50
    got = run(demo(lr=1.0, k=2, chunk=chunk, beta=beta, average="all", basis=basis), given)
    left = got.state(0, "demo_momentum").mean(0)
    assert float(left.norm()) > 1
    torch.testing.assert_close(left - got.params[0][0].detach(), sum(step[0].mean(0) for step in given))


def test_averages_differ_where_workers_send_different_coefficients() -> None:
    """Worker 0 sends entry 0, worker 1 entry 3: over the senders each counts whole, over all it counts half."""
    g = torch.tensor([[4.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -2.0]]).double()
    over = {
        average: run(demo(lr=1.0, k=1, chunk=4, basis="identity", average=average), [[g]]).params[0][0].tolist()
        for average in ("senders", "all")
    }
    assert over == {"senders": [-4.0, 0.0, 0.0, 2.0], "all": [-2.0, 0.0, 0.0, 1.0]}


def test_the_base_rule_sees_what_arrived() -> None:
    """Sign for what is no matrix, the polar factor for what is."""
    given = gradients(1, M, (4, 4), (4,))
    options = {"k": 4, "chunk": 4, "lr": 1.0}
    plain, muon = run(demo("sgd", **options), given), run(demo("muon", **options), given)
    torch.testing.assert_close(muon.params[1], plain.params[1].sign())
    values = torch.linalg.svdvals(muon.params[0][0].detach())
    assert bool(((values > 0.6) & (values < 1.3)).all())


@pytest.mark.parametrize("value", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("index_bits", [64, 32, 16, 0])
def test_rounding_on_the_wire_stays_in_the_momentum(index_bits: int, value: str) -> None:
    """What is taken out is what the others decode: the two still add up to the gradient, for any number of workers."""
    for workers in (1, M):
        given = gradients(1, workers, (9,), (5, 3))
        pairs = SparsePairs(index_bits, value)
        got = run(demo(lr=1.0, k=2, chunk=9, average="all", pairs=pairs), given)
        for number in (0, 1):
            left, sent = got.state(number, "demo_momentum").mean(0), -got.params[number][0].detach()
            torch.testing.assert_close(left + sent, given[0][number].mean(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pairs", [SparsePairs(), SparsePairs(0, "bf16"), SparsePairs(16, "fp16")])
def test_one_gather_of_exactly_the_pairs(pairs: SparsePairs) -> None:
    """(12, 8) in blocks of 4 x 4 is 6 blocks of 3 pairs; 7 is prime, so that its blocks have one entry."""
    reducer = CoefficientMean(k=3, chunk=4, pairs=pairs)
    got = run(
        partial(Method, lr=LR, rule=demo_rule("sgd"), sync=EveryStep(), reducer=reducer), gradients(2, M, (12, 8), (7,))
    )
    expected = pairs.nbytes(18, 16) + pairs.nbytes(7, 1)
    assert [(r.step, r.collective, r.payload_bytes) for r in got.records] == [
        (t, "all_gather", expected) for t in range(2)
    ]


def test_one_ordinary_parameter_with_packed_indices() -> None:
    """No worker axis: 3 bits per index, so that the values start within a word."""
    p = torch.nn.Parameter(torch.zeros(8))
    p.grad = gaussian(8).float()
    reducer = CoefficientMean(k=1, chunk=8, basis="identity", pairs=SparsePairs(0, "fp32"))
    Method([p], 1.0, demo_rule("sgd"), EveryStep(), reducer=reducer, comm=SimulatedCommunicator(1)).step()
    largest = p.grad.abs().argmax()
    assert torch.equal(p.detach(), -p.grad * torch.nn.functional.one_hot(largest, 8))


NARROW = method_of({"kind": "demo", "lr": LR, "chunk": 512, "index_bits": 16})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CoefficientMean(k=0), "k: got 0; expected an integer >= 1"),
        (lambda: CoefficientMean(chunk=0), "chunk: got 0; expected an integer >= 1"),
        (lambda: CoefficientMean(beta=1.0), r"beta: got 1.0; expected a number in \[0, 1\)"),
        (lambda: CoefficientMean(alpha=1.1), "alpha: got 1.1; expected a number from 0 to 1"),
        (lambda: CoefficientMean(basis="wavelet"), "basis: got 'wavelet'; expected 'dct', 'random' or 'identity'"),
        (lambda: CoefficientMean(average="some"), "average: got 'some'; expected 'senders' or 'all'"),
        (lambda: demo_rule("lion"), "base: got 'lion'; expected 'sgd', 'signum' or 'muon'"),
        (lambda: NARROW.exchanges([TensorShape("w", (512, 512), True)], 4), "index_bits: got 16; expected at least 18"),
    ],
)
def test_misuse_is_one_helpful_line(unchecked, call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("base", ["sgd", "signum"])
def test_the_hybrid_is_demo_of_nodes(base: str) -> None:
    """Six workers in nodes of two are three workers with the means of two gradients each, whatever DeMo's knobs."""
    given = gradients(5, 6, (8, 12), (6,))
    knobs = {"k": 3, "chunk": 4, "alpha": 0.5, "average": "all", "base": base}
    hybrid = run(demo(per_node=2, **knobs), given)
    means = [[g.unflatten(0, (3, 2)).mean(1) for g in step] for step in given]
    nodes = run(demo(**knobs), means)
    for step, of_nodes in zip(hybrid.path, nodes.path, strict=True):
        for x, y in zip(step, of_nodes, strict=True):
            assert torch.equal(x, x[:1].expand_as(x))
            torch.testing.assert_close(x, y.repeat_interleave(2, 0), rtol=1e-12, atol=1e-14)


def test_nodes_of_one_are_demo_and_one_node_is_data_parallelism_into_demo() -> None:
    given = gradients(5, 4, (8, 12))
    plain, single = run(demo(k=3, chunk=4), given), run(demo(k=3, chunk=4, per_node=1), given)
    assert_same(plain, single, exact=True)
    means = [[g.mean(0, keepdim=True) for g in step] for step in given]
    one_node = run(demo(k=3, chunk=4, per_node=8), given)
    alone = run(demo(k=3, chunk=4), means)
    for step, of_one in zip(one_node.path, alone.path, strict=True):
        torch.testing.assert_close(step[0], of_one[0].expand_as(step[0]), rtol=1e-12, atol=1e-14)
    assert {(call.collective, call.group) for call in one_node.records} == {("all_reduce", range(4))}


def test_the_hybrid_sends_gradients_inside_nodes_and_pairs_between_them() -> None:
    spec = method_of({"kind": "demo", "lr": 1, "k": 4, "chunk": 8, "per_node": 4})
    model = [TensorShape("w", (16, 8), is_matrix=True)]
    gradient, between, inside = sent = spec.exchanges(model, 8)
    assert (gradient.payload_bytes, gradient.first_group, gradient.in_backward) == (4 * 128, range(4), True)
    pairs = 2 * 4 * 12  # bytes of a node, of which each worker hands over a quarter, and the quarters of two nodes
    assert (between.payload_bytes, between.first_group) == (pairs / 4, range(0, 8, 4))
    assert (inside.payload_bytes, inside.first_group) == (2 * pairs / 4, range(4))
    calls, nodes = calls_at(sent, 0, range(8)), [range(4), range(4, 8)]
    assert [call.group for call in calls] == [*nodes, *(range(place, 8, 4) for place in range(4)), *nodes]
    assert bytes_of_worker(calls, 8) == 4 * 128 + 3 * pairs / 4 == bytes_per_step(sent, 10)
    assert [call.group for call in calls_at(sent, 0)] == [range(4), range(0, 8, 4), range(4)]  # a worker's own
    assert spec.traffic_formula(8) == "4 N + 9 × 4 N / 8²"
    assert method_of({"kind": "demo", "lr": 1, "per_node": 8}).exchanges(model, 8)[1:] == []


def test_nodes_that_do_not_make_up_the_workers_are_refused_in_one_line() -> None:
    spec = method_of({"kind": "demo", "lr": 1, "per_node": 4})
    with pytest.raises(SpecError, match=r"per_node: got 4; expected a divisor of the number of workers \(6\)"):
        spec.exchanges(10, 6)
    with pytest.raises(SpecError, match=r"per_node: got 4; expected a divisor of the number of workers \(6\)"):
        run(demo(per_node=4), gradients(1, 6, (4,)))
