"""Numbers of four bits: every number becomes the nearest one that the format has."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.comm import E3M0

CODE = E3M0()
numbers = st.lists(st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-12), min_size=1, max_size=9)


def arrived(x: torch.Tensor) -> torch.Tensor:
    return CODE.decode(CODE.encode(x), x.shape[1], x.dtype)


@given(numbers)
def test_every_number_becomes_the_nearest_of_the_format(values: list[float]) -> None:
    x = torch.tensor([values], dtype=torch.float64)
    got = arrived(x)
    largest = float(x.abs().max())
    if not largest:
        assert torch.equal(got, x)
        return
    exponent = math.floor(math.log2(float(x.abs().max().float())))
    scale = min((2.0**exponent, 2.0 ** (exponent + 1)), key=lambda power: abs(power - largest))
    format_values = torch.tensor([0.0, *(sign * scale * 2.0**-e for e in range(7) for sign in (1, -1))]).double()
    distance = (x[0, :, None] - format_values).abs().amin(1)
    torch.testing.assert_close((x - got)[0].abs(), distance, rtol=1e-9, atol=1e-12 * largest)
    assert bool((got * x >= 0).all())


def test_what_the_format_has_arrives_exactly() -> None:
    x = torch.tensor([[0.0, *(2.0**-e for e in range(7)), *(-(2.0**-e) for e in range(7))]]) * 2.0**-9
    assert torch.equal(arrived(x), x)
    assert torch.equal(arrived(-x), -x)


def test_rows_have_scales_of_their_own() -> None:
    x = torch.tensor([[1.0, -0.5, 0.25], [1e-6, 2e-6, -4e-6], [0.0, 0.0, 0.0]])
    assert torch.equal(torch.cat([arrived(row[None]) for row in x]), arrived(x))


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bytes_are_half_a_byte_a_number_and_a_scale(count: int, device: str) -> None:
    encoded = CODE.encode(torch.ones(3, count, device=device))
    assert encoded.dtype == torch.uint8
    assert encoded.shape == (3, CODE.nbytes(count)) == (3, 4 + -(-count // 2))
    assert CODE.decode(encoded, count, torch.float32).shape == (3, count)
