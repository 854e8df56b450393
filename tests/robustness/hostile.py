"""Values that no parameter is meant to have; some parameters take some of them.

A value is made anew for each call, because iterators can be read once. Its name says what it is, so that nothing has to
call its ``repr``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import torch


class Raises:
    """Every question about it ends in an error."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("hostile\nof two lines")

    __repr__ = __str__ = __bool__ = __len__ = __iter__ = __getitem__ = __float__ = __int__ = __index__ = _raise
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __fspath__ = __call__ = _raise
    __add__ = __mul__ = __rmul__ = __radd__ = __neg__ = __abs__ = _raise
    __hash__ = object.__hash__


class NoRepr:
    """Only its ``repr`` raises."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


class NoAttributes:
    """Every attribute that it lacks raises something else than AttributeError."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class NoTruth:
    """Equal to nothing that can be decided, as an array of several numbers."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = object.__hash__


class FalseFloat:
    def __float__(self) -> Any:
        return "not a float"


class LyingMapping(Mapping[str, Any]):
    """It names a key that it does not have."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["kind"])

    def __len__(self) -> int:
        return 1


class LyingSequence(Sequence[Any]):
    """It is shorter than it says."""

    def __getitem__(self, index: Any) -> Any:
        raise LookupError("lost")

    def __len__(self) -> int:
        return 3


