"""Experts against a loop over tokens, their balance against its closed forms, and stages against the whole model."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from syncline.errors import SpecError
from syncline.methods import method_of
from syncline.problems import Rows, TextGPT
from syncline.problems.gpt import GPT, Experts, Routing, balance_loss, gates, training_flops_per_token
from syncline.problems.network import PerWorkerGradients, parameter_count
from syncline.runs.training.delayed_gradients import DelayedTraining, train_by_events
from syncline.runs.training.train_and_time import train_method
from syncline.specs import RunSpec, validate
from syncline.specs.stages import gpt_shape

WIDTH = 4


def experts(routing: Routing, seed: int = 0) -> Experts:
    made = Experts(WIDTH, routing).double()
    source = torch.Generator().manual_seed(seed)
    for p in made.parameters():
        p.data = torch.randn(p.shape, generator=source, dtype=torch.float64)
    return made


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_token(made: Experts, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs, and the balance's loss: token by token, expert by expert."""
    routing = made.routing
    counts, likely, outputs = [0] * routing.experts, torch.zeros(routing.experts, dtype=x.dtype), []
    tokens = x.reshape(-1, WIDTH)
    for token in tokens:
        logits = made.router.weight @ token
        chosen = sorted(range(routing.experts), key=lambda e: -logits[e].item())[: routing.per_token]
        shares = torch.exp(logits[chosen]) / torch.exp(logits[chosen]).sum()
        parts = []
        for share, e in zip(shares, chosen, strict=True):
            counts[e] += 1
            parts.append(share * (made.mlps[e].down.weight @ F.gelu(made.mlps[e].up.weight @ token)))
        outputs.append(sum(parts))
        likely = likely + torch.exp(logits) / torch.exp(logits).sum() / len(tokens)
    loss = routing.experts * sum(n / sum(counts) * p for n, p in zip(counts, likely, strict=True))
    return torch.stack(outputs).reshape(x.shape), loss


@pytest.mark.parametrize("per_token", [1, 2, 3])
def test_outputs_and_gradients_are_those_of_a_loop_over_tokens(per_token):
    """The balance's loss is in the gradients of everything, and not in the outputs."""
    made, x = experts(Routing(3, per_token, 0.3)), drawn(2, 5, WIDTH).requires_grad_()
    weight = drawn(2, 5, WIDTH, seed=2)
    expected, added = by_token(made, x)
    out = made(x)
    torch.testing.assert_close(out, expected)
    wanted = [x, *made.parameters()]
    own = torch.autograd.grad((out * weight).sum(), wanted)
    literal = torch.autograd.grad((expected * weight).sum() + 0.3 * added, wanted, allow_unused=True)
    for one, other in zip(own, literal, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)


def test_who_is_not_chosen_learns_nothing():
    made = experts(Routing(2, 1, 0.0))
    made.router.weight.data = torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]], dtype=torch.float64)
    x = drawn(1, 6, WIDTH).abs()
    made(x).sum().backward()
    assert made.mlps[0].up.weight.grad.abs().sum() > 0 and not made.mlps[1].up.weight.grad.any()


def test_alike_experts_are_one_mlp_whoever_is_chosen():
    made, x = experts(Routing(4, 2, 0.01)), drawn(2, 3, WIDTH)
    for mlp in made.mlps[1:]:
        mlp.load_state_dict(made.mlps[0].state_dict())
    torch.testing.assert_close(made(x), made.mlps[0](x))


def test_the_balance_is_one_where_all_are_as_likely_and_as_many_as_there_are_where_one_takes_all():
    even = torch.zeros(8, 4)
    assert balance_loss(even, gates(even, 2)).item() == pytest.approx(1.0)
    one = torch.tensor([[50.0, 0, 0, 0]]).expand(8, 4)
    assert balance_loss(one, gates(one, 1)).item() == pytest.approx(4.0)
    assert gates(one, 2).sum(-1).tolist() == pytest.approx([1.0] * 8)


