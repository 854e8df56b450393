"""Optimizers of torch's kind as rules of ``ddp``, ``local`` and ``diloco``: equal to plain loops of torch."""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import cloudpickle
import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import TensorShape
from syncline.errors import SpecError
from syncline.methods import Local, method_of
from syncline.optim import Method, adam, torch_rule
from syncline.optim.torch_rule import TorchRule
from syncline.randomness import GlobalState
from syncline.training import parameter_groups, rows_of, train
from tests.methods.own import Lamb, Restless, Steady
from tests.methods.worlds import DIGITS, relative_difference

SHAPES = ((4, 3), (5,), ())
RULES: dict[str, Any] = {
    "SGD": partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
    "AdamW": torch.optim.AdamW,
    "amsgrad": partial(torch.optim.Adam, amsgrad=True, foreach=True),
    "Adagrad": partial(torch.optim.Adagrad, initial_accumulator_value=0.5),
    "RMSprop": partial(torch.optim.RMSprop, momentum=0.9, centered=True),
    "RAdam": torch.optim.RAdam,
    "Adadelta": torch.optim.Adadelta,
    "ASGD": torch.optim.ASGD,
    "Rprop": torch.optim.Rprop,
    "Lamb": Lamb,
    "Steady": Steady,
}
if hasattr(torch.optim, "Adafactor"):  # of torch 2.5
    RULES["Adafactor"] = torch.optim.Adafactor


def stacked(workers: int, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=draw).expand(workers, *shape).clone()) for shape in shapes]


def alone(params: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """The same parameters for each worker by itself."""
    return [[torch.nn.Parameter(p.detach()[w].clone()) for p in params] for w in range(len(params[0]))]


def gradients(params: list[torch.nn.Parameter], t: int) -> list[torch.Tensor]:
    """Of quadratics with noise: what they are depends on where the parameters are."""
    draw = torch.Generator().manual_seed(t)
    return [p.detach() + 0.3 + 0.2 * torch.randn(p.shape, generator=draw) for p in params]


def built(kind: str, rule: Any, params: Any, workers: int, lr: float = 0.02, **fields: Any) -> Method:
    return method_of({"kind": kind, "lr": lr, "rule": rule, **fields}).build(params, SimulatedCommunicator(workers))


def run(method: torch.optim.Optimizer, params: list[torch.nn.Parameter], first: int, last: int) -> None:
    for t in range(first, last):
        for p, g in zip(params, gradients(params, t), strict=True):
            p.grad = g
        method.step()


@pytest.mark.parametrize("name", RULES)
def test_one_worker_is_torchs_own_loop(name: str) -> None:
    """Bit for bit, with groups of their own rates and a schedule."""
    params = stacked(1)
    (own,) = alone(params)
    groups, own_groups = ([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.05}] for ps in (params, own))
    method, serial = built("ddp", RULES[name], groups, 1), RULES[name](own_groups, lr=0.02)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (method, serial)]
    for t in range(12):
        for p, q, g in zip(params, own, gradients(params, t), strict=True):
            p.grad, q.grad = g, g[0].clone()
        method.step()
        serial.step()
        for schedule in schedules:
            schedule.step()
        assert all(torch.equal(p[0], q) for p, q in zip(params, own, strict=True)), t


@pytest.mark.parametrize(("rule", "averaged"), [(Lamb, ("v",)), (Lamb, ()), (torch.optim.RMSprop, ("square_avg",))])
def test_three_workers_are_three_loops_that_meet(rule: Any, averaged: tuple[str, ...]) -> None:
    params = stacked(3)
    workers = alone(params)
    loops = [rule(own, lr=0.02) for own in workers]
    fields = {"kind": "torch", "target": rule, "average_states": averaged}
    method = built("local", fields, params, 3, period=4)
    for t in range(14):
        given = gradients(params, t)
        for p, g in zip(params, given, strict=True):
            p.grad = g
        method.step()
        for w, (own, loop) in enumerate(zip(workers, loops, strict=True)):
            for q, g in zip(own, given, strict=True):
                q.grad = g[w].clone()
            loop.step()
        if (t + 1) % 4 == 0:
            for same in zip(*workers, strict=True):
                states = [loop.state[q] for loop, q in zip(loops, same, strict=True)]
                for together in [[q.data for q in same], *([s[name] for s in states] for name in averaged)]:
                    mean = torch.stack(together).mean(0)
                    for tensor in together:
                        tensor.copy_(mean)
    for n, p in enumerate(params):
        torch.testing.assert_close(p.detach(), torch.stack([own[n].detach() for own in workers]), rtol=1e-6, atol=1e-6)
    assert not torch.equal(params[0][0], params[0][1])  # between averages they are apart


