"""NCCL's pieces as users describe them."""

from __future__ import annotations

import pytest

from syncline.costmodel import Link, NcclCosts
from syncline.errors import SpecError
from syncline.specs import network, network_fields
from syncline.specs.cluster.library_costs import NcclDescription

GIVEN = {"latency": "1 ms", "bandwidth": "1 Gbit/s"}


def test_fields_say_what_they_say_and_come_back() -> None:
    of = {**GIVEN, "nccl": {"buffer_size": "2 MiB", "channels": 4, "slices": 1, "call_overhead": "20 us"}}
    link = network(of)
    assert link == Link(1e-3, 125e6, nccl=NcclCosts(2 * 2**20, 4, 1, 20e-6))
    assert network(network_fields(link)) == link and "NCCL's pieces" in link.describe()
    assert (
        network({**GIVEN, "nccl": True}).nccl
        == NcclCosts()
        == network(network_fields(Link(1, 1, nccl=NcclCosts()))).nccl
    )
    assert network({**GIVEN, "nccl": False}) == network(GIVEN) and NcclDescription.parse(None) is None
    assert NcclDescription.parse(NcclCosts(channels=3)) == NcclCosts(channels=3)


@pytest.mark.parametrize(
    ("nccl", "said"),
    [
        ({"bufer_size": "2 MiB"}, "network.nccl.bufer_size: .*did you mean 'buffer_size'"),
        ({"channels": 0}, "network.nccl.channels: got 0; expected a number of channels, at least 1"),
        ({"buffer_size": "0 MiB"}, "network.nccl.buffer_size: got 0"),
        ({"call_overhead": "fast"}, "network.nccl.call_overhead: got 'fast'"),
        ("yes", "network.nccl: got 'yes'; expected true"),
    ],
)
def test_what_cannot_be_is_refused(nccl: object, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        network({**GIVEN, "nccl": nccl})


def test_it_is_of_one_library() -> None:
    with pytest.raises(SpecError, match=r"nccl: .*none with gloo"):
        network({**GIVEN, "nccl": True, "gloo": {"message_overhead": "1 ms"}})
    with pytest.raises(SpecError, match=r"network.nccl: .*none with gloo"):
        network({"per_node": 2, "inside": {**GIVEN, "gloo": {}}, "between": {**GIVEN, "nccl": True}})
    with pytest.raises(SpecError, match=r"network.nccl: got '2 different costs'"):
        network({"per_node": 2, "inside": {**GIVEN, "nccl": {"channels": 4}}, "between": {**GIVEN, "nccl": True}})
