"""Packed integers and (index, value) pairs: round trips at every width, sizes to the byte, refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.comm import SparsePairs
from syncline.comm.packed import pack, unpack
from syncline.costmodel.traffic.packing import packed_bytes
from syncline.errors import SpecError

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def as_int64(value: int) -> int:
    """Two's complement: what an int64 with these 64 bits reads as."""
    return value - 2**64 if value >= 2**63 else value


@pytest.mark.parametrize("bits", range(1, 65))
@settings(max_examples=10)  # for each of 64 widths
@given(data=st.data())
def test_integers_of_every_width_come_back(bits: int, data: st.DataObject) -> None:
    come_back(bits, data)


@pytest.mark.slow
@pytest.mark.parametrize("bits", range(1, 65))
@given(data=st.data())
def test_many_integers_of_every_width_come_back(bits: int, data: st.DataObject) -> None:
    come_back(bits, data)


def come_back(bits: int, data: st.DataObject) -> None:
    count, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    entry = st.integers(0, 2**bits - 1).map(as_int64)
    values = torch.tensor(data.draw(st.lists(entry, min_size=rows * count, max_size=rows * count))).view(rows, count)
    packed = pack(values, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (rows, packed_bytes(count, bits))
    assert torch.equal(unpack(packed, bits, count), values)


@given(st.lists(st.integers(0, 2**11 - 1), min_size=1, max_size=20))
def test_packed_bytes_are_the_little_endian_number(values: list[int]) -> None:
    """The bytes are those of one long integer, whose digits in base 2**11 are the values."""
    number = sum(value << (11 * i) for i, value in enumerate(values))
    expected = number.to_bytes(packed_bytes(len(values), 11), "little")
    assert bytes(pack(torch.tensor(values), 11).tolist()) == expected


@pytest.mark.parametrize("value", DTYPES)
@pytest.mark.parametrize("index_bits", [64, 32, 16, 0])
@given(data=st.data())
def test_pairs_come_back_in_exactly_their_bytes(index_bits: int, value: str, data: st.DataObject) -> None:
    """Any chunk and any number of rows: with odd widths the values do not start at a multiple of their size."""
    chunk = data.draw(st.integers(1, 2**16))
    rows, pairs = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
    at = st.lists(st.integers(0, chunk - 1), min_size=rows * pairs, max_size=rows * pairs)
    index = torch.tensor(data.draw(at)).view(rows, pairs)
    values = torch.linspace(-3.0, 5.0, rows * pairs, dtype=torch.float64).view(rows, pairs)
    held = values.to(DTYPES[value]).double()
    form = SparsePairs(index_bits, value)
    encoded = form.encode(index, values, chunk)
    assert encoded.dtype == torch.uint8
    assert encoded.shape == (rows, form.nbytes(pairs, chunk))
    got_index, got_values = form.decode(encoded, pairs, chunk, torch.float64)
    assert torch.equal(got_index, index)
    assert torch.equal(got_values, held)


def test_a_part_of_a_longer_message_is_decoded_in_place() -> None:
    form = SparsePairs(0, "fp32")
    index, values = torch.tensor([[1, 6, 3]]), torch.tensor([[0.5, -2.0, 8.0]])
    message = torch.cat([torch.zeros(1, 5, dtype=torch.uint8), form.encode(index, values, 8)], dim=1)
    for part in (message[:, 5:], message[0, 5:]):
        got_index, got_values = form.decode(part, 3, 8, torch.float32)
        assert torch.equal(got_index, index.view_as(got_index))
        assert torch.equal(got_values, values.view_as(got_values))


@pytest.mark.parametrize(
    ("form", "pairs", "chunk", "nbytes"),
    [
        (SparsePairs(), 32, 64 * 64, 32 * 12),  # DeMo's public code
        (SparsePairs(32), 5, 4096, 5 * 8),
        (SparsePairs(16, "bf16"), 5, 4096, 5 * 4),
        (SparsePairs(0, "fp16"), 5, 4096, 8 + 10),  # 60 bits take 8 bytes
        (SparsePairs(0, "fp16"), 5, 4097, 9 + 10),  # 13 bits each
        (SparsePairs(0), 3, 1, 1 + 12),  # a chunk of one still takes a bit
        (SparsePairs(0), 0, 16, 0),
    ],
)
def test_bytes_by_hand(form: SparsePairs, pairs: int, chunk: int, nbytes: int) -> None:
    assert form.nbytes(pairs, chunk) == nbytes


@pytest.mark.parametrize("index_bits", [64, 32, 16, 0])
@pytest.mark.parametrize("value", DTYPES)
def test_shapes_without_values(index_bits: int, value: str) -> None:
    form = SparsePairs(index_bits, value)
    index = torch.empty(2, 7, dtype=torch.int64, device="meta")
    encoded = form.encode(index, torch.empty(2, 7, device="meta"), 100)
    assert (encoded.device.type, encoded.dtype) == ("meta", torch.uint8)
    assert encoded.shape == (2, form.nbytes(7, 100))
    got_index, got_values = form.decode(encoded, 7, 100, torch.float32)
    assert (got_index.shape, got_index.dtype) == ((2, 7), torch.int64)
    assert (got_values.shape, got_values.dtype) == ((2, 7), torch.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SparsePairs(8), "index_bits: got 8; expected 64, 32, 16, or 0 for the fewest that suffice"),
        (lambda: SparsePairs(64, "fp23"), "value_format: got 'fp23'; expected one of .*did you mean 'fp32'"),
        (lambda: SparsePairs(16).nbytes(1, 2**16 + 1), "index_bits: got 16; expected at least 17 bits for chunks of"),
        (lambda: pack(torch.tensor([0]), 0), "bits: got 0; expected a width from 1 to 64"),
        (lambda: unpack(torch.tensor([0], dtype=torch.uint8), 65, 1), "bits: got 65"),
    ],
)
def test_misuse_is_one_helpful_line(call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
