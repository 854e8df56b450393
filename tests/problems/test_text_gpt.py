from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.func import functional_call

from syncline.costmodel.compute.models import MODELS
from syncline.errors import SpecError
from syncline.problems import Rows, TextGPT
from syncline.problems.gpt import GPT, gpt_weights, training_flops_per_token
from syncline.problems.text_gpt import standard_library

SMALL = TextGPT(width=32, layers=2, heads=4, context=16, batch_size=4)


def weights_of(problem, seed=0):
    return gpt_weights(problem.module(), torch.Generator().manual_seed(seed))


def test_parameter_count_is_the_formula_and_the_cost_models():
    problem = TextGPT()
    d = problem.width
    count = sum(parameter.numel() for parameter in problem.module().parameters())
    assert count == (256 + 64) * d + 3 * (12 * d * d + 2 * d) + d == 363_168
    assert count == MODELS["text-gpt"].parameters


def test_weights_have_the_shapes_of_the_module():
    expected = {name: parameter.shape for name, parameter in SMALL.module().named_parameters()}
    assert {name: weight.shape for name, weight in weights_of(SMALL).items()} == expected


def test_fresh_weights_have_their_standard_deviations():
    weights = weights_of(TextGPT())
    residual = 0.02 / math.sqrt(2 * 3)
    for name, std in (
        ("blocks.1.up", 0.02),
        ("token", 0.02),
        ("blocks.1.down", residual),
        ("blocks.1.attention.out", residual),
    ):
        weight = weights[f"{name}.weight"]
        assert weight.std().item() == pytest.approx(std, rel=4.5 / math.sqrt(2 * weight.numel()))
    assert (weights["norm.weight"] == 1).all()


@pytest.mark.parametrize("changed", [1, 7, 15])
def test_a_future_byte_never_changes_a_past_logit(changed):
    weights = {name: 10 * weight for name, weight in weights_of(SMALL).items()}  # so that attention has preferences
    tokens = torch.randint(256, (1, 16), generator=torch.Generator().manual_seed(1))
    other = tokens.clone()
    other[0, changed] = (other[0, changed] + 1) % 256
    before, after = (functional_call(SMALL.module(), weights, (x,)) for x in (tokens, other))
    assert torch.equal(before[0, :changed], after[0, :changed])
    assert not torch.allclose(before[0, changed:], after[0, changed:])


def test_the_stages_in_a_row_are_the_model():
    model = GPT(256, 16, 32, 2, 4)
    model.load_state_dict(weights_of(SMALL))
    tokens = torch.arange(16).unsqueeze(0)
    x = model.embed(tokens)
    for block in model.blocks:
        x = block(x)
    assert torch.equal(model.unembed(x), model(tokens))


def test_targets_are_the_next_bytes():
    task = SMALL.build(Rows.whole_group(2))
    for inputs, targets in (task.batch(0), task._data.validation):
        assert inputs.shape == targets.shape
        assert inputs.shape[-1] == 16
        assert torch.equal(inputs[..., 1:], targets[..., :-1])


def test_validation_windows_lie_from_end_to_end_of_the_held_out_text():
    inputs, targets = SMALL.build(Rows.whole_group(1))._data.validation
    held_out = standard_library().validation.long()
    assert len(inputs.unique(dim=0)) == SMALL.validation_windows
    assert torch.equal(inputs[0], held_out[:16])
    assert torch.equal(targets[-1], held_out[-16:])


def test_halves_of_the_held_out_text_share_no_byte_and_are_all_of_it():
    whole, first, second = (
        replace(SMALL, held_out=part).build(Rows.whole_group(1)) for part in ("whole", "first-half", "second-half")
    )
    held_out = standard_library().validation.long()
    assert torch.equal(first._data.validation[0][0], held_out[:16])
    assert torch.equal(second._data.validation[1][-1], held_out[-16:])
    middle = len(held_out) // 2
    assert torch.equal(first._data.validation[1][-1], held_out[middle - 16 : middle])
    assert torch.equal(second._data.validation[0][0], held_out[middle : middle + 16])
    counted = [task.describe()["validation_bytes"] for task in (whole, first, second)]
    assert counted[0] == counted[1] + counted[2] == len(held_out)