def test_descent_on_the_balance_alone_evens_the_loads():
    made, x = experts(Routing(4, 1, 1.0)), drawn(1, 64, WIDTH).abs()  # on one side of what parts experts

    def loads() -> torch.Tensor:
        return (gates(made.router(x), 1) > 0).double().mean((0, 1))

    before = loads()
    for _ in range(300):
        (grad,) = torch.autograd.grad((0 * made(x)).sum(), [made.router.weight])
        made.router.weight.data -= 0.3 * grad
    assert before.max() > 0.45 and loads().max() < 0.35


GIVEN = {"width": 8, "layers": 2, "heads": 2, "context": 8, "batch_size": 2, "validation_windows": 4, "tied": False,
         "experts": 3, "experts_per_token": 2}  # fmt: skip


def test_a_batched_pass_is_the_loop_over_workers():
    problem = TextGPT(**GIVEN, balance=0.1)
    task = problem.build(Rows.whole_group(3, (0,)), dtype=torch.float64)
    found = []
    for how in ("loop", "vmap"):
        losses = PerWorkerGradients(task._loss, how)(task.params, *task.batch(0))
        found.append((losses, {name: p.grad.clone() for name, p in task.params.items()}))
    torch.testing.assert_close(found[0], found[1])
    assert (
        "blocks.0.experts.router.weight" not in task.matrices and "blocks.1.experts.mlps.2.up.weight" in task.matrices
    )


def test_sizes_and_work_are_those_of_the_models_shape():
    problem = TextGPT(**GIVEN)
    module, shape = problem.module(), gpt_shape(problem)
    d, layers = problem.width, problem.layers
    of_layer = 4 * d**2 + 3 * 8 * d**2 + 3 * d
    assert parameter_count(module) == (2 * 256 + 8) * d + layers * (of_layer + 2 * d) + d
    assert shape.parameters == 2 * 256 * d + layers * of_layer  # which has neither norms nor positions
    assert training_flops_per_token(module, 8) == shape.flops_per_token
    assert training_flops_per_token(module, 8) == 6 * (256 * d + layers * (of_layer - 8 * d**2)) + 12 * layers * d * 8


def test_one_expert_is_the_dense_model():
    plain = {name: value for name, value in GIVEN.items() if not name.startswith("experts")}
    dense, alone = TextGPT(**plain).initial_network(0), TextGPT(**plain, experts=1, balance=0.5).initial_network(0)
    assert dense.state_dict().keys() == alone.state_dict().keys() == GPT(256, 8, 8, 2, 2, False).state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(dense.state_dict().values(), alone.state_dict().values(), strict=True))


def test_stages_add_the_balance_where_they_are():
    """The delay line differentiates the whole model, the events stage by stage."""
    given = {"kind": "run", "name": "it", "workers": 1, "network": "wan", "seeds": [0], "steps": 4, "eval_every": 2}
    method = {"kind": "basis-rotation", "lr": 0.01}
    problem = {"kind": "text-gpt", **GIVEN, "balance": 1.0}
    spec = validate(RunSpec, given | {"problem": problem, "method": method, "pipeline": {"stages": 2}})
    line = train_method(spec, spec.method).history
    late = DelayedTraining(spec.problem, method_of(method), 2, 4, eval_every=2)
    events = train_by_events(late, (0,))
    assert line.evaluation["loss"] == pytest.approx(events.evaluation["loss"], abs=1e-4)
    without = validate(RunSpec, spec.model_dump() | {"problem": problem | {"balance": 0.0}})
    assert train_method(without, without.method).history.loss[-1] != pytest.approx(line.loss[-1], abs=1e-6)


@pytest.mark.parametrize(("fields", "path"), [
    ({"experts": 0}, "experts"), ({"experts": 2, "experts_per_token": 3}, "experts_per_token"),
    ({"experts": 1, "experts_per_token": 2}, "experts"), ({"balance": -1.0}, "balance"),
])  # fmt: skip
def test_experts_that_cannot_be_are_refused(fields, path):
    with pytest.raises(SpecError, match=rf"^problem.{path}: got "):
        TextGPT(**GIVEN | fields)