@pytest.mark.parametrize(("rule", "averaged"), [(Lamb, "v"), (torch.optim.AdamW, "exp_avg")])
@pytest.mark.parametrize("kind", ["local", "diloco"])
def test_workers_send_as_many_numbers_before_a_parameters_first_gradient(kind: str, rule: Any, averaged: str) -> None:
    """Another worker may have had the gradient, and has the state: all hand over tensors of one size."""
    params = stacked(2)
    method = built(kind, {"kind": "torch", "target": rule, "average_states": [averaged]}, params, 2, period=3)
    for t in range(9):
        for n, (p, g) in enumerate(zip(params, gradients(params, t), strict=True)):
            p.grad = None if n == 0 and t < 4 else g
        method.step()
        assert (averaged in method.state[params[0]]) == (t >= 4)
    # Four bytes for each number of the parameters and of a state of the same size.
    assert {call.payload_bytes for call in method.comm.ledger.records} == {8 * sum(p[0].numel() for p in params)}
    assert len(method.comm.ledger) == 3


@pytest.mark.parametrize(("kind", "averaged"), [("local", ("exp_avg", "exp_avg_sq")), ("diloco", ()), ("ddp", ())])
def test_torchs_adam_is_the_built_in_one(kind: str, averaged: tuple[str, ...]) -> None:
    own: dict[str, Any] = {
        "kind": "torch",
        "target": "torch.optim:AdamW",
        "weight_decay": 0.0,
        "average_states": averaged,
    }
    period = {} if kind == "ddp" else {"period": 3}
    found = []
    for rule in ("adam", own):
        params = stacked(4)
        run(built(kind, rule, params, 4, **period), params, 0, 11)
        found.append({str(n): p.detach() for n, p in enumerate(params)})
    assert relative_difference(*found) < 1e-6
    specs = [method_of({"kind": kind, "lr": 0.02, "rule": rule, **period}) for rule in ("adam", own)]
    sent = [[dataclasses.replace(exchange, label="") for exchange in spec.exchanges(1000, 4)] for spec in specs]
    assert sent[0] == sent[1] and specs[0].kept_elements(1000, 4) == specs[1].kept_elements(1000, 4)


@pytest.mark.parametrize(
    "rule", ["SGD", "AdamW", "amsgrad", "RMSprop", "Adagrad", "Adadelta", "RAdam", "ASGD", "Rprop"]
)
def test_one_instance_over_stacked_workers_is_one_for_each(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for elementwise in (torch_rule.ELEMENTWISE, ()):
        monkeypatch.setattr(torch_rule, "ELEMENTWISE", elementwise)
        made = TorchRule(RULES[rule])
        assert made.probe.elementwise == bool(elementwise)
        params = stacked(3)
        run(built("local", {"kind": "torch", "target": made.make}, params, 3, period=4), params, 0, 10)
        found.append(params)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_norms_are_each_workers_own() -> None:
    """What one worker's gradient is does not move another, until they meet."""
    ends = []
    for scale in (1.0, 100.0):
        params = stacked(2)
        method = built("local", Lamb, params, 2, period=100)
        for t in range(3):
            for p, g in zip(params, gradients(params, t), strict=True):
                p.grad = g * torch.tensor([1.0, scale]).view(-1, *[1] * (g.dim() - 1))
            method.step()
        ends.append(params)
    assert torch.equal(ends[0][0][0], ends[1][0][0]) and not torch.equal(ends[0][0][1], ends[1][0][1])


@pytest.mark.parametrize("name", sorted({"Steady", "amsgrad", "Rprop", "RAdam", "Adafactor"} & RULES.keys()))
def test_numbers_groups_and_attributes_are_resumed(name: str) -> None:
    params, again = stacked(3), stacked(3)
    method, resumed = (built("local", RULES[name], ps, 3, period=4) for ps in (params, again))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.8) for one in (method, resumed)]
    for _ in range(6):
        run(method, params, 0, 1)
        schedules[0].step()
    resumed.load_state_dict(copy.deepcopy(method.state_dict()))
    schedules[1].load_state_dict(schedules[0].state_dict())
    for p, q in zip(params, again, strict=True):
        q.data.copy_(p.data)
    for _ in range(5):
        for one, ps, schedule in zip((method, resumed), (params, again), schedules, strict=True):
            run(one, ps, 7, 8)
            schedule.step()
    assert all(torch.equal(p, q) for p, q in zip(params, again, strict=True))


