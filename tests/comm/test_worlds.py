"""The worlds agree: simulated rows, real processes, shapes."""

from __future__ import annotations

import pytest
import torch

from syncline.comm import DENSE, ProcessGroupCommunicator, ShapesCommunicator, SimulatedCommunicator
from syncline.costmodel import Call
from syncline.errors import SpecError, SynclineError
from tests.comm.worlds import all_calls, group_tensor, in_process, in_simulator
from tests.processes import run_processes

# Nothing is added up on the way, or only in one fixed order.
EXACT = ("all_gather", "gather", "send", "all_to_all", "broadcast", "flag", "second")


@pytest.mark.parametrize(("processes", "workers_per_process"), [(4, 1), (2, 2)])
def test_processes_equal_rows_of_the_simulator(processes: int, workers_per_process: int) -> None:
    """All calls twice: as the backend adds up, and reproducibly, which is bit for bit."""
    expected, records = in_simulator(processes * workers_per_process)
    per_process = run_processes(in_process, processes, workers_per_process)
    for name, whole in expected.items():
        as_it_comes, reproducible = (torch.cat([calls[how][0][name] for calls in per_process]) for how in (0, 1))
        assert reproducible.dtype == as_it_comes.dtype == whole.dtype, name
        assert torch.equal(reproducible, whole), name
        if "bf16" in name or "int" in name or name.startswith(EXACT):
            assert torch.equal(as_it_comes, whole), name
        else:
            torch.testing.assert_close(as_it_comes, whole, rtol=1e-6, atol=1e-6, msg=name)
    for calls in per_process:
        assert [ledger for _, ledger in calls] == [records, records]


def test_shapes_leave_the_same_ledger_and_the_same_shapes() -> None:
    expected, records = in_simulator(4)
    shapes, ledger = all_calls(ShapesCommunicator(4), device="meta")
    assert ledger == records
    for name, tensor in shapes.items():
        assert tensor.is_meta
        assert (1, *expected[name].shape[1:]) == tensor.shape, name
        assert tensor.dtype == expected[name].dtype, name


def test_replicas_do_not_talk() -> None:
    """Two replicas side by side give what two separate groups give."""
    a, b = group_tensor(3, 4, seed=1), group_tensor(3, 4, seed=2)
    both = SimulatedCommunicator(3, replicas=2)
    blocks_a, blocks_b = group_tensor(3, 3, 4, seed=3), group_tensor(3, 3, 4, seed=4)
    for method, left, right in [
        ("all_reduce", a, b), ("all_gather", a, b), ("gather", a, b), ("reduce", a, b), ("broadcast", a, b),
        ("all_to_all", blocks_a, blocks_b), ("reduce_scatter", blocks_a, blocks_b),
    ]:  # fmt: skip
        alone = [getattr(SimulatedCommunicator(3), method)(x) for x in (left, right)]
        together = getattr(both, method)(torch.cat([left, right]))
        assert torch.equal(together, torch.cat(alone)), method
    assert both.world_size == 3
    assert list(both.local_workers) == [0, 1, 2, 0, 1, 2]
    assert {record.group_size for record in both.ledger.records} == {3}


def test_all_to_all_is_a_transpose_and_its_own_inverse() -> None:
    comm = SimulatedCommunicator(5)
    x = group_tensor(5, 5, 2)
    once = comm.all_to_all(x)
    assert torch.equal(once[3, 1], x[1, 3])
    assert torch.equal(comm.all_to_all(once), x)


@pytest.mark.parametrize("root", [0, 2])
def test_gather_is_all_gather_for_the_root_alone(root: int) -> None:
    comm = SimulatedCommunicator(3)
    x = group_tensor(3, 4, 2)
    gathered = comm.gather(x, root, label="x")
    for worker in range(3):
        assert torch.equal(gathered[worker], x if worker == root else torch.zeros_like(x))
    assert comm.ledger.records == [Call(0, "gather", 4 * 2 * 4, range(3), label="x")]


def test_send_moves_a_tensor_from_one_worker_to_another() -> None:
    comm = SimulatedCommunicator(3, replicas=2)
    x = group_tensor(6, 4, 2)
    sent = comm.send(x, source=2, target=0, label="x")
    assert torch.equal(sent[[0, 3]], x[[2, 5]]) and not sent[[1, 2, 4, 5]].any()
    assert comm.ledger.records == [Call(0, "send", 4 * 2 * 4, (2, 0), label="x")]


