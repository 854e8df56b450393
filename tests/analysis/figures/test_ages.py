"""Ages of updates and whose they were, as what is on the axes."""

from __future__ import annotations

import pytest

from syncline.analysis.timelines import ages_and_contributions
from syncline.errors import SpecError


def test_shares_of_updates_by_age_and_by_worker() -> None:
    figure = ages_and_contributions({"a": [6, 2], "b": [1, 0, 3]}, {"a": [1, 5, 2], "b": [2, 1, 1]})
    late, whose = figure.axes
    assert [step.get_data().values.tolist() for step in late.patches] == [[0.75, 0.25], [0.25, 0.0, 0.75]]
    assert late.patches[0].get_data().edges.tolist() == [-0.5, 0.5, 1.5]
    assert [step.get_data().values.tolist() for step in whose.patches] == [[0.625, 0.25, 0.125], [0.5, 0.25, 0.25]]
    assert late.get_xlabel() == "age in versions of the model" and whose.get_ylabel() == "share of updates"


def test_what_cannot_be() -> None:
    with pytest.raises(SpecError, match="methods with updates"):
        ages_and_contributions({}, {})
    with pytest.raises(SpecError, match="methods with updates"):
        ages_and_contributions({"a": [0]}, {"a": [0]})
