"""What is said of two values."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.scoreboard.verdicts import number_in, verdict_of
from syncline.errors import SpecError


@pytest.mark.parametrize(
    ("printed", "ours", "tolerance", "verdict"),
    [
        ("1.020", 1.0204, "", "agree"),
        ("1.020", 1.0206, "", "differ"),
        ("1,813", 1812.7, "rounding", "agree"),
        ("29.9", 29.995, "", "differ"),
        ("29.9", 29.995, "cut off", "agree"),
        ("-0.5", -0.54, "", "agree"),
        ("100", 104, "5 %", "agree"),
        ("100", 106, "5 %", "differ"),
        ("0", 1e-9, "within 1e-6", "agree"),
        ("1", 0.2, "at most", "agree"),
        ("1", 0.2, "at least", "differ"),
        ("60 to 70", 64, "between", "agree"),
        ("60 to 70", 59, "between", "differ"),
        ("none", "none", "text", "agree"),
        ("none", "all", "", "differ"),
        ("1", math.nan, "", "differ"),
        ("1", math.inf, "at least", "differ"),
        ("1", None, "", "not checkable"),
        ("a < b <= c", {"a": 1.0, "b": 2.0, "c": 2.0}, "order", "trend"),
        ("a < b", {"a": 2.0, "b": 2.0}, "order", "differ"),
        ("a = b", {"a": 1.0, "b": 1.009}, "order", "trend"),
        ("a = b", {"a": 1.0, "b": 1.02}, "order", "differ"),
        ("a < b", {"a": math.nan, "b": 2.0}, "order", "differ"),
    ],
)
def test_verdicts(printed, ours, tolerance, verdict):
    assert verdict_of(printed, ours, tolerance) == verdict


@given(st.decimals(min_value=-1000, max_value=1000, places=3), st.integers(0, 3))
def test_a_number_agrees_with_itself_however_it_is_printed(value, places):
    assert verdict_of(str(round(value, places)), float(value)) == "agree"


@given(st.decimals(min_value=0, max_value=1000, places=3), st.integers(0, 3))
def test_cutting_off_is_not_rounding(value, places):
    cut = value.quantize(Decimal(1).scaleb(-places), rounding="ROUND_DOWN")
    assert verdict_of(str(cut), float(value), "cut off") == "agree"


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(SpecError, match="tolerance: got 'about'; expected rounding"):
        verdict_of("1", 1.0, "about")
    with pytest.raises(SpecError, match="paper: got 'many'; expected a number"):
        verdict_of("many", 1.0)
    assert number_in("1,813") == 1813 and number_in("a < b") is None
