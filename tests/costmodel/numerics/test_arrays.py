from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError


@pytest.mark.parametrize("value", [-1, -0.5, -(10**30), np.array([2.0, -0.5]), np.array([[-3], [4]])])
def test_the_error_names_the_first_refused_number_also_a_huge_one(value):
    with pytest.raises(SpecError) as caught:
        require(np.greater_equal(value, 0), "workers", value, "at least 0")
    assert caught.value.value == next(number for number in np.ravel(value).tolist() if number < 0)
    assert type(caught.value.value) in (int, float)


def test_numbers_that_are_accepted_raise_nothing():
    require(True, "workers", 10**30, "at least 0")
    require(np.array([True, True]), "workers", np.array([1, 2]), "at least 0")
