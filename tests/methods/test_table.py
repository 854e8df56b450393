"""Properties that every method of the shared table has."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from syncline.comm import Ledger, ShapesCommunicator, SimulatedCommunicator
from syncline.costmodel import MODELS, Link, TensorShape, calls_at, calls_of
from syncline.costmodel.traffic.overlap import gradient_buckets
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.optim.demo import dct_matrix, dct_matrix_on
from syncline.planner.projection.memory_plan import memory_of
from syncline.problems import Rows
from syncline.sim import clock
from syncline.training import parameter_groups, rows_of
from tests.methods.table import METHODS, Serial
from tests.methods.worlds import BOWLS, Outcome, in_simulator, relative_difference

rows = pytest.mark.parametrize("name", METHODS)

BLOCK = {"text-gpt": "a block of text-gpt", "gpt-160m": "a block of gpt-160m"}
"""Of models whose blocks repeat each other: one shows every shape in a fraction of the time."""

SHAPES = {name: model.tensors for name, model in MODELS.items()} | {
    name: replace(MODELS[model], layers=1).tensors for model, name in BLOCK.items()
}
FOUR = "four tensors of text-gpt"
"""A wide, a tall and a lying matrix and a vector: one of each kind that a block has."""
SHAPES[FOUR] = [t for t in SHAPES[BLOCK["text-gpt"]] if t.name in ("embedding", "0.qkv", "0.down", "norm")]


@cache
def exchanges_every_step(name: str) -> bool:
    """Whether workers hold equal parameters after every step: something is exchanged in each, or they rest."""
    spec = METHODS[name].spec
    if spec.kind == "demo" or getattr(spec, "local_step", "step") == "hold":
        return True
    exchanges = spec.exchanges(1, 4)
    return all(calls_at(exchanges, t) for t in range(12))


SERIAL_STEPS = 32
"""Longer, a training blows the last bit up: at 60 steps NAdam's differed by 1.03e-6 under the kernels of one CPU."""


@pytest.mark.parametrize(("name", "optimizer"), [(name, row.serial) for name, row in METHODS.items() if row.serial])
def test_one_worker_is_the_serial_optimizer(name: str, optimizer: Serial) -> None:
    """Where torch has the optimizer; the others have a literal derivation in test_formulas.py."""
    task = BOWLS.build(Rows.whole_group(1))
    serial = optimizer(list(task.params.values()))
    for t in range(SERIAL_STEPS):
        task.step_gradients(t)
        serial.step()
    got = in_simulator(name, workers=1, steps=SERIAL_STEPS).params
    assert relative_difference(got, {k: p.detach() for k, p in task.params.items()}) < 1e-6


STEPS = 13
"""Steps of a training: more than a period of every row, and in the middle of the next one."""


@cache
def trained(name: str, seed: int) -> Outcome:
    """A training of a row, once for all tests that look at it."""
    return in_simulator(name, steps=STEPS, seeds=(seed,))


@rows
def test_same_seed_same_bits(name: str) -> None:
    first, again, other = trained(name, 0), kept(name), trained(name, 1)
    for key, tensor in first.params.items():
        assert torch.equal(tensor, again.params_then[key])
        assert not torch.equal(tensor, other.params[key])
    assert first.ledger == [record for record in again.ledger.records if record.step < STEPS]


class Kept(NamedTuple):
    """A training of 25 steps, and what a user would have kept in the middle of every period of the table.

    ``unequal`` names the tensors that differ between workers in the first steps though they were averaged in that
    step, and ``apart`` tells whether parameters that were not averaged differ.
    """

    params: dict[str, torch.Tensor]
    ledger: Ledger
    state: dict[str, Any]
    params_then: dict[str, torch.Tensor]
    unequal: set[str]
    apart: bool


@cache
def kept(name: str) -> Kept:
    comm = SimulatedCommunicator(4)
    task = BOWLS.build(rows_of(comm, (0,)))
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    unequal: set[str] = set()
    apart = False
    for t in range(25):
        if t == STEPS:
            state = copy.deepcopy(method.state_dict())
            then = {key: p.detach().clone() for key, p in task.params.items()}
        task.step_gradients(t)
        method.step()
        if t < STEPS:
            averaged = {part for r in comm.ledger.records if r.step == t for part in r.label.split("+")}
            for p in task.params.values():
                found = {state for state, tensor in method.state[p].items() if differs(tensor)}
                unequal |= found & averaged
                if exchanges_every_step(name) or "params" in averaged:
                    unequal |= {"params"} if differs(p) else set()
                else:
                    apart |= differs(p)
    return Kept({key: p.detach() for key, p in task.params.items()}, comm.ledger, state, then, unequal, apart)