def test_a_momentum_that_a_scheduler_cycles_reaches_the_optimizer() -> None:
    (p,), rule = stacked(2, ((3,),)), partial(torch.optim.SGD, momentum=0.5)
    q = torch.nn.Parameter(p.detach()[0].clone())
    method, serial = built("ddp", rule, [p], 2), rule([q], lr=0.02)
    cycles = [torch.optim.lr_scheduler.OneCycleLR(one, max_lr=0.1, total_steps=8) for one in (method, serial)]
    for _ in range(8):
        p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
        for one, cycle in zip((method, serial), cycles, strict=True):
            one.step()
            cycle.step()
    torch.testing.assert_close(p[1], q)
    assert method.param_groups[0]["momentum"] != 0.5


def test_a_function_may_group_its_parameters() -> None:
    """The rate of its first group is the method's; others keep their proportion, under a schedule too."""

    def make(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": [p], "lr": 0.3 / (1 + p.dim())} for p in sorted(params, key=lambda p: p.dim())]
        return torch.optim.SGD(groups)

    params = stacked(2)
    method = built("ddp", make, [{"params": params[:2]}, {"params": params[2:], "lr": 0.5}], 2, lr=0.25)
    starts = [p.detach().clone() for p in params]
    for factor in (1.0, 0.1):
        for group, lr in zip(method.param_groups, (0.25, 0.5), strict=True):
            group["lr"] = lr * factor
        for p in params:
            p.grad = torch.ones_like(p)
        method.step()
        moved = [float((a - p.detach()).mean()) for a, p in zip(starts, params, strict=True)]
        assert moved == pytest.approx([0.25 / 3 * factor, 0.25 / 2 * factor, 0.5 * factor], rel=1e-4)
        starts = [p.detach().clone() for p in params]


def test_parameters_without_gradients_stay_and_new_groups_join() -> None:
    params = stacked(2)
    params[1].requires_grad_(False)
    method = built("local", Lamb, params, 2, period=2)
    before = [p.detach().clone() for p in params]
    late = torch.nn.Parameter(torch.ones(2, 3))
    for t in range(4):
        params[0].grad = gradients(params, t)[0]
        if t == 2:
            method.add_param_group({"params": [late], "lr": 0.5})
        if t >= 2:
            late.grad = torch.ones_like(late)
        method.step()
    assert torch.equal(params[1], before[1]) and torch.equal(params[2], before[2])
    (own,) = alone([late.new_ones(1, 3)])  # type: ignore[list-item]
    serial = Lamb(own, lr=0.5)
    for _ in range(2):
        own[0].grad = torch.ones(3)
        serial.step()
    torch.testing.assert_close(late.detach(), own[0].detach().expand(2, 3))


@pytest.mark.parametrize("rule", [RULES[name] for name in ("Adafactor", "Lamb", "Steady") if name in RULES])
def test_what_it_will_keep_is_what_it_keeps(rule: Any) -> None:
    """Also of one that reads values, so that it cannot step shapes without them."""
    shapes = ((6, 4), (5,), (3, 2, 2))
    params = stacked(2, shapes)
    method = built("local", rule, params, 2)
    run(method, params, 0, 2)
    kept = sum(x.numel() for p in params for x in method.state[p].values()) // 2
    spec = method_of({"kind": "local", "lr": 0.02, "rule": rule})
    assert spec.kept_elements([TensorShape("", shape) for shape in shapes], 2) == kept > 0


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_steps_matrices_and_says_so_of_others() -> None:
    (p,) = stacked(2, ((4, 3),))
    (q,) = alone([p])[0]
    serial = torch.optim.Muon([q], lr=0.02)
    method = built("ddp", torch.optim.Muon, [p], 2)
    for t in range(3):
        p.grad = gradients([p], t)[0][:1].expand_as(p).clone()
        q.grad = p.grad[0].clone()
        method.step()
        serial.step()
    torch.testing.assert_close(p[0], q)
    with pytest.raises(SpecError, match="only supports 2D"):
        built("ddp", torch.optim.Muon, stacked(2), 2)


def test_rates_are_not_averaged_where_only_parameters_meet() -> None:
    """By default no state travels; the built-in rules' do."""
    spec = method_of({"kind": "local", "lr": 0.01, "rule": torch.optim.AdamW, "period": 8})
    (exchange,) = spec.exchanges(1000, 4)
    assert (exchange.payload_bytes, exchange.label) == (4000, "params") and spec.name == "local-AdamW"
    assert method_of({"kind": "diloco", "lr": 0.01, "rule": Lamb}).name == "diloco-Lamb"


TORCH = {"kind": "torch", "target": "torch.optim:AdamW"}


class NoRate(torch.optim.SGD):
    def __init__(self, params: Any) -> None:
        super().__init__(params)
        for group in self.param_groups:
            del group["lr"]


class Closed(torch.optim.SGD):
    def step(self, closure: Any) -> Any:  # type: ignore[override]
        return closure()


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"average_states": ["exp_av"]}, "rule.average_states: got 'exp_av'; expected one of 'exp_avg', 'exp_avg_sq'"),
        ({"average_states": ["step"]}, "rule.average_states: got 'step'; expected one of"),
        ({"target": "torch.optim:SGD", "average_states": ["m"]}, "rule.average_states: got 'm'; expected none, as SGD"),
        ({"betas": [3, 4]}, "rule.target: got 'AdamW'; expected an optimizer that can be created; it says: ValueError"),
        ({"beta": 3}, "rule.beta: got 3; expected no such option, but one of 'amsgrad', 'average_states'"),
        ({"lr": 3}, "rule.lr: got 3; expected none: the learning rate is the method's"),
        ({"target": "torch.optim:AdamV"}, "rule.target: got 'torch.optim:AdamV'; expected a name of torch.optim"),
        ({"target": "no_such:Opt"}, "rule.target: got 'no_such:Opt'; expected a module that imports"),
        ({"target": "__main__:Opt"}, "rule.target: got '__main__:Opt'; expected module:name or file.py:name; pass"),
        ({"target": "AdamW"}, "rule.target: got 'AdamW'; expected module:name"),
        ({"target": "math:pi"}, "rule.target: got 'math:pi'; expected a class derived from torch.optim.Optimizer"),
        ({"target": "torch.optim:LBFGS"}, "rule.target: got 'LBFGS'; expected an optimizer that takes one gradient"),
        ({"target": "torch.optim:SparseAdam"}, "rule.target: got 'SparseAdam'; expected an optimizer of dense"),
        ({"target": Closed}, "rule.target: got 'Closed'; expected an optimizer that takes a step without a closure"),
        ({"target": NoRate}, "rule.target: got 'NoRate'; expected an optimizer with a learning rate, lr, in each"),
        ({"target": lambda params: 3}, "rule.target: got '<lambda>'; expected a class or function that makes a torch"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        method_of({"kind": "local", "lr": 0.01, "rule": {**TORCH, **fields}})
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"kind": "ddp", "rule": {**TORCH, "average_states": ["exp_avg"]}}, "rule.average_states: got ('exp_avg',)"),
        ({"rule": {**TORCH, "average_states": ["exp_avg"]}, "compressor": "top-k"}, "rule.average_states: got"),
        ({"rule": TORCH, "weight_decay": 0.1}, "weight_decay: got 0.1; expected 0 with an optimizer that has its own"),
        ({"rule": TORCH, "other_lr": 0.1}, "other_lr: got 0.1; expected none"),
        ({"rule": torch.optim.SGD([torch.ones(2)])}, "rule.target: got 'SGD'; expected a class derived from torch"),
    ],
)
def test_what_does_not_go_with_it_is_refused_in_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        method_of({"kind": "local", "lr": 0.01, **fields})
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


