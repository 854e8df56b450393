"""Lines between places from a user's description, as iperf and ping measure them, and descriptions of such networks."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix, Per
from syncline.costmodel.network.network_links import with_links
from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SpecError, one_of, require_one_of
from syncline.fields import INSTANCE, Seconds, parsed
from syncline.specs.cluster import reading
from syncline.specs.cluster.library_costs import GlooField, HivemindDescription, HivemindField, NcclField, TcpField
from syncline.specs.cluster.links import LinkDescription, NetworkDescription, Part, link_fields
from syncline.units import parse_bandwidth, parse_seconds

UNITS = {
    "bandwidth_gbit_s": ("bandwidth", "Gbit/s"), "bandwidth_mbit_s": ("bandwidth", "Mbit/s"),
    "gbit_s": ("bandwidth", "Gbit/s"), "mbit_s": ("bandwidth", "Mbit/s"),
    "latency_ms": ("latency", "ms"), "rtt_ms": ("rtt", "ms"),
}  # fmt: skip
"""Field and unit of the columns of a table whose name has the unit of the numbers in it."""

Rows = tuple[tuple[float | None, ...], ...]
"""A table of numbers from place to place."""


class LineDescription(LinkDescription):
    """A line from a place to another: a link with the places ``from`` and ``to``."""

    needs = "a value: a line has places that it is 'from' and 'to', a 'bandwidth', a 'latency' or 'rtt'"

    source: reading.Name = Field(alias="from")
    to: reading.Name


class SharedLinkDescription(reading.Description):
    """The link that all messages of a host or a place share: its ``bandwidth``, optionally other fields."""

    needs = "a value: a host or a place has a 'bandwidth', and optionally an 'upload' and a 'latency'"

    bandwidth: reading.Bandwidth
    upload: reading.Bandwidth | None = None
    latency: Seconds = 0.0
    duplex: Literal["full", "half"] = "full"


def _parse_shared_link(value: Any, path: str) -> Link | None:
    """Return the link of a host or a place, from its bandwidth or its fields; None for no limit."""
    if value is None or isinstance(value, Link):
        return value
    if not isinstance(value, Mapping):
        value = {"bandwidth": value}
    link = SharedLinkDescription.read(value, path)
    with reading.user_field_names(path):
        return Link(link.latency, link.bandwidth, upload_bytes_per_s=link.upload, duplex=link.duplex)


def _parse_uplinks(value: Any, path: str) -> Any:
    """Return the uplink of all places, or the uplinks by the places' names."""
    if isinstance(value, Mapping) and "bandwidth" not in value:  # with it, these are the fields of one link
        return {str(name): _parse_shared_link(uplink, f"{path}.{name}") for name, uplink in value.items()}
    return _parse_shared_link(value, path)


def _parse_places(value: Any, path: str) -> dict[str, int]:
    """Return the number of workers of each place by name; in a list of names each place has one worker."""
    if isinstance(value, list | tuple):
        value = dict.fromkeys(map(str, value), 1)
    if not isinstance(value, Mapping) or not value:
        raise SpecError(path, value, "places with their workers, as in {us: 4, eu: 2}, or a list of names")
    return {str(name): reading.whole_number(count, f"{path}.{name}") for name, count in value.items()}


def _parse_table_of_lines(value: Any, path: str) -> list[dict[str, Any]]:
    """Return the rows of a table of lines: a list of mappings, a DataFrame, or the path of a CSV file.

    Numbers in a column whose name has a unit get this unit; empty cells are left out.
    """
    if isinstance(value, str | Path):
        if not str(value).endswith(".csv"):
            raise SpecError(path, str(value), "a .csv file with the columns from, to, bandwidth, and latency or rtt")
        value = list(csv.DictReader(io.StringIO(reading.read_text(Path(value), path))))
    elif hasattr(value, "to_dict"):  # a DataFrame of pandas
        value = value.to_dict("records")
    if not isinstance(value, list | tuple) or not all(isinstance(row, Mapping) for row in value):
        raise SpecError(path, value, "a list of lines: {from, to, bandwidth, latency} each, or a .csv file")
    rows = []
    for row in value:
        fields: dict[str, Any] = {}
        fields_with_units: dict[str, Any] = {}
        for column, cell in row.items():
            if cell in (None, ""):
                continue
            if column in UNITS:  # such as ``latency_ms``
                field, unit = UNITS[column]
                fields_with_units[field] = f"{cell} {unit}"
            else:
                fields[column] = cell
        rows.append(fields | fields_with_units)
    return rows


