"""The timeline of a simulation: all spans as columns, functions that evaluate them, and a trace for viewers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats, Ints
from syncline.errors import SpecError

Strings: TypeAlias = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Words:
    """A column of N words that stores equal words once.

    The column compares and is indexed like an array of strings; ``np.asarray`` converts it to such an array.

    Args:
        codes: ``(N,)`` index into ``words`` of each row's word.
        words: the different words.
    """

    codes: Ints
    words: Strings

    @classmethod
    def from_words(cls, column: Words | Iterable[str]) -> Words:
        """Return a column of these words; a `Words` is returned as it is."""
        if isinstance(column, Words):
            return column
        code_of: dict[str, int] = {}
        words = column.tolist() if isinstance(column, np.ndarray) else column
        codes = [code_of.setdefault(word, len(code_of)) for word in words]
        return cls(np.array(codes, dtype=np.int32), np.array(list(code_of), dtype=np.str_))

    @classmethod
    def repeated(cls, words: Sequence[str], counts: Sequence[int]) -> Words:
        """Return a column in which each word is repeated ``counts`` times, a number for each word."""
        distinct = cls.from_words(words)
        return distinct[np.repeat(np.arange(len(words)), counts)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.words[self.codes] if len(self.words) else np.empty(0, np.str_)
        return array if dtype is None else array.astype(dtype)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        codes = self.codes[rows]
        is_single_row = np.ndim(codes) == 0
        return self.words[codes] if is_single_row else Words(codes, self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> Any:
        return self.isin([other]) if isinstance(other, str) else np.asarray(self) == np.asarray(other)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def isin(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether each word of the column is one of these, ``(N,)``."""
        matches = np.isin(self.words, words)  # by distinct word, so that each is compared once
        return matches[self.codes] if len(matches) else np.zeros(len(self), dtype=np.bool_)

    def rank(self) -> Ints:
        """Return the rank of each word in alphabetical order, ``(N,)``, the same for equal words."""
        ranks = np.empty(len(self.words), dtype=np.int32)
        ranks[np.argsort(self.words)] = np.arange(len(ranks))
        return ranks[self.codes] if len(ranks) else self.codes

    def tolist(self) -> list[str]:
        """Return the word of each row as a string."""
        words = self.words.tolist()
        return [words[code] for code in self.codes.tolist()]


COMPUTING = "compute"
"""Name of the stream of a worker's program; names of further compute streams begin with this name and a space."""

WAITING = ("wait", "recv")
"""Names of spans on the compute stream in which nothing computes."""


def is_computing(stream: str) -> bool:
    """Return whether the stream of this name computes; the other streams belong to the network."""
    return stream == COMPUTING or stream.startswith(f"{COMPUTING} ")


STREAMS = ("compute", "network", "send")
"""The streams of a worker's program, of its collectives, and of its messages to single workers, unless programs name
other streams for these. The spans of one stream do not overlap.
"""


