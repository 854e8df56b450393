"""Measured all-reduces of a node: what presets carry is what collectives, policies and simulators give."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import NETWORKS, Link, NoClosedForm, chosen_algorithm, collective_s
from syncline.costmodel.collectives.nccl import node_times, nvlink_all_reduce_s
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.network.network_links import slow_down
from syncline.costmodel.traffic.call import Call
from syncline.sim import clock, collective_finish_s
from syncline.specs import network, network_fields

MIB = 2**20


@pytest.mark.parametrize("name", ["dgx-a100", "p4d.24xlarge", "nvlink3"])
@pytest.mark.parametrize("workers", range(2, 9))
def test_a_node_takes_what_was_measured(name: str, workers: int) -> None:
    on = NETWORKS[name].network
    for nbytes in (MIB, 37e6, 1024 * MIB):
        expected = nvlink_all_reduce_s("a100", workers, nbytes, node_times("a100"))
        assert chosen_algorithm("auto", "all_reduce", workers, nbytes, on) == "measured"
        assert collective_s("all_reduce", workers, nbytes, on, "measured") == expected
        priced = collective_prices("all_reduce", np.array([workers]), nbytes, on, "auto")
        assert np.ravel(priced.seconds).tolist() == [expected] and priced.names[0] == "measured"
        for by in ("auto", "events"):
            done = collective_finish_s("all_reduce", workers, nbytes, on, "measured", evaluator=by)
            assert done.max() == pytest.approx(expected, rel=1e-12)
        told = clock([Call(0, "all_reduce", nbytes)], 1.0, on, workers, 1, algorithm="auto")
        assert told.wall_s == pytest.approx(1 + expected, rel=1e-12)


def test_several_nodes_and_other_links_have_none() -> None:
    dgx = NETWORKS["dgx-a100"].network
    assert chosen_algorithm("auto", "all_reduce", 16, 1e9, dgx) == "nccl-nvlink"
    with pytest.raises(NoClosedForm, match="times were measured"):
        collective_s("all_reduce", 16, 1e9, dgx, "measured")
    inside = NETWORKS["nvlink3"].network
    assert isinstance(inside, Link)
    faster = network({"preset": "nvlink3", "bandwidth": "600 GB/s"})
    assert inside.measured and not faster.measured and not inside.with_numbers({"latency_s": 1e-6}).measured
    assert network(network_fields(inside)) == inside
    slow = slow_down(inside, 3.0)
    assert collective_s("all_reduce", 4, 1e8, slow, "measured") == pytest.approx(
        3 * collective_s("all_reduce", 4, 1e8, inside, "measured")
    )
    across = inside.with_numbers({"bandwidth_bytes_per_s": np.array([[1e9, 2e9]])}, same_links=True)
    assert collective_prices("all_reduce", np.array([[2], [4]]), 1e8, across, "auto").seconds.shape in {(2, 1), (2, 2)}