def _table_validator(parse_number: Callable[[Any, str], float]) -> Any:
    """Return a validator of a table of numbers from place to place; an entry may be None.

    `MatrixDescription` checks that the table is square.
    """

    def parse_table(value: Any, path: str) -> Rows:
        if not isinstance(value, list | tuple) or not all(isinstance(row, list | tuple) for row in value):
            raise SpecError(path, value, "a list of rows, one for each place, with a number for each place")
        table = []
        for i, row in enumerate(value):
            numbers = [None if x is None else parse_number(x, f"{path}.{i}.{j}") for j, x in enumerate(row)]
            table.append(tuple(numbers))
        return tuple(table)

    return parsed(parse_table)


class MatrixDescription(NetworkDescription):
    """A network of places with a line between any two; see `syncline.costmodel.network.matrix.Matrix`.

    ``places``: the workers of each place by its name, or a list of names with one worker each. ``ranks``: the place of
    each worker by name, in the order of the ranks; by default the places in their order. The lines: ``bandwidth`` and
    ``latency`` (or ``rtt``) as matrices in the order of the places, or ``lines``: rows with ``from``, ``to`` and the
    fields of a link, or a CSV file of such rows; a line holds for both directions unless the other direction has its
    own. ``inside``: line inside a place without its own. ``per``: whose messages share a line's rate. ``host``: link of
    a worker's network card. ``uplink``: link of a place. ``tcp``: connections over each line. ``gloo``, ``nccl``,
    ``hivemind``: costs of the library that averages. ``bounds``: errors of predictions, from a calibration.
    """

    makes = Matrix
    needs = "a value: a matrix has 'places', and 'lines' or a 'bandwidth' and a 'latency' between them"

    kind: Literal["matrix"] = "matrix"
    places: Annotated[dict[str, int], parsed(_parse_places)]
    ranks: tuple[reading.Name, ...] | None = None
    lines: Annotated[Any, parsed(_parse_table_of_lines)] = None
    bandwidth: Annotated[Rows | None, _table_validator(parse_bandwidth)] = None
    latency: Annotated[Rows | None, _table_validator(parse_seconds)] = None
    rtt: Annotated[Rows | None, _table_validator(parse_seconds)] = None
    inside: Part | None = None
    per: Per = "connection"
    host: Annotated[Annotated[Link, INSTANCE] | None, parsed(_parse_shared_link)] = None
    uplink: Annotated[Any, parsed(_parse_uplinks)] = None
    tcp: TcpField = None
    gloo: GlooField | None = None
    nccl: NcclField = None
    hivemind: HivemindField = None
    bounds: reading.BoundsField | None = None
    name: reading.Name = ""

    @override
    def network(self) -> Matrix:
        """Return the network that the fields describe; refuse a pair of places without a line."""
        names = tuple(self.places)
        lines = self._lines(names)
        for i, source in enumerate(names):
            if (source, source) not in lines:
                lines[source, source] = None if self.inside is None else replace(self.inside, name=f"{source}-{source}")
            for target in names[:i]:  # `_lines` has both directions of a pair, or neither
                if (source, target) not in lines:
                    raise SpecError(f"network.lines.{source}.{target}", None, "a line, in either direction")
        rows = tuple(tuple(lines[source, target] for target in names) for source in names)
        costs_by_library: dict[str, Any] = {"gloo": self.gloo, "nccl": self.nccl}  # equal on all lines
        library_costs = {library: costs for library, costs in costs_by_library.items() if costs}
        if library_costs:
            rows = with_links(rows, lambda line: replace(line, **library_costs))
        return Matrix(
            names, rows, self._places_of_ranks(names), self.per, card=self.host, uplinks=self._uplinks(names),
            hivemind=HivemindDescription.parse(self.hivemind), name=self.name, bounds=self.bounds,
        )  # fmt: skip

    def _places_of_ranks(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the index of each worker's place, in the order of the ranks."""
        if self.ranks is None:
            return places_in_order(self.places.values())
        for rank, name in enumerate(self.ranks):
            if name not in self.places:
                raise SpecError(f"network.ranks.{rank}", name, one_of(names, name))
        for name, count in self.places.items():
            if self.ranks.count(name) != count:
                raise SpecError("network.ranks", self.ranks.count(name), f"{count} workers in {name!r}, as in places")
        return tuple(names.index(name) for name in self.ranks)

    def _uplinks(self, names: tuple[str, ...]) -> Link | tuple[Link, ...] | None:
        """Return the uplink of all places, or the uplink of each in the order of ``names``, or None."""
        if not isinstance(self.uplink, dict):
            uplink: Link | None = self.uplink
            return uplink
        for name in (*self.uplink, *names):
            is_unknown_or_missing = name not in names or name not in self.uplink
            if is_unknown_or_missing:
                expected = f"a link of each place: {', '.join(names)}"
                raise SpecError(f"network.uplink.{name}", self.uplink.get(name), expected)
        return tuple(self.uplink[name] for name in names)

    def _lines(self, names: tuple[str, ...]) -> dict[tuple[str, str], Link | None]:
        """Return the lines by the names of their two ends, source and target.

        A line holds for both directions, unless the other direction has a line of its own.
        """
        all_tables = {"bandwidth": self.bandwidth, "latency": self.latency, "rtt": self.rtt}
        tables = {field: table for field, table in all_tables.items() if table is not None}
        if self.lines is None:
            rows = list(self._rows_of_tables(tables, names))
        elif tables:
            first_field, *_ = tables
            raise SpecError(f"network.{first_field}", "a matrix", "none with lines, which have their own")
        else:
            rows = [(row, f"network.lines.{i}") for i, row in enumerate(self.lines)]
        lines: dict[tuple[str, str], Link | None] = {}
        for row, path in rows:
            source, target, link = self._line(row, path)
            for end, name in (("from", source), ("to", target)):
                require_one_of(f"{path}.{end}", name, names)
            if (source, target) in lines:
                raise SpecError(path, f"{source} to {target}", "one line from a place to another")
            lines[source, target] = link
        for (source, target), line in list(lines.items()):
            if (target, source) not in lines and line is not None:
                lines[target, source] = replace(line, name=f"{target}-{source}")
        return lines

    def _rows_of_tables(self, tables: Mapping[str, Rows], names: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the fields and the path of each line in tables of S places, ``(S, S)``, of bandwidths and latencies."""
        for field, table in tables.items():
            if len(table) != len(names) or any(len(row) != len(names) for row in table):
                expected = f"{len(names)} rows of {len(names)}, one for each place"
                raise SpecError(f"network.{field}", len(table), expected)
        for i, source in enumerate(names):
            for j, target in enumerate(names):
                numbers = {field: table[i][j] for field, table in tables.items() if table[i][j] is not None}
                if numbers or i != j:
                    yield {"from": source, "to": target} | numbers, f"network.lines.{source}.{target}"

    def _line(self, row: Mapping[str, Any], path: str) -> tuple[str, str, Link]:
        """Return the names of a line's source and target and its link.

        A line of bandwidth and latency alone is read without pydantic, which would take seconds for thousands of lines.
        """
        row = dict(row)
        if "rtt" in row:
            if "latency" in row:
                raise SpecError(f"{path}.rtt", row["rtt"], "none with latency, of which it is the double")
            row["latency"] = parse_seconds(row.pop("rtt"), f"{path}.rtt") / 2
        has_no_rate = "bandwidth" not in row and "preset" not in row
        if has_no_rate and (self.tcp or row.get("tcp")) and self.host is not None:  # windows or the host limit the rate
            row["bandwidth"] = float(self.host.goodput_bytes_per_s)
        tcp = self.tcp if isinstance(self.tcp, Tcp) and "tcp" not in row else None
        has_losses = tcp is not None and bool(tcp.loss)
        if set(row) == {"from", "to", "bandwidth", "latency"} and not has_losses:
            source, target = str(row["from"]), str(row["to"])
            latency_s = parse_seconds(row["latency"], f"{path}.latency")
            bytes_per_s = parse_bandwidth(row["bandwidth"], f"{path}.bandwidth")
            if tcp is not None:
                bytes_per_s = float(tcp.rate_bytes_per_s(bytes_per_s, 2 * latency_s))
            with reading.user_field_names(path):
                return source, target, Link(latency_s, bytes_per_s, f"{source}-{target}")
        line = LineDescription.read(row if tcp is None else {**row, "tcp": tcp}, path)
        # TCP windows already limit its bandwidth; slow start is modelled only for networks of one link.
        return line.source, line.to, replace(line.link(path), tcp=None, name=f"{line.source}-{line.to}")

    @override
    @classmethod
    def fields_of(cls, network: Matrix) -> dict[str, Any]:
        """Return the fields of a spec that describe this network; see `_fields_of_lines` for those of its lines."""
        sizes = dict(zip(network.places, network.sizes(network.workers), strict=True))
        fields: dict[str, Any] = {"kind": "matrix", "places": sizes}
        if network.ranks != places_in_order(sizes.values()):
            fields["ranks"] = [network.places[place] for place in network.ranks]
        fields |= _fields_of_lines(network)
        fields["per"] = network.per
        if network.card is not None:
            fields["host"] = _shared_link_fields(network.card)
        if isinstance(network.uplinks, Link):
            fields["uplink"] = _shared_link_fields(network.uplinks)
        elif network.uplinks is not None:
            uplinks = [_shared_link_fields(uplink) for uplink in network.uplinks]
            fields["uplink"] = dict(zip(network.places, uplinks, strict=True))
        if network.hivemind is not None:
            fields["hivemind"] = HivemindDescription.fields_of(network.hivemind)
        if network.bounds is not None:
            fields["bounds"] = reading.bounds_fields(network.bounds)
        return fields


def places_in_order(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return the index of each worker's place if the ranks fill the places in their order, by the places' sizes."""
    return tuple(place for place, size in enumerate(sizes) for _ in range(size))


def _fields_of_lines(network: Matrix) -> dict[str, Any]:
    """Return tables ``bandwidth`` and ``latency`` if no line has further fields, else the list ``lines``."""

    def is_plain(line: Link | None) -> bool:
        """Return whether all fields of a line but its latency, bandwidth and name have their defaults."""
        return line is None or line == Link(line.latency_s, line.bandwidth_bytes_per_s, line.name)

    if all(is_plain(line) for lines in network.lines for line in lines):
        bandwidths, latencies = [], []
        for lines in network.lines:
            bandwidths.append([None if line is None else float(line.bandwidth_bytes_per_s) for line in lines])
            latencies.append([None if line is None else float(line.latency_s) for line in lines])
        return {"bandwidth": bandwidths, "latency": latencies}
    rows = []
    for source, lines in zip(network.places, network.lines, strict=True):
        for target, line in zip(network.places, lines, strict=True):
            if line is not None:
                rows.append({"from": source, "to": target} | link_fields(line))
    return {"lines": rows}


def _shared_link_fields(link: Link) -> dict[str, Any]:
    """Return the fields from which `_parse_shared_link` builds the same link of a host or a place again."""
    return {name: value for name, value in link_fields(link).items() if name in SharedLinkDescription.model_fields}
