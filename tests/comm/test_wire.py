"""Wire formats: round trips, sizes, rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.comm import BF16, WIRE_FORMATS, SimulatedCommunicator

floats = st.lists(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), min_size=1, max_size=40)


@pytest.mark.parametrize("wire", WIRE_FORMATS.values(), ids=list(WIRE_FORMATS))
@given(values=floats)
def test_round_trip_is_idempotent_and_counts_its_bytes(wire, values: list[float]) -> None:
    x = torch.tensor([values])
    encoded = wire.encode(x)
    once = wire.decode(encoded, x.dtype)
    assert once.dtype == x.dtype
    assert once.shape == x.shape
    assert torch.equal(wire.decode(wire.encode(once), x.dtype), once)
    assert encoded.numel() * encoded.element_size() == wire.nbytes(x[0].numel(), x.dtype)


@given(values=floats)
def test_bf16_rounds_to_eight_significant_bits(values: list[float]) -> None:
    x = torch.tensor([values])
    error = (BF16.decode(BF16.encode(x), x.dtype) - x).abs()
    tiny = torch.finfo(torch.bfloat16).smallest_normal
    assert bool((error <= x.abs() * 2**-8 + tiny).all())


def test_bf16_mean_is_taken_in_full_precision() -> None:
    """The sum of 256 ones plus one is beyond bfloat16's 8 bits, the mean of equal values is not."""
    comm = SimulatedCommunicator(257)
    x = torch.ones(257, 1)
    assert (
        comm.all_reduce(x, op="sum", wire=BF16)[0].item() == 256.0
    )  # 257 does not fit in 8 bits: rounded once, at the end
    assert comm.all_reduce(x, wire=BF16)[0].item() == 1.0
    assert [r.payload_bytes for r in comm.ledger.records] == [2, 2]
