"""Losses of trainings and what losses take: inside of what fits have seen, and beyond it, marked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.scaling.laws import printed_losses
from syncline.costmodel.scaling.predict import (
    TrainingAtScale,
    parameters_for_loss,
    predicted_loss,
    time_to_loss_s,
    tokens_for_loss,
)
from syncline.costmodel.scaling.published import CHARLES_DDP, CHARLES_DILOCO
from syncline.costmodel.scaling.relative import relative_loss
from syncline.errors import SpecError


def test_inside_it_is_the_printed_law() -> None:
    answer = predicted_loss(TrainingAtScale("diloco", 550e6, 11e9, replicas=4, period=30))
    assert answer.loss == pytest.approx(19.226 * 550e6**-0.0985 * 4**0.0116)
    assert not answer.extrapolation and answer.beyond == ()
    assert answer.low is not None and answer.high is not None
    assert answer.low < answer.loss < answer.high
    assert answer.low == pytest.approx(answer.loss * answer.fit.within.low)
    assert answer.basis == "each size left out, 28 losses of Table 4"


def test_what_is_not_given_is_as_the_fit_has_it() -> None:
    whole = predicted_loss(TrainingAtScale("diloco", 1.3e9)).training
    assert (whole.tokens, whole.period, whole.replicas) == (26e9, 30, 1)


def test_data_parallelism_has_no_replicas_and_no_period() -> None:
    one, other = (
        predicted_loss(TrainingAtScale("ddp-adam", 1e9, replicas=n, period=h)) for n, h in ((1, None), (64, 5))
    )
    assert one.loss == other.loss == CHARLES_DDP.value({"parameters": 1e9})
    assert one.row()["replicas"] is None and one.row()["period"] is None


@pytest.mark.parametrize(
    ("trained", "line"),
    [
        (
            TrainingAtScale("diloco", 7e9),
            "parameters: got 7000000000.0; expected 35,000,000 to 2,400,000,000, which fit",
        ),
        (
            TrainingAtScale("diloco", 1e9, 140e9),
            "tokens_per_parameter: got 140.0; expected 19.5 to 20.5, which",
        ),
        (TrainingAtScale("diloco", 1e9, replicas=16), "replicas: got 16.0; expected 1 to 8, which fit 'diloco'"),
        (
            TrainingAtScale("diloco", 1e9, period=100),
            "period: got 100.0; expected 30, which fit 'diloco' covers; 'extrapolate' permits",
        ),
        (
            TrainingAtScale("streaming-diloco", 1e9, period=300, replicas=2),
            "period: got 300.0; expected 30 to 100, which fit",
        ),
        (
            TrainingAtScale("ddp-adam", 1e9, batch_tokens=4e6),
            r"batch_tokens: got .*; expected 0.5 to 2 times the best batch \(.* tokens\), which fit 'ddp'",
        ),
    ],
)
def test_beyond_is_refused_unless_asked_for(trained: TrainingAtScale, line: str) -> None:
    with pytest.raises(SpecError, match=line):
        predicted_loss(trained)
    answer = predicted_loss(trained, extrapolate=True)
    assert answer.extrapolation and answer.row()["extrapolation"] is True
    (beyond,) = answer.beyond
    field, _, _ = line.partition(":")
    assert beyond.field == {"batch_tokens": "batch_over_best"}.get(field, field)
    assert beyond.factor == pytest.approx(beyond.value / (beyond.low if beyond.factor < 1 else beyond.high))


def test_bounds_widen_beyond_and_are_none_where_nobody_knows() -> None:
    inside = predicted_loss(TrainingAtScale("diloco", 2.4e9, replicas=2))
    larger = predicted_loss(TrainingAtScale("diloco", 10e9, replicas=2), extrapolate=True)
    largest = predicted_loss(TrainingAtScale("diloco", 100e9, replicas=2), extrapolate=True)
    widths = [one.high / one.loss for one in (inside, larger, largest) if one.high is not None]
    assert widths == sorted(widths) and len(widths) == 3
    odd = predicted_loss(TrainingAtScale("diloco", 1e9, batch_tokens=64e6), extrapolate=True)
    assert odd.low is None and odd.high is None and "batch_over_best: unknown" in odd.basis


@pytest.mark.parametrize("method", ["ddp-adam", "diloco"])
def test_the_models_that_were_trained_afterwards_are_between_the_bounds(method: str) -> None:
    for one in printed_losses("charles-2025", method, "test"):
        answer = predicted_loss(TrainingAtScale(method, one.parameters, replicas=one.replicas), extrapolate=True)
        assert answer.low is not None and answer.high is not None
        assert answer.low < one.loss < answer.high


def test_streaming_at_4b_is_between_the_bounds_that_have_not_seen_it() -> None:
    (one,) = printed_losses("douillard-2025", "streaming-diloco", "test")
    answer = predicted_loss(TrainingAtScale("streaming-diloco", one.parameters, None, 2, 100), extrapolate=True)
    assert answer.low is not None and answer.high is not None
    assert answer.low < one.loss < answer.high


def test_a_longer_period_costs_what_streaming_losses_say() -> None:
    losses = [predicted_loss(TrainingAtScale("diloco", 1e9, period=h), extrapolate=True).loss for h in (30, 100, 300)]
    assert losses == sorted(losses)
    assert 1.006 < losses[1] / losses[0] < 1.012  # Table 6: 0.4% to 1.2% from 30 to 100 steps


def test_more_tokens_go_as_laws_of_tokens_say() -> None:
    """Overtraining on Dolma (Table 7), which no fit has seen: from 25 to 250 billion tokens."""
    tests = {
        (one.method, one.replicas, one.tokens): one.loss
        for one in printed_losses("douillard-2025-dolma", "ddp-adam", "test")
    }
    measured = tests["ddp-adam", 1, 250e9] / tests["ddp-adam", 1, 25e9]
    least, most = (predicted_loss(TrainingAtScale("ddp-adam", 1.27e9, d), extrapolate=True) for d in (25.4e9, 254e9))
    assert most.low is not None and most.high is not None
    assert most.low / least.loss < measured < most.high / least.loss


def test_relative_losses_are_within_a_paper() -> None:
    told = relative_loss(TrainingAtScale("diloco", 1e9, replicas=8))
    setting = {"parameters": 1e9, "replicas": 8.0}
    assert told.ratio == pytest.approx(CHARLES_DILOCO.value(setting) / CHARLES_DDP.value(setting))
    alone = relative_loss(TrainingAtScale("ddp-adam", 1e9))
    assert (alone.ratio, alone.low, alone.high) == (1, 1, 1)
    streaming = relative_loss(TrainingAtScale("streaming-diloco", 1e9, replicas=2, period=30))
    assert 0.99 < streaming.ratio < 1.02


@pytest.mark.parametrize(("used", "at_least"), [("fit", 25), ("test", 6)])
def test_relative_losses_are_closer_than_losses(used: str, at_least: int) -> None:
    ddp = {one.parameters: one.loss for one in printed_losses("charles-2025", "ddp-adam", used)}
    held = 0
    for one in printed_losses("charles-2025", "diloco", used):
        told = relative_loss(TrainingAtScale("diloco", one.parameters, replicas=one.replicas), extrapolate=True)
        assert (
            told.low is not None
            and told.high is not None
            and told.prediction.low is not None
            and told.prediction.high is not None
        )
        held += told.low < one.loss / ddp[one.parameters] < told.high
        assert told.high / told.low < told.prediction.high / told.prediction.low
    assert held >= at_least


def test_ratios_on_data_that_no_fit_has_seen() -> None:
    """Table 7: Dolma, 20 to 200 tokens per parameter, 2 and 4 replicas: five of six are between the bounds."""
    ddp = {one.tokens: one.loss for one in printed_losses("douillard-2025-dolma", "ddp-adam", "test")}
    held = 0
    for one in printed_losses("douillard-2025-dolma", "streaming-diloco", "test"):
        asked = TrainingAtScale("streaming-diloco", one.parameters, one.tokens, one.replicas, 100)
        told = relative_loss(asked, extrapolate=True)
        assert told.low is not None and told.high is not None
        held += told.low < one.loss / ddp[one.tokens] < told.high
    assert held == 5


def test_of_other_batches_nobody_knows() -> None:
    odd = relative_loss(TrainingAtScale("diloco", 1e9, batch_tokens=64e6), extrapolate=True)
    assert odd.low is None and odd.extrapolation and "batch_over_best: unknown" in odd.basis


@given(st.floats(100e6, 2e9), st.sampled_from(["ddp-adam", "diloco"]), st.floats(1, 8))
def test_the_model_of_a_loss_has_that_loss(parameters: float, method: str, replicas: float) -> None:
    trained = TrainingAtScale(method, parameters, replicas=replicas)
    loss = predicted_loss(trained).loss
    reached = parameters_for_loss(loss, replace(trained, parameters=1e9))
    assert reached.value == pytest.approx(parameters, rel=1e-9)
    assert reached.low is not None and reached.high is not None
    assert reached.low < reached.value < reached.high


@given(st.floats(200e6, 10e9), st.floats(6e9, 400e9))
def test_the_tokens_of_a_loss_lead_to_it(parameters: float, tokens: float) -> None:
    trained = TrainingAtScale("ddp-adam", parameters, tokens)
    loss = predicted_loss(trained, "chinchilla").loss
    reached = tokens_for_loss(loss, replace(trained, tokens=None), "chinchilla")
    assert reached.value == pytest.approx(tokens, rel=1e-6)


def test_tokens_beyond_are_refused_unless_asked_for() -> None:
    with pytest.raises(SpecError, match="parameters: got 7000000000"):
        tokens_for_loss(2.2, TrainingAtScale("diloco", 7e9, replicas=2))
    reached = tokens_for_loss(2.2, TrainingAtScale("diloco", 7e9, replicas=2), extrapolate=True)
    assert reached.prediction.extrapolation and reached.prediction.loss == pytest.approx(2.2)
    with pytest.raises(SpecError, match=r"target_loss: got 1\.2; expected a loss between 1\.88"):
        tokens_for_loss(1.2, TrainingAtScale("ddp-adam", 7e9), "chinchilla", extrapolate=True)


def test_the_time_to_a_loss_is_tokens_over_their_rate() -> None:
    reached = tokens_for_loss(2.6, TrainingAtScale("ddp-adam", 1e9), "chinchilla")
    seconds, low, high = time_to_loss_s(reached, 1e6)
    assert seconds == reached.value / 1e6
    assert (low, high) == pytest.approx((reached.low / 1e6, reached.high / 1e6))  # type: ignore[operator]
    _, lower, higher = time_to_loss_s(reached, 1e6, 0.8, 1.3)
    assert lower < low and higher > high  # type: ignore[operator]
    with pytest.raises(SpecError, match="tokens_per_s: got 0; expected a positive number"):
        time_to_loss_s(reached, 0)


@pytest.mark.parametrize("field", ["parameters", "tokens", "replicas", "period", "batch_tokens"])
def test_numbers_have_to_be_positive(field: str) -> None:
    with pytest.raises(SpecError, match=f"{field}: got -1; expected a positive number"):
        TrainingAtScale(**({"method": "diloco", "parameters": 1e9} | {field: -1}))