class Span(NamedTuple):
    """A period from ``start_s`` to ``end_s`` on a worker's stream; the fields are the columns of a `Timeline`."""

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
    """Spans as columns of one length, sorted by worker, then stream, then time.

    Args:
        workers: P, number of workers.
        worker: worker of each span, from 0.
        stream: one of ``STREAMS``, or a name from the program; the name of a stream that computes is ``compute``, or
            begins with ``compute`` and a space. Only the waits on ``compute`` itself have spans.
        what: on the compute stream ``wait`` (for a collective), ``recv`` (for a message), else the kind of computing:
            ``compute``, ``encode`` (formats of the wire), ``trigger`` (whether to send), ``optimizer``, or a task of a
            pipeline (``forward``, or ``forward.1`` of chunk 1); the kind of collective on a network stream; ``send`` on
            a send stream, as long as the message occupies its port.
        start_s: start of the span, in seconds from the beginning of the simulation.
        end_s: end of the span, in seconds from the beginning of the simulation.
        nbytes: bytes that the worker sends in the span, or receives in a ``recv``.
        step: training step, from 0; -1 if none was named.
    """

    workers: int
    worker: Ints
    stream: Words
    what: Words
    label: Words
    start_s: Floats
    end_s: Floats
    nbytes: Floats
    step: Ints

    @classmethod
    def from_spans(cls, spans: Iterable[tuple[Any, ...]], workers: int) -> Timeline:
        """Return the timeline of spans, each a row as `Span`, in order of time on each stream of each worker."""
        columns = list(zip(*spans, strict=True)) or [()] * len(Span._fields)  # empty columns without spans
        return cls.from_columns(dict(zip(Span._fields, columns, strict=True)), workers)

    @classmethod
    def from_columns(cls, columns: dict[str, Any], workers: int) -> Timeline:
        """Return the timeline of columns by name; the rows of each stream of each worker are in order of time."""
        arrays: dict[str, Any] = {}
        for name in ("worker", "step"):
            arrays[name] = np.asarray(columns[name], dtype=np.int64)
        for name in ("start_s", "end_s", "nbytes"):
            arrays[name] = np.asarray(columns[name], dtype=np.float64)
        for name in ("stream", "what", "label"):
            arrays[name] = Words.from_words(columns[name])
        by_worker_and_stream = np.lexsort((arrays["stream"].rank(), arrays["worker"]))
        return cls(workers, **arrays)[by_worker_and_stream]

    @classmethod
    def joined(cls, tables: Sequence[Mapping[str, Any]], workers: int) -> Timeline:
        """Return the timeline of several tables of columns by name, one after another."""
        columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        return cls.from_columns(columns, workers)

    @classmethod
    def side_by_side(cls, timelines: Iterable[Timeline]) -> Timeline:
        """Return one timeline with the workers of several, which are numbered one timeline after another."""
        tables, workers = [], 0
        for timeline in timelines:
            tables.append(timeline.to_columns() | {"worker": timeline.worker + workers})
            workers += timeline.workers
        return cls.joined(tables, workers)

    def __getitem__(self, rows: NDArray[Any]) -> Timeline:
        """Return the spans in these rows: indices, or a mask."""
        return replace(self, **{name: column[rows] for name, column in self.columns().items()})

    def __len__(self) -> int:
        return len(self.worker)

    def columns(self) -> dict[str, Words | NDArray[Any]]:
        """Return the columns by name, with text as `Words`."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "workers"}

    def to_columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name as NumPy arrays, with text as arrays of strings."""
        return {name: np.asarray(column) for name, column in self.columns().items()}

    def head(self, steps: int) -> Timeline:
        """Return the timeline of the first ``steps`` steps, and of the spans that name no step."""
        return self[self.step < steps]

    @cached_property
    def duration_s(self) -> Floats:
        """Return the duration of each span, in seconds."""
        return self.end_s - self.start_s

    @property
    def makespan_s(self) -> float:
        """Return the end of the last span, in seconds; 0 for an empty timeline."""
        return float(self.end_s.max(initial=0.0))

    @cached_property
    def step_end_s(self) -> Floats:
        """Return the time at which each worker ends each of T steps, ``(T, P)`` seconds; NaN without a span."""
        rows = self.on_compute & (self.step >= 0)
        ends_s = np.full((self.step.max(initial=-1) + 1, self.workers), np.nan)
        np.fmax.at(ends_s, (self.step[rows], self.worker[rows]), self.end_s[rows])  # unlike `maximum`, ignores NaN
        return ends_s

    @cached_property
    def computes(self) -> NDArray[np.bool_]:
        """Return whether the worker computes in each span, ``(N,)``: it neither communicates nor waits."""
        return self.on_compute & ~self.what.isin(WAITING)

    @property
    def on_compute(self) -> NDArray[np.bool_]:
        """Return whether each span is on a stream that computes."""
        return self.stream.isin([word for word in self.stream.words.tolist() if is_computing(word)])

    def compute_s(self) -> Floats:
        """Return the seconds that each worker computes, ``(P,)``."""
        return self._total_s(self.computes)

    def utilisation(self) -> Floats:
        """Return the fraction of the makespan in which each worker computes, ``(P,)``; 0 for an empty timeline."""
        return self.compute_s() / self.makespan_s if self.makespan_s else np.zeros(self.workers)

    def communication_s(self, until_s: float = np.inf) -> Floats:
        """Return each worker's seconds until ``until_s`` in collectives and in messages that it sends, ``(P,)``.

        Seconds in several at once count once.
        """
        rows = np.flatnonzero(~self.on_compute)
        rows = rows[np.lexsort((self.start_s[rows], self.worker[rows]))]  # by worker, then by start
        first_row_of_worker = np.searchsorted(self.worker[rows], np.arange(self.workers + 1))
        seconds = np.zeros(self.workers)
        for worker, (begin, end) in enumerate(pairwise(first_row_of_worker.tolist())):
            worker_rows = rows[begin:end]
            start_s = self.start_s[worker_rows]
            # A span adds only the seconds that no earlier span has covered.
            end_s = np.minimum(np.maximum.accumulate(self.end_s[worker_rows]), until_s)
            covered_until_s = np.concatenate(([0.0], end_s[:-1]))
            seconds[worker] = np.maximum(end_s - np.maximum(start_s, covered_until_s), 0.0).sum()
        return seconds

    def exposed_communication_s(self) -> Floats:
        """Return the seconds in which each worker has nothing to compute because it waits for the network, ``(P,)``."""
        return self._total_s(self.what.isin(WAITING))

    def _total_s(self, mask: NDArray[np.bool_]) -> Floats:
        """Return the sum of each worker's durations in the rows of the mask, ``(P,)`` seconds."""
        total_s = np.zeros(self.workers)
        np.add.at(total_s, self.worker[mask], self.duration_s[mask])
        return total_s


