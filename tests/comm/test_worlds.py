"""The worlds agree: simulated rows, real processes, shapes."""

from __future__ import annotations

import pytest
import torch

from syncline.backend import run_processes
from syncline.comm import DENSE, ProcessGroupCommunicator, ShapesCommunicator, SimulatedCommunicator
from syncline.errors import SpecError, SynclineError
from tests.comm.worlds import all_calls, group_tensor, in_process, in_simulator


@pytest.mark.parametrize(("processes", "workers_per_process"), [(4, 1), (2, 2)])
def test_processes_equal_rows_of_the_simulator(processes: int, workers_per_process: int) -> None:
    expected, records = in_simulator(processes * workers_per_process)
    per_process = run_processes(in_process, processes, workers_per_process)
    for name, whole in expected.items():
        got = torch.cat([values[name] for values, _ in per_process])
        if "bf16" in name or name.startswith(("all_gather", "all_to_all", "broadcast", "flag", "second")):
            assert torch.equal(got, whole), name  # nothing is added up on the way, or only in one fixed order
        else:
            torch.testing.assert_close(got, whole, rtol=1e-6, atol=1e-6, msg=name)
    for _, ledger in per_process:
        assert ledger == records


def test_reproducible_processes_equal_rows_bit_for_bit() -> None:
    expected, records = in_simulator(4)
    per_process = run_processes(in_process, 2, 2, True)
    for name, whole in expected.items():
        assert torch.equal(torch.cat([values[name] for values, _ in per_process]), whole), name
    assert per_process[0][1] == records


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
        ("all_reduce", a, b), ("all_gather", a, b), ("broadcast", a, b),
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
    assert comm.ledger.records == [(0, "x", "all_reduce", 4, 2)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SimulatedCommunicator(0), "workers: got 0; expected an integer >= 1"),
        (lambda: SimulatedCommunicator(2, replicas=0), "replicas: got 0"),
        (lambda: ShapesCommunicator(0), "workers: got 0"),
        (lambda: SimulatedCommunicator(2).all_reduce(torch.ones(3, 1)), "expected 2 rows"),
        (lambda: SimulatedCommunicator(2).all_reduce(torch.ones(2, 1), op="median"), "op: got 'median'"),
        (lambda: SimulatedCommunicator(2).broadcast(torch.ones(2, 1), root=2), "a worker from 0 to 1"),
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