@rows
def test_a_deep_copy_in_mid_run_continues_identically(name: str) -> None:
    """A copy of the model and its optimizer, whose step a scheduler has wrapped, leaves the original as it is."""
    whole, comm = kept(name), SimulatedCommunicator(4)
    task = BOWLS.build(rows_of(comm, (0,)))
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    torch.optim.lr_scheduler.LambdaLR(method, lambda t: 1.0)
    for t in range(STEPS):
        task.step_gradients(t)
        method.step()
    copied_task, copied = copy.deepcopy((task, method))
    for t in range(STEPS, 25):
        copied_task.step_gradients(t)
        copied.step()
    for key, p in copied_task.params.items():
        assert torch.equal(p, whole.params[key])
        assert torch.equal(task.params[key], whole.params_then[key])
    assert copied.comm.ledger.records == whole.ledger.records
    assert comm.ledger.records == [record for record in whole.ledger.records if record.step < STEPS]


@pytest.mark.parametrize("name", [name for name in METHODS if "torch" not in name])
def test_the_default_device_of_torch_changes_nothing(name: str) -> None:
    """What a method draws or looks up is on the CPU, whatever a script sets; a default of GPUs would raise errors."""
    comm = SimulatedCommunicator(4)
    task = BOWLS.build(rows_of(comm, (0,)))
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    for table in (dct_matrix, dct_matrix_on):
        table.cache_clear()
    for t in range(3):
        task.step_gradients(t)
        with torch.device("meta"):  # a tensor made there has no values
            method.step()
    expected = in_simulator(name, steps=3).params
    assert all(torch.equal(p, expected[key]) for key, p in task.params.items())


def differs(tensor: torch.Tensor) -> bool:
    """Return whether a tensor differs between workers."""
    return not torch.equal(tensor, tensor[:1].expand_as(tensor))


@rows
def test_a_state_dict_in_mid_run_continues_identically(name: str) -> None:
    whole, comm = kept(name), SimulatedCommunicator(4)
    task = BOWLS.build(rows_of(comm, (0,)))
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    method.load_state_dict(copy.deepcopy(whole.state))
    with torch.no_grad():
        for key, p in task.params.items():
            p.copy_(whole.params_then[key])
    for t in range(STEPS, 25):
        task.step_gradients(t)
        method.step()
    for key, p in task.params.items():
        assert torch.equal(p, whole.params[key])
    assert comm.ledger.records == [record for record in whole.ledger.records if record.step >= STEPS]


@rows
def test_float64(name: str) -> None:
    """Double precision stays double, and single precision is near it."""
    double = in_simulator(name, steps=STEPS, dtype=torch.float64)
    assert {tensor.dtype for tensor in (*double.params.values(), *double.states.values())} == {torch.float64}
    if METHODS[name].settled:
        single = {k: p.double() for k, p in trained(name, 0).params.items()}
        assert relative_difference(single, double.params) < 1e-4


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if not row.spec.one_seed_at_a_time])
@pytest.mark.parametrize(
    "model",
    [
        FOUR,
        *(pytest.param(m, marks=pytest.mark.slow) for m in (*BLOCK.values(), "gpt-160m", "olmo-1b")),
    ],
)
def test_ledger_equals_the_cost_model_on_shapes(name: str, model: str) -> None:
    """A method stepped on the meta device leaves the calls that its closed form names, at full size.

    A trigger needs values: test_ledger_equals_the_cost_model_on_values compares its bytes.
    """
    check_ledger_on_shapes(METHODS[name].spec, model)


SENDS_GRADIENTS = [
    name for name, row in METHODS.items() if row.spec.sends_gradients and not row.spec.one_seed_at_a_time
]


@pytest.mark.parametrize("wire", ["bf16", "fp16"])
@pytest.mark.parametrize("name", SENDS_GRADIENTS)
def test_gradients_are_encoded_only_into_another_format_than_their_own(name: str, wire: str) -> None:
    """The ledger equals the cost model for gradients that are computed in bf16 and sent in bf16, or in fp16."""
    spec = METHODS[name].spec.model_copy(update={"wire": wire})
    check_ledger_on_shapes(spec.in_precision("bf16"), FOUR)


