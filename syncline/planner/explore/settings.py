"""Settings of the page: the name, the values and the text in a link of each; and the settings that a link makes.

Links may come from strangers, so every value is a number or a name of a list, never a file or a ``module:name``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, urlencode

from syncline.costmodel import HARDWARE, MODELS, NETWORKS
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of
from syncline.methods import METHODS
from syncline.planner.periods import COMPARED_PERIOD
from syncline.units import (
    format_bandwidth,
    format_seconds,
    parse_bandwidth,
    parse_count,
    parse_seconds,
)

OWN = "own"
"""Value of a period or a compression that leaves each method its own."""

BASELINE = "ddp-adam"
"""Baseline of the speedups; always among the methods."""

OFFERED = (
    "diloco", "streaming-diloco", "local-adam", "mt-dao", "des-loc", "demo", "powersgd", "top-k", "lion-cub", "dion",
)  # fmt: skip
"""Methods that have a box on the page. A link may name any other that ``syncline list methods`` has."""

MOST_METHODS = 12
"""Largest number of methods in a link, which a picture can distinguish and the page can compute at once."""

COMPRESSIONS = {
    OWN: "each method's own",
    "bf16": "bf16",
    "8 bit": "8-bit integers",
    "4 bit": "4-bit integers",
    "top 1 %": "the largest 1 %",
}

LOSSES = {"seen": "where fits have seen them", "extrapolated": "beyond, marked *"}

REPLICAS = {
    "worker": "one worker",
    "node": "a node, tensor parallel",
    "site": "a site, data parallel",
    "nodes in a site": "a site, tensor parallel in nodes",
}
"""Forms of a replica: its number of workers, and their parallelism."""


@dataclass(frozen=True)
class PageSettings:
    """The settings of the page; the default is the two bundled sites of A100s, each site a replica.

    Args:
        model, hardware: names in the lists of models and hardware.
        sites: number of sites, each with a line of ``bandwidth`` and ``latency`` to the others.
        workers: number of workers per site.
        inside: name of the network of a site.
        bandwidth: bandwidth of a site's line in bytes per second.
        latency: one-way latency of a site's line in seconds.
        methods: names of methods in addition to the baseline.
        period: steps between averages, for methods whose period is longer than a step; 0 keeps each preset's own.
        compression: format of the messages, for methods that can compress; see ``COMPRESSIONS``.
        replica: form of a replica; see ``REPLICAS``.
        batch: tokens of a worker in a step; 0: a share of the batch between the best of published fits.
        tokens: number of tokens of the training.
        losses: whether losses are predicted outside the range of the published fits; see ``LOSSES``.
        mtbf: mean seconds between failures of a worker; 0 means that nothing fails.
        restart: seconds of a restart after a failure.
        storage: bytes per second at which all workers together write checkpoints.
        shown: the method whose round is drawn; if empty, the first of the ranking.
    """

    model: str = "llama-7b"
    hardware: str = "a100"
    sites: int = 2
    workers: int = 32
    inside: str = "dgx-a100"
    bandwidth: float = 1.25e8
    latency: float = 0.02
    methods: tuple[str, ...] = ("diloco", "streaming-diloco", "mt-dao", "des-loc", "demo")
    period: int = COMPARED_PERIOD
    compression: str = OWN
    replica: str = "site"
    batch: int = 0
    tokens: float = 140e9
    losses: str = "seen"
    mtbf: float = 0.0
    restart: float = 300.0
    storage: float = 1e11
    shown: str = ""

    @property
    def total(self) -> int:
        """Return the number of workers of all sites."""
        return self.sites * self.workers


@dataclass(frozen=True)
class Field:
    """One setting: its text, its parser and writer, and the stops of its slider.

    Args:
        name: name of the field, and in a link.
        label: label on the page.
        read: function from a text to the value.
        write: function from a value to its text, which ``read`` turns into the same value.
        stops: values of a slider, in order; or the options of a list.
        told: texts of the stops on the page, if they differ from the results of ``write``.
        help: a line of explanation.
    """

    name: str
    label: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    stops: Sequence[Any] = ()
    told: Mapping[Any, str] | None = None
    help: str = ""

    def text(self, value: Any) -> str:
        """Return a value as the page shows it."""
        return (self.told or {}).get(value) or (f"{value:,}" if isinstance(value, int) else self.write(value))

    def place(self, value: Any) -> int:
        """Return the index of the stop that is nearest to a value, by the ratio for positive numbers."""
        if value in self.stops:
            return list(self.stops).index(value)
        return min(range(len(self.stops)), key=lambda place: _ratio_distance(self.stops[place], value))


def _ratio_distance(value: float, other: float) -> float:
    if min(value, other) <= 0:
        return float("inf")
    return max(value / other, other / value)


def _among(path: str, options: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in options:
            raise SpecError(path, text, one_of(options, text))
        return text

    return read


def _integer_reader(path: str, low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        plain = text.strip().replace(",", "")
        if not (plain.isascii() and plain.isdecimal() and len(plain) < 20 and low <= int(plain) <= high):
            raise SpecError(path, text, f"a whole number from {low:,} to {high:,}")
        return int(plain)

    return read


def _between(
    path: str, parse: Callable[[str, str], float], write: Callable[[float], str], low: float, high: float
) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = parse(text, path)
        if not low <= value <= high:
            raise SpecError(path, text, f"{write(low)} to {write(high)}")
        return value

    return read


def _exactly(
    write: Callable[[float], str], parse: Callable[[str], float], unit: str, power: int = 0, scale: float = 1.0
) -> Callable[[float], str]:
    """Return a writer of numbers: the readable form if it is exact, else all digits in ``10**power`` of a unit."""

    def text(value: float) -> str:
        short = write(value)
        return short if parse(short) == value else f"{Decimal(repr(value * scale)).scaleb(-power).normalize():f} {unit}"

    return text


_COUNTS = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))


def format_count(count: float) -> str:
    """Return a number of tokens as text with three significant digits: ``140 B``.

    >>> format_count(140e9), format_count(1.5e12)
    ('140 B', '1.5 T')
    """
    unit, size = next(((unit, size) for unit, size in _COUNTS if float(f"{count:.3g}") >= size), ("", 1.0))
    return f"{float(f'{count / size:.3g}'):g} {unit}".strip()


def _period(text: str) -> int:
    return 0 if text.strip() == OWN else _integer_reader("period", 1, 10_000)(text)


BY_FITS = "by fits"
"""Text of a batch that published fits choose."""


def _batch(text: str) -> int:
    return 0 if text.strip() == BY_FITS else _integer_reader("batch", 1, 10**9)(text)


NEVER = "never"
"""Text of a time between failures without failures."""


def _mtbf(text: str) -> float:
    return 0.0 if text.strip() == NEVER else _between("mtbf", parse_seconds, _hours, 3600.0, 1e10)(text)


def _methods(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise SpecError("methods", name, one_of(METHODS, name))
    methods = tuple(dict.fromkeys(name for name in names if name != BASELINE))
    if len(methods) > MOST_METHODS:
        raise SpecError("methods", len(methods), f"at most {MOST_METHODS}")
    return methods


def _shown(text: str) -> str:
    if text and text not in METHODS:
        raise SpecError("shown", text, one_of(METHODS, text))
    return text


def _parse_rate(text: str, path: str = "storage") -> float:
    return parse_bandwidth(text, path)


def _stops(low: float, high: float, mantissas: Sequence[float]) -> tuple[float, ...]:
    """Return round numbers from ``low`` to ``high``: the mantissas in every decade, as written."""
    numbers, power = [], -15
    while 10.0**power <= high * 1.001:
        numbers += [float(f"{mantissa}e{power}") for mantissa in mantissas]
        power += 1
    return tuple(number for number in numbers if low * 0.999 <= number <= high * 1.001)


FINE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
INSIDE = tuple(name for name, one in NETWORKS.items() if isinstance(one.network, Link | TwoLevel) and "wan" not in name)
SLOWEST, FASTEST = 1.25e5, 1.25e11
"""Bytes per second of a site's line: 1 Mbit/s to 1 Tbit/s."""

