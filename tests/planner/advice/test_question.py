"""What is asked, and what nobody said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.scaling.published import best_batch_tokens, default_batch
from syncline.errors import SpecError
from syncline.planner.advice.question import advice_question
from syncline.questions.projections import Advise

FULL: dict[str, Any] = {"model": "llama-7b", "cluster": "two-sites-a100"}


def test_what_nobody_says_is_told_with_its_source() -> None:
    question = advice_question(Advise(**FULL))
    told = "\n".join(f"{assumption.text} {assumption.source}" for assumption in question.assumptions)
    assert "20 per parameter (Hoffmann" in told and "Tables 9 and 10" in told and "LLaMA (2023)" in told
    assert question.tokens == 20 * question.model.parameters
    assert (question.model.sequence, question.batch_tokens, question.tokens_per_worker) == (2048, 2**19, 8192)


def test_what_somebody_says_is_not_told() -> None:
    given_ = advice_question(Advise(**FULL, tokens="140B", batch_tokens=2**20, sequence=4096, deadline="30d"))
    assert not given_.unset_costs and given_.deadline_s == 30 * 86400 and given_.tokens == 140e9
    assert given_.steps == round(140e9 / 2**20)


def test_a_batch_is_of_whole_sequences() -> None:
    question = advice_question(Advise(**FULL, batch_tokens="4M"))
    assert question.batch_tokens == 30 * 64 * 2048 and "nearest to 4,000,000" in question.assumptions[-1].origin


@given(st.floats(1e7, 1e12), st.integers(1, 4096), st.sampled_from([1024, 2048, 8192]))
def test_the_default_batch_is_shared_out_in_whole_sequences(parameters: float, workers: int, sequence: int) -> None:
    batch = default_batch(parameters, workers, sequence)
    assert batch % workers == 0 and batch % sequence == 0
    between = best_batch_tokens(parameters), best_batch_tokens(parameters, 2)
    if min(between) > 2 * workers * sequence:
        assert math.sqrt(between[0] * between[1]) / 2**0.51 < batch < math.sqrt(between[0] * between[1]) * 2**0.51


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cluster": None}, "cluster: got None"),
        ({"network": "wan"}, "network: got 'wan'; expected none with a cluster"),
        ({"workers": 63}, "workers: got 63"),
        ({"workers": 0}, "workers: got 0"),
        ({"budget": "50k"}, "budget: got 50000.0; expected prices"),
        ({"target_loss": -1.0}, "target_loss: got -1.0"),
        ({"deadline": 0}, "deadline: got 0"),
        ({"model": "torch.nn:Identity"}, "model"),
        ({"methods": ["nope"]}, "method: got 'nope'"),
        ({"cluster": None, "network": "wan"}, "hardware: got None"),
        ({"cluster": None, "network": "wan", "hardware": "a100"}, "workers: got None"),
    ],
)
def test_mistakes_are_one_line(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as error:
        advice_question(Advise(**(FULL | changed)))
    assert str(error.value).startswith(told) and "\n" not in str(error.value)
