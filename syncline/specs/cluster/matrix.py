"""Lines between places from a user's description, as iperf and ping measure them, and descriptions of such networks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, InstanceOf
from typing_extensions import override

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix, Per
from syncline.costmodel.network.network_links import with_links
from syncline.costmodel.network.tcp import Tcp
from syncline.errors import SpecError, one_of
from syncline.fields import Seconds, parsed
from syncline.specs.cluster.library_costs import GlooField, HivemindDescription, HivemindField, NcclField, TcpField
from syncline.specs.cluster.links import LinkDescription, NetworkDescription, Part, link_fields
from syncline.specs.cluster.reading import (
    Bandwidth,
    BoundsField,
    Description,
    Name,
    bounds_fields,
    read_text,
    user_field_names,
    whole_number,
)
from syncline.units import parse_bandwidth, parse_seconds

UNITS = {
    "bandwidth_gbit_s": ("bandwidth", "Gbit/s"),
    "bandwidth_mbit_s": ("bandwidth", "Mbit/s"),
    "latency_ms": ("latency", "ms"),
    "rtt_ms": ("rtt", "ms"),
}
"""Columns of a table whose name has the unit of the numbers in it."""


class LineDescription(LinkDescription):
    """A line from a place to another: a link with the places ``from`` and ``to``."""

    needs: ClassVar[str] = "a value: a line has places that it is 'from' and 'to', a 'bandwidth', a 'latency' or 'rtt'"

    source: Name = Field(alias="from")
    to: Name


class CapDescription(Description):
    """The link of a host or a place that its messages share: a ``bandwidth``, at will ``upload`` and ``latency``."""

    needs: ClassVar[str] = "a value: a host or a place has a 'bandwidth', at will an 'upload' and a 'latency'"

    bandwidth: Bandwidth
    upload: Bandwidth | None = None
    latency: Seconds = 0.0
    duplex: Literal["full", "half"] = "full"


def _cap(value: Any, path: str) -> Link | None:
    """Return the link of a host or a place, from its bandwidth or its fields; None for no limit."""
    if value is None or isinstance(value, Link):
        return value
    if not isinstance(value, Mapping):
        value = {"bandwidth": value}
    cap = CapDescription.read(value, path)
    with user_field_names(path):
        return Link(cap.latency, cap.bandwidth, upload_bytes_per_s=cap.upload, duplex=cap.duplex)


def _uplink_caps(value: Any, path: str) -> Any:
    """Return a cap for all places, or the caps by the places' names."""
    if isinstance(value, Mapping) and "bandwidth" not in value:
        return {str(name): _cap(cap, f"{path}.{name}") for name, cap in value.items()}
    return _cap(value, path)


def _place_sizes(value: Any, path: str) -> dict[str, int]:
    """Return the number of workers of each place by name; in a list of names each place has one worker."""
    if isinstance(value, list | tuple):
        value = dict.fromkeys(map(str, value), 1)
    if not isinstance(value, Mapping) or not value:
        raise SpecError(path, value, "places with their workers, as in {us: 4, eu: 2}, or a list of names")
    return {str(name): whole_number(count, f"{path}.{name}") for name, count in value.items()}


def _table_rows(value: Any, path: str) -> list[dict[str, Any]]:
    """Return the rows of a table: a list of mappings, a DataFrame, or the path of a CSV file with these columns.

    Numbers in a column whose name has a unit get this unit; empty cells are left out.
    """
    if isinstance(value, str | Path):
        if not str(value).endswith(".csv"):
            raise SpecError(path, str(value), "a .csv file with the columns from, to, bandwidth, and latency or rtt")
        value = list(csv.DictReader(io.StringIO(read_text(Path(value), path))))
    elif hasattr(value, "to_dict"):
        value = value.to_dict("records")
    if not isinstance(value, list | tuple) or not all(isinstance(row, Mapping) for row in value):
        raise SpecError(path, value, "a list of lines: {from, to, bandwidth, latency} each, or a .csv file")
    rows = []
    for row in value:
        cells = {column: cell for column, cell in row.items() if cell not in (None, "")}
        fields = {UNITS[column][0]: f"{cell} {UNITS[column][1]}" for column, cell in cells.items() if column in UNITS}
        rows.append({column: cell for column, cell in cells.items() if column not in UNITS} | fields)
    return rows


def _matrix_of(parse: Any) -> Any:
    """Return a validator of rows of numbers, one for each place; an entry of the diagonal may be missing."""

    def read(value: Any, path: str) -> tuple[tuple[float | None, ...], ...]:
        """Return a square table of numbers from a spec's lists, with None for an empty entry."""
        if not isinstance(value, list | tuple) or not all(isinstance(row, list | tuple) for row in value):
            raise SpecError(path, value, "a list of rows, one for each place, with a number for each place")
        return tuple(
            tuple(None if entry is None else parse(entry, f"{path}.{i}.{j}") for j, entry in enumerate(row))
            for i, row in enumerate(value)
        )

    return parsed(read)


