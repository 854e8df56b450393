"""Spec of the outages of workers, nodes and sites, and their log as a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from syncline.fields import Seconds, Spec, refusal
from syncline.specs.cluster.files import read_text


class OutageSpec(Spec):
    """An outage of a worker, node or site from ``start`` until ``end``; without ``end``, forever.

    Args:
        worker: number of the worker, from 0; exactly one of ``worker``, ``node`` and ``site`` is set.
        node: number of the node, from 0.
        site: number of the site, from 0.
        start: start of the outage, in seconds from the beginning of the training.
        end: end of the outage, in seconds from the beginning of the training; by default it does not end.
    """

    worker: int | None = Field(default=None, ge=0)
    node: int | None = Field(default=None, ge=0)
    site: int | None = Field(default=None, ge=0)
    start: Seconds = 0.0
    end: Seconds | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> OutageSpec:
        units = [name for name in ("worker", "node", "site") if getattr(self, name) is not None]
        if len(units) != 1:
            raise refusal("", units, "one of worker, node and site, by its number")
        if self.end is not None and self.end <= self.start:
            raise refusal("end", self.end, f"a time after start ({self.start:g} s)")
        return self

    def workers(self, node_workers: int, site_workers: int) -> tuple[int, int]:
        """Return the first rank of the outage, and the rank after its last.

        Args:
            node_workers: workers of a node.
            site_workers: workers of a site.
        """
        number, width = next(
            (number, width)
            for number, width in ((self.worker, 1), (self.node, node_workers), (self.site, site_workers))
            if number is not None
        )
        return number * width, (number + 1) * width


def parse_outages(value: Any, path: str) -> Any:
    """Return the rows of a CSV file with columns ``start``, ``end``, and ``worker``, ``node`` or ``site``."""
    if not (isinstance(value, str) and value.endswith(".csv")):
        return value
    rows = csv.DictReader(read_text(Path(value), path).splitlines())
    # A bare number is in seconds, as in a column of a log. An empty cell is a missing field.
    return [{name: _plain(cell) for name, cell in row.items() if name and cell and cell.strip()} for row in rows]


def _plain(cell: str) -> Any:
    try:
        return int(cell) if cell.strip().isdecimal() else float(cell)
    except ValueError:
        return cell.strip()
