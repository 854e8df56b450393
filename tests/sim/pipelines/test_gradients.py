"""Real math through a schedule: accumulation, stashing, and a delay line that gives the same trajectory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from syncline.problems import DelayedTask, Rows, TextGPT, coordinate_delays, parameter_stages, split_into_stages
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import schedule
from tests.sim.pipelines.schedules import FLUSHING, chunks_of

STAGES, MICROBATCHES, WIDTH, BATCH = 4, 12, 5, 3
FREE = Link(0.0, 1e15)


def data():
    source = torch.Generator().manual_seed(7)
    shape = (MICROBATCHES, BATCH, WIDTH)
    return tuple(torch.randn(shape, generator=source, dtype=torch.float64) for _ in range(2))


def linear_parts(count=STAGES):
    source = torch.Generator().manual_seed(1)
    parts = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float64) for _ in range(count)]
    for part in parts:
        part.weight.data = torch.randn(WIDTH, WIDTH, generator=source, dtype=torch.float64) / WIDTH**0.5
    return parts


def sgd(lr=0.05):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr)


def adam(lr=0.05):
    return lambda parameters: torch.optim.Adam(parameters, lr=lr)


def play(name, optimizer, weights="stashed", durations=None, chunks=1):
    """The trained parts, and the math that trained them."""
    x, y = data()
    parts, made = linear_parts(STAGES * chunks), schedule(name, STAGES, MICROBATCHES, chunks)
    optimizers = [optimizer([p for part in parts[k::STAGES] for p in part.parameters()]) for k in range(STAGES)]
    math = PipelineMath(made, parts, lambda i: x[i], lambda out, i: (out - y[i]).square().mean(), optimizers, weights)
    run_pipeline(Pipeline(made, STAGES, durations or Durations(1.0, 2.0, 1.0), effects=math.effect), FREE)
    return parts, math


class Line:
    """The same linear network as a task of one row."""

    def __init__(self):
        self.x, self.y = data()
        self.params = {str(k): nn.Parameter(p.weight.detach()[None].clone()) for k, p in enumerate(linear_parts())}
        self.matrices = ()

    def differentiate(self, layers, step):
        out = self.x[step]
        for p in layers:
            out = out @ p[0].T
        loss = (out - self.y[step]).square().mean()
        return loss.detach()[None], torch.autograd.grad(loss, layers)

    def step_gradients(self, step):
        loss, gradients = self.differentiate(list(self.params.values()), step)
        for p, g in zip(self.params.values(), gradients, strict=True):
            p.grad = g
        return loss


def trajectory(delays, optimizer, line=None):
    task = DelayedTask(line or Line(), delays)
    stepper = optimizer(list(task.params.values()))
    losses = []
    for step in range(MICROBATCHES):
        losses.append(float(task.step_gradients(step)))
        stepper.step()
    return [p[0] for p in task.params.values()], losses


@pytest.mark.parametrize("optimizer", [sgd(), adam()])
@pytest.mark.parametrize("even", [True, False])
def test_a_delay_line_gives_the_same_trajectory(optimizer, even):
    source = torch.Generator().manual_seed(3)
    uneven = torch.rand(2, STAGES, MICROBATCHES, generator=source).numpy() + 0.1
    parts, math = play("async-1f1b", optimizer, durations=None if even else Durations(*uneven))
    expected, losses = trajectory({str(k): STAGES - 1 - k for k in range(STAGES)}, optimizer)
    for part, p in zip(parts, expected, strict=True):
        torch.testing.assert_close(part.weight, p, rtol=0, atol=1e-10)
    assert [float(math.losses[i]) for i in range(MICROBATCHES)] == pytest.approx(losses, abs=1e-10)
    assert math.delays == [[min(i, STAGES - 1 - k) for i in range(MICROBATCHES)] for k in range(STAGES)]


class FlatLine(Line):
    """The same network as a landscape: all weights are coordinates of one position."""

    def __init__(self):
        super().__init__()
        self.params = {"x": nn.Parameter(torch.cat([p.detach().flatten(1) for p in self.params.values()], dim=1))}

    def step_gradients(self, step):
        parts = self.params["x"].detach().chunk(STAGES, dim=1)
        layers = [part.reshape(1, WIDTH, WIDTH).requires_grad_() for part in parts]
        loss, gradients = self.differentiate(layers, step)
        self.params["x"].grad = torch.cat([g.flatten(1) for g in gradients], dim=1)
        return loss


@pytest.mark.parametrize("optimizer", [sgd(), adam()])
def test_coordinates_of_a_landscape_are_stages_too(optimizer):
    parts, _ = play("async-1f1b", optimizer)
    delays = coordinate_delays(STAGES * WIDTH**2, STAGES, stage_delays(STAGES).tolist())
    (x,), _ = trajectory({"x": delays}, optimizer, FlatLine())
    for part, p in zip(parts, x.chunk(STAGES), strict=True):
        torch.testing.assert_close(part.weight.detach().flatten(), p.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name, chunks", [(name, chunks_of(name)) for name in FLUSHING])
def test_synchronous_schedules_give_the_gradient_of_accumulation(name, chunks):
    parts, math = play(name, sgd(lr=1.0), chunks=chunks)
    x, y = data()
    plain = linear_parts(STAGES * chunks)
    for i in range(MICROBATCHES):
        out = x[i]
        for part in plain:
            out = part(out)
        (out - y[i]).square().mean().div(MICROBATCHES).backward()
    for part, reference in zip(parts, plain, strict=True):
        stepped = reference.weight - reference.weight.grad
        torch.testing.assert_close(part.weight, stepped, rtol=1e-6, atol=1e-12)
    assert math.delays == [[0]] * STAGES


TEXT = TextGPT(width=8, layers=4, heads=2, context=8, batch_size=2, tied=False)


def play_text(name, stages, optimizer, steps, weights="stashed", chunks=1):
    """A small GPT in float64, trained stage by stage on the batches of its task: parameters and losses."""
    task = TEXT.build(Rows.whole_group(1, (5,)), dtype=torch.float64)
    model, made = TEXT.initial_network(5, torch.float64), schedule(name, stages, steps, chunks)
    parts = split_into_stages(model, stages * chunks)
    optimizers = [optimizer([p for part in parts[k::stages] for p in part.parameters()]) for k in range(stages)]

    def inputs(i):
        return task.batch(i)[0][0]

    def loss(logits, i):
        return nn.functional.cross_entropy(logits.flatten(0, -2), task.batch(i)[1].flatten())

    math = PipelineMath(made, parts, inputs, loss, optimizers, weights)
    run_pipeline(Pipeline(made, stages, Durations(1.0, 2.0, 1.0), effects=math.effect), FREE)
    return {key: p.detach() for key, p in model.named_parameters()}, math


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_delay_line_gives_the_trajectory_of_a_transformer_in_stages(stages):
    steps = 10
    got, math = play_text("async-1f1b", stages, adam(0.01), steps)
    task = TEXT.build(Rows.whole_group(1, (5,)), dtype=torch.float64)
    late = {key: stages - 1 - stage for key, stage in parameter_stages(task.params, stages).items()}
    delayed, stepper = DelayedTask(task, late), adam(0.01)(list(task.params.values()))
    losses = []
    for step in range(steps):
        losses.append(float(delayed.step_gradients(step)))
        stepper.step()
    for key, p in task.params.items():
        torch.testing.assert_close(got[key], p.detach()[0], rtol=0, atol=1e-10)
    assert [float(math.losses[i]) for i in range(steps)] == pytest.approx(losses, abs=1e-10)


@pytest.mark.parametrize("name, chunks", [(name, chunks_of(name)) for name in FLUSHING])
def test_synchronous_schedules_accumulate_the_gradient_of_a_transformer(name, chunks):
    """One step of rate 1 tells the gradient: the mean over the micro-batches, with the weights as they were."""
    microbatches, stages = 4, 4 // chunks
    got, math = play_text(name, stages, sgd(lr=1.0), microbatches, chunks=chunks)
    task = TEXT.build(Rows.whole_group(1, (5,)), dtype=torch.float64)
    gradients = {key: torch.zeros_like(p) for key, p in task.params.items()}
    for i in range(microbatches):
        task.step_gradients(i)
        for key, p in task.params.items():
            gradients[key] += p.grad / microbatches
    for key, p in task.params.items():
        torch.testing.assert_close(p.detach()[0] - got[key], gradients[key][0], rtol=1e-6, atol=1e-13)
    assert math.delays == [[0]] * stages


@pytest.mark.parametrize("weights", ["current", "corrected"])
@pytest.mark.parametrize("name, stages", [("async-1f1b", 1), ("1f1b", 4)])
def test_weights_of_every_kind_are_the_stashed_ones_where_nothing_is_late(name, stages, weights):
    """Without delay there is nothing to stash and nothing to correct, bit for bit."""
    stashed, _ = play_text(name, stages, adam(0.01), 4)
    other, _ = play_text(name, stages, adam(0.01), 4, weights)
    for key, p in stashed.items():
        assert torch.equal(p, other[key])


def test_one_stage_is_plain_training():
    """P = 1, bit for bit."""
    x, y = data()
    part, made = linear_parts(1), schedule("async-1f1b", 1, MICROBATCHES)
    math = PipelineMath(
        made, part, lambda i: x[i], lambda out, i: (out - y[i]).square().mean(), [adam()(part[0].parameters())]
    )
    run_pipeline(Pipeline(made, 1, Durations(), effects=math.effect), FREE)
    plain = linear_parts(1)[0]
    stepper = adam()(plain.parameters())
    for i in range(MICROBATCHES):
        stepper.zero_grad()
        (plain(x[i]) - y[i]).square().mean().backward()
        stepper.step()
    assert torch.equal(part[0].weight, plain.weight)


def test_current_weights_give_another_gradient_and_a_correction_lies_nearer():
    stashed, _ = play("async-1f1b", sgd())
    distance = {}
    for weights in ("current", "corrected"):
        parts, _ = play("async-1f1b", sgd(), weights)
        pairs = zip(parts, stashed, strict=True)
        distance[weights] = sum(float((a.weight - b.weight).detach().norm()) for a, b in pairs)
    assert 0 < distance["corrected"] < distance["current"]


def test_the_gradient_of_current_weights_by_hand():
    """y = w2 w1 x, loss y: stage 1's gradient is w2(now) x, with w2 already moved; stage 2's is w1(then) x."""
    first, second = (nn.Linear(1, 1, bias=False, dtype=torch.float64) for _ in range(2))
    first.weight.data.fill_(2.0)
    second.weight.data.fill_(3.0)
    steppers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (first, second)]
    made = schedule("async-1f1b", 2, 2)
    one = torch.ones(1, 1, dtype=torch.float64)
    math = PipelineMath(made, [first, second], lambda i: one, lambda out, i: out.sum(), steppers, "current")
    run_pipeline(Pipeline(made, 2, Durations(1.0, 2.0), effects=math.effect), FREE)
    # Stage 2: w = 3 -> 3 - .1 * 2 -> - .1 * 2 again, as both activations are of w1 = 2. Stage 1 gets w2 as each
    # backward of stage 2 found it: 3 and then 2.8.
    assert second.weight.item() == pytest.approx(3 - 0.2 - 0.2)
    assert first.weight.item() == pytest.approx(2 - 0.1 * 3 - 0.1 * 2.8)


def test_what_cannot_be():
    made = schedule("1f1b", 2, 2)
    with pytest.raises(SpecError, match="parts"):
        PipelineMath(made, linear_parts(3), lambda i: i, lambda out, i: out, [sgd()([torch.zeros(1)])] * 2)
    with pytest.raises(SpecError, match="weights"):
        PipelineMath(made, linear_parts(2), lambda i: i, lambda out, i: out, [sgd()([torch.zeros(1)])] * 2, "stash")