def check_ledger_on_shapes(spec: MethodBase, model: str) -> None:
    tensors = SHAPES[model]
    groups = [
        {"params": [meta(t.shape) for t in tensors if t.is_matrix == matrix], "matrix": matrix}
        for matrix in (True, False)
    ]
    comm = ShapesCommunicator(8)
    method = spec.build(groups, comm)
    # Shapes take long: the first phases and a period of the last one show the rest; of a block, two periods.
    is_block = model == BLOCK["text-gpt"]
    shown = max(max(one.start, one.stop or 0) + (1 + is_block) * one.period for one in spec.exchanges(tensors, 8))
    steps = min(max(shown, 2), 24 if is_block else 12)
    for _ in range(steps):
        for group in groups:
            for p in group["params"]:
                p.grad = torch.empty_like(p)
        method.step()
    # The order of the optimizer's groups: what is cut into fragments is cut in this order.
    in_order = sorted(tensors, key=lambda t: not t.is_matrix)
    assert_sent(comm.ledger, spec, in_order, 8, steps)
    assert comm.ledger.records, "a method that never talks tests nothing here"


def meta(shape: tuple[int, ...]) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.empty(1, *shape, device="meta"))


def assert_sent(ledger: Ledger, spec: MethodBase, tensors: list[TensorShape], workers: int, steps: int) -> None:
    """Whole calls, with all that a clock makes of them; and what the trigger reads back in each step."""
    assert ledger.records == calls_of(spec.exchanges(tensors, workers), steps, range(workers))
    assert [ledger.readbacks[t] for t in range(steps)] == [spec.readbacks(tensors)] * steps


@rows
def test_ledger_equals_the_cost_model_on_values(name: str) -> None:
    """The same on a training, where triggers have values to look at (all of the table's fire always)."""
    whole, task = kept(name), BOWLS.build(Rows.whole_group(4))
    tensors = [TensorShape(k, tuple(p.shape[1:]), k in task.matrices) for k, p in task.params.items()]
    spec = METHODS[name].spec
    assert_sent(whole.ledger, spec, tensors, 4, 25)
    if spec.one_seed_at_a_time:
        seen = spec.exchanges_of_training(tensors, 4, 25, range(25))
        assert seen is not None and whole.ledger.records == calls_of(seen, 25, range(4))


@rows
def test_a_clock_does_not_read_labels(name: str) -> None:
    """What is sent may be called anything: step times, and what the time goes into, are the same to the bit."""
    sent = [call for call in trained(name, 0).ledger if call.step < 8]
    renamed = [call._replace(label=f"trigger {number}") for number, call in enumerate(sent)]
    told, again = (
        clock(calls, 1e-3, Link(1e-4, 1e7), 4, 8, overlap="ddp", buckets=gradient_buckets([3, 5], 8.0),
              algorithm="auto", trigger_s=1e-5, encode_bytes_per_s=1e8)
        for calls in (sent, renamed)
    )  # fmt: skip
    for field in fields(told):
        if field.name != "timeline":
            np.testing.assert_array_equal(getattr(told, field.name), getattr(again, field.name))


LATE_STEPS, STEPS_AFTER = 3, 12


def late_matrices(name: str, late_steps: int) -> tuple[list[float], float]:
    """Return the distance that two matrices move once their gradients begin, and the largest error that is fed back.

    In the first ``late_steps`` steps the gradient of the first matrix is zero and that of the second is None; a vector
    trains from the first step on.
    """
    matrices = [torch.nn.Parameter(torch.zeros(2, 5, 6)) for _ in range(2)]
    vector = torch.nn.Parameter(torch.zeros(2, 5))
    groups = [{"params": matrices, "matrix": True}, {"params": [vector], "matrix": False}]
    method = METHODS[name].spec.build(groups, SimulatedCommunicator(2))
    source = torch.Generator().manual_seed(0)
    for t in range(late_steps + STEPS_AFTER):
        if t == late_steps:
            starts = [p.detach().clone() for p in matrices]
        for p in (*matrices, vector):
            p.grad = torch.randn(p.shape, generator=source)
        if t < late_steps:
            matrices[0].grad, matrices[1].grad = torch.zeros_like(matrices[0]), None
        method.step()
    errors = [float(x.abs().max()) for state in method.state.values() for key, x in state.items() if "error" in key]
    return [float((p.detach() - x).norm()) for p, x in zip(matrices, starts, strict=True)], max(errors, default=0.0)


@rows
def test_a_matrix_whose_gradient_begins_late_trains_from_then_on(name: str) -> None:
    """The matrix moves as far as one that trains from the first step, to a factor of 4, and its error stays as small.

    The second moment of a one-bit method stays from ``freeze_step`` on, and where it is zero nothing moves.
    """
    (moved, error), (punctual, punctual_error) = late_matrices(name, LATE_STEPS), late_matrices(name, 0)
    if METHODS[name].spec.model_dump().get("freeze_step", LATE_STEPS + 1) <= LATE_STEPS:
        assert moved == [0.0, 0.0]
        return
    assert min(moved) > min(punctual) / 4
    assert error <= 4 * punctual_error + 1e-6


