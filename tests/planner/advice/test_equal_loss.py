"""Tokens to equal loss: by the laws themselves, and refused where nobody has measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.scaling.predict import TrainingAtScale, tokens_for_loss
from syncline.costmodel.scaling.published import TOKEN_LAWS
from syncline.costmodel.scaling.relative import law_factors, relative_loss
from syncline.methods import method_of
from syncline.planner.advice.equal_loss import NO_FIT, tokens_needed
from syncline.planner.advice.question import AdviceQuestion

DILOCO = method_of({"kind": "diloco", "lr": 0.003, "period": 30})
DDP = method_of("ddp-adam")


@given(st.floats(0.97, 1.03), st.floats(1e8, 1e10))
def test_more_tokens_make_up_for_a_loss_by_each_law(ratio: float, parameters: float) -> None:
    told = law_factors(ratio, parameters, 20 * parameters)
    assert told is not None
    middle, least, most = told
    assert least <= middle <= most
    losses = []
    for law in TOKEN_LAWS.values():
        before = law.value({"parameters": parameters, "tokens": 20 * parameters})
        losses.append(ratio * law.value({"parameters": parameters, "tokens": 20 * parameters * middle}) / before)
    # Of some laws it is too much, of some too little.
    assert (min(losses) <= 1 + 1e-9 and max(losses) >= 1 - 1e-9) or least == most


def test_no_tokens_make_up_for_a_loss_above_the_floor_s_reach() -> None:
    assert law_factors(2.0, 1e9, 20e9) is None


def test_data_parallelism_is_the_same_training(small: AdviceQuestion) -> None:
    told = tokens_needed(small, DDP, 1)
    assert (told.tokens, told.factor, told.factor_low, told.factor_high) == (small.tokens, 1.0, 1.0, 1.0)
    assert told.loss is not None and told.unknown is None


def test_a_method_takes_what_makes_up_for_its_ratio(small: AdviceQuestion) -> None:
    told = tokens_needed(small, DILOCO, 2)
    n = float(small.model.parameters)
    trained = TrainingAtScale("diloco", n, small.tokens, 2.0, 30.0, float(small.batch_tokens))
    ratio = relative_loss(trained)
    made_up = law_factors(ratio.ratio, n, small.tokens)
    assert made_up is not None and told.factor == pytest.approx(made_up[0])
    assert told.factor_low is not None and told.factor_high is not None
    assert told.factor_low < told.factor < told.factor_high
    assert told.ratio == ratio.ratio and not told.beyond


def test_a_target_decides_the_tokens(small: AdviceQuestion) -> None:
    n, batch = float(small.model.parameters), float(small.batch_tokens)
    reached = tokens_for_loss(3.0, TrainingAtScale("ddp-adam", n, batch_tokens=batch), extrapolate=True)
    asked = replace(small, target_loss=3.0, extrapolate=True)
    told = tokens_needed(asked, DDP, 1)
    assert told.tokens == reached.value and reached.low is not None
    assert told.base_low == pytest.approx(reached.low / reached.value)
    assert tokens_needed(asked, DILOCO, 2).tokens == pytest.approx(
        reached.value * tokens_needed(replace(small, tokens=reached.value, extrapolate=True), DILOCO, 2).factor
    )
    refused = tokens_needed(replace(small, target_loss=2.0), DDP, 1)
    assert refused.unknown is not None and "beyond the fit of ddp-adam" in refused.unknown


def test_what_no_fit_covers_has_no_loss(small: AdviceQuestion, question: AdviceQuestion) -> None:
    assert tokens_needed(small, method_of("demo"), 4).unknown == NO_FIT
    averaging = method_of({"kind": "diloco", "lr": 0.003, "outer_lr": 1.0, "outer_momentum": 0.0})
    assert tokens_needed(small, averaging, 4).unknown == NO_FIT
    large = tokens_needed(replace(question, extrapolate=False), DILOCO, 2)
    assert large.unknown is not None and "beyond the fit of diloco: parameters" in large.unknown
    far = method_of({"kind": "streaming-diloco", "lr": 0.003, "period": 1000})
    unbounded = tokens_needed(question, far, 2).unknown
    assert (
        unbounded is not None
        and unbounded.startswith("the error of the fit of streaming-diloco is unknown beyond")
        and "period 1,000" in unbounded
    )