def chrome_trace(timeline: Timeline, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the timeline in the Chrome trace format: a process for each worker, a thread for each of its streams.

    Times are microseconds on a grid of nanoseconds, on which the slices of a thread do not overlap. Spans that are
    shorter than the grid are left out. Process and thread ids count from 1, because viewers give 0 a special meaning.

    ``names`` has the name of each worker; by default these are ``worker 0`` and so on. The result is for ``json.dump``.

    Source: "Trace Event Format", Google, the phases X (complete) and M (metadata).
    """
    names = [f"worker {worker}" for worker in range(timeline.workers)] if names is None else names
    if len(names) != timeline.workers:
        raise SpecError("names", list(names), f"a name for each of the {timeline.workers} workers")
    streams = list(dict.fromkeys([*STREAMS, *sorted(set(timeline.stream.tolist()))]))
    index_of = {name: index for index, name in enumerate(streams)}
    stream_index = np.array([index_of[name] for name in timeline.stream.tolist()], dtype=np.int64)
    events: list[dict[str, Any]] = []
    for worker, name in enumerate(names):
        events += [
            _metadata("process_name", worker + 1, tid=0, args={"name": name}),
            _metadata("process_sort_index", worker + 1, tid=0, args={"sort_index": worker}),
        ]
        for stream in np.unique(stream_index[timeline.worker == worker]).tolist():
            events += [
                _metadata("thread_name", worker + 1, tid=stream + 1, args={"name": streams[stream]}),
                _metadata("thread_sort_index", worker + 1, tid=stream + 1, args={"sort_index": stream}),
            ]
    starts_ns, ends_ns = (np.rint(times_s * 1e9).astype(np.int64) for times_s in (timeline.start_s, timeline.end_s))
    rows = zip(
        timeline.worker.tolist(), stream_index.tolist(), timeline.what.tolist(), timeline.label.tolist(),
        starts_ns.tolist(), ends_ns.tolist(), timeline.nbytes.tolist(), timeline.step.tolist(), strict=True,
    )  # fmt: skip
    for worker, stream, kind, label, start_ns, end_ns, nbytes, step in rows:
        if end_ns > start_ns:
            events.append({
                "ph": "X", "name": label or kind, "cat": kind, "pid": worker + 1, "tid": stream + 1,
                "ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000, "args": {"step": step, "bytes": nbytes},
            })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    """Return a metadata event (phase M) that names or orders a process or a thread."""
    return {"ph": "M", "name": name, "cat": "__metadata", "ts": 0, "pid": pid, "tid": tid, "args": args}


STRIP_STEPS_WITH_CALLS, STRIP_LEAD_STEPS, STRIP_WORKERS = 2, 3, 16
"""Limits of a timeline figure: two steps with collectives, three steps before them, and 16 workers."""


def around_first_collectives(full_timeline: Timeline) -> tuple[Timeline, str] | None:
    """Return the part of a timeline around its first collectives, and its title, for a figure; None if it is empty."""
    timeline = full_timeline[full_timeline.worker < STRIP_WORKERS]
    if not len(timeline):
        return None
    first_step, last_step = 0, STRIP_LEAD_STEPS  # without collectives
    steps_with_collectives = np.unique(timeline.step[timeline.stream == "network"])  # ascending
    if len(steps_with_collectives):
        shown_steps = steps_with_collectives[:STRIP_STEPS_WITH_CALLS]
        first_step, last_step = max(0, shown_steps[0] - STRIP_LEAD_STEPS), shown_steps[-1]
    strip = timeline[(timeline.step >= first_step) & (timeline.step <= last_step)]
    title = f"steps {first_step} to {int(strip.step.max())}"
    if full_timeline.workers > STRIP_WORKERS:
        title += f", first {STRIP_WORKERS} of the workers"
    return strip, title
