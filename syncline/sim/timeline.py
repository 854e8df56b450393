"""The timeline: everything that happened, as spans in columns, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats, Ints

Strings: TypeAlias = NDArray[np.str_]

WAITING = ("wait", "recv")
"""What spans on the compute stream are in which nothing computes."""

STREAMS = ("compute", "network", "send")
"""A worker's program, its collectives, and its messages to single workers, unless programs name streams of their own
for these. The spans of one stream do not overlap.
"""


class Span(NamedTuple):
    """What one worker did on one stream from ``start_s`` to ``end_s``; the columns of a `Timeline` say what each is."""

    worker: int
    stream: str
    what: str
    label: str
    start_s: float
    end_s: float
    nbytes: float
    step: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """Spans as columns of one length, by worker, then stream, then time.

    Args:
        workers: P.
        worker: whose span it is, from 0.
        stream: one of ``STREAMS``, or one that the program names.
        what: on the compute stream ``wait`` (for a collective), ``recv`` (for a message), else what is computed:
            ``compute``, ``encode`` (formats of the wire), ``trigger`` (whether to send), ``optimizer``, or a task of a
            pipeline (``forward``, or ``forward.1`` of chunk 1); the kind of collective on a network stream; ``send`` on
            a send stream, as long as the message occupies its port.
        label: for people.
        start_s: seconds from the beginning of the simulation.
        end_s: likewise.
        nbytes: bytes that the worker puts on the wire in the span (of a ``recv``: takes off it).
        step: training step, from 0; -1 where none was named.
    """

    workers: int
    worker: Ints
    stream: Strings
    what: Strings
    label: Strings
    start_s: Floats
    end_s: Floats
    nbytes: Floats
    step: Ints

    @classmethod
    def of(cls, spans: Iterable[tuple[Any, ...]], workers: int) -> Timeline:
        """The timeline of spans, each a `Span` or such a row, that come in order on each stream of each worker."""
        columns = list(zip(*spans, strict=True)) or [()] * len(Span._fields)
        return cls.of_columns(dict(zip(Span._fields, columns, strict=True)), workers)

    @classmethod
    def of_columns(cls, columns: dict[str, Any], workers: int) -> Timeline:
        """The timeline of the columns of such spans."""
        kinds: dict[str, type] = {name: np.float64 for name in ("start_s", "end_s", "nbytes")}
        kinds |= {name: np.str_ for name in ("stream", "what", "label")} | {"worker": np.int64, "step": np.int64}
        arrays: dict[str, NDArray[Any]] = {name: np.asarray(columns[name], dtype=kinds[name]) for name in Span._fields}
        return cls(workers, **arrays)[np.lexsort((arrays["stream"], arrays["worker"]))]

    def __getitem__(self, rows: NDArray[Any]) -> Timeline:
        """The spans in these rows: indices, or a mask."""
        return replace(self, **{name: column[rows] for name, column in self.to_columns().items()})

    def __len__(self) -> int:
        return len(self.worker)

    def to_columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name, ready for a table."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "workers"}

    def head(self, steps: int) -> Timeline:
        """The spans of the first ``steps`` steps, and those that name no step."""
        return self[self.step < steps]

    @cached_property
    def duration_s(self) -> Floats:
        """How long each span is, in seconds."""
        return self.end_s - self.start_s

    @property
    def makespan_s(self) -> float:
        """When the last span ends; 0 for an empty timeline."""
        return float(self.end_s.max(initial=0.0))

    @cached_property
    def step_end_s(self) -> Floats:
        """When each worker's program is through with each step, ``(T, P)`` seconds; NaN where it has no part in it."""
        mine = (self.stream == "compute") & (self.step >= 0)
        ends = np.full((self.step.max(initial=-1) + 1, self.workers), np.nan)
        np.fmax.at(ends, (self.step[mine], self.worker[mine]), self.end_s[mine])
        return ends

    @cached_property
    def computes(self) -> NDArray[np.bool_]:
        """In which spans the worker computes."""
        return (self.stream == "compute") & ~np.isin(self.what, WAITING)

    def compute_s(self) -> Floats:
        """Seconds that each worker computes, ``(P,)``."""
        return self._total(self.duration_s, self.computes)

    def utilisation(self) -> Floats:
        """The part of the makespan in which each worker computes, ``(P,)``; 0 for an empty timeline."""
        return self.compute_s() / self.makespan_s if self.makespan_s else np.zeros(self.workers)

    def communication_s(self) -> Floats:
        """Seconds in which each worker takes part in a collective or sends a message, ``(P,)``; overlaps count once."""
        return np.array([self._covered_s(worker) for worker in range(self.workers)])

    def exposed_communication_s(self) -> Floats:
        """Seconds in which each worker has nothing to compute because it waits for the network, ``(P,)``."""
        return self._total(self.duration_s, np.isin(self.what, WAITING))

    def _total(self, values: Floats, mask: NDArray[np.bool_]) -> Floats:
        total = np.zeros(self.workers)
        np.add.at(total, self.worker[mask], values[mask])
        return total

    def _covered_s(self, worker: int) -> float:
        mine = np.flatnonzero((self.worker == worker) & (self.stream != "compute"))
        mine = mine[np.argsort(self.start_s[mine], kind="stable")]
        start, end = self.start_s[mine], np.maximum.accumulate(self.end_s[mine])
        before = np.concatenate(([0.0], end))[:-1]  # until when the spans before cover the time
        return float(np.maximum(end - np.maximum(start, before), 0.0).sum())
