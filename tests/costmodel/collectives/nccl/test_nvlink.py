"""All-reduces among GPUs of a node, from measured times of other numbers of them."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from syncline.costmodel.collectives.nccl import CUBE_MESH_RINGS, NUM_RINGS, nvlink_all_reduce_s
from syncline.errors import SpecError

SIZES = 2.0**20 * np.array([1, 4, 64, 1024])

CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1, (3, 7): 1,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
"""Links of a DGX-1's pairs of V100, as nvidia-smi's topology shows them."""


def made_up(gpu: str, numbers: tuple[int, ...]):
    """20 us, and 20 GB/s for each ring."""
    return {
        p: (SIZES, 20e-6 + 2 * (p - 1) / p * SIZES / (20e9 * NUM_RINGS[gpu][p]))
        for p in numbers
    }  # fmt: skip


@pytest.mark.parametrize("gpu", ["a100", "v100"])
def test_a_machine_of_one_latency_and_rate_is_told_for_all_numbers_and_sizes(gpu: str) -> None:
    measured = made_up(gpu, (2, 4, 8))
    for p in range(2, 9):
        for nbytes in (8e6, 3e8):
            expected = 20e-6 + 2 * (p - 1) / p * nbytes / (20e9 * NUM_RINGS[gpu][p])
            assert nvlink_all_reduce_s(gpu, p, nbytes, measured) == pytest.approx(expected, rel=1e-6)


def test_measured_times_are_themselves() -> None:
    measured = made_up("a100", (2, 4, 8))
    for p, (sizes, seconds) in measured.items():
        np.testing.assert_allclose([nvlink_all_reduce_s("a100", p, size, measured) for size in sizes], seconds)


def disjoint_cycles(gpus: int) -> int:
    """The most Hamiltonian cycles of the first GPUs that share no link: by trying all."""
    cycles = []
    for order in itertools.permutations(range(1, gpus)):
        pairs = itertools.pairwise((0, *order, 0))
        of = Counter((min(pair), max(pair)) for pair in pairs)
        if order[0] < order[-1] and all(CUBE_MESH.get(pair, 0) >= count for pair, count in of.items()):
            cycles.append(of)

    def most(start: int, left: Counter, found: int) -> int:
        best = found
        for i in range(start, len(cycles)):
            if all(left[pair] >= count for pair, count in cycles[i].items()):
                best = max(best, most(i, left - cycles[i], found + 1))
                if best == 3:  # a GPU has six links
                    break
        return best

    return most(0, Counter(CUBE_MESH), 0)


@pytest.mark.parametrize("gpus", [3, 4, 5, 6, 7, 8])
def test_rings_of_a_cube_mesh_are_its_disjoint_cycles_both_ways(gpus: int) -> None:
    assert 2 * disjoint_cycles(gpus) == (0 if gpus == 5 else CUBE_MESH_RINGS[gpus])


def test_what_is_not_known_is_refused() -> None:
    measured = made_up("a100", (2, 4, 8))
    with pytest.raises(SpecError, match="gpu: got 'h100'"):
        nvlink_all_reduce_s("h100", 4, 1e6, measured)
    with pytest.raises(SpecError, match="gpus: got 1"):
        nvlink_all_reduce_s("a100", 1, 1e6, measured)
    with pytest.raises(SpecError, match="measured"):
        nvlink_all_reduce_s("a100", 4, 1e6, {})
