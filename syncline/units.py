"""Conversion of quantities with units from text to SI numbers, and back.

Inside Syncline a time is in seconds, a size in bytes, a rate in bytes per second. Text is parsed once, at the input.
The case of ``b`` and ``B`` matters: ``b`` is a bit, ``B`` a byte of 8 bits. ``k M G T P`` are powers of 1000 and
``Ki Mi Gi Ti Pi`` powers of 1024 (IEC 80000-13), so 619 MiB is 649 MB.
"""

from __future__ import annotations

import contextlib
import math
import re
from decimal import Decimal
from numbers import Integral

from syncline.errors import SpecError

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MICRO = {"\u00b5s": 1e-6, "\u03bcs": 1e-6}  # the micro sign and the Greek letter mu
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_PREFIXES = {**_DECIMAL, **_BINARY}
_BYTES = {prefix + "B": float(factor) for prefix, factor in _PREFIXES.items()}
_BYTES_PER_S: dict[str, float] = {}
for _prefix, _factor in _PREFIXES.items():
    for _per_s in ("/s", "ps"):
        _BYTES_PER_S[f"{_prefix}B{_per_s}"] = float(_factor)
        _BYTES_PER_S[f"{_prefix}b{_per_s}"] = _BYTES_PER_S[f"{_prefix}bit{_per_s}"] = _factor / 8
_QUANTITY = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s].*)?")
"""A number, and the unit behind it if there is one."""


def parse_seconds(value: str | float, path: str = "time") -> float:
    """Return a time in seconds, from text with a unit or from a number of seconds.

    Args:
        value: ``"50 ms"``, ``"50us"``, ``"2 min"`` or ``0.05``; not negative.
        path: the field's name, for the error line.

    >>> parse_seconds("50 ms")
    0.05
    """
    expected = "a time with its unit ('50 ms', '2 us', '1 h'), or a number of seconds"
    return _parse(value, path, units=_SECONDS | _MICRO, expected=expected)


def parse_bytes(value: str | float, path: str = "size") -> float:
    """Return a size in bytes, from text with a unit or from a number of bytes.

    Args:
        value: ``"619 MiB"`` (2**20 bytes each), ``"1.5GB"`` (10**9 bytes each) or ``4``; not negative.
        path: the field's name, for the error line.

    Raises:
        SpecError: the unit is missing or unknown (``Mb``, megabit, is no size), or the size is negative or not finite.

    >>> parse_bytes("619MiB")
    649068544.0
    """
    return _parse(value, path, _BYTES, "a size with its unit ('619 MiB', '1.5 GB'; B is byte), or a number of bytes")