def test_put_together_by_hand_it_is_held_to_the_same() -> None:
    from syncline.optim import EveryStep, Periodic

    rule = TorchRule(Lamb)
    for kind in ({"weight_decay": 0.1}, {}):
        with pytest.raises(SpecError, match=r"weight_decay|sync: got 'm'"):
            sync = EveryStep() if kind else Periodic({"m": 3})
            Method(stacked(1), 0.1, rule, sync, comm=SimulatedCommunicator(1), worker_axis=True, **kind)
    with pytest.raises(SpecError, match=r"weight_decay: got 0.3; expected none, as Steady has none"):
        built("ddp", Steady, [{"params": stacked(1), "weight_decay": 0.3}], 1)
    method = Local([torch.nn.Parameter(torch.ones(3))], 0.1, torch.optim.SGD, 4)  # a drop-in, without a worker axis
    method.param_groups[0]["params"][0].grad = torch.ones(3)
    method.step()
    torch.testing.assert_close(method.param_groups[0]["params"][0].detach(), torch.full((3,), 0.9))
    assert TorchRule(Lamb) == rule != TorchRule(Lamb, ("m",)) and adam() == adam()


def test_a_spec_is_written_and_read_as_it_was_meant() -> None:
    rule = partial(Lamb, betas=(0.8, 0.9))
    spec = method_of({"kind": "local", "lr": 0.01, "rule": {"kind": "torch", "target": rule, "average_states": ["m"]}})
    written = spec.model_dump(mode="json")
    assert written["rule"] == {
        "kind": "torch", "target": "tests.methods.own:Lamb", "average_states": ["m"], "betas": [0.8, 0.9],
    }  # fmt: skip
    again = method_of(written)
    assert again.model_dump(mode="json") == written and again.rule.build().probe == spec.rule.build().probe


