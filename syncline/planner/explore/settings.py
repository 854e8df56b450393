"""Settings of the page: the texts of their values, the settings that a link makes, and the spec that they make.

Links may come from strangers, so every value is a number or a name of a list, never a file or a ``module:name``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import yaml

from syncline.costmodel import HARDWARE, MODELS, NETWORKS, Network
from syncline.costmodel.layouts.groups import site_sizes
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.network.link import Link
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError, one_of, require_one_of
from syncline.methods import METHODS, method_of, preset_of
from syncline.planner.periods import exchanges_now_and_then
from syncline.planner.projection.projections import refusal_of, with_steps_for
from syncline.planner.projection.thresholds import at_bandwidth
from syncline.planner.solving.link_selection import LinkPlace, link_place
from syncline.questions.explore import COMPRESSIONS, OWN, SITES, Control, PageSettings
from syncline.specs import ProjectSpec, load_spec
from syncline.specs.cluster.clusters import worker_count
from syncline.specs.cluster.networks import network, network_fields
from syncline.units import format_bandwidth, format_seconds, parse_bandwidth, parse_count, parse_seconds

BASELINE = "ddp-adam"
"""Baseline of the speedups; always among the methods."""

MOST_METHODS = 12
"""Largest number of methods in a link, which a picture can distinguish and the page can compute at once."""

INSIDE = tuple(
    name for name, preset in NETWORKS.items() if isinstance(preset.network, Link | TwoLevel) and "wan" not in name
)
"""Networks that may join the workers of a site."""

OFFERED_NETWORKS: dict[str, Network] = {}
"""Networks of the command by name; a link names them, and no other."""


def offer_network(description: Any) -> str:
    """Offer a network in the page's list of networks, and return its name there.

    Args:
        description: a network as ``syncline project`` takes it.

    Raises:
        SpecError: a network without a number of workers, without sites, or with a line that no setting can describe.
    """
    offered_network = network(description, "--network")
    workers = worker_count(offered_network)
    if workers is None or site_sizes(offered_network, workers) is None:
        expected = "a network with a fixed number of workers, such as places, or sites of given sizes"
        raise SpecError("--network", description, expected)
    narrowest_line = link_place(offered_network, path="--network").link
    for setting, value in line_settings(narrowest_line).items():
        BY_NAME[setting].read(BY_NAME[setting].write(value))  # raises an error for a value that no setting can have
    name = offered_network.name or Path(str(description)).stem
    OFFERED_NETWORKS[name] = offered_network
    return name


def line_between_places(settings: PageSettings) -> LinkPlace | None:
    """Return the lines between places as one link if the command has a network; None for equal sites."""
    return None if settings.network == SITES else link_place(OFFERED_NETWORKS[settings.network])


def line_settings(line: Link) -> dict[str, float]:
    """Return the bandwidth and the latency of a link as settings of the page, by name."""
    return {"bandwidth": float(line.bandwidth_bytes_per_s), "latency": float(line.latency_s)}


def sizes_of_sites(settings: PageSettings) -> tuple[int, ...]:
    """Return the number of workers in each site."""
    if settings.network == SITES:
        return (settings.workers,) * settings.sites
    offered_network = OFFERED_NETWORKS[settings.network]
    workers = worker_count(offered_network)
    sizes = workers and site_sizes(offered_network, workers)
    assert sizes, "`offer_network` refuses a network without a number of workers or without sites"
    return sizes


CATALOGUES: dict[str, Callable[[], tuple[str, ...]]] = {
    "models": lambda: tuple(MODELS),
    "hardware": lambda: tuple(HARDWARE),
    "inside": lambda: INSIDE,
    "networks": lambda: (SITES, *OFFERED_NETWORKS),
}
"""Options of lists that a setting names."""


def _exact_writer(
    write: Callable[[float], str], parse: Callable[[str], float], unit: str, power: int = 0, scale: float = 1.0
) -> Callable[[float], str]:
    """Return a function that writes a number as ``write`` does if that text is read as the same number.

    Other numbers are written with all digits.

    Args:
        write: function that writes a number in a short form.
        parse: function that reads it again.
        unit: unit of the form with all digits.
        power: the digits are in ``10**power`` of the unit.
        scale: number of units in the number's SI unit, such as 8 bits in a byte.
    """

    def text(value: float) -> str:
        short_text = write(value)
        if parse(short_text) == value:
            return short_text
        digits = Decimal(repr(value * scale)).scaleb(-power)  # exactly divided by 10**power
        return f"{digits.normalize():f} {unit}"

    return text


_COUNTS = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))


def format_count(count: float) -> str:
    """Return a number of tokens as text with three significant digits: ``140 B``.

    >>> format_count(140e9), format_count(1.5e12)
    ('140 B', '1.5 T')
    """
    rounded_count = float(f"{count:.3g}")
    for unit, size in _COUNTS:
        if rounded_count >= size:
            number = float(f"{count / size:.3g}")
            return f"{number:g} {unit}"
    return f"{rounded_count:g}"


def _methods(text: str) -> tuple[str, ...]:
    """Return the methods of a text with commas between names, without the baseline."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        require_one_of("methods", name, METHODS)
    methods = tuple(dict.fromkeys(name for name in names if name != BASELINE))
    if len(methods) > MOST_METHODS:
        raise SpecError("methods", len(methods), f"at most {MOST_METHODS}")
    return methods


