from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import Link
from syncline.errors import SpecError


def test_a_message_pays_the_latency_and_its_bytes() -> None:
    assert Link(0.25, 100.0).transfer_s(50) == 0.75
    assert Link(0.25, 100.0).transfer_s(0) == 0.25


def test_links_broadcast() -> None:
    link = Link(np.array([0.0, 1.0]), np.array([[1.0], [2.0]]))
    np.testing.assert_array_equal(link.transfer_s(4), [[4, 5], [2, 3]])


@pytest.mark.parametrize("latency_s", [-1.0, np.inf, np.nan, np.array([0.0, -1.0])])
def test_a_latency_is_finite_and_not_negative(latency_s: float) -> None:
    with pytest.raises(SpecError, match=r"link\.latency_s: got (-1\.0|inf|nan); expected seconds"):
        Link(latency_s, 1.0)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, np.inf, np.nan, np.array([1.0, 0.0])])
def test_a_bandwidth_is_finite_and_positive(bandwidth: float) -> None:
    with pytest.raises(SpecError, match=r"link\.bandwidth_bytes_per_s: got .*positive"):
        Link(0.0, bandwidth)
