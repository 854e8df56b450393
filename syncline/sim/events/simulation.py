"""A simulation: the compiled core, SimPy for effects and choices, and the history of both.

The core runs compiled until SimPy's next event, or until Python must act: for an effect, a choice, the lateness of a
message, or more room. Computing that ends in an effect, and choices that wait for the rest of their instant, are events
of SimPy's. Both draw the numbers of their events from one count, so together they have one order.

SimPy's clock, whose events have one order with the core's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import simpy
from numpy.typing import ArrayLike, NDArray
from simpy.events import NORMAL, EventPriority

from syncline.acceleration import keep_freed_memory
from syncline.costmodel.network.paths import Topology
from syncline.costmodel.network.software_costs import MESSAGES_AHEAD, bytes_ahead
from syncline.errors import SpecError, SynclineError
from syncline.sim.events import codes
from syncline.sim.events.assembly import Assembly
from syncline.sim.events.codes import KIND_BITS, PRIORITY_BIT
from syncline.sim.events.engine import run_core
from syncline.sim.events.kinds import CollectiveKinds
from syncline.sim.events.plans import Routes
from syncline.sim.events.state import CoreState
from syncline.sim.events.vectorised_assembly import assemble_by_columns
from syncline.sim.program.instructions import Delay, OnStream, Program, Stuck, start_times
from syncline.sim.program.timeline import Timeline


class SharedClock(simpy.Environment):
    """SimPy's clock and queue, whose events share one count of numbers with the compiled core's."""

    def __init__(self, core: Any) -> None:
        super().__init__()
        self._core = core
        self._eid = self._numbers()  # type: ignore[assignment]

    def _numbers(self) -> Iterator[int]:
        """Yield the numbers of events, which the core and SimPy draw from one count."""
        while True:
            self._core["number"] += 1
            yield int(self._core["number"])

    @property
    def ahead(self) -> tuple[float, int]:
        """Return the time of SimPy's next event in seconds, and the event's key, which orders events of equal time.

        The time is infinite if no event is queued.
        """
        if not self._queue:
            return math.inf, 0
        time, priority, number, _ = self._queue[0]
        return time, (int(priority) << PRIORITY_BIT) | (number << KIND_BITS)

    def set(self) -> None:
        """Set SimPy's clock to the simulated time that the core has reached."""
        self._now = float(self._core["now"])

    def later(self, seconds: float, call: Callable[[Any], None], priority: EventPriority = NORMAL) -> None:
        """Call a function ``seconds`` from SimPy's present time, as an event of this priority."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(call)
        self.schedule(event, priority, seconds)


CHOICES = EventPriority(11)
"""Priority of choices, which come after all else of their instant."""


LAST = 2**62
"""Key that is no smaller than that of any event of an instant."""


class Simulation:
    """A run of the event simulation: the core's tables, and what Python does for the compiled loop."""

    def __init__(
        self,
        programs: Sequence[Program],
        topology: Topology,
        starts_s: ArrayLike | None,
        eager: bool,
        delay: Delay | None,
    ) -> None:
        keep_freed_memory()
        self.workers, self.eager, self.delay = len(programs), eager, delay
        self.state = CoreState()
        self.core = self.state["core"][0]
        for name in ("resume", "effect", "kind_without_room"):
            self.core[name] = -1
        self.core["eager"], self.core["delays"], self.core["width"] = eager, delay is not None, 1
        self.core["ahead_bytes"] = bytes_ahead(topology) if eager else 0.0
        self.core["ahead"] = MESSAGES_AHEAD if self.core["ahead_bytes"] else 0
        self.env = SharedClock(self.core)
        self._write_channels(topology.bandwidth_bytes_per_s)
        self.routes = Routes(self.state, topology, eager)
        self.kinds = CollectiveKinds(self.state, topology, self.routes, self.workers)
        self.starts_s = start_times(starts_s, self.workers)
        self.assembly = Assembly(self.state, topology, self.routes, self.kinds, self.starts_s)
        first = self.assembly.all(programs, assemble_by_columns)
        if first is not None:
            self._make_room_for(first)
        self.deciding: set[int] = set()
        self.awaited: dict[int, list[int]] = {}  # messages that each worker's current `First` waits for
        self._write_starts()

    def _write_channels(self, bandwidth: NDArray[np.float64]) -> None:
        """Write the bandwidth of each channel, in bytes per second, into the tables."""
        if len(bandwidth) and not (bandwidth.min() > 0 and bandwidth.max() < math.inf):
            channel = int(np.flatnonzero(~(np.isfinite(bandwidth) & (bandwidth > 0)))[0])
            expected = "bytes per second, positive and finite"
            raise SpecError(f"bandwidth_bytes_per_s[{channel}]", float(bandwidth[channel]), expected)
        _, channels = self.state.take("channels", len(bandwidth))
        channels["bandwidth"] = bandwidth
        channels["head"] = channels["tail"] = -1
        for name in ("changed", "ahead", "asked"):
            self.state.room(name, len(bandwidth))

    def _write_starts(self) -> None:
        """Schedule the beginning of each stream; streams that begin together do so in their order."""
        worker_of_stream = self.state["streams"]["worker"][: self.state.used["streams"]]
        streams = np.arange(len(worker_of_stream))
        core, leaves = self.core, _power(len(streams))
        self.state.take("subjects", len(streams))[1]["id"] = streams
        events = self.state.take("heap", 2 * leaves)[1][leaves : leaves + len(streams)]
        events["time"], events["place"] = self.starts_s[worker_of_stream], streams
        events["key"] = (codes.NORMAL << codes.PRIORITY_BIT) | (streams + 1 << codes.KIND_BITS)  # of the kind `GO_ON`
        core["leaves"], core["hole"], core["free"] = leaves, -1, -1
        core["places"] = core["number"] = len(streams)
        self._write_used_rows()

    def run(self) -> Timeline:
        """Run to the end and return the timeline."""
        self._run_to_end()
        return self.timeline()

    def finish_s(self) -> NDArray[np.float64]:
        """Run programs of collectives only, and return the time at which each worker is through with its last."""
        self._run_to_end()
        spans = self.state["spans"][: int(self.core["spans"])]
        finish_s = self.starts_s.copy()
        finish_s[spans["worker"]] = spans["end"]
        return finish_s

    def _run_to_end(self) -> None:
        """Run all events; raise an error if a program or a collective has not ended, or a message was not received."""
        self.advance()
        current = self.state["streams"]["operation"][: self.state.used["streams"]]
        has_ended = self.state["operations"]["code"][current] == codes.END
        unfinished = self.state["parts"]["state"][: self.state.used["parts"]] == 1
        if not has_ended.all() or unfinished.any():
            self._raise_stuck(has_ended, unfinished)
        if not self.eager:
            self._check_received()

    def advance(self, until_s: float = math.inf) -> None:
        """Run all events until ``until_s`` seconds."""
        core, env = self.core, self.env
        while True:
            ahead = env.ahead
            reason = run_core(self.state.address, *min(ahead, (until_s, LAST)))
            env.set()
            if core["late"]:
                self._compute_lateness()
            if reason == codes.IDLE:
                if ahead[0] > until_s or ahead[0] == math.inf:
                    return
                env.step()
            elif reason == codes.EFFECT:
                instruction: Any = self.assembly.instructions[int(core["effect"])]
                core["effect"] = -1
                instruction.effect()
            elif reason != codes.LATE:
                self._act(reason)

    def _act(self, reason: int) -> None:
        """Do what compiled code cannot do by itself, for the reason for which it has returned."""
        core = self.core
        worker = int(core["stream"])
        if reason == codes.TIMER:
            instruction: Any = self._instruction(worker)
            self.env.later(instruction.seconds, partial(self._complete, worker))
        elif reason == codes.CHOICE:
            if worker not in self.deciding:
                self._decide(worker)
        elif reason == codes.CHOSEN:
            choice = self.assembly.chosen[int(self._operation(worker)["number"])]
            program = choice.first.then(choice.option)
            self._read_used_rows()
            begin = self.assembly.assemble_more(worker, program, choice.return_to)
            self._write_used_rows()
            self._resume(worker, begin)
        elif reason == codes.ROOM:
            self._read_used_rows()
            if core["kind_without_room"] >= 0:
                self._make_room_for(int(core["kind_without_room"]))
                core["kind_without_room"] = -1
            self._write_used_rows()
        else:
            raise SynclineError(self._refusal(reason, worker))

    def _operation(self, stream: int) -> Any:
        """Return the record of a stream's current operation."""
        return self.state["operations"][self.state["streams"][stream]["operation"]]

    def _instruction(self, stream: int) -> OnStream | None:
        """Return a stream's current instruction; None at the end of its program."""
        return self.assembly.instructions[self.state["streams"][stream]["operation"]]

    def _complete(self, worker: int, _: Any) -> None:
        """Complete a worker's `Compute` that has an effect, at SimPy's present time."""
        self.core["now"], self.core["resume"], self.core["completes"] = self.env.now, worker, 1

    def _compute_lateness(self) -> None:
        """Compute the lateness of the messages that start now."""
        state, delay = self.state, self.delay
        assert delay is not None
        for i, message_number in enumerate(state["late"][: int(self.core["late"])].tolist()):
            message = state["messages"][message_number]
            ends = int(message["sender"]), int(message["receiver"])
            if message["kind"] != codes.OF_PROGRAM:  # the ends are ranks, not workers
                ends = self._worker_of(ends[0]), self._worker_of(ends[1])
            state["late_s"][i] = delay(*ends)

    def _worker_of(self, rank: int) -> int:
        """Return the worker of a rank."""
        instance = self.state["instances"][self.state["ranks"][rank]["instance"]]
        group, place = self.kinds[int(instance["kind"])].group, rank - int(instance["rank0"])
        return place if group is None else int(group[place])

    # Choices.

    def _decide(self, worker: int, last: bool = False) -> None:
        """Decide a worker's `First`: go on with the first option that can run, if any.

        Unless this is the first option of all, the choice is only known after everything else of the instant
        (``last``).
        """
        choice = self.assembly.choices[int(self._operation(worker)["number"])]
        messages = self.state["messages"]
        has_arrived = [m < 0 or bool(messages[m]["sent"] and messages[m]["arrived"]) for m in choice.messages]
        if not last and len(has_arrived) > 1 and not has_arrived[0]:
            self.deciding.add(worker)
            self.env.later(0.0, partial(self._decided, worker), CHOICES)
        elif any(has_arrived):
            for message in self.awaited.pop(worker, ()):
                messages[message]["reader"] = 0
            self._read_used_rows()
            operation = int(self.state["streams"][worker]["operation"])
            begin = self.assembly.assemble_option(worker, choice, has_arrived.index(True), operation + 1)
            self._write_used_rows()
            self._resume(worker, begin, keeps_start=True)
        else:
            self.awaited[worker] = awaited = [m for m in choice.messages if m >= 0]
            self.state.room("asked", len(awaited))[: len(awaited)] = awaited
            self.core["asked"] = len(awaited)

    def _decided(self, worker: int, _: Any) -> None:
        """Decide a worker's `First` after everything else of this instant."""
        self.core["now"] = self.env.now
        self.deciding.remove(worker)
        self._decide(worker, last=True)

    def _resume(self, worker: int, operation: int, keeps_start: bool = False) -> None:
        """Let a worker's program go on at an operation; ``keeps_start`` if its present span goes on, too."""
        self.state["streams"][worker]["operation"] = operation
        self.core["resume"], self.core["keeps_start"] = worker, keeps_start

    # Room in the tables.

    SHARED = ("messages", "ports", "ranks", "slots", "instances")
    """Tables to which both Python and the core add records."""

    def _read_used_rows(self) -> None:
        """Copy the tables' numbers of used rows from the compiled core, so that Python appends behind them."""
        for name in self.SHARED:
            self.state.used[name] = int(self.core[name])

    def _write_used_rows(self) -> None:
        """Copy the tables' numbers of used and allocated rows to the compiled core, so that it can append rows."""
        state, core = self.state, self.core
        for name in self.SHARED:
            core[name] = state.used[name]
            if name != "messages":
                core[name[:-1] + "_room"] = len(state[name])
        core["parts"] = state.used["parts"]
        messages = len(state["messages"])
        core["message_room"] = messages
        state.room("found", messages)
        for name in ("late", "late_s") if self.delay is not None else ():
            state.used[name] = int(core["late"])
            state.room(name, messages - state.used[name])
        width = _power(max(int(core["width"]), self.routes.longest))
        if width > core["width"]:
            self._widen(int(core["width"]), width)
        state.used["links"] = core["messages"] * width
        state.room("links", (messages - int(core["messages"])) * width)
        state.used["spans"] = int(core["spans"])
        state.room("spans", self.assembly.spans - state.used["spans"])
        state.used["subjects"], state.used["heap"] = int(core["places"]), 2 * int(core["leaves"])
        if core["heap_room"] < state.used["subjects"] + messages + codes.SPARE:
            room = _power(state.used["subjects"] + 2 * (messages + codes.SPARE))
            state.room("subjects", room - state.used["subjects"])
            state.room("heap", 2 * room - state.used["heap"])
            core["heap_room"] = room

    def _widen(self, before: int, width: int) -> None:
        """Make room for longer routes: each message has as many links as the longest route has channels."""
        state, used = self.state, int(self.core["messages"])
        self.core["width"], self.core["shift"] = width, width.bit_length() - 1
        if not used:
            return
        old = state["links"][: used * before].copy()
        for name in ("before", "after"):
            old[name] = _moved(old[name], before, width)
        channels = state["channels"]
        for name in ("head", "tail"):
            channels[name] = _moved(channels[name], before, width)
        state.used["links"] = 0
        links = state.room("links", used * width)
        links[: used * width] = 0
        links[: used * width].reshape(used, width)[: len(old) // before, :before] = old.reshape(-1, before)

    def _make_room_for(self, kind: int) -> None:
        """Make the plan of a kind of collectives, and room in the tables for one more collective of the kind."""
        self.kinds.plan(kind)
        plan = self.state["plans"][kind]
        for name, records in (
            ("instances", 1),
            ("ranks", int(plan["workers"])),
            ("messages", int(plan["messages"])),
            ("slots", int(plan["total"])),
            ("ports", int(plan["connections"])),
        ):
            self.state.room(name, records)

    # The end of a run.

    def _refusal(self, reason: int, row: int) -> str:
        """Return the error line about a stream whose program cannot go on, for the core's reason (a code)."""
        instruction: Any = self._instruction(row)
        worker = int(self.state["streams"][row]["worker"])
        if reason == codes.REFUSED:
            return self.assembly.errors[int(self._operation(row)["number"])]
        if reason == codes.TWICE:
            wanted = "a tag of its own for each message under way"
            return f"worker {worker} sends {instruction.tag!r} to {instruction.to}; expected {wanted}"
        part = self.state["parts"][self.state["streams"][row]["parts"] + self._operation(row)["number"]]
        instance = self.state["instances"][self.state["keys"][part["key"]]["instance"]]
        first: Any = self.assembly.instructions[instance["operation"]]
        first, mine = self.assembly.resolved(first), self.assembly.resolved(instruction)
        if reason == codes.DISAGREE:
            return (
                f"worker {worker} joins {first} with {mine}; "
                "expected the same kind, size and algorithm, group, stream and rounds"
            )
        assert reason == codes.FOREIGN
        return f"worker {worker} joins {first}; expected a worker of its group"

    def _raise_stuck(self, has_ended: NDArray[np.bool_], unfinished: NDArray[np.bool_]) -> None:
        """Raise the error about the first collective or program that has not ended; the arguments are masks of both."""
        stuck: dict[int, Any] = {}
        for row in np.flatnonzero(~has_ended).tolist():  # a worker's default stream comes first
            stuck.setdefault(int(self.state["streams"][row]["worker"]), self._instruction(row))
        worker_of = self.state["parts"]["worker"][: len(unfinished)]
        for worker in range(self.workers):
            for part in np.flatnonzero(unfinished & (worker_of == worker)).tolist():
                collective: Any = self.assembly.instructions[self.state["parts"][part]["operation"]]
                raise SynclineError(
                    f"worker {worker} never finishes {self.assembly.resolved(collective)}: "
                    "every worker must join it, in the same order"
                )
            if worker in stuck:
                line = f"worker {worker} never gets past {stuck[worker]}: nothing sends what it waits for"
                raise Stuck(line, stuck)

    def _check_received(self) -> None:
        """Raise an error for a message that was queued but that its receiver never received."""
        messages = self.state["messages"]
        addresses = {m: address for address, m in self.assembly.messages.by_address().items() if messages[m]["sent"]}
        if addresses:
            sender, receiver, tag = addresses[min(addresses, key=lambda m: int(messages[m]["turn"]))]
            raise SynclineError(f"worker {sender} never sends {tag!r} to {receiver}, which does not receive it")

    def timeline(self) -> Timeline:
        """Return the timeline of all instructions and collectives that have ended."""
        spans = self.state["spans"][: int(self.core["spans"])]
        span_names = self.assembly.span_name_columns()[spans["operation"]]
        columns: dict[str, Any] = {"worker": spans["worker"], "start_s": spans["start"], "end_s": spans["end"]}
        columns |= {"nbytes": spans["nbytes"], "step": span_names[:, 3]}
        columns |= {
            name: self.assembly.names.words(span_names[:, i]) for i, name in enumerate(("stream", "what", "label"))
        }
        return Timeline.from_columns(columns, self.workers)


def _power(number: int) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(0, number - 1).bit_length()


def _moved(links: NDArray[np.int32], before: int, width: int) -> NDArray[np.int32]:
    """Return the link numbers after a change of the number of links per message."""
    return np.where(links < 0, links, links // before * width + links % before)
