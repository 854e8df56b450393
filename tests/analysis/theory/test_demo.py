"""DeMo's bounds, against vectors that try to break them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.analysis.theory import top_k_error_bound


@given(st.integers(1, 30), st.integers(0, 2**31))
def test_top_k_error_is_within_its_bound(k, seed):
    x = np.random.default_rng(seed).standard_cauchy(30)
    error = np.sqrt((np.sort(x**2)[: 30 - k]).sum() / (x**2).sum())
    assert error <= top_k_error_bound(k, 30) + 1e-12


@pytest.mark.parametrize("k", [0, 1, 7, 30])
def test_top_k_bound_is_reached_by_equal_entries(k):
    assert top_k_error_bound(k, 30) == pytest.approx(np.sqrt((30 - k) / 30))