NUMBERS: dict[str, tuple[Callable[[str, str], float], Callable[[float], str]]] = {
    "rate": (parse_bandwidth, _exact_writer(format_bandwidth, parse_bandwidth, "bit/s", scale=8.0)),
    "byte rate": (parse_bandwidth, _exact_writer(lambda rate: f"{rate / 1e9:g} GB/s", parse_bandwidth, "B/s")),
    "seconds": (parse_seconds, _exact_writer(format_seconds, parse_seconds, "s")),
    "hours": (parse_seconds, _exact_writer(lambda value: f"{value / 3600:g} h", parse_seconds, "s")),
    "count": (parse_count, _exact_writer(format_count, parse_count, "B", power=9)),
}
"""The parser of a text, and the writer of a number that the parser reads again, by the kind of a control."""


class Field:
    """A setting, with the texts of its values.

    Attributes:
        name: name of the setting, also in a link's query.
        control: the control of the page that sets it: its label, its values and its limits.
    """

    def __init__(self, name: str, control: Control) -> None:
        self.name, self.control = name, control

    @property
    def stops(self) -> tuple[Any, ...]:
        """Return the values of the setting's slider in order, or the options of its list."""
        stops = self.control.stops
        return CATALOGUES[stops]() if isinstance(stops, str) else tuple(stops)  # a text names a catalogue

    def read(self, text: str) -> Any:
        """Parse the text of this setting in a link or a form, and return its value."""
        control = self.control
        if control.kind == "methods":  # a list of names
            return _methods(text)
        if control.kind in ("name", "method"):
            options = self.stops or METHODS  # the page offers some methods; a link may name any
            is_no_method = control.kind == "method" and not text
            if text not in options and not is_no_method:
                raise SpecError(self.name, text, one_of(options, text))
            return text
        for value, word in control.words.items():
            if text.strip() == word:
                return value
        low, high = control.low, control.high
        if control.kind == "whole":
            digits = text.strip().replace(",", "")
            is_whole = digits.isascii() and digits.isdecimal() and len(digits) < 20  # `int` refuses very long texts
            if not is_whole or not low <= int(digits) <= high:
                raise SpecError(self.name, text, f"a whole number from {low:,} to {high:,}")
            return int(digits)
        parse, write = NUMBERS[control.kind]
        value = parse(text, self.name)
        if not low <= value <= high:
            raise SpecError(self.name, text, f"{write(low)} to {write(high)}")
        return value

    def write(self, value: Any) -> str:
        """Return the text of a value in a link, which `read` turns into the same value."""
        kind = self.control.kind
        if kind == "methods":
            return ",".join(value)
        if kind not in ("name", "method") and value in self.control.words:
            return self.control.words[value]
        if kind not in NUMBERS:
            return str(value)
        _, write = NUMBERS[kind]
        return write(value)

    def text(self, value: Any) -> str:
        """Return a value as the page shows it."""
        if self.control.words.get(value):
            return self.control.words[value]
        return f"{value:,}" if isinstance(value, int) else self.write(value)

    def stop_index(self, value: Any) -> int:
        """Return the index of the slider's stop that is nearest to a value: their ratio is nearest to 1."""
        stops = self.stops
        if value in stops:
            return stops.index(value)
        ratios = [max(stop / value, value / stop) if min(stop, value) > 0 else math.inf for stop in stops]
        return ratios.index(min(ratios))


