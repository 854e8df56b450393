"""A link that carries what gloo's software takes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    ALGORITHMS,
    GLOO,
    Exchange,
    GlooCosts,
    Link,
    chosen_algorithm,
    collective_s,
    communication_s,
    gloo_message_s,
    gloo_s,
    mean_step,
    ring_all_reduce_s,
)
from syncline.costmodel.collectives.policies import algorithm_for, all_by_library
from syncline.costmodel.network.software_costs import FREE, connections
from syncline.errors import SpecError
from syncline.specs import network, network_fields

COSTS = GlooCosts(1e-4, ((2, 2e-4), (4, 5e-4)), (("all_reduce", 5e-11), ("all_gather", 4e-10)))
BARE = Link(1e-3, 125e6)
KNOWN = replace(BARE, gloo=COSTS)

GIVEN = {"latency": "1 ms", "bandwidth": "1 Gbit/s"}


@pytest.mark.parametrize("kind", GLOO)
@pytest.mark.parametrize("nbytes", [4.0, 1e5, 1e7])
def test_a_link_that_knows_gloos_costs_needs_not_be_told(kind: str, nbytes: float) -> None:
    told = gloo_s(kind, 4, nbytes, BARE, COSTS)
    assert gloo_s(kind, 4, nbytes, KNOWN) == told == collective_s(kind, 4, nbytes, KNOWN)
    assert collective_s(kind, 4, nbytes, KNOWN, GLOO[kind]) == told > gloo_s(kind, 4, nbytes, BARE)
    assert chosen_algorithm(None, kind, 4, nbytes, KNOWN) == algorithm_for(None, kind, 4, nbytes, KNOWN) == GLOO[kind]


@pytest.mark.parametrize("kind", GLOO)
def test_what_is_told_wins(kind: str) -> None:
    assert gloo_s(kind, 4, 1e5, KNOWN, FREE) == gloo_s(kind, 4, 1e5, BARE)
    for name in ALGORITHMS[kind]:  # the textbook's, whose messages cost what the link says
        assert collective_s(kind, 4, 1e5, KNOWN, name) == collective_s(kind, 4, 1e5, BARE, name)
        assert algorithm_for(name, kind, 4, 1e5, KNOWN) == name
    assert chosen_algorithm("auto", kind, 4, 1e5, KNOWN) == chosen_algorithm("auto", kind, 4, 1e5, BARE)
    assert chosen_algorithm("nccl", kind, 4, 1e5, KNOWN) == chosen_algorithm("nccl", kind, 4, 1e5, BARE)


def test_a_link_that_knows_nothing_is_as_it_was() -> None:
    assert (
        collective_s("all_reduce", 4, 1e5, BARE) == ring_all_reduce_s(4, 1e5, BARE) == ring_all_reduce_s(4, 1e5, KNOWN)
    )
    assert algorithm_for(None, "all_reduce", 4, 1e5, BARE) is None
    assert not all_by_library(None, BARE) and all_by_library("gloo", BARE)
    assert network_fields(BARE) == {"name": "", "latency": 1e-3, "bandwidth": 125e6}


def test_algorithms_by_kind_leave_the_others_to_gloo() -> None:
    wanted = {"all_reduce": "tree"}
    assert algorithm_for(wanted, "all_reduce", 4, 1e5, KNOWN) == "tree"
    assert algorithm_for(wanted, "all_gather", 4, 1e5, KNOWN) == "gloo-ring"
    assert not all_by_library(wanted, KNOWN) and all_by_library({}, KNOWN) and all_by_library(None, KNOWN)
    assert algorithm_for("tree", "all_reduce", 4, 1e5, KNOWN) == "tree" and not all_by_library("tree", KNOWN)


def test_a_message_and_a_shared_link_keep_the_costs() -> None:
    assert gloo_message_s(125e3, KNOWN) == pytest.approx(2 * (1e-3 + 1e-4) + 1e-3)
    assert KNOWN.shared_by(2).gloo == COSTS


def test_a_step_pays_what_its_collectives_take() -> None:
    sent = [Exchange(4e5), Exchange(1e5, 4, collective="all_gather")]
    step = mean_step(5e-3, sent, 8, 4, KNOWN)
    expected_s = gloo_s("all_reduce", 4, 4e5, BARE, COSTS) + gloo_s("all_gather", 4, 1e5, BARE, COSTS) / 4
    assert step.communication_s == pytest.approx(expected_s)
    assert communication_s(sent, 8, 4, KNOWN) == pytest.approx(8 * expected_s)
    rates = np.array([1e6, 125e6])  # as the search for a threshold asks
    steps = mean_step(5e-3, sent, 8, 4, replace(KNOWN, bandwidth_bytes_per_s=rates))
    assert np.asarray(steps.communication_s)[1] == pytest.approx(expected_s)


def test_a_user_describes_them() -> None:
    costs = {
        "message_overhead": "0.1 ms",
        "call_overhead": {4: "0.5 ms", "2": "200us"},
        "byte_overhead": {"all_reduce": "0.05 ns", "all_gather": 4e-10},
    }
    made = network(GIVEN | {"gloo": costs})
    assert made == KNOWN
    assert made.describe() == "1 ms one way, 1 Gbit/s, gloo's costs"
    assert network(GIVEN | {"gloo": COSTS}) == KNOWN
    assert network(GIVEN | {"gloo": {}}) == replace(BARE, gloo=FREE)
    assert network(GIVEN | {"gloo": None}) == BARE
    assert network({"preset": "1gbe", "gloo": costs}) == replace(network("1gbe"), gloo=COSTS)  # type: ignore[type-var]


def test_a_call_of_one_collective_is_described_beside_those_of_all_others() -> None:
    told = {"call_overhead": {2: "0.2 ms", "all_to_all": {4: "0.6 ms", "2": "0.3 ms"}}}
    made = network(GIVEN | {"gloo": told}).gloo
    assert made == GlooCosts(call_s=((2, 2e-4),), call_of_s=(("all_to_all", ((2, 3e-4), (4, 6e-4))),))
    assert made.seconds_per_call("all_to_all", 4) == 6e-4 and made.seconds_per_call("all_reduce", 4) == 2e-4


def test_beyond_what_was_measured_a_call_grows_with_its_connections() -> None:
    """2 and 4 workers were measured: one more connection each in a ring and a tree, two more where all are posted."""
    of = GlooCosts(call_s=((2, 2e-4), (4, 5e-4)))
    workers = np.array([1, 2, 3, 4, 5, 8, 9])
    inside = [2e-4, 2e-4, 3.5e-4, 5e-4]
    assert of.seconds_per_call("all_reduce", workers).tolist() == pytest.approx([*inside, 5e-4, 5e-4, 5e-4])
    assert of.seconds_per_call("broadcast", workers).tolist() == pytest.approx([*inside, 8e-4, 8e-4, 11e-4])
    assert of.seconds_per_call("all_to_all", workers).tolist() == pytest.approx([*inside, 6.5e-4, 11e-4, 12.5e-4])
    falling = GlooCosts(call_s=((2, 5e-4), (4, 2e-4)))
    assert falling.seconds_per_call("all_to_all", 64) == 2e-4
    assert GlooCosts(call_s=((2, 5e-4),)).seconds_per_call("all_to_all", 64) == 5e-4


@pytest.mark.parametrize(
    ("kind", "growing"), [("all_gather", [1, 2, 2]), ("gather", [1, 7, 31]), ("broadcast", [1, 3, 5])]
)
def test_connections_of_the_busiest_worker(kind: str, growing: list[int]) -> None:
    assert connections(kind, np.array([2, 8, 32])).tolist() == growing


times = st.floats(0, 1e3)
calls = st.dictionaries(st.integers(1, 9999), times, max_size=3).map(lambda of: tuple(sorted(of.items())))
costs = st.builds(
    GlooCosts,
    times,
    calls,
    st.dictionaries(st.sampled_from(sorted(GLOO)), times).map(lambda of: tuple(of.items())),
    st.dictionaries(st.sampled_from(sorted(GLOO)), calls).map(lambda of: tuple(of.items())),
)


@given(costs)
def test_what_describes_costs_makes_the_same_ones_again(made: GlooCosts) -> None:
    link = replace(BARE, gloo=made)
    assert network(network_fields(link)) == network(json.loads(json.dumps(network_fields(link)))) == link


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (GIVEN | {"gloo": 3}, "network.gloo: got 3; expected fields, as in {message_overhead: 0.1 ms"),
        (
            GIVEN | {"gloo": {"massage": 1}},
            "network.gloo.massage: got 1; expected no such field here, but one of 'byte_overhead'",
        ),
        (
            GIVEN | {"gloo": {"message_overhead": "0.1"}},
            "network.gloo.message_overhead: got '0.1'; expected a time with its unit",
        ),
        (
            GIVEN | {"gloo": {"call_overhead": [1]}},
            "network.gloo.call_overhead: got [1]; expected fields, as in {2: 0.2 ms",
        ),
        (
            GIVEN | {"gloo": {"call_overhead": {"two": 1}}},
            "network.gloo.call_overhead.two: got 'two'; expected a number of workers",
        ),
        (
            GIVEN | {"gloo": {"call_overhead": {0: 1}}},
            "network.gloo.call_overhead.0: got 0; expected a number of workers",
        ),
        (
            GIVEN | {"gloo": {"call_overhead": {"gather": 1}}},
            "network.gloo.call_overhead.gather: got 1; expected fields, as in {2: 0.2",
        ),
        (
            GIVEN | {"gloo": {"call_overhead": {"gather": {"x": 1}}}},
            "network.gloo.call_overhead.gather.x: got 'x'; expected a number",
        ),
        (GIVEN | {"gloo": {"call_overhead": {2: -1}}}, "network.gloo.call_overhead.2: got -1; expected a time"),
        (
            GIVEN | {"gloo": {"byte_overhead": {"all_reduc": 1}}},
            "network.gloo.byte_overhead.all_reduc: got 1; expected no such field",
        ),
        (GIVEN | {"gloo": {"byte_overhead": {"gather": "1 m"}}}, "network.gloo.byte_overhead.gather: got '1 m'"),
    ],
)
def test_what_are_no_costs_is_refused_in_one_line(value: object, complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        network(value)  # type: ignore[arg-type]
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_of_workers_increase() -> None:
    with pytest.raises(SpecError, match=r"gloo\.call_s: got \[4, 2\]; expected numbers of workers that increase"):
        GlooCosts(call_s=((4, 1.0), (2, 1.0)))
