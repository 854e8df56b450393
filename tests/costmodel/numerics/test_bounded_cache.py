"""What is kept is what would be made again, no more than there is room for, and by value alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.numerics.arrays import bounded_cache, frozen, is_hashed_by_value

LINK = Link(1e-3, 1e9)


def counted(most_bytes):
    calls = []

    @bounded_cache(most_bytes, len)
    def name(text, times=1):
        calls.append(text)
        return text * times

    return name, calls


def test_the_same_is_made_once():
    name, calls = counted(100)
    assert name("ab", times=2) is name("ab", times=2)
    assert name("ab", times=3) == "ababab"
    assert calls == ["ab", "ab"]


def test_what_was_used_longest_ago_is_forgotten():
    name, calls = counted(4)
    for text in ("aa", "bb", "aa", "cc", "aa", "bb"):
        name(text)
        assert name.nbytes <= 4
    assert calls == ["aa", "bb", "cc", "bb"]


def test_what_is_larger_than_all_the_room_is_not_kept():
    name, calls = counted(2)
    assert name("aaa") == name("aaa") == "aaa"
    assert len(calls) == 2 and name.nbytes == 0


def test_nothing_is_kept_after_clearing():
    name, calls = counted(100)
    name("a")
    name.cache_clear()
    name("a")
    assert calls == ["a", "a"]


def test_frozen_values_do_not_change_with_the_array():
    array = np.arange(3)
    kept_values = frozen(array)
    array[0] = 7
    assert kept_values.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        kept_values[0] = 7


class Own:
    """A network of a user's, which could change."""

    name, gloo = "own", None

    def __init__(self, link):
        self.link = link

    def among(self, workers):
        return topology(self.link, workers)


@dataclass(frozen=True)
class OwnByValue(Own):
    link: Link


@pytest.mark.parametrize("network", [LINK, TwoLevel(2, LINK, LINK), Sites(2, LINK, LINK), OwnByValue(LINK)])
def test_equal_networks_have_one_topology(network):
    assert topology(network, 4) is topology(network, 4)


def test_a_network_that_could_change_is_asked_again():
    network = Own(LINK)
    assert not is_hashed_by_value(network)
    before = topology(network, 4)
    network.link = Link(2e-3, 1e9)
    assert before.latency_s[0] == 1e-3
    assert topology(network, 4).latency_s[0] == 2e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda a: topology([Link(a, 1e9), LINK], 2),
        lambda a: TwoLevel(1, Link(a, 1e9), LINK).among(2),
        lambda a: Sites(2, Link(a, 1e9), LINK).among(2),
    ],
    ids=["star", "nodes", "sites"],
)
def test_topologies_are_equal_if_they_are_made_of_the_same(make):
    assert make(1.0) == make(1.0)
    assert hash(make(1.0)) == hash(make(1.0))
    assert make(1.0) != make(2.0)
    assert make(1.0) != topology(LINK, 2)
