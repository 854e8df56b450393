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


def test_the_slower_of_sending_and_receiving_counts() -> None:
    assert Link(0.0, 100.0, upload_bytes_per_s=20.0, efficiency=0.5).goodput_bytes_per_s == 10
    assert Link(0.0, 100.0, upload_bytes_per_s=200.0).goodput_bytes_per_s == 100
    assert Link(1.0, 100.0, overhead_s=2.0, efficiency=0.5).transfer_s(50) == 4


def test_transfers_that_share_a_link_get_equal_parts() -> None:
    assert Link(1.0, 100.0, upload_bytes_per_s=20.0).shared_by(4) == Link(1.0, 25.0, upload_bytes_per_s=5.0)
    assert Link(1.0, 100.0, duplex="half").shared_by(2) == Link(1.0, 25.0)  # two each way


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"overhead_s": -1.0}, r"link\.overhead_s: got -1\.0"),
        ({"efficiency": 0.0}, r"link\.efficiency: got 0\.0"),
        ({"efficiency": 1.1}, r"link\.efficiency: got 1\.1"),
        ({"upload_bytes_per_s": 0.0}, r"link\.upload_bytes_per_s: got 0\.0"),
        ({"duplex": "both"}, r"link\.duplex: got 'both'"),
        ({"duplex": "half", "upload_bytes_per_s": 1.0}, r"link\.upload_bytes_per_s: got 1\.0; expected none"),
    ],
)
def test_the_other_fields_are_in_their_ranges(fields: dict, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        Link(0.0, 1.0, **fields)
