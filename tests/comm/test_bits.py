"""Fields of bytes side by side in one byte: the multiplication that moves them, on either kind of machine."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest

from syncline.comm.packed import multiplier


@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_multiplier_joins_the_fields_of_a_word(bits: int, byteorder: Literal["little", "big"]) -> None:
    """All words of empty and full fields: the product's most significant byte is the fields, the first one lowest."""
    per_byte = 8 // bits
    for fields in product((0, 1, 2**bits - 1), repeat=per_byte):
        word = int.from_bytes(bytes(fields), byteorder)
        highest = (word * multiplier(bits, byteorder) >> 8 * (per_byte - 1)) & 0xFF
        assert highest == sum(field << bits * i for i, field in enumerate(fields))