def test_untrained_loss_is_about_that_of_a_uniform_guess():
    task = TextGPT().build(Rows.whole_group(1, seeds=(0, 1)))
    metrics = task.evaluate({name: param.detach() for name, param in task.params.items()})
    assert metrics["loss"].tolist() == pytest.approx([math.log(256)] * 2, abs=0.35)


def test_training_reduces_the_loss_on_held_out_text():
    task = SMALL.build(Rows.whole_group(2))
    optimizer = torch.optim.Adam(task.params.values(), lr=3e-3)
    for step in range(150):
        task.step_gradients(step)
        optimizer.step()
    means = {
        name: param.detach().mean(0, keepdim=True) for name, param in SMALL.build(Rows.whole_group(1)).params.items()
    }
    trained = {name: param.detach()[:1] for name, param in task.params.items()}
    before, after = (task.evaluate(weights)["loss"].item() for weights in (means, trained))
    assert before > 5.0
    assert after < 3.5


def test_evaluation_is_the_mean_over_fixed_windows_whatever_the_seed():
    a, b = (SMALL.build(Rows.whole_group(1, seeds=(seed,))) for seed in (0, 1))
    means = {name: param.detach() for name, param in a.params.items()}
    assert torch.equal(a.evaluate(means)["loss"], b.evaluate(means)["loss"])
    inputs, targets = a._data.validation
    logits = functional_call(SMALL.module(), {name: mean[0] for name, mean in means.items()}, (inputs,))
    by_hand = -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).mean()
    assert a.evaluate(means)["loss"].item() == pytest.approx(by_hand.item(), rel=1e-5)


def test_flops_per_token_are_palms():
    d, layers, context = 96, 3, 64
    matrices = 12 * d * d * layers + 256 * d
    assert training_flops_per_token(TextGPT().module(), context) == 6 * matrices + 12 * layers * d * context
    assert (
        TextGPT().build(Rows.whole_group(1)).flops_per_step == training_flops_per_token(TextGPT().module(), 64) * 8 * 64
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("heads", 5), ("width", 0), ("layers", 0), ("context", 0), ("batch_size", 0), ("validation_windows", 0)],
)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(SpecError, match=rf"^problem\.{field}: got {value}; expected "):
        TextGPT(**{field: value})


def test_a_share_of_the_windows_is_of_the_workers_or_the_sites_own_part_of_the_text():
    rows = Rows.whole_group(4)
    train = standard_library().train
    whole = len(train) - SMALL.context
    plain = SMALL.build(rows)._data._starts[3]
    for sites, parts in ((None, [0, 1, 2, 3]), (2, [0, 0, 1, 1])):
        data = replace(SMALL, skew=0.5, sites=sites).build(rows)._data
        inputs, _ = data.batch(3)
        for worker, part in enumerate(parts):
            first, stop = whole * part // (max(parts) + 1), whole * (part + 1) // (max(parts) + 1)
            own = first + plain[worker, :2] * (stop - first) // whole
            assert ((first <= own) & (own < stop)).all()
            expected = [train[at : at + SMALL.context] for at in [*own.tolist(), *plain[worker, 2:].tolist()]]
            assert torch.equal(inputs[worker], torch.stack(expected).long())


def test_sites_without_a_skew_are_refused():
    with pytest.raises(SpecError, match=r"problem.sites: got 2; expected none without a skew"):
        replace(SMALL, sites=2)
    with pytest.raises(SpecError, match=r"problem.sites: got 5; expected at most 4"):
        replace(SMALL, skew=0.5, sites=5).build(Rows.whole_group(4))
