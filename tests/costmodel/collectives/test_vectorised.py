"""Collectives in many settings are those of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS, Level, Link, MultiLevel, TwoLevel, collective_s
from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.policies import algorithm_for
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.collectives.table import COLLECTIVES, algorithm_name
from syncline.costmodel.network.link import stacked_links
from syncline.errors import SpecError
from tests.sim.strategies import joined_workers, rules

links = st.builds(
    Link,
    st.floats(0, 0.1),
    st.floats(1e5, 1e12),
    overhead_s=st.floats(0, 1e-3),
    upload_bytes_per_s=st.floats(1e5, 1e12),
)
of_workers = st.lists(st.integers(1, 5000), min_size=1, max_size=4)
WANTED = (None, "auto", "nccl", "gloo", "ring", "tree", "recursive-doubling")


def told(kind, workers, sizes, networks, network, wanted, rule):
    """Seconds and names, a row per number of workers."""
    one = collective_prices(kind, np.array(workers)[:, None], np.array(sizes)[:, None], network, wanted, rule)
    shape = len(workers), len(networks)
    names = np.array(one.names)[np.broadcast_to(one.name_index, shape)]
    return np.broadcast_to(one.seconds, shape), names


def alone(kind, workers, nbytes, network, wanted, rule):
    name = algorithm_for(wanted, kind, workers, nbytes, network)
    return collective_s(kind, workers, nbytes, network, name, rule=rule), algorithm_name(kind, name)


@given(
    kind=st.sampled_from(COLLECTIVES),
    workers=of_workers,
    networks=st.lists(links, min_size=1, max_size=3),
    size=st.floats(0, 1e10),
    wanted=st.sampled_from(WANTED),
    rule=st.sampled_from(["eager", "rendezvous"]),
)
def test_links_and_numbers_of_workers_at_once(kind, workers, networks, size, wanted, rule):
    sizes = [size / (1 + i) for i in range(len(workers))]
    seconds, names = told(kind, workers, sizes, networks, stacked_links(networks), wanted, rule)
    for i, count in enumerate(workers):
        for j, link in enumerate(networks):
            expected_s, name = alone(kind, count, sizes[i], link, wanted, rule)
            assert seconds[i, j] == pytest.approx(expected_s, rel=1e-12)
            assert names[i, j] == name


@pytest.mark.parametrize("wanted", [None, "auto", "nccl", "hierarchical"])
def test_nodes_of_many_numbers_of_workers(wanted):
    network = TwoLevel(4, Link(1e-6, 1e11), Link(1e-5, 1e10), name="nodes")
    if wanted is None:
        with pytest.raises(NoClosedForm):
            collective_prices("all_reduce", np.array([8, 16]), 1e6, network)
        return
    for counts in ([8, 16, 12, 8], [8, 4, 2, 1]):  # full nodes at once, and others
        for rule in ("eager", "rendezvous"):
            for sizes in (1e3, np.array([1e8, 1e7, 1e6, 1e5])):
                one = collective_prices("all_reduce", np.array(counts), sizes, network, wanted, rule)
                each = zip(
                    counts, np.broadcast_to(sizes, 4), one.seconds, one.name_index + 0 * one.seconds, strict=True
                )
                for count, size, seconds, chosen in each:
                    expected_s, name = alone("all_reduce", count, size, network, wanted, rule)
                    assert (seconds, one.names[int(chosen)]) == (pytest.approx(expected_s, rel=1e-12), name)


def test_half_duplex_links_have_another_choice_for_powers_of_two():
    half = Link(1e-3, 1e8, duplex="half")
    one = collective_prices(
        "all_reduce", np.array([[7], [8]]), 1e3, stacked_links([half, Link(1e-6, 1e8, duplex="half")]), "auto"
    )
    for i, count in enumerate([7, 8]):
        for j, link in enumerate([half, Link(1e-6, 1e8, duplex="half")]):
            expected_s, name = alone("all_reduce", count, 1e3, link, "auto", "eager")
            assert (one.seconds[i, j], one.names[one.name_index[i, j]]) == (expected_s, name)


def test_a_preset_and_a_single_number_are_settings_too():
    link = NETWORKS["10gbe"].network
    one = collective_prices("all_gather", np.array([8]), 1e6, link)
    assert (one.seconds, one.names) == (collective_s("all_gather", 8, 1e6, link), ("ring",))


def test_somebody_else_is_asked_where_there_is_no_closed_form():
    """Half-duplex links and three workers, among others; and which rows are whose is told."""
    links = [Link(1e-3, 1e8, duplex="half"), Link(1e-6, 1e8, duplex="half")]
    asked = []

    def otherwise(kind, workers, nbytes, network, name, rule, group):
        asked.append((workers, network.latency_s, name))
        return 7.0, "told"

    one = collective_prices(
        "all_reduce", np.array([[3], [4]]), 1e3, stacked_links(links), "rabenseifner", "eager", otherwise
    )
    assert asked == [(3, link.latency_s, "rabenseifner") for link in links]
    ways = np.array(one.sources)[np.broadcast_to(one.source_index, (2, 2))]
    assert ways.tolist() == [["told", "told"], ["closed form", "closed form"]]
    assert one.seconds[0].tolist() == [7.0, 7.0]
    for j, link in enumerate(links):
        assert one.seconds[1, j] == collective_s("all_reduce", 4, 1e3, link, "rabenseifner")
    with pytest.raises(NoClosedForm):
        collective_prices("all_reduce", np.array([[3], [4]]), 1e3, stacked_links(links), "rabenseifner")


def test_levels_whose_outermost_is_open_are_priced_at_once():
    network = MultiLevel((Level(2, Link(1e-6, 1e11)), Level(3, Link(1e-5, 1e10), 1), Level(None, Link(1e-3, 1e9), 1)))
    for wanted in ("auto", "hierarchical"):
        for counts in ([12, 60, 24], [12, 6, 2]):
            one = collective_prices("all_reduce", np.array(counts), 1e6, network, wanted)
            for i, count in enumerate(counts):
                expected_s, name = alone("all_reduce", count, 1e6, network, wanted, "eager")
                chosen = np.broadcast_to(one.name_index, (3,))[i]
                assert (one.seconds[i], one.names[chosen]) == (pytest.approx(expected_s, rel=1e-12), name)


@given(joined=joined_workers().filter(lambda one: not isinstance(one[1], list)), size=st.floats(0, 1e9), rule=rules)
def test_any_network_is_priced_as_alone(joined, size, rule):
    """What is chosen and what it takes are those of `algorithm_for` and `collective_s`, or neither has a form."""
    workers, network = joined
    for wanted in ("auto", "hierarchical", "leader", "nccl"):
        try:
            expected_s, name = alone("all_reduce", workers, size, network, wanted, rule)
        except NoClosedForm:
            with pytest.raises(NoClosedForm):
                collective_prices("all_reduce", np.array([workers]), size, network, wanted, rule)
            continue
        except SpecError:
            continue
        one = collective_prices("all_reduce", np.array([workers]), size, network, wanted, rule)
        chosen = int(np.ravel(one.name_index)[0])
        assert (np.ravel(one.seconds)[0], one.names[chosen]) == (pytest.approx(expected_s, rel=1e-12), name)