FIELDS = tuple(Field(declared.name, declared.metadata["control"]) for declared in fields(PageSettings))
BY_NAME = {field.name: field for field in FIELDS}


def to_query(settings: PageSettings) -> str:
    """Return all settings as the query of a link, including defaults, because defaults may change later."""
    return urlencode({field.name: field.write(getattr(settings, field.name)) for field in FIELDS})


def from_query(query: str | Mapping[str, str]) -> tuple[PageSettings, list[str]]:
    """Return the settings of a link, and a line for each unusable value, which the default replaces.

    Args:
        query: the query of the link, or its fields.
    """
    texts = dict(parse_qsl(query, keep_blank_values=True)) if isinstance(query, str) else dict(query)
    if "network" in texts:  # first, because it sets the bandwidth and the latency, which other texts may replace
        texts = {"network": texts["network"]} | texts
    settings, problems = PageSettings(), []
    for name, text in texts.items():
        try:
            settings = with_text(settings, name, text)
        except SpecError as error:
            problems.append(str(error))
    return settings, problems


def with_text(settings: PageSettings, name: str, text: str) -> PageSettings:
    """Return the settings with one value replaced; another network also sets the sliders of bandwidth and latency."""
    require_one_of("link", name, BY_NAME)
    settings = replace(settings, **{name: BY_NAME[name].read(text)})
    line = line_between_places(settings) if name == "network" else None
    if line is None:
        return settings
    # Sites of different sizes cannot be replicas, which are equally large.
    replica = settings.replica if len(set(sizes_of_sites(settings))) == 1 else "worker"
    numbers = line_settings(line.link)
    return replace(settings, replica=replica, bandwidth=numbers["bandwidth"], latency=numbers["latency"])


TENSOR = 8
"""Degree of tensor parallelism where a site has no nodes."""

COMPRESSED: dict[str, dict[str, Any]] = {
    "bf16": {"wire": "bf16"},
    "8 bit": {"compressor": {"kind": "lp", "bits": 8}},
    "4 bit": {"compressor": {"kind": "lp", "bits": 4}},
    "top 1 %": {"compressor": {"kind": "top-k", "fraction": 0.01}},
}
assert set(COMPRESSED) == set(COMPRESSIONS) - {OWN}


@dataclass(frozen=True)
class ExploredSpec:
    """The projection that settings make.

    Attributes:
        spec: the spec made of ``fields``, as a file has them.
        notes: a line per method that is omitted, or that a setting does not change.
    """

    fields: dict[str, Any]
    spec: ProjectSpec
    notes: tuple[str, ...]


@lru_cache(maxsize=64)
def explored_spec(settings: PageSettings) -> ExploredSpec:
    """Return the projection that the page's settings describe, from a cache."""
    layout = replica_layout(settings)
    workers = sum(sizes_of_sites(settings))
    replicas = workers // Layout(**layout).workers
    notes: list[str] = []
    methods = []
    for name in (BASELINE, *settings.methods):
        method_fields = _method_fields(name, settings, max(replicas, 1), notes)  # 0 replicas are an error of the layout
        if method_fields is not None:
            methods.append(method_fields)
    spec_fields = {
        "kind": "project",
        "name": "explored",
        "description": "Made by syncline explore.",
        "source": f"?{to_query(settings)}",
        "model": settings.model,
        **({"tokens_per_worker": settings.batch} if settings.batch else {}),
        "workers": workers,
        "steps": 1,  # the tokens of the training set the steps below
        "methods": methods,
        "networks": [described_network(settings)],
        "compute": {"hardware": settings.hardware},
        **({"layout": layout} if layout else {}),
    }
    timed_spec: Any = with_steps_for(load_spec(spec_fields, (), ProjectSpec), settings.tokens)
    return ExploredSpec(spec_fields | {"steps": timed_spec.steps}, timed_spec, tuple(notes))


