"""All-reduces in two levels: by hand, as sums of flat ones, and where they cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    ALGORITHMS,
    HIERARCHICAL,
    Link,
    NoClosedForm,
    Sites,
    TwoLevel,
    algorithms_on,
    best_algorithm,
    closed_form_s,
    collective_s,
    node_size,
    wire_bytes,
)
from syncline.costmodel.collectives.cost import hierarchy_s
from syncline.costmodel.collectives.hierarchical import Peers
from syncline.errors import SpecError

INSIDE, BETWEEN = Link(0.5, 8.0), Link(2.0, 4.0)
NODES = TwoLevel(4, INSIDE, BETWEEN, name="nodes")  # a card per worker
ONE_CARD = TwoLevel(4, INSIDE, BETWEEN, 1)


@pytest.mark.parametrize(
    ("algorithm", "on", "seconds"),  # 3 nodes of 4, 96 bytes: blocks of 24 inside, of 8 between
    [
        ("hierarchical", NODES, 2 * 3 * (0.5 + 3) + 4 * (2 + 2)),
        ("hierarchical", ONE_CARD, 2 * 3 * (0.5 + 3) + 4 * (2 + 8)),  # four workers share 4 bytes per second
        ("hierarchical-doubling", NODES, 2 * 3 * (0.5 + 3) + 3 * (2 + 6)),  # fold, exchange, give back
        ("hierarchical-rabenseifner", NODES, 2 * 3 * (0.5 + 3) + 4 * 2 + (6 + 3 + 3 + 6)),
        ("leader", NODES, 2 * 2 * (0.5 + 12) + 3 * (2 + 24)),
        ("leader", ONE_CARD, 2 * 2 * (0.5 + 12) + 3 * (2 + 24)),  # one worker uses the card
    ],
)
def test_by_hand(algorithm: str, on: TwoLevel, seconds: float) -> None:
    assert collective_s("all_reduce", 12, 96, on, algorithm) == pytest.approx(seconds, rel=1e-14)


def test_two_sites_by_hand() -> None:
    """Two sites of four, 1 MB: what an independent simulator says of a pairwise exchange across and of leaders."""
    lan, uplink = Link(50e-6, 1.25e9), Link(12.5e-3, 125e6)
    on = Sites(2, lan, uplink)
    across_s = 50e-6 + 25e-3
    inside_s = 2 * 3 * (50e-6 + 0.25e6 / 1.25e9)
    assert collective_s("all_reduce", 8, 1e6, on, "hierarchical-doubling") == pytest.approx(
        inside_s + across_s + 1e6 / 125e6, rel=1e-12
    )
    assert collective_s("all_reduce", 8, 1e6, on, "leader") == pytest.approx(
        2 * 2 * (50e-6 + 1e6 / 1.25e9) + across_s + 1e6 / 125e6, rel=1e-12
    )


@given(st.sampled_from(HIERARCHICAL["all_reduce"]), st.integers(1, 8), st.integers(1, 8), st.floats(0, 1e9))
def test_equal_nodes_on_one_link_are_the_same_with_or_without_them(
    algorithm: str, size: int, nodes: int, nbytes: float
) -> None:
    levels = [Peers(count, INSIDE, INSIDE) for count in (size, nodes)]
    on_nodes_s = collective_s("all_reduce", size * nodes, nbytes, TwoLevel(size, INSIDE, INSIDE), algorithm)
    assert hierarchy_s("all_reduce", algorithm, levels, nbytes) == pytest.approx(on_nodes_s, rel=1e-12)


@given(st.sampled_from([4, 8, 12, 64]), st.floats(0, 1e9))
def test_nodes_of_one_and_one_node_are_flat(workers: int, nbytes: float) -> None:
    for algorithm in ALGORITHMS["all_reduce"]:
        single = TwoLevel(1, INSIDE, BETWEEN)
        assert closed_form_s("all_reduce", workers, nbytes, single, algorithm) == collective_s(
            "all_reduce", workers, nbytes, BETWEEN, algorithm
        )
        together = TwoLevel(workers, INSIDE, BETWEEN)
        assert closed_form_s("all_reduce", workers, nbytes, together, algorithm) == collective_s(
            "all_reduce", workers, nbytes, INSIDE, algorithm
        )
    assert algorithms_on("all_reduce", single, workers) == ALGORITHMS["all_reduce"]


def test_what_is_sent_in_two_levels() -> None:
    assert wire_bytes("all_reduce", 12, 96, "hierarchical", 4) == 2 * 72 + 2 * 16  # a ring of 24 among 3: 2 x 16
    assert (
        wire_bytes("all_reduce", 12, 96, "leader", 4)
        == 2 * 72 + wire_bytes("all_reduce", 3, 96, "recursive-doubling") / 4
    )


def test_auto_takes_one_that_keeps_to_the_nodes() -> None:
    on = TwoLevel(8, Link(1e-6, 450e9), Link(2e-6, 50e9))
    assert best_algorithm("all_reduce", 64, 1e9, on) in HIERARCHICAL["all_reduce"]
    assert best_algorithm("all_gather", 64, 1e9, on) == "hierarchical"
    assert best_algorithm("all_gather", 8, 1e9, Sites((3, 5), INSIDE, BETWEEN)) == "ring"  # no closed form: the first
    assert algorithms_on("all_reduce", on, 64) == ALGORITHMS["all_reduce"] + HIERARCHICAL["all_reduce"]


def test_workers_of_a_node() -> None:
    assert (node_size(NODES, 8), node_size(NODES.among(8), 8), node_size(NODES, 3)) == (4, 4, 3)
    assert node_size(INSIDE, 8) is None and node_size(Sites((3, 5), INSIDE, BETWEEN), 8) is None


def test_what_has_no_closed_form() -> None:
    with pytest.raises(NoClosedForm, match=r"all_reduce.algorithm: got 'ring'; .*lockstep and events"):
        collective_s("all_reduce", 8, 1.0, NODES, "ring")
    uneven = Sites(2, INSIDE, (BETWEEN, INSIDE))
    with pytest.raises(NoClosedForm, match="equal uplinks"):
        collective_s("all_reduce", 8, 1.0, uneven, "hierarchical")
    half = TwoLevel(4, INSIDE, Link(2.0, 4.0, duplex="half"))
    with pytest.raises(NoClosedForm, match="folded in"):
        collective_s("all_reduce", 12, 1.0, half, "hierarchical-doubling")
    assert collective_s("all_reduce", 8, 96, half, "hierarchical-doubling") == pytest.approx(21 + 2 + 2 * 6)


def test_what_cannot_be() -> None:
    with pytest.raises(SpecError, match="workers: got 9; expected a multiple of 4"):
        collective_s("all_reduce", 9, 1.0, NODES, "hierarchical")
    with pytest.raises(SpecError, match="expected a network of nodes"):
        collective_s("all_reduce", 8, 1.0, INSIDE, "hierarchical")
    with pytest.raises(SpecError, match="workers: got 9; expected a multiple of 4"):
        wire_bytes("all_reduce", 9, 1.0, "leader", 4)
    with pytest.raises(SpecError, match="group: got 0"):
        wire_bytes("all_reduce", 9, 1.0, "leader", 0)
    with pytest.raises(SpecError, match="rule: got 'lazy'"):
        collective_s("all_reduce", 9, 1.0, INSIDE, rule="lazy")  # type: ignore[arg-type]