class Text(str):
    """Text whose ``repr`` raises."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    __hash__ = str.__hash__


class Colour(Enum):
    RED = 1


class Pair(NamedTuple):
    first: int
    second: int


def _raises_at_once() -> Iterator[int]:
    raise RuntimeError("at once")
    yield 1


def _raises_later() -> Iterator[int]:
    yield 2
    raise RuntimeError("later\nof two lines")


def _deep(make: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(3000):
        value = make(value)
    return value


def _of_itself() -> list[Any]:
    value: list[Any] = [1]
    value.append(value)
    return value


def _mapping_of_itself() -> dict[str, Any]:
    value: dict[str, Any] = {"kind": "run"}
    value["x"] = value
    return value


CONSTANTS: dict[str, Any] = {
    "0": 0,
    "-1": -1,
    "1": 1,
    "2": 2,
    "3": 3,
    "0.5": 0.5,
    "-0.5": -0.5,
    "2.0": 2.0,
    "1e-300": 1e-300,
    "1e300": 1e300,
    "2**31": 2**31,
    "2**63": 2**63,
    "10**30": 10**30,
    "10**400": 10**400,
    "-10**400": -(10**400),
    "10**5000": 10**5000,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
    "True": True,
    "False": False,
    "1+2j": 1 + 2j,
    "Decimal": Decimal("0.5"),
    "Decimal nan": Decimal("nan"),
    "Decimal sNaN": Decimal("sNaN"),
    "Fraction": Fraction(1, 3),
    "7": 7,
    "1000": 1000,
    "10**6": 10**6,
    "10**9": 10**9,
    "10**12": 10**12,
    "1e-9": 1e-9,
    "1 - 1e-12": 1 - 1e-12,
    "'0 s'": "0 s",
    "'1e-300 s'": "1e-300 s",
    "'1000 d'": "1000 d",
    "'50%'": "50%",
    "'1B'": "1B",
    "'1e30'": "1e30",
    "'1e300 B'": "1e300 B",
    "'1e-9 bit/s'": "1e-9 bit/s",
    "''": "",
    "' '": " ",
    "'yes'": "yes",
    "'8'": "8",
    "'1e3'": "1e3",
    "'x'": "x",
    "'nan'": "nan",
    "'1 ms'": "1 ms",
    "'-1 ms'": "-1 ms",
    "'1e999 s'": "1e999 s",
    "'10 Gbit/s'": "10 Gbit/s",
    "'12 parsecs'": "12 parsecs",
    "'é'": "é",
    "Arabic digit": "٣",
    "lone surrogate": "\ud800",
    "two lines": "a\nb",
    "5,000 x": "x" * 5000,
    "NUL": "a\0b",
    "'../x'": "../x",
    "'a:b'": "a:b",
    "'os:system'": "os:system",
    "'ddp-adam'": "ddp-adam",
    "'{'": "{",
    "'%s%n'": "%s%n",
    "b'8'": b"8",
    "bytearray": bytearray(b"x"),
    "memoryview": memoryview(b"x"),
    "None": None,
    "...": ...,
    "int": int,
    "len": len,
    "range(3)": range(3),
    "range(0)": range(0),
    "slice": slice(1),
    "[]": [],
    "()": (),
    "{}": {},
    "[[]]": [[]],
    "[None]": [None],
    "['x']": ["x"],
    "[1, 1]": [1, 1],
    "[nan]": [float("nan")],
    "[True]": [True],
    "[b'x']": [b"x"],
    "{'kind': 'none'}": {"kind": "none"},
    "{'kind': []}": {"kind": []},
    "{1: 2}": {1: 2},
    "{None: None}": {None: None},
    "{'': 0}": {"": 0},
    "{(1, 2): 3}": {(1, 2): 3},
    "{b'x': 1}": {b"x": 1},
    "set()": set(),
    "{1, 2}": {1, 2},
    "frozenset": frozenset({"x"}),
    "dict of dict": {"a": {"b": [1]}},
    "NotImplemented": NotImplemented,
    "Path": Path("nowhere"),
    "Path ''": Path(),
    "Enum": Colour.RED,
    "NamedTuple": Pair(1, 2),
    "module": itertools,
    "exception": ValueError("x"),
    "np.int64(2)": np.int64(2),
    "np.int8(-1)": np.int8(-1),
    "np.float32(0.5)": np.float32(0.5),
    "np.float64(nan)": np.float64("nan"),
    "np.bool_": np.bool_(True),
    "np.str_": np.str_("x"),
    "np.bytes_": np.bytes_(b"x"),
    "np.datetime64": np.datetime64("2026-01-01"),
    "np.complex64": np.complex64(1j),
    "array(2)": np.array(2),
    "array([2, 4])": np.array([2, 4]),
    "array([])": np.array([]),
    "array 2d": np.ones((2, 2)),
    "array of objects": np.array([None, "x"], dtype=object),
    "tensor(2)": torch.tensor(2),
    "tensor([2., 4.])": torch.tensor([2.0, 4.0]),
    "tensor with gradient": torch.ones(2, requires_grad=True),
    "meta tensor": torch.ones(2, device="meta"),
    "Series": pd.Series([1, 2]),
    "DataFrame": pd.DataFrame({"a": [1]}),
    "pd.NA": pd.NA,
    "pd.NaT": pd.NaT,
    "Timedelta": pd.Timedelta("1s"),
    "Linear": torch.nn.Linear(2, 2),
    "float32": torch.float32,
}
"""By what an error calls them."""

MADE: dict[str, Callable[[], Any]] = {
    "object()": object,
    "generator of 2, 4": lambda: (2 * i for i in (1, 2)),
    "generator of text": lambda: (name for name in ("ddp-adam",)),
    "empty generator": lambda: iter(()),
    "generator that raises at once": _raises_at_once,
    "generator that raises later": _raises_later,
    "endless generator": itertools.count,
    "map": lambda: map(str, [1]),
    "dict keys": {"ddp-adam": 1}.keys,
    "dict values": {"a": 1}.values,
    "Raises": Raises,
    "[Raises]": lambda: [Raises()],
    "{'kind': Raises}": lambda: {"kind": Raises()},
    "Raises class": lambda: Raises,
    "NoRepr": NoRepr,
    "[NoRepr]": lambda: [NoRepr()],
    "NoAttributes": NoAttributes,
    "NoTruth": NoTruth,
    "FalseFloat": FalseFloat,
    "LyingMapping": LyingMapping,
    "LyingSequence": LyingSequence,
    "text without repr": lambda: Text("x"),
    "MagicMock": MagicMock,
    "SimpleNamespace": lambda: SimpleNamespace(kind="run", name="x"),
    "lambda": lambda: lambda: 1,
    "function that raises": lambda: Raises()._raise,
    "deep list": lambda: _deep(lambda value: [value]),
    "deep dict": lambda: _deep(lambda value: {"a": value}),
    "list of itself": _of_itself,
    "dict of itself": _mapping_of_itself,
    "10,000 numbers": lambda: list(range(10_000)),
}
"""Values that are made anew for each call."""

NAMES = (*CONSTANTS, *MADE)

NUMBERS = tuple(name for name, value in CONSTANTS.items() if isinstance(value, int | float | np.number))

TEXTS = tuple(name for name, value in CONSTANTS.items() if isinstance(value, str))

CONTAINERS = tuple(name for name, value in CONSTANTS.items() if isinstance(value, list | dict | tuple | range))


LARGE = tuple(name for name in NUMBERS if not isinstance(CONSTANTS[name], bool) and abs(CONSTANTS[name]) >= 1000)
"""Numbers of steps or workers that would be trained for hours, where they are taken."""


def like(value: Any) -> tuple[str, ...]:
    """Return names of values of the same kind, whose type a parameter takes: only their ranges can be wrong."""
    if isinstance(value, int | float):
        return NUMBERS
    if isinstance(value, str):
        return TEXTS + NUMBERS
    return CONTAINERS if isinstance(value, list | dict | tuple) else NAMES


def hostile(name: str) -> Any:
    """Return the value of this name, made anew."""
    return MADE[name]() if name in MADE else CONSTANTS[name]