def failures_of_settings(settings: PageSettings) -> dict[str, Any] | None:
    """Return the failures as ``syncline advise`` and ``project`` accept them; None if nothing fails."""
    if not settings.mtbf:
        return None
    texts = {name: BY_NAME[name].write(getattr(settings, name)) for name in ("mtbf", "restart", "storage")}
    return {"rates": texts["mtbf"], "restart_time": texts["restart"], "checkpoint": {"bandwidth": texts["storage"]}}


def spec_text(settings: PageSettings) -> str:
    """Return the projection as a file with which ``syncline project`` computes the same numbers."""
    return yaml.safe_dump(explored_spec(settings).fields, sort_keys=False, allow_unicode=True, width=120)


def _method_fields(name: str, settings: PageSettings, replicas: int, notes: list[str]) -> dict[str, Any] | None:
    """Return a method's fields with the period and the compression of the settings, where the method has them.

    The result is None if the method cannot have them, or refuses the number of replicas. The function adds a line to
    ``notes`` if the method is left out or sent without compression.
    """
    fields = preset_of(name)
    method = method_of(fields)
    if settings.period and name != BASELINE and exchanges_now_and_then(method):
        fields["period"] = settings.period
    if settings.compression != OWN and name != BASELINE:
        compression_fields = COMPRESSED[settings.compression]
        if "compressor" in compression_fields and "compressor" not in type(method).model_fields:
            notes.append(f"{name} is sent uncompressed, as it takes no compressor")
        else:
            fields |= compression_fields
    try:
        refusal = refusal_of(method_of(fields), replicas)
    except SpecError as error:  # the method cannot have this period or compression
        refusal = error
    if refusal is None:
        return fields
    notes.append(f"{name} is left out: {refusal}")
    return None


def workers_per_node(settings: PageSettings) -> int:
    """Return the number of workers over which tensor parallelism splits a matrix: a node's, at most a site's."""
    node_network = NETWORKS[settings.inside].network if settings.network == SITES else None
    per_node = node_network.per_node if isinstance(node_network, TwoLevel) else TENSOR
    return min(per_node, *sizes_of_sites(settings))


def replica_layout(settings: PageSettings) -> dict[str, Any]:
    """Return the layout of a replica; an empty one if it is one worker."""
    per_node, sizes = workers_per_node(settings), sizes_of_sites(settings)
    if len(set(sizes)) > 1 and "site" in settings.replica:
        expected = f"worker or node, as {settings.network} has sites of {', '.join(map(str, sizes))} workers"
        raise SpecError("replica", settings.replica, expected)
    degrees = {
        "worker": {},
        "node": {"tensor": per_node},
        "site": {"data": sizes[0]},
        "nodes in a site": {"tensor": per_node, "data": sizes[0] // per_node},
    }[settings.replica]
    return {name: count for name, count in degrees.items() if count > 1}


def described_network(settings: PageSettings) -> Any:
    """Return the network that joins all workers, as in a spec."""
    between_places = line_between_places(settings)
    if between_places is not None:  # the network of the command, whose lines the settings scale
        link = replace(at_bandwidth(between_places.link, settings.bandwidth), latency_s=settings.latency)
        return network_fields(between_places.with_link(link))
    line = {name: BY_NAME[name].write(getattr(settings, name)) for name in ("latency", "bandwidth")}
    line["name"] = f"{format_bandwidth(settings.bandwidth)} and {format_seconds(settings.latency)}"
    node_network = NETWORKS[settings.inside].network
    if settings.workers == 1:
        return line
    site_name, level = settings.inside, {"units": settings.workers, "link": settings.inside}
    if isinstance(node_network, TwoLevel) and settings.workers > node_network.per_node:
        if settings.workers % node_network.per_node:
            expected = f"a multiple of {node_network.per_node}, as a node of {settings.inside} has"
            raise SpecError("workers", settings.workers, expected)
        level = {"preset": settings.inside, "units": settings.workers // node_network.per_node}
    elif isinstance(node_network, TwoLevel):  # all workers of a site are in one node
        site_name = level["link"] = node_network.inner.name
    if settings.sites == 1:
        return site_name
    # One rail: all workers of a site share its line to the others.
    return {"name": "sites", "levels": [level, {"units": settings.sites, "link": line, "rails": 1}]}