_rate = _exactly(format_bandwidth, parse_bandwidth, "bit/s", scale=8.0)
_time = _exactly(format_seconds, parse_seconds, "s")
_hours = _exactly(lambda value: f"{value / 3600:g} h", parse_seconds, "s")
_bytes_rate = _exactly(lambda value: f"{value / 1e9:g} GB/s", _parse_rate, "B/s")
_count = _exactly(format_count, parse_count, "B", 9)
POWERS = tuple(2**power for power in range(10))

FIELDS: tuple[Field, ...] = (
    Field("model", "Model", _among("model", list(MODELS)), str, tuple(MODELS)),
    Field("hardware", "Hardware", _among("hardware", list(HARDWARE)), str, tuple(HARDWARE)),
    Field("sites", "Sites", _integer_reader("sites", 1, 64), str, (1, 2, 3, 4, 5, 6, 8, 12, 16)),
    Field("workers", "Workers per site", _integer_reader("workers", 1, 1024), str, POWERS),
    Field("inside", "Network of a site", _among("inside", INSIDE), str, INSIDE),
    Field(
        "bandwidth", "Bandwidth of a site's line",
        _between("bandwidth", parse_bandwidth, _rate, SLOWEST, FASTEST), _rate,
        tuple(one * 1e9 / 8 for one in _stops(1e-2, 1e3, FINE)),
    ),
    Field(
        "latency", "Latency of it, one way", _between("latency", parse_seconds, _time, 1e-7, 1.0), _time,
        _stops(1e-6, 0.5, (1, 1.5, 2, 3, 5, 7)),
    ),
    Field("methods", "Methods", _methods, ",".join, OFFERED),
    Field(
        "period", "Steps between averages", _period, lambda value: str(value) if value else OWN,
        (0, 1, 2, 4, 8, 16, 30, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000), {0: OWN},
        "of methods that average now and then; own: the period of each method's preset",
    ),
    Field("compression", "Sent as", _among("compression", list(COMPRESSIONS)), str, tuple(COMPRESSIONS), COMPRESSIONS),
    Field("replica", "A replica is", _among("replica", list(REPLICAS)), str, tuple(REPLICAS), REPLICAS),
    Field(
        "batch", "Tokens per worker, step", _batch, lambda value: str(value) if value else BY_FITS,
        (0, *(2**power for power in range(9, 21))), {0: BY_FITS},
        f"{BY_FITS}: a share of the batch between the best of data parallelism and of DiLoCo",
    ),
    Field(
        "tokens", "Tokens of the training", _between("tokens", parse_count, _count, 1e6, 1e15), _count,
        _stops(1e9, 2e13, (1, 1.4, 2, 3, 5, 7)),
    ),
    Field("losses", "Losses", _among("losses", list(LOSSES)), str, tuple(LOSSES), LOSSES),
    Field(
        "mtbf", "A worker fails once in", _mtbf, lambda value: _hours(value) if value else NEVER,
        (0, *(3600.0 * one for one in (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000))), {0: NEVER},
        "in the mean; 50,000 hours on the 16,384 GPUs of Llama 3",
    ),
    Field(
        "restart", "To start again", _between("restart", parse_seconds, _time, 0.0, 1e5), _time,
        (0.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0),
    ),
    Field(
        "storage", "Checkpoints are written at", _between("storage", _parse_rate, _bytes_rate, 1e6, 1e14), _bytes_rate,
        _stops(1e9, 1e12, (1, 2, 5)),
    ),
    Field("shown", "Round of", _shown, str),
)  # fmt: skip
BY_NAME = {field.name: field for field in FIELDS}
assert [one.name for one in FIELDS] == [one.name for one in fields(PageSettings)]


def to_query(settings: PageSettings) -> str:
    """Return all settings as the query of a link, so that it means the same when defaults have changed."""
    return urlencode({field.name: field.write(getattr(settings, field.name)) for field in FIELDS})


def from_query(query: str | Mapping[str, str]) -> tuple[PageSettings, list[str]]:
    """Return the settings of a link, and a line for each unusable value, which the default replaces.

    Args:
        query: the query of the link, or its fields.
    """
    values = dict(parse_qsl(query, keep_blank_values=True)) if isinstance(query, str) else dict(query)
    settings, problems = PageSettings(), []
    for name, text in values.items():
        try:
            settings = with_text(settings, name, text)
        except SpecError as error:
            problems.append(str(error))
    return settings, problems


def with_text(settings: PageSettings, name: str, text: str) -> PageSettings:
    """Return the settings with one value replaced.

    Raises:
        SpecError: there is no such setting, or the value is not allowed.
    """
    if name not in BY_NAME:
        raise SpecError("link", name, one_of(BY_NAME, name))
    return replace(settings, **{name: BY_NAME[name].read(text)})
