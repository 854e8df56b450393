"""One worker is a plain loop of PyTorch; several are one worker with a larger batch, or the same rows one by one."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from syncline.problems import TorchProblem
from syncline.problems.random_draws import torch_generator
from syncline.seeds import seed64
from tests.problems.torch_problem.models import (
    ITEMS,
    LR,
    SEED,
    STEPS,
    Answering,
    Convolutional,
    Dictionaries,
    Recurrent,
    TiedFrozen,
    classified,
    images,
    sentences,
    token_loss,
    trained,
)

BATCH = 8


PROBLEMS = {
    "convolutions, batch norm, dropout": TorchProblem(Convolutional, images(), classified, batch_size=BATCH),
    "tied and frozen": TorchProblem(TiedFrozen, sentences(), token_loss, batch_size=BATCH),
    "lstm": TorchProblem(Recurrent, sentences(), token_loss, batch_size=BATCH),
    "says its loss": TorchProblem(Answering, Dictionaries(), batch_size=BATCH),
    "two micro-batches": TorchProblem(Convolutional, images(), classified, batch_size=BATCH // 2, accumulate=2),
}


def plain_loop(problem, seed, steps, method=lambda params: torch.optim.SGD(params, LR, momentum=0.9)):
    """What anybody would write: the module's losses, and what it ends with."""
    torch.manual_seed(seed64(seed, "weights"))
    module = problem.make_model()
    optimizer = method([p for p in module.parameters() if p.requires_grad])
    losses = []
    data = (
        problem.train_set if isinstance(problem.train_set, Dictionaries) else list(zip(*problem.train_set, strict=True))
    )
    size, per_epoch = problem.batch_size, ITEMS // problem.batch_size
    for step in range(steps):
        torch.manual_seed(seed64(seed, "module", 0, step))
        optimizer.zero_grad()
        total = 0.0
        for micro in range(problem.accumulate):
            epoch, place = divmod(step * problem.accumulate + micro, per_epoch)
            order = torch.randperm(ITEMS, generator=torch_generator(seed, "epoch", epoch)).tolist()
            items = [data[number] for number in order[place * size : (place + 1) * size]]
            if problem.loss is None:
                loss = module(**{name: torch.stack([item[name] for item in items]) for name in items[0]}).loss
            else:
                inputs, targets = (torch.stack(part) for part in zip(*items, strict=True))
                loss = problem.loss(module(inputs), targets)
            loss = loss / problem.accumulate
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses, module


@pytest.mark.parametrize("name", PROBLEMS)
def test_one_worker_is_a_plain_loop(name):
    problem = PROBLEMS[name]
    before = torch.get_rng_state()
    history, task, _ = trained(problem)
    assert torch.equal(torch.get_rng_state(), before)
    losses, module = plain_loop(problem, SEED, STEPS)
    assert_close(torch.from_numpy(history.loss[:, 0]), torch.tensor(losses), rtol=1e-6, atol=1e-6, check_dtype=False)
    for key, parameter in module.named_parameters():
        if parameter.requires_grad:
            assert_close(task.params[key][0], parameter, rtol=1e-5, atol=1e-6)
    for key, buffer in module.named_buffers():
        assert_close(task.buffers[key][0], buffer, rtol=1e-5, atol=1e-6)
