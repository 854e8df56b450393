"""Integers of any width packed into bytes, vectorised and on any device."""

from __future__ import annotations

import functools
import sys

import torch
from torch import Tensor

from syncline.errors import SpecError

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their number of bytes."""


def pack(values: Tensor, bits: int) -> Tensor:
    """Pack integers in ``[0, 2**bits)``, the least significant bit first: ``(..., n) -> (..., ceil(n bits / 8))``.

    Args:
        values: integers ``(..., n)``, or bool for one bit; floats that hold integers for up to 8 bits.
        bits: 1 to 64; at 64 the integers are int64's own bits, sign included.

    Raises:
        SpecError: a width that is out of range. Values are not checked, because that would wait for the device.
    """
    _check_width(bits)
    if 8 % bits == 0:
        return _join(values.view(torch.uint8) if values.dtype == torch.bool else values.to(torch.uint8), bits)
    if bits // 8 in WORDS and bits % 8 == 0 and sys.byteorder == "little":  # the machine's own layout
        return values.to(WORDS[bits // 8]).contiguous().view(torch.uint8)
    if bits % 8 == 0:  # whole bytes: bits need not be separated
        shifts = torch.arange(0, bits, 8, device=values.device)
        return ((values.unsqueeze(-1) >> shifts) & 0xFF).to(torch.uint8).flatten(-2)
    shifts = torch.arange(bits, device=values.device)
    return _join(((values.unsqueeze(-1) >> shifts) & 1).to(torch.uint8).flatten(-2), 1)


def unpack(packed: Tensor, bits: int, count: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Unpack the bytes of ``pack``, ``(..., b)``, to integers ``(..., count)`` of type ``dtype``."""
    _check_width(bits)
    if 8 % bits == 0:
        return look_up(packed, fields_of_bytes(bits, packed.device), count).to(dtype)
    return _unpacked(packed, bits, count).to(dtype)


def _unpacked(packed: Tensor, bits: int, count: int) -> Tensor:
    """Return the integers ``(..., count)``, int64, of a width that does not divide 8."""
    if bits // 8 in WORDS and bits % 8 == 0 and sys.byteorder == "little":
        # Copied, because a view as wider numbers must start at a multiple of their size.
        payload = packed[..., : count * bits // 8].clone(memory_format=torch.contiguous_format)
        words = payload.view(WORDS[bits // 8]).long()
        return words if bits == 64 else words & (2**bits - 1)
    if bits % 8 == 0:
        shifts = torch.arange(0, bits, 8, device=packed.device)
        return (packed.unflatten(-1, (count, bits // 8)).long() << shifts).sum(-1)
    stream = look_up(packed, fields_of_bytes(1, packed.device), count * bits)
    weights = 1 << torch.arange(bits, device=packed.device)
    return (stream.unflatten(-1, (count, bits)).long() * weights).sum(-1)


def multiplier(bits: int, byteorder: str = sys.byteorder) -> int:
    """Return the factor that moves all fields of a word of ``8 // bits`` bytes into its most significant byte.

    A word holds one field of ``bits`` bits in each of its f = ``8 // bits`` bytes. Field i must move from bit ``8 i``
    (counted from the other end on big-endian machines) to bit ``8 (f - 1) + bits i``. The product holds each field at
    f positions that do not overlap, so nothing is carried into the most significant byte.
    """
    per_byte = 8 // bits
    if byteorder == "little":
        shifts = [8 * (per_byte - 1) - (8 - bits) * i for i in range(per_byte)]
    else:
        shifts = [(8 + bits) * i for i in range(per_byte)]
    factor = sum(1 << shift for shift in shifts)
    return factor - (1 << 8 * per_byte) if factor >> (8 * per_byte - 1) else factor  # in two's complement


def padded_to(values: Tensor, multiple: int) -> Tensor:
    """Return ``(..., n)`` padded with zeros to the next multiple; the tensor itself if no padding is needed."""
    missing = -values.shape[-1] % multiple
    return torch.nn.functional.pad(values, (0, missing)) if missing else values


def _join(fields: Tensor, bits: int) -> Tensor:
    """Join one-byte fields ``(..., n)``, with ``bits`` dividing 8, into bytes that hold ``8 // bits`` fields each."""
    per_byte = 8 // bits
    if per_byte == 1:
        return fields
    fields = padded_to(fields, per_byte)
    flat = fields.reshape(-1)
    if flat.storage_offset() % per_byte:  # a view as wider words must start at a multiple of their size
        flat = flat.clone()
    words = flat.view(WORDS[per_byte]) * multiplier(bits)
    most_significant = per_byte - 1 if sys.byteorder == "little" else 0
    joined = words.view(torch.uint8)[most_significant::per_byte].contiguous()
    return joined.view(*fields.shape[:-1], fields.shape[-1] // per_byte)


@functools.cache
def fields_of_bytes(bits: int, device: torch.device) -> Tensor:
    """Return the fields of every byte value, ``(256, 8 // bits)`` uint8, with ``bits`` dividing 8."""
    shifts = torch.arange(0, 8, bits, device=device)
    return ((torch.arange(256, device=device).unsqueeze(1) >> shifts) & (2**bits - 1)).to(torch.uint8)


def look_up(packed: Tensor, table: Tensor, count: int) -> Tensor:
    """Replace each of b bytes by its row of a table ``(256, f)`` of one-byte fields: ``(..., b) -> (..., count)``.

    The result is a view of the first ``count`` of ``b f`` fields.
    """
    if table.shape[1] == 1:
        return packed.view(table.dtype)[..., :count]
    whole_rows = table.view(WORDS[table.shape[1]]).view(256)  # a row is moved as one word
    fields = whole_rows.index_select(0, packed.reshape(-1).int()).view(table.dtype)
    return fields.view(*packed.shape[:-1], packed.shape[-1] * table.shape[1])[..., :count]


def _check_width(bits: int) -> None:
    if not 1 <= bits <= 64:
        raise SpecError("bits", bits, "a width from 1 to 64")