def parse_bandwidth(value: str | float, path: str = "bandwidth") -> float:
    """Return a rate in bytes per second, from text with a unit or from a number of bytes per second.

    Args:
        value: ``"100 Gbit/s"``, ``"100Gb/s"``, ``"100 Gbps"`` (all 12.5e9), ``"1.25 GB/s"`` or ``1.25e9``; positive.
        path: the field's name, for the error line.

    >>> parse_bandwidth("10Gbit/s") == parse_bandwidth("1.25 GB/s")
    True
    """
    expected = "a positive rate with its unit ('100 Gbit/s', or '1.25 GB/s' in bytes), or a number of bytes per second"
    rate = _parse(value, path, units=_BYTES_PER_S, expected=expected)
    if rate == 0:
        raise SpecError(path, value, expected)
    return rate


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number of Python or NumPy, and not a bool.

    >>> is_whole(3), is_whole(3.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


_COUNTS = {**{name: float(factor) for name, factor in _DECIMAL.items()}, "B": 1e9}


def parse_count(value: str | float, path: str = "count") -> float:
    """Return a number of parameters or tokens, from text such as ``1.3B`` or from a number.

    Args:
        value: ``"1.3B"`` (10**9), ``"350M"``, ``"1.4T"`` or ``26e9``; positive.
        path: the field's name, for the error line.

    >>> parse_count("1.3B"), parse_count("140 B") == parse_count(140e9)
    (1300000000.0, True)
    """
    expected = "a positive number, as 26e9, 1.3B, 350M or 1.4T"
    count = _parse(value, path, units=_COUNTS, expected=expected)
    if count == 0:
        raise SpecError(path, value, expected)
    return count


def parse_share(value: str | float, path: str = "share") -> float:
    """Return a share of one, from a number or from text in percent.

    Args:
        value: ``0.05`` or ``"5%"``; not negative.
        path: the field's name, for the error line.

    >>> parse_share("5%"), parse_share(0.05)
    (0.05, 0.05)
    """
    return _parse(value, path, units={"": 1.0, "%": 0.01}, expected="a part of one, as 0.05 or '5%'")


def number_or_text(text: str | float) -> str | float:
    """Return the number of an option's text if it has no unit; return any other text unchanged.

    A plain number is in SI units; text with a unit is parsed later.

    >>> number_or_text("4"), number_or_text("4 KiB")
    (4.0, '4 KiB')
    """
    if isinstance(text, str):
        with contextlib.suppress(ValueError):
            return float(text)
    return text


def counted(count: int, nouns: str) -> str:
    """Return a number of things as text, from their noun in the plural.

    >>> counted(1, "workers"), counted(1024, "workers")
    ('1 worker', '1,024 workers')
    """
    return f"{count:,} {nouns.removesuffix('s') if count == 1 else nouns}"


def format_seconds(seconds: float) -> str:
    """Return a time as text with three significant digits: ``50 ms``, ``2 us``, ``1.5 h``.

    >>> format_seconds(0.0521), format_seconds(5400)
    ('52.1 ms', '1.5 h')
    """
    return _format(seconds, "s", _SECONDS)


def format_bytes(nbytes: float) -> str:
    """Return a size as text with three significant digits, in powers of 1000: ``649 MB``.

    >>> format_bytes(648.8e6), format_bytes(12)
    ('649 MB', '12 B')
    """
    return _format(nbytes, "B", {prefix + "B": _BYTES[prefix + "B"] for prefix in ("", "k", "M", "G", "T", "P")})


def format_bandwidth(bytes_per_s: float) -> str:
    """Return a rate as text with three significant digits, in bits per second, as products state it: ``10 Gbit/s``.

    >>> format_bandwidth(1.25e9)
    '10 Gbit/s'
    """
    units = (prefix + "bit/s" for prefix in ("", "k", "M", "G", "T", "P"))
    return _format(bytes_per_s, "bit/s", {unit: _BYTES_PER_S[unit] for unit in units})


def _parse(value: str | float, path: str, units: dict[str, float], expected: str) -> float:
    """Return a quantity in SI units, from text with one of the ``units`` or from a number.

    ``path`` and ``expected`` are for the error line, as in `SpecError`.
    """
    quantity, number, unit = math.nan, None, ""
    # Errors: an exponent out of range, an object that is no number, or any error of a user's own object.
    with contextlib.suppress(Exception):
        if isinstance(value, str):
            match = _QUANTITY.fullmatch(value.strip())
            if match is not None:
                number, unit = match[1], match[2] or ""
                # in decimal, so that "50 us" is the float 50e-6: 50 * 1e-6 is its neighbour
                quantity = float(Decimal(number) * Decimal(str(units[unit])))  # an unknown unit is an error, too
        elif not isinstance(value, bool):
            quantity = float(value)
    if math.isfinite(quantity) and quantity >= 0:
        return quantity
    if number is not None and not unit:  # text such as "4": only a value that is no text may lack the unit
        expected, _, _ = expected.partition(", or a number")
    raise SpecError(path, value, expected)


def _format(value: float, base: str, ascending: dict[str, float]) -> str:
    """Return a value as text in the largest of the units in which it is at least 1, with three significant digits.

    Args:
        value: the value in the unit ``base``.
        base: name of the unit with the factor 1.
        ascending: factors of the units by their names, the smallest first.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {base}"
    rounded_value = abs(float(f"{value:.3g}"))
    unit, *_ = ascending
    for larger_unit, factor in ascending.items():
        if rounded_value >= factor:
            unit = larger_unit
    # float() in between, because :.3g alone writes 1000 and more as 1e+03
    number = float(f"{value / ascending[unit]:.3g}")
    return f"{number:.10g} {unit}"
