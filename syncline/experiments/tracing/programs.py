"""A record as programs of the event simulation, with the meaning of a host that waits, or of one that goes ahead.

A CPU's host is the device: it waits where the script does, and streams mean nothing. A GPU's host queues work on
streams and goes on: what a script waits for holds a stream, and the host alone where it reads a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from syncline.backend.tracing.record import (
    EVERYTHING,
    Computed,
    HostWaited,
    Marked,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.costmodel import Hardware
from syncline.errors import SpecError, one_of
from syncline.experiments.tracing.computing import MeasuredComputing, segment_seconds
from syncline.sim import (
    Collective,
    Compute,
    HostWait,
    Program,
    Queued,
    Recv,
    Send,
    StreamMark,
    StreamWait,
    Wait,
)

Host: TypeAlias = Literal["ahead", "waits"]
"""What a host does while its device is busy."""

HOSTS: tuple[str, ...] = get_args(Host)


def known_host(host: str | None, hardware: Hardware | MeasuredComputing, path: str = "host") -> str:
    """How hosts of this hardware are: of a CPU they wait, of all else they go ahead, unless it is said.

    Raises:
        SpecError: another word.
    """
    if host is None:
        return "waits" if isinstance(hardware, MeasuredComputing) or hardware.name.startswith("cpu") else "ahead"
    if host not in HOSTS:
        raise SpecError(path, host, one_of(HOSTS, host))
    return host


def programs_of(
    ranks: Sequence[RankRecord],
    hardware: Hardware | MeasuredComputing,
    algorithm: Callable[[Started], str | None],
    stream: Callable[[Started], str],
    host: str = "waits",
    price: Callable[[Started], float] | None = None,
) -> list[Program]:
    """What each rank does, as instructions.

    Args:
        ranks: the record.
        hardware: that computes.
        algorithm: of each collective.
        stream: on which each runs.
        host: one of ``HOSTS``.
        price: seconds of each collective, where none is played message by message.
    """
    made: list[Program] = []
    for rank in ranks:
        seconds = segment_seconds(rank, hardware)
        told = _Translated(rank, len(ranks), seconds, algorithm, stream, host == "ahead", price)
        made.append(Queued(told.instructions, told.streams) if host == "ahead" else told.instructions)
    return made


class _Translated:
    """Instructions, and on which stream each is.

    Args:
        rank: its record.
        ranks: how many there are.
        seconds: of each segment.
        algorithm: of each collective.
        stream: on which each runs.
        ahead: whether the host goes ahead.
        price: of collectives that are not played.
    """

    def __init__(
        self,
        rank: RankRecord,
        ranks: int,
        seconds: Sequence[float],
        algorithm: Callable[[Started], str | None],
        stream: Callable[[Started], str],
        ahead: bool,
        price: Callable[[Started], float] | None,
    ) -> None:
        self.instructions: list[Any] = []
        self.streams: list[str] = []
        self._ranks, self._seconds, self._algorithm, self._ahead = ranks, seconds, algorithm, ahead
        self._stream = stream
        self._price = price
        self._waits: dict[int, Wait | Recv | None] = {}
        self._sites: dict[int, str] = {}
        self._behind: dict[int, str] = {}  # of which line the call is that a stream has waited for last
        self._marked: dict[int, str] = {}  # the same of a mark
        self._asked = {event.mark for event in rank.events if isinstance(event, StreamWaited | HostWaited)}
        step = 0
        for event in rank.events:
            if type(event) is Stepped:
                step += 1
            else:
                self._add(event, step)

    def _put(self, instruction: Any, stream: int) -> None:
        self.instructions.append(instruction)
        self.streams.append(f"compute {stream}" if stream else "compute")

    def _add(self, event: Any, step: int) -> None:
        kind = type(event)
        if kind is Computed:
            self._put(Compute(self._seconds[event.segment], step=step), event.stream)
        elif kind is Started:
            self._join(event, step)
        elif kind is MessageSent:
            self._put(Send(event.to, event.payload_bytes, event.tag, step, label=event.site), event.stream)
            self._waits[event.call] = None  # a buffer that has left is free
        elif kind is MessageAwaited:
            self._waits[event.call] = Recv(event.source, event.tag, step, label=event.site)
            self._sites[event.call] = event.site
        elif kind is Waited:
            wait = self._waits.get(event.call)
            if wait is not None:
                self._put(wait, event.stream)
                self._behind[event.stream] = self._sites[event.call]
                if not self._ahead or isinstance(wait, Recv):  # it is there for all that come later
                    self._waits[event.call] = None
        elif self._ahead:
            self._order(event, step)

    def _order(self, event: Any, step: int) -> None:
        """What holds streams."""
        kind = type(event)
        if kind is Marked:
            if event.mark in self._asked:
                self._put(StreamMark(event.mark), event.stream)
            self._marked[event.mark] = self._behind.get(event.stream, "")
        elif kind is StreamWaited:
            site = self._marked.get(event.mark, "")
            self._put(StreamWait(event.mark, site, step), event.stream)
            if site:
                self._behind[event.stream] = site
        elif kind is HostWaited:
            site = self._marked.get(event.mark, "")
            self._put(HostWait(None if event.mark == EVERYTHING else event.mark, site, step), 0)

    def _join(self, event: Started, step: int) -> None:
        group = event.ranks
        if len(group) < 2:
            self._waits[event.call] = None
            return
        self._waits[event.call] = Wait(event.key, step=step)
        self._sites[event.call] = event.site
        whole = len(group) == self._ranks
        self._put(
            Collective(
                event.kind, event.payload_bytes, event.key, event.site, step,
                None if self._price else self._algorithm(event), group=None if whole else group,
                takes_s=self._price(event) if self._price else None, stream=self._stream(event),
            ),
            event.stream,
        )  # fmt: skip