Rows = tuple[tuple[float | None, ...], ...]


class MatrixDescription(NetworkDescription):
    """A network of places, with a line from each to each other; see `syncline.costmodel.network.matrix.Matrix`.

    ``places``: the workers of each place by its name, or a list of names with one worker each. ``ranks``: the place of
    each worker by name, in the order of the ranks; by default the places in their order. The lines: ``bandwidth`` and
    ``latency`` (or ``rtt``) as matrices in the order of the places, or ``lines``: rows with ``from``, ``to`` and the
    fields of a link, or a CSV file of such rows; a line holds for both directions unless the other one has its own.
    ``inside``: the line inside places that have none. ``per``: owner of a rate. ``host`` and ``uplink``: what a
    worker's card and a place carry. ``tcp``: connections over each line. ``gloo``, ``nccl``, ``hivemind``: costs of the
    library that averages. ``bounds``: the errors of the calibration that wrote the file.
    """

    makes: ClassVar[type] = Matrix
    needs: ClassVar[str] = "a value: a matrix has 'places', and 'lines' or a 'bandwidth' and a 'latency' between them"

    kind: Literal["matrix"] = "matrix"
    places: Annotated[dict[str, int], parsed(_place_sizes)]
    ranks: tuple[Name, ...] | None = None
    lines: Annotated[Any, parsed(_table_rows)] = None
    bandwidth: Annotated[Rows | None, _matrix_of(parse_bandwidth)] = None
    latency: Annotated[Rows | None, _matrix_of(parse_seconds)] = None
    rtt: Annotated[Rows | None, _matrix_of(parse_seconds)] = None
    inside: Part | None = None
    per: Per = "connection"
    host: Annotated[InstanceOf[Link] | None, parsed(_cap)] = None
    uplink: Annotated[Any, parsed(_uplink_caps)] = None
    tcp: TcpField = None
    gloo: GlooField | None = None
    nccl: NcclField = None
    hivemind: HivemindField = None
    bounds: BoundsField | None = None
    name: Name = ""

    @override
    def network(self) -> Matrix:
        """Build the network; refuse a pair of places without a line."""
        names = tuple(self.places)
        lines = self._lines(names)
        for i, name in enumerate(names):
            if (name, name) not in lines:
                lines[name, name] = None if self.inside is None else replace(self.inside, name=f"{name}-{name}")
            for earlier_name in names[:i]:
                for pair in ((name, earlier_name), (earlier_name, name)):
                    if pair not in lines:
                        raise SpecError(f"network.lines.{pair[0]}.{pair[1]}", None, "a line, in either direction")
        rows = tuple(tuple(lines[a, b] for b in names) for a in names)
        set_costs: dict[str, Any] = {key: value for key, value in (("gloo", self.gloo), ("nccl", self.nccl)) if value}
        return Matrix(
            names,
            with_links(rows, lambda line: replace(line, **set_costs)) if set_costs else rows,
            self._ranks(names),
            self.per,
            card=self.host,
            uplinks=self._uplinks(names),
            hivemind=HivemindDescription.parse(self.hivemind),
            name=self.name,
            bounds=self.bounds,
        )

    def _ranks(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the number of each worker's place, in the order of the ranks."""
        if self.ranks is None:
            return tuple(i for i, count in enumerate(self.places.values()) for _ in range(count))
        for rank, name in enumerate(self.ranks):
            if name not in self.places:
                raise SpecError(f"network.ranks.{rank}", name, one_of(names, name))
        for name, count in self.places.items():
            if self.ranks.count(name) != count:
                raise SpecError("network.ranks", self.ranks.count(name), f"{count} workers in {name!r}, as in places")
        return tuple(map(names.index, self.ranks))

    def _uplinks(self, names: tuple[str, ...]) -> Link | tuple[Link, ...] | None:
        """Return the uplink of all places, or the uplink of each in the order of ``names``, or None."""
        if not isinstance(self.uplink, dict):
            uplink: Link | None = self.uplink
            return uplink
        for name in (*self.uplink, *names):
            if name not in names or name not in self.uplink:
                expected = f"a link of each place: {', '.join(names)}"
                raise SpecError(f"network.uplink.{name}", self.uplink.get(name), expected)
        return tuple(self.uplink[name] for name in names)

    def _lines(self, names: tuple[str, ...]) -> dict[tuple[str, str], Link | None]:
        """Return the lines by the names of their two ends."""
        matrices = {"bandwidth": self.bandwidth, "latency": self.latency, "rtt": self.rtt}
        if self.lines is None:
            rows = list(self._rows_of({key: value for key, value in matrices.items() if value is not None}, names))
        else:
            for key, value in matrices.items():
                if value is not None:
                    raise SpecError(f"network.{key}", "a matrix", "none beside lines, which have their own")
            rows = [(row, f"network.lines.{i}") for i, row in enumerate(self.lines)]
        lines: dict[tuple[str, str], Link | None] = {}
        for row, path in rows:
            source, target, link = self._line(row, path)
            for end, name in (("from", source), ("to", target)):
                if name not in names:
                    raise SpecError(f"{path}.{end}", name, one_of(names, name))
            if (source, target) in lines:
                raise SpecError(path, f"{source} to {target}", "one line from a place to another")
            lines[source, target] = link
        for (source, target), line in list(lines.items()):
            if (target, source) not in lines and line is not None:
                lines[target, source] = replace(line, name=f"{target}-{source}")
        return lines

    def _rows_of(self, matrices: Mapping[str, Rows], names: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the fields and the path of each line in matrices ``(S, S)`` of bandwidths and latencies."""
        for key, matrix in matrices.items():
            if len(matrix) != len(names) or any(len(row) != len(names) for row in matrix):
                raise SpecError(f"network.{key}", len(matrix), f"{len(names)} rows of {len(names)}, one for each place")
        for i, source in enumerate(names):
            for j, target in enumerate(names):
                row = {key: matrix[i][j] for key, matrix in matrices.items() if matrix[i][j] is not None}
                if row or i != j:
                    yield {"from": source, "to": target} | row, f"network.lines.{source}.{target}"

    def _line(self, row: Mapping[str, Any], path: str) -> tuple[str, str, Link]:
        """Return the names of a line's source and target and its link.

        A line of numbers alone is read without a model, because there are S^2 lines.
        """
        if "rtt" in row:
            if "latency" in row:
                raise SpecError(f"{path}.rtt", row["rtt"], "none beside latency, of which it is twice")
            row = {key: value for key, value in row.items() if key != "rtt"} | {
                "latency": parse_seconds(row["rtt"], f"{path}.rtt") / 2
            }
        if "bandwidth" not in row and "preset" not in row and (self.tcp or row.get("tcp")) and self.host is not None:
            row = {**row, "bandwidth": float(self.host.goodput_bytes_per_s)}
        tcp = self.tcp if isinstance(self.tcp, Tcp) and "tcp" not in row else None
        if set(row) == {"from", "to", "bandwidth", "latency"} and (tcp is None or not tcp.loss):
            source, target = str(row["from"]), str(row["to"])
            latency_s = parse_seconds(row["latency"], f"{path}.latency")
            rate = parse_bandwidth(row["bandwidth"], f"{path}.bandwidth")
            rate = rate if tcp is None else float(tcp.rate_bytes_per_s(rate, 2 * latency_s))
            with user_field_names(path):
                return source, target, Link(latency_s, rate, f"{source}-{target}")
        line = LineDescription.read(row if tcp is None else {**row, "tcp": tcp}, path)
        link = line.link(path)
        name = f"{line.source}-{line.to}"
        return line.source, line.to, replace(link, tcp=None, name=name)  # windows limit the bandwidth; they are open

    @override
    @classmethod
    def fields_of(cls, network: Matrix) -> dict[str, Any]:
        """Return the fields of a spec that describe this network, as tables if all lines have two numbers."""
        lines = {
            (source, target): line
            for source, row in zip(network.places, network.lines, strict=True)
            for target, line in zip(network.places, row, strict=True)
        }
        sizes = dict(zip(network.places, network.sizes(network.workers), strict=True))
        fields: dict[str, Any] = {"kind": "matrix", "places": sizes}
        if network.ranks != tuple(i for i, count in enumerate(sizes.values()) for _ in range(count)):
            fields["ranks"] = [network.places[place] for place in network.ranks]
        if all(line == Link(line.latency_s, line.bandwidth_bytes_per_s, line.name) for line in lines.values() if line):
            for key, number in (("bandwidth", "bandwidth_bytes_per_s"), ("latency", "latency_s")):
                fields[key] = [[line and float(getattr(line, number)) for line in row] for row in network.lines]
        else:
            rows = [{"from": a, "to": b} | link_fields(line) for (a, b), line in lines.items() if line is not None]
            fields["lines"] = rows
        fields["per"] = network.per
        if network.card is not None:
            fields["host"] = _cap_fields(network.card)
        if isinstance(network.uplinks, Link):
            fields["uplink"] = _cap_fields(network.uplinks)
        elif network.uplinks is not None:
            caps = map(_cap_fields, network.uplinks)
            fields["uplink"] = dict(zip(network.places, caps, strict=True))
        if network.hivemind is not None:
            fields["hivemind"] = HivemindDescription.fields_of(network.hivemind)
        if network.bounds is not None:
            fields["bounds"] = bounds_fields(network.bounds)
        return fields


def _cap_fields(link: Link) -> dict[str, Any]:
    """Return the mapping of fields from which ``_cap`` builds the same link again."""
    return {key: value for key, value in link_fields(link).items() if key in CapDescription.model_fields}