def test_what_has_no_name_trains_and_says_so_when_it_is_read_again() -> None:
    class Mine(torch.optim.SGD):
        pass

    for rule in (Mine, lambda params: Mine(params, momentum=0.9)):
        spec = method_of({"kind": "local", "lr": 0.01, "rule": rule})
        sent = cloudpickle.loads(cloudpickle.dumps(spec))
        ends = []
        for one in (spec, sent):
            params = stacked(2)
            run(one.build(params, SimulatedCommunicator(2)), params, 0, 3)
            ends.append(params)
        assert all(torch.equal(p, q) for p, q in zip(*ends, strict=True))
        with pytest.raises(
            SpecError, match=r"rule.target: got .*; expected module:name or file.py:name; pass an object"
        ):
            method_of(spec.model_dump(mode="json"))


class Part(SimulatedCommunicator):
    """The workers of one process of a group of four, where nothing is exchanged."""

    def __init__(self, *workers: int, replicas: int = 1) -> None:
        super().__init__(len(workers), replicas)
        self.world_size, self.local_workers = 4, list(workers) * replicas


def drawn(comm: Part, seeds: tuple[int, ...]) -> torch.Tensor:
    """A parameter ``(R, *s)`` after three steps of an optimizer that draws."""
    task = DIGITS.build(rows_of(comm, seeds))
    method = method_of({"kind": "local", "lr": 0.01, "rule": Restless, "period": 9}).build(parameter_groups(task), comm)
    train(task, method, seeds, 3)
    return next(iter(task.params.values())).detach()


def test_what_an_optimizer_draws_is_of_seed_worker_and_step_in_every_world() -> None:
    cpu = torch.device("cpu")
    together = drawn(Part(0, 1, 2, 3, replicas=2), (3, 4))
    torch.rand(7)  # draws elsewhere change nothing
    for number, seed in enumerate((3, 4)):
        in_pairs = torch.cat([drawn(Part(0, 1), (seed,)), drawn(Part(2, 3), (seed,))])
        each = torch.cat([drawn(Part(worker), (seed,)) for worker in range(4)])
        assert torch.equal(in_pairs, each)
        assert torch.equal(together[4 * number : 4 * number + 4], each)
    assert len({tuple(row.flatten()[:3].tolist()) for row in together}) == 8
    before = GlobalState.capture(cpu)
    drawn(Part(0), (3,))
    # Python's generator aside, from which the tests' checks of types draw.
    assert before.equals(GlobalState.capture(cpu)._replace(of_python=before.of_python))


def test_in_a_loop_of_ones_own_an_optimizer_draws_as_it_does_by_itself() -> None:
    params = stacked(1)
    (own,) = alone(params)
    serial, method = Restless(own, lr=0.02), built("ddp", Restless, params, 1)
    for instance in method._steppers._optimizers:  # type: ignore[union-attr]
        instance.optimizer.drift = serial.drift
    state = GlobalState.capture(torch.device("cpu"))
    run(method, params, 0, 2)
    state.restore(torch.device("cpu"))
    for t in range(2):
        for q, g in zip(own, gradients([q[None] for q in own], t), strict=True):
            q.grad = g[0]
        serial.step()
    assert all(torch.equal(p[0], q) for p, q in zip(params, own, strict=True))
