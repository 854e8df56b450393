"""Collectives among parts of the workers: blocks of neighbours, and those in one place of each block."""

from __future__ import annotations

import pytest
import torch

from syncline.comm import BF16, Absence, Membership, ShapesCommunicator, SimulatedCommunicator
from syncline.costmodel import Call
from syncline.costmodel.traffic.call import bytes_of_worker, groups_like
from syncline.errors import SpecError
from tests.optim.given import gaussian

M, SIZE, REPLICAS = 6, 2, 2
X = gaussian(REPLICAS * M, 3)


def test_within_and_across_against_loops() -> None:
    comm = SimulatedCommunicator(M, REPLICAS)
    (mean,) = comm.mean_within([X], SIZE)
    within, across = comm.all_gather_within(X, SIZE), comm.all_gather_across(X, SIZE)
    for row in range(REPLICAS * M):
        replica, worker = divmod(row, M)
        block = [replica * M + worker // SIZE * SIZE + place for place in range(SIZE)]
        peers = [replica * M + place for place in range(worker % SIZE, M, SIZE)]
        torch.testing.assert_close(mean[row], X[block].mean(0))
        assert torch.equal(within[row], X[block]) and torch.equal(across[row], X[peers])


def test_every_part_is_noted() -> None:
    comm = SimulatedCommunicator(M)
    comm.mean_within([X[:M].float()], SIZE, label="a")
    comm.all_gather_across(X[:M].float(), SIZE, label="b")
    blocks, places = groups_like(range(SIZE), M), groups_like(range(0, M, SIZE), M)
    expected = [Call(0, "all_reduce", 12, block, label="a") for block in blocks]
    expected += [Call(0, "all_gather", 12, place, label="b") for place in places]
    assert comm.ledger.records == expected
    assert bytes_of_worker(comm.ledger.records, M) == 24 == bytes_of_worker([Call(0, "all_reduce", 24)], M)
    assert sorted(rank for place in places for rank in place) == list(range(M))


def test_alone_nothing_is_sent() -> None:
    comm = SimulatedCommunicator(M)
    assert torch.equal(comm.mean_within([X[:M]], 1)[0], X[:M])
    assert torch.equal(comm.all_gather_within(X[:M], 1), X[:M].unsqueeze(1))
    assert torch.equal(comm.all_gather_across(X[:M], M), X[:M].unsqueeze(1))
    assert not comm.ledger.records


def test_a_format_rounds_what_is_sent_and_what_comes_back() -> None:
    x = X[:4].float()
    (mean,) = SimulatedCommunicator(4).mean_within([x], 2, BF16)
    expected = x.bfloat16().float().view(2, 2, 3).mean(1, keepdim=True).bfloat16().float().expand(2, 2, 3)
    torch.testing.assert_close(mean, expected.reshape(4, 3), rtol=0, atol=0)


def test_shapes_leave_the_same_ledger() -> None:
    told, comm, x = ShapesCommunicator(M), SimulatedCommunicator(M), torch.zeros(M, 5)
    one = torch.empty(1, 5, device="meta")
    for world, tensor in ((told, one), (comm, x)):
        assert world.mean_within([tensor], SIZE)[0].shape == tensor.shape
        assert world.all_gather_within(tensor, SIZE).shape == (len(tensor), SIZE, 5)
        assert world.all_gather_across(tensor, SIZE).shape == (len(tensor), M // SIZE, 5)
    assert told.ledger.records == comm.ledger.records


@pytest.mark.parametrize("size", [0, 4, 7])
def test_blocks_make_up_the_group(size: int) -> None:
    for world in (SimulatedCommunicator(M), ShapesCommunicator(M)):
        with pytest.raises(
            SpecError, match=rf"per_node: got {size}; expected a divisor of the number of workers \(6\)"
        ):
            world.all_gather_across(X[:M], size)


def test_parts_have_no_absences() -> None:
    comm = SimulatedCommunicator(M, membership=Membership(M, [Absence(1, 2)]))
    with pytest.raises(SpecError, match="membership: got 'parts of the workers'"):
        comm.mean_within([X[:M]], SIZE)
