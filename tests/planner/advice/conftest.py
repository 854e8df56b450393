"""Questions for advice: one about 7 billion parameters at two sites, and a small one."""

from __future__ import annotations

import pytest

from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.questions.projections import Advise


@pytest.fixture(scope="session")
def question() -> AdviceQuestion:
    return advice_question(
        Advise(model="llama-7b", cluster="two-sites-a100", tokens="140B", extrapolate=True, prices="aws-p4de-2026-11")
    )


@pytest.fixture(scope="session")
def small() -> AdviceQuestion:
    """Four workers at two sites, inside what fits have seen."""
    return advice_question(Advise(model="gpt-160m", network="two-sites", hardware="h100", workers=4, methods=SMALL))


SMALL = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}, "demo"]
