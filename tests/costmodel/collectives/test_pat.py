"""PAT: which blocks travel, over which distance, and when NCCL takes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS, Link, Sites, collective_s
from syncline.costmodel.collectives.algorithms.trees import pat_rounds
from syncline.costmodel.collectives.policies import chosen_algorithm, nccl_estimates_s
from syncline.costmodel.collectives.prices import collective_prices
from syncline.sim import collective_finish_s
from syncline.sim.program.rounds import rounds

NDR = NETWORKS["ib-ndr"].network


@given(st.integers(2, 70))
def test_each_block_reaches_each_worker_once(workers: int) -> None:
    """A message of distance d has the blocks of its sender, of the worker 2d before it, 4d before it, ..."""
    held = [{worker} for worker in range(workers)]
    for senders, receivers, nbytes in pat_rounds(workers, 1.0):
        distance = (receivers[0] - senders[0]) % workers
        news = []
        for sender in senders.tolist():
            blocks = {(sender - behind) % workers for behind in range(0, workers - distance, 2 * distance)}
            assert len(blocks) == nbytes and blocks <= held[sender]
            news.append(blocks)
        for receiver, blocks in zip(receivers.tolist(), news, strict=True):
            assert not blocks & held[receiver]
            held[receiver] |= blocks
    assert held == [set(range(workers))] * workers


def test_the_farthest_message_has_one_block() -> None:
    assert [nbytes for *_, nbytes in pat_rounds(16, 1.0)] == [1, 2, 4, 8]


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("workers", [2, 5, 16, 23])
def test_closed_form_and_events_agree(kind: str, workers: int) -> None:
    expected_s = float(collective_s(kind, workers, 1e6, NDR, "pat"))
    for evaluator in ("lockstep", "events"):
        finish_s = collective_finish_s(kind, workers, 1e6, NDR, "pat", evaluator=evaluator)
        assert finish_s.max() == pytest.approx(expected_s, rel=1e-9)


def test_a_line_between_sites_carries_less_than_by_recursive_doubling() -> None:
    """Four workers in each of two sites: 12 blocks pass the line each way, 8 of 1, 4 of 2 and 2 of 4; or 16."""
    crossed = dict.fromkeys(("pat", "recursive-doubling"), 0.0)
    for name in crossed:
        for senders, receivers, nbytes in rounds("all_gather", 8, 1.0, name):
            crossed[name] += float(nbytes) * int(np.sum((senders < 4) & (receivers >= 4)))
    assert crossed == {"pat": 12, "recursive-doubling": 16}
    sites = Sites(2, Link(1e-6, 100e9), Link(1e-6, 1e9))
    pat_s, doubling_s = (collective_finish_s("all_gather", 8, 1e6, sites, name).max() for name in crossed)
    assert pat_s == pytest.approx(12 / 16 * doubling_s, rel=0.05)


def test_nccl_takes_pat_for_small_tensors_among_nodes_of_one_gpu() -> None:
    """64 nodes on 50 GB/s by NCCL 2.27: 8 us + 6 * 14 us / 3.5 + 64 * 2.8 us, at 0.75 of the rate."""
    estimates = nccl_estimates_s(64, 2.0**20, NDR, "reduce_scatter")
    assert set(estimates) == {("ring", "LL"), ("ring", "Simple"), ("pat", "Simple")}
    assert estimates["pat", "Simple"] == pytest.approx(211.2e-6 + 2**20 / (0.75 * 50e9), rel=1e-12)
    assert estimates["ring", "Simple"] == pytest.approx(8.4e-6 + 63 * 14e-6 + 2**20 * 63 / 64 / 50e9, rel=1e-12)
    gather = nccl_estimates_s(64, 2.0**14, NDR, "all_gather")
    assert gather == nccl_estimates_s(64, 2.0**20, NDR, "reduce_scatter")
    for kind, size in (("all_gather", 1.0), ("reduce_scatter", 64.0)):
        chosen = [chosen_algorithm("nccl", kind, 64, size * nbytes, NDR) for nbytes in (1e3, 1e9)]
        assert chosen == ["pat", "ring"]
        sizes = size * np.array([1e3, 1e9])
        priced = collective_prices(kind, np.array([64, 64]), sizes, NDR, "nccl")
        assert [priced.names[index] for index in priced.name_index.tolist()] == chosen
        for size_bytes, name, seconds in zip(sizes, chosen, np.asarray(priced.seconds), strict=True):
            assert seconds == pytest.approx(float(collective_s(kind, 64, size_bytes, NDR, name)), rel=1e-12)
    assert chosen_algorithm("nccl", "all_gather", 8, 1e3, NETWORKS["pcie5"].network) == "ring"  # GPUs of one node
    assert chosen_algorithm("nccl", "all_gather", 8, 1e3, NETWORKS["p3.2xlarge"].network) == "nccl-ring"
