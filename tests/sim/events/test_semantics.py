"""What the rounds carry: played with sets, every collective gives each worker what it promises.

A worker holds, for each block of the tensor, the set of workers whose values are summed in its copy. A message names
its blocks; its receiver adds them to its own copies (nobody may be counted twice) or takes them instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.collectives.algorithms.trees import two_tree_parents
from syncline.sim.program.rounds import rounds

Held = list[dict[int, frozenset[int]]]
"""Of each worker, the sum of whom it holds of each block."""

workers = st.integers(1, 64)


def play(of, held: Held, block_bytes: float, what: Callable[[int, int, int], list[int]], adds: Callable[[int], bool]):
    """Send the blocks that ``what(round, sender, receiver)`` names, in each round from what was held before it."""
    for k, (senders, receivers, nbytes) in enumerate(of):
        sizes = np.broadcast_to(nbytes, senders.shape)
        under_way = []
        for i, j, size in zip(senders.tolist(), receivers.tolist(), sizes.tolist(), strict=True):
            blocks = what(k, i, j)
            assert len(set(blocks)) == len(blocks)
            assert size == pytest.approx(len(blocks) * block_bytes, rel=1e-12)
            under_way.append((i, j, {block: held[i][block] for block in blocks}))
        for i, j, sums in under_way:
            for block, whose in sums.items():
                mine = held[j][block] if adds(k) else frozenset()
                assert not whose & mine, f"counted twice: round {k}, {i} to {j}"
                held[j][block] = whose | mine
    return held


def own_inputs(number: int, blocks: int) -> Held:
    return [{block: frozenset({i}) for block in range(blocks)} for i in range(number)]


def summed(number: int, blocks: int) -> Held:
    return [{block: frozenset(range(number)) for block in range(blocks)} for _ in range(number)]


@given(workers)
def test_ring_all_reduce(number):
    of = rounds("all_reduce", number, 8.0 * number)
    held = play(of, own_inputs(number, number), 8.0, lambda k, i, j: [(i - k) % number], lambda k: k < number - 1)
    assert held == summed(number, number)


@given(workers)
def test_recursive_doubling_all_reduce(number):
    power = 1 << (number.bit_length() - 1)
    of = rounds("all_reduce", number, 8.0, "recursive-doubling")
    last = len(of) - 1 if number > power else len(of)
    held = play(of, own_inputs(number, 1), 8.0, lambda k, i, j: [0], lambda k: k < last)
    assert held == summed(number, 1)


@given(workers)
def test_rabenseifner(number):
    power = 1 << (number.bit_length() - 1)
    of, folds = rounds("all_reduce", number, 8.0 * power, "rabenseifner"), int(number > power)
    doublings = power.bit_length() - 1

    def what(k, i, j):
        if max(i, j) >= power:
            return list(range(power))
        k -= folds
        halving = k < doublings
        distance = power >> (k + 1) if halving else 1 << (k - doublings)
        assert i ^ j == distance
        # Before the exchange at a distance, who differs only in smaller digits works on the same half as its partner.
        begin = (j if halving else i) // distance * distance
        return list(range(begin, begin + distance))

    held = play(of, own_inputs(number, power), 8.0, what, lambda k: k < folds + doublings)
    assert held == summed(number, power)


@given(workers)
def test_tree_all_reduce(number):
    of = rounds("all_reduce", number, 8.0, "tree")
    held = play(of, own_inputs(number, 1), 8.0, lambda k, i, j: [0], lambda k: k < len(of) // 2)
    assert held == summed(number, 1)


def circulant(number: int, k: int, first: int) -> list[int]:
    return [(first + block) % number for block in range(min(2**k, number - 2**k))]


def aligned(k: int, worker: int) -> list[int]:
    begin = worker >> k << k
    return list(range(begin, begin + 2**k))


@given(workers, st.sampled_from(["ring", "recursive-doubling"]))
def test_all_gather(number, algorithm):
    def what(k, i, j):
        if algorithm == "ring":
            return [(i - k) % number]
        return circulant(number, k, i) if number & (number - 1) else aligned(k, i)

    own = [{i: frozenset({i})} for i in range(number)]
    held = play(rounds("all_gather", number, 8.0, algorithm), own, 8.0, what, lambda k: False)
    assert held == [{block: frozenset({block}) for block in range(number)}] * number


@given(workers, st.sampled_from(["ring", "halving"]))
def test_reduce_scatter(number, algorithm):
    of = rounds("reduce_scatter", number, 8.0 * number, algorithm)

    def what(k, i, j):
        if algorithm == "ring":
            return [(i - k - 1) % number]
        k = len(of) - 1 - k
        return circulant(number, k, j) if number & (number - 1) else aligned(k, j)

    held = play(of, own_inputs(number, number), 8.0, what, lambda k: True)
    assert [held[i][i] for i in range(number)] == [frozenset(range(number))] * number


@given(workers)
def test_all_to_all(number):
    own = [{number * i + j: frozenset({i}) for j in range(number)} for i in range(number)]  # from i to j
    of = rounds("all_to_all", number, 8.0 * number)
    held = play(of, own, 8.0, lambda k, i, j: [number * i + j], lambda k: False)
    assert all(number * i + j in held[j] for i in range(number) for j in range(number))


@given(workers, st.sampled_from(["binomial", "scatter-all-gather"]))
def test_broadcast(number, algorithm):
    of = rounds("broadcast", number, 8.0 * number, algorithm)
    scattering = len(of) - (number - 1)
    mine = {0: range(number)}  # the range of workers whose blocks a worker has to scatter

    def what(k, i, j):
        if algorithm == "binomial":
            return list(range(number))
        if k >= scattering:
            return [(i - (k - scattering)) % number]
        assert mine[i].start < j < mine[i].stop
        mine[i], mine[j] = range(mine[i].start, j), range(j, mine[i].stop)
        return list(mine[j])

    own: Held = [dict.fromkeys(range(number), frozenset({0})) if i == 0 else {} for i in range(number)]
    held = play(of, own, 8.0, what, lambda k: False)
    assert held == [dict.fromkeys(range(number), frozenset({0}))] * number


@given(workers)
def test_gather(number):
    own = [{i: frozenset({i})} for i in range(number)]
    held = own
    for one in rounds("gather", number, 8.0):  # a worker sends all it holds
        held = play([one], held, 8.0, lambda k, i, j: list(held[i]), lambda k: False)  # noqa: B023
    assert held[0] == {i: frozenset({i}) for i in range(number)}


@given(workers)
def test_double_binary_tree_all_reduce(number):
    of = rounds("all_reduce", number, 16.0, "double-binary-tree")
    up = len(of) // 2
    trees = two_tree_parents(number)
    told: set[tuple[bool, int, int, int]] = set()

    def what(k, i, j):
        child, parent = (i, j) if k < up else (j, i)
        halves = [tree for tree in (0, 1) if trees[tree].get(child) == parent]
        half = next(tree for tree in halves if (k < up, tree, i, j) not in told)
        told.add((k < up, half, i, j))
        return [half]

    assert play(of, own_inputs(number, 2), 8.0, what, lambda k: k < up) == summed(number, 2)


@given(workers)
def test_naive_server_all_reduce(number):
    of = rounds("all_reduce", number, 8.0, "server-naive")
    held = play(of, own_inputs(number, 1), 8.0, lambda k, i, j: [0], lambda k: k < number - 1)
    assert held == summed(number, 1)


@given(workers)
def test_efficient_server_all_reduce(number):
    of = rounds("all_reduce", number, 8.0 * number, "server-efficient")
    depth = (number - 1).bit_length()
    held: Held = [{i: frozenset({i})} for i in range(number)]
    for one in of[:depth]:  # what everybody has, to be summed by worker 0
        held = play([one], held, 8.0 * number, lambda k, i, j: list(held[i]), lambda k: False)  # noqa: B023
    assert held[0] == {i: frozenset({i}) for i in range(number)}
    everybody = frozenset(range(number))
    held = [dict.fromkeys(range(number), everybody) if i == 0 else {} for i in range(number)]
    mine = {0: range(number)}

    def what(k, i, j):
        if k >= depth:
            return circulant(number, k - depth, i) if number & (number - 1) else aligned(k - depth, i)
        mine[i], mine[j] = range(mine[i].start, j), range(j, mine[i].stop)
        return list(mine[j])

    assert play(of[depth:], held, 8.0, what, lambda k: False) == summed(number, number)


@given(workers)
def test_a_reduce_scatter_by_an_all_reduce_is_the_ring(number):
    for one, other in zip(
        rounds("reduce_scatter", number, 8.0, "all-reduce"), rounds("all_reduce", number, 8.0, "ring"), strict=True
    ):
        assert one.senders.tolist() == other.senders.tolist()
        assert one.receivers.tolist() == other.receivers.tolist()
        assert one.nbytes == other.nbytes


@given(st.integers(1, 8), st.integers(1, 8))
def test_hierarchical_all_reduce(group, nodes):
    number = group * nodes
    of = rounds("all_reduce", number, 8.0 * number, "hierarchical", group)
    inside, between = group - 1, 2 * (nodes - 1)

    def part(local):
        return list(range(local % group * nodes, (local % group + 1) * nodes))

    def what(k, i, j):
        if inside <= k < inside + between:
            assert i % group == j % group
            return [part(i)[(i // group - (k - inside)) % nodes]]
        assert i // group == j // group
        return part(i - k - 1) if k < inside else part(i - (k - inside - between))

    held = play(of, own_inputs(number, number), 8.0, what, lambda k: k < inside + nodes - 1)
    assert held == summed(number, number)


@given(st.integers(1, 8), st.integers(1, 8))
def test_all_reduce_among_leaders(group, nodes):
    of = rounds("all_reduce", group * nodes, 8.0, "leader", group)
    down = len(of) - (group - 1).bit_length()
    last = down - 1 if nodes & (nodes - 1) else down  # the nodes beyond a power of two are given the result

    def what(k, i, j):
        across = (group - 1).bit_length() <= k < down
        assert (i % group == j % group == 0) if across else (i // group == j // group)
        return [0]

    held = play(of, own_inputs(group * nodes, 1), 8.0, what, lambda k: k < last)
    assert held == summed(group * nodes, 1)