def test_complex_parameters_are_refused() -> None:
    p = torch.nn.Parameter(torch.ones(2, 3, 4, dtype=torch.complex64))
    message = r"^parameter weight: got 'torch.complex64'; expected real numbers"
    for row in METHODS.values():
        with pytest.raises(SpecError, match=message) as refused:
            row.spec.build([("weight", p)], SimulatedCommunicator(2))
        assert "\n" not in str(refused.value)


@rows
def test_memory_of_states_equals_the_cost_model(name: str) -> None:
    """Bytes of the states that each of 4 workers really keeps; what errors are is told by their names."""
    spec, workers = METHODS[name].spec, 4
    comm = SimulatedCommunicator(workers)
    task = BOWLS.build(rows_of(comm, (0,)))
    method = spec.build(parameter_groups(task), comm)
    for t in range(3):
        task.step_gradients(t)
        method.step()
    kept = {True: 0, False: 0}
    for state in method.state.values():
        for key, tensor in state.items():
            kept["error" in key] += tensor.numel() * tensor.element_size() // workers
    tensors = [TensorShape(k, tuple(p.shape[1:]), k in task.matrices) for k, p in task.params.items()]
    memory = memory_of(spec, tensors, workers)
    assert (memory.optimizer_state_bytes, memory.error_feedback_bytes) == (kept[False], kept[True])
    weights = sum(p.numel() * p.element_size() // workers for p in task.params.values())
    assert (memory.weights_bytes, memory.gradients_bytes) == (weights, weights)


def test_workers_agree_on_what_was_just_averaged() -> None:
    for name in METHODS:
        whole = kept(name)
        assert whole.unequal == set(), name
        assert whole.apart or exchanges_every_step(name), name


@rows
def test_replicas_are_separate_runs(name: str) -> None:
    if METHODS[name].spec.one_seed_at_a_time:
        with pytest.raises(SpecError, match="one at a time"):
            in_simulator(name, steps=2, seeds=(0, 1))
        return
    both = in_simulator(name, steps=STEPS, seeds=(0, 1))
    for number in (0, 1):
        alone = trained(name, number)
        part = {k: p[number * 4 : number * 4 + 4] for k, p in both.params.items()}
        assert relative_difference(part, alone.params) < 1e-6
    assert both.ledger == alone.ledger  # bytes of one worker, however many replicas


@rows
def test_drop_in_for_an_ordinary_module(name: str) -> None:
    """No worker axis, torch's own loop: the same path as one worker in the simulator."""
    spec = METHODS[name].spec
    torch_module = torch.nn.Linear(5, 3)
    stacked = {k: torch.nn.Parameter(p.detach().unsqueeze(0).clone()) for k, p in torch_module.named_parameters()}
    plain = spec.build(torch_module.parameters(), SimulatedCommunicator(1), worker_axis=False)
    rowed = spec.build(stacked.values(), SimulatedCommunicator(1))
    x, y = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    for _ in range(10):
        plain.zero_grad()
        torch.nn.functional.cross_entropy(torch_module(x), y).backward()
        for k, p in torch_module.named_parameters():
            stacked[k].grad = p.grad.unsqueeze(0).clone()
        plain.step()
        rowed.step()
    for k, p in torch_module.named_parameters():
        assert torch.equal(p, stacked[k][0])


@rows
def test_parameter_groups_and_schedulers_are_torchs(name: str) -> None:
    """A group with learning rate 0 stands still; a scheduler's factor reaches the step."""
    spec = METHODS[name].spec.model_copy(update={"weight_decay": 0.0, "other_lr": None})
    moving, frozen = (torch.nn.Parameter(torch.ones(2, 3, 4)) for _ in range(2))
    method = spec.build([{"params": [moving]}, {"params": [frozen], "lr": 0.0}], SimulatedCommunicator(2))
    scheduler = torch.optim.lr_scheduler.LambdaLR(method, lambda t: 1.0 if t < 3 else 0.0)
    positions = []
    for t in range(6):
        for p in (moving, frozen):
            p.grad = torch.full_like(p, 1.0 + t)
        method.step()
        scheduler.step()
        positions.append(moving.detach().clone())
    assert torch.equal(frozen, torch.ones_like(frozen))
    assert not torch.equal(positions[2], torch.ones_like(moving))
    if "diloco" not in name and "outer" not in name and "fedadam" not in name:  # an outer momentum coasts on
        torch.testing.assert_close(positions[5], positions[2])


def test_no_row_is_listed_twice() -> None:
    dumps = [row.spec.model_dump_json() for row in METHODS.values()]
    assert len(set(dumps)) == len(dumps)