@pytest.mark.parametrize("op", ["mean", "sum", "max"])
@pytest.mark.parametrize("root", [0, 2])
def test_reduce_is_all_reduce_for_the_root_alone(root: int, op: str) -> None:
    comm = SimulatedCommunicator(3)
    x = group_tensor(3, 4, 2)
    reduced = comm.reduce(x, op, root, label="x")
    torch.testing.assert_close(reduced[root], comm.all_reduce(x, op)[root])
    assert not reduced[[worker for worker in range(3) if worker != root]].any()
    assert comm.ledger.records[0] == Call(0, "reduce", 4 * 2 * 4, range(3), label="x")


def test_integers_are_added_in_their_own_type() -> None:
    """At the limit of its range: 255 workers' ones in a byte; a type of 32 bits keeps what a float would round."""
    comm = SimulatedCommunicator(255)
    assert comm.all_reduce(torch.ones(255, 1, dtype=torch.uint8), op="sum")[0].item() == 255
    odd = 2**24 + 1
    total = comm.all_reduce(torch.tensor([odd] + [0] * 254, dtype=torch.int32), op="sum")
    assert (total.dtype, total[0].item()) == (torch.int32, odd)


def test_reduce_scatter_then_all_gather_is_all_reduce() -> None:
    comm = SimulatedCommunicator(4)
    x = group_tensor(4, 4, 3)
    whole = comm.all_gather(comm.reduce_scatter(x))
    torch.testing.assert_close(whole, comm.all_reduce(x))


def test_a_started_reduction_sends_what_the_tensor_held() -> None:
    comm = SimulatedCommunicator(2)
    x = torch.tensor([[1.0], [3.0]])
    handle = comm.start_all_reduce([x])
    x.zero_()
    assert handle.wait()[0].tolist() == [[2.0], [2.0]]
    assert handle.wait() is handle.wait()


def test_paused_ledger_records_nothing() -> None:
    comm = SimulatedCommunicator(2)
    with comm.ledger.paused():
        comm.all_reduce(torch.ones(2, 1))
    assert len(comm.ledger) == 0
    comm.all_reduce(torch.ones(2, 1), label="x")
    assert comm.ledger.records == [Call(0, "all_reduce", 4, range(2), label="x")]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SimulatedCommunicator(0), "workers: got 0; expected an integer >= 1"),
        (lambda: SimulatedCommunicator(2, replicas=0), "replicas: got 0"),
        (lambda: ShapesCommunicator(0), "workers: got 0"),
        (lambda: SimulatedCommunicator(2).all_reduce(torch.ones(3, 1)), "expected 2 rows"),
        (lambda: SimulatedCommunicator(2).all_reduce(torch.ones(2, 1), op="median"), "op: got 'median'"),
        (lambda: SimulatedCommunicator(2).broadcast(torch.ones(2, 1), root=2), "a worker from 0 to 1"),
        (lambda: SimulatedCommunicator(2).gather(torch.ones(2, 1), root=-1), "root: got -1; .* a worker from 0 to 1"),
        (lambda: ShapesCommunicator(2).gather(torch.ones(1, 1), root=2), "root: got 2; .* a worker from 0 to 1"),
        (lambda: SimulatedCommunicator(2).send(torch.ones(2, 1), 0, 2), "target: got 2; .* a worker from 0 to 1"),
        (lambda: SimulatedCommunicator(2).send(torch.ones(2, 1), 1, 1), "target: got 1; .* a worker other than"),
        (lambda: SimulatedCommunicator(2).all_reduce(torch.ones(2, 1).int()), "expected sum for integers"),
    ],
)
def test_misuse_is_one_helpful_line(unchecked, call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_processes_need_an_initialised_group() -> None:
    with pytest.raises(SynclineError, match="init_process_group"):
        ProcessGroupCommunicator()


def test_dense_is_the_identity_on_the_wire() -> None:
    x = group_tensor(2, 3)
    assert DENSE.encode(x) is x
    assert DENSE.nbytes(6, torch.float64) == 48
