"""A simulation: the compiled core, SimPy for effects and choices, and the history of both.

The core runs compiled until SimPy's next event, or until Python must act: for an effect, a choice, the lateness of a
message, or more room. Computing that ends in an effect, and choices that wait for the rest of their instant, are events
of SimPy's. Both draw the numbers of their events from one count, so together they have one order.
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
from syncline.sim.events.plans import Routes, add_channels
from syncline.sim.events.state import CoreState
from syncline.sim.events.vectorised_assembly import assemble_by_columns
from syncline.sim.program.instructions import Delay, OnStream, Program, Stuck, start_times
from syncline.sim.program.timeline import Timeline


class SharedClock(simpy.Environment):
    """SimPy's clock and queue; its events and those of the compiled core are numbered by one count."""

    def __init__(self, core: Any) -> None:
        super().__init__()
        self._core = core
        # The count from which SimPy draws the number of each event that it schedules.
        self._eid = self._event_numbers()  # type: ignore[assignment]

    def _event_numbers(self) -> Iterator[int]:
        """Yield the numbers of SimPy's events, from the count that numbers the core's events, too."""
        while True:
            self._core["number"] += 1
            yield int(self._core["number"])

    def next_event(self) -> tuple[float, int]:
        """Return the time of SimPy's next event in seconds, and its key, by which events of one time are ordered.

        The time is infinite if no event is queued.
        """
        if not self._queue:
            return math.inf, 0
        time, priority, number, _ = self._queue[0]
        # Packed as the keys of the core's events, but without a kind: the priority in the high bits, then the number.
        return time, (int(priority) << PRIORITY_BIT) | (number << KIND_BITS)

    def advance_to_core(self) -> None:
        """Set SimPy's clock to the simulated time that the core has reached."""
        self._now = float(self._core["now"])

    def call_later(self, seconds: float, function: Callable[[Any], None], priority: EventPriority = NORMAL) -> None:
        """Call a function ``seconds`` from SimPy's present time, as an event of this priority.

        The function's argument is the event, which has no value.
        """
        event = simpy.Event(self)
        event._ok, event._value = True, None  # so that SimPy's `step` takes it as an event that has succeeded
        event.callbacks.append(function)
        self.schedule(event, priority, seconds)


CHOICES = EventPriority(11)
"""Priority of choices, which come after all else of their instant."""


LARGEST_KEY = 2**62
"""A key that sorts behind every event of its instant."""


class Simulation:
    """A run of the event simulation: the core's tables, and what Python does for the compiled loop.

    Args:
        starts_s: time at which each worker begins, ``(P,)`` seconds; 0 if None.
        eager: whether messages start by the eager rule; else by the rendezvous rule, see `run_events`.
        delay: function of sender and receiver that returns the seconds by which a message is late; None for none.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        topology: Topology,
        starts_s: ArrayLike | None,
        eager: bool,
        delay: Delay | None,
    ) -> None:
        keep_freed_memory()  # for the tables of the next simulation
        self.workers, self.eager, self.delay = len(programs), eager, delay
        self.state = CoreState()
        self.core = self.state["core"][0]  # variables of the compiled loop: the only record of their table
        for name in ("resume", "effect", "kind_without_room"):
            self.core[name] = -1  # none
        self.core["eager"], self.core["delays"], self.core["width"] = eager, delay is not None, 1
        self.core["ahead_bytes"] = bytes_ahead(topology) if eager else 0.0
        self.core["ahead"] = MESSAGES_AHEAD if self.core["ahead_bytes"] else 0
        self.env = SharedClock(self.core)
        self._write_channels(topology.bandwidth_bytes_per_s)
        self.routes = Routes(self.state, topology, eager)
        self.kinds = CollectiveKinds(self.state, topology, self.routes, self.workers)
        self.starts_s = start_times(starts_s, self.workers)
        self.assembly = Assembly(self.state, topology, self.routes, self.kinds, self.starts_s)
        first_kind = self.assembly.assemble_all(programs, assemble_by_columns)
        if first_kind is not None:
            self._make_room_for(first_kind)  # else the compiled loop would return at once to ask for it
        self.deciding: set[int] = set()  # workers that choose at the end of the present instant
        self.awaited_messages: dict[int, list[int]] = {}  # messages that each worker's current `First` waits for
        self._schedule_starts()

    def _write_channels(self, bandwidth: NDArray[np.float64]) -> None:
        """Write the bandwidth of each channel, in bytes per second, into the tables."""
        if len(bandwidth) and not (bandwidth.min() > 0 and bandwidth.max() < math.inf):
            is_valid = np.isfinite(bandwidth) & (bandwidth > 0)
            channel = int(np.flatnonzero(~is_valid)[0])
            expected = "bytes per second, positive and finite"
            raise SpecError(f"bandwidth_bytes_per_s[{channel}]", float(bandwidth[channel]), expected)
        add_channels(self.state, bandwidth)

    def _schedule_starts(self) -> None:
        """Schedule the beginning of each stream; streams that begin together do so in their order."""
        worker_of_stream = self.state["streams"]["worker"][: self.state.used["streams"]]
        streams = np.arange(len(worker_of_stream))
        self.state.take("turns", len(streams))
        self.state.take("noted", codes.NOTED)
        self.core["arrival_room"] = _next_power_of_two(len(streams))
        self.state.take("arrivals", int(self.core["arrival_room"]))
        # The heap is a binary tree: its second half are the leaves, which have the events.
        core, leaves = self.core, _next_power_of_two(len(streams))
        _, heap = self.state.take("heap", 2 * leaves)
        events = heap[leaves : leaves + len(streams)]
        events["time"], events["place"], events["subject"] = self.starts_s[worker_of_stream], streams, streams
        event_numbers = streams + 1  # events are numbered from 1
        priority = codes.NORMAL << codes.PRIORITY_BIT
        events["key"] = priority | (event_numbers << codes.KIND_BITS) | codes.GO_ON
        core["levels"] = leaves.bit_length() - 1
        core["leaves"] = leaves
        core["reusable_place"] = core["free_place"] = -1  # no place on the heap has become empty yet
        core["places"] = core["number"] = len(streams)  # an event for each stream so far
        self._write_used_rows()

    def run(self) -> Timeline:
        """Run the simulation to the end and return the timeline."""
        self._run_to_end()
        return self.timeline()

    def finish_s(self) -> NDArray[np.float64]:
        """Run programs that only join collectives; return the seconds at which each worker has finished its last."""
        self._run_to_end()
        spans = self.state["spans"][: int(self.core["spans"])]
        finish_s = self.starts_s.copy()
        finish_s[spans["worker"]] = spans["end"]  # the last of a worker's spans stays
        return finish_s

    def _run_to_end(self) -> None:
        """Run all events; raise an error if a program or a collective has not ended, or a message was not received."""
        self.advance()
        current = self.state["streams"]["operation"][: self.state.used["streams"]]
        has_ended = self.state["operations"]["code"][current] == codes.END
        unfinished = self.state["parts"]["state"][: self.state.used["parts"]] == codes.PART_JOINED
        if not has_ended.all() or unfinished.any():
            self._raise_stuck(has_ended, unfinished)
        if not self.eager:  # an eager message leaves even if nobody receives it
            self._check_received()

    def advance(self, until_s: float = math.inf) -> None:
        """Run all events of the simulation until ``until_s`` seconds."""
        core, env = self.core, self.env
        while True:
            simpy_event_s, simpy_event_key = env.next_event()
            # The core stops before SimPy's next event, or after all events of the instant ``until_s``.
            stop_s, stop_key = min((simpy_event_s, simpy_event_key), (until_s, LARGEST_KEY))
            reason = run_core(self.state.address, stop_s, stop_key)
            env.advance_to_core()
            if core["num_late"]:  # whatever the reason is, messages may have started
                self._compute_lateness()
            if reason == codes.IDLE:
                if simpy_event_s > until_s or simpy_event_s == math.inf:
                    return
                env.step()
            elif reason == codes.EFFECT:
                instruction: Any = self.assembly.instructions[int(core["effect"])]
                core["effect"] = -1
                instruction.effect()
            elif reason != codes.LATE:  # the lateness has been computed above
                self._act(reason)

    def _act(self, reason: int) -> None:
        """Do what the compiled core cannot do by itself; ``reason`` is the code with which it has stopped."""
        core = self.core
        stream = int(core["stream"])  # a worker's main stream has the worker's number
        if reason == codes.TIMER:  # a `Compute` with an effect begins; SimPy ends it
            compute: Any = self._instruction(stream)
            self.env.call_later(compute.seconds, partial(self._complete_compute, stream))
        elif reason == codes.CHOICE:  # a worker comes to a `First`, or a message for which its `First` waits arrives
            if stream not in self.deciding:
                self._decide(stream)
        elif reason == codes.CHOSEN:  # the chosen option's receive is done; its function returns what follows
            chosen = self.assembly.chosen[int(self._operation(stream)["number"])]
            program = chosen.first.then(chosen.option)
            self._read_used_rows()
            begin = self.assembly.assemble_program(stream, program, chosen.return_to)
            self.assembly.flush()
            self._write_used_rows()
            self._resume(stream, begin)
        elif reason == codes.ROOM:  # a table is full
            self._read_used_rows()
            if core["kind_without_room"] >= 0:
                self._make_room_for(int(core["kind_without_room"]))
                core["kind_without_room"] = -1
            self._write_used_rows()
        else:
            raise SynclineError(self._error_line(reason, stream))

    def _operation(self, stream: int) -> Any:
        """Return the record of a stream's current operation."""
        return self.state["operations"][self.state["streams"][stream]["operation"]]

    def _instruction(self, stream: int) -> OnStream | None:
        """Return a stream's current instruction; None at the end of its program."""
        return self.assembly.instructions[self.state["streams"][stream]["operation"]]

    def _complete_compute(self, worker: int, _: Any) -> None:
        """Complete a worker's `Compute` that has an effect, at SimPy's present time."""
        self.core["now"], self.core["resume"], self.core["compute_is_done"] = self.env.now, worker, 1

    def _compute_lateness(self) -> None:
        """Write the lateness of the messages in the table ``late``, all of which start now."""
        state, delay = self.state, self.delay
        assert delay is not None
        for i, message_number in enumerate(state["late"][: int(self.core["num_late"])].tolist()):
            message = state["messages"][message_number]
            sender, receiver = int(message["sender"]), int(message["receiver"])
            if message["kind"] != codes.OF_PROGRAM:  # a collective's message has ranks, not workers
                sender, receiver = self._worker_of_rank(sender), self._worker_of_rank(receiver)
            state["late_s"][i] = delay(sender, receiver)

    def _worker_of_rank(self, rank: int) -> int:
        """Return the worker whose part in a collective is the record ``rank`` of the table ``ranks``."""
        instance = self.state["instances"][self.state["ranks"][rank]["instance"]]
        group, place = self.kinds[int(instance["kind"])].group, rank - int(instance["rank0"])
        return place if group is None else int(group[place])

    # Choices.

    def _decide(self, worker: int, is_end_of_instant: bool = False) -> None:
        """Decide a worker's `First`: go on with the first option whose message has arrived, or wait for a message.

        If only a later option can run, an earlier option's message may still arrive at this instant. Then the worker
        decides at the end of the instant.
        """
        choice = self.assembly.choices[int(self._operation(worker)["number"])]
        messages = self.state["messages"]
        can_run = []  # for each option
        for message in choice.messages:
            needs_none = message < 0
            can_run.append(needs_none or bool(messages[message]["sent"] and messages[message]["arrived"]))
        is_first_pending = len(can_run) > 1 and not can_run[0]
        if is_first_pending and not is_end_of_instant:
            self.deciding.add(worker)
            self.env.call_later(0.0, partial(self._decide_at_end_of_instant, worker), CHOICES)
        elif any(can_run):
            for message in self.awaited_messages.pop(worker, ()):
                messages[message]["awaited_by"] = 0  # nothing waits for it any more
            operation = int(self.state["streams"][worker]["operation"])
            self._read_used_rows()
            first_option = can_run.index(True)
            begin = self.assembly.assemble_option(worker, choice, first_option, return_to=operation + 1)
            self._write_used_rows()
            self._resume(worker, begin, keeps_start=True)
        else:
            awaited = [message for message in choice.messages if message >= 0]
            self.awaited_messages[worker] = awaited
            # The core marks these messages, and returns to Python when one of them arrives.
            self.state.room("awaited", len(awaited))[: len(awaited)] = awaited
            self.core["num_awaited"] = len(awaited)

    def _decide_at_end_of_instant(self, worker: int, _: Any) -> None:
        """Decide a worker's `First` after everything else of this instant."""
        self.core["now"] = self.env.now
        self.deciding.remove(worker)
        self._decide(worker, is_end_of_instant=True)

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
        for table_name in self.SHARED:
            core[table_name] = state.used[table_name]
            core[table_name.removesuffix("s") + "_room"] = len(state[table_name])  # such as ``message_room``
        core["parts"] = state.used["parts"]
        if self.assembly.route_indices:  # programs send messages
            state.take("route_queues", state.used["routes"] - state.used["route_queues"])
        # Tables whose size follows from the number of messages.
        messages = len(state["messages"])
        state.room("found", messages)
        if self.delay is not None:
            for table_name in ("late", "late_s"):
                state.used[table_name] = int(core["num_late"])
                state.room(table_name, messages - state.used[table_name])
        # A message has as many links as the longest route has channels, rounded up.
        width = _next_power_of_two(max(int(core["width"]), self.routes.longest))
        if width > core["width"]:
            self._widen_links(int(core["width"]), width)
        state.used["links"] = core["messages"] * width
        state.room("links", (messages - int(core["messages"])) * width)
        state.used["spans"] = int(core["spans"])
        state.room("spans", self.assembly.max_spans - state.used["spans"])
        # The tree of events has as many leaves as the table of turns has records, and twice as many nodes.
        state.used["turns"], state.used["heap"] = int(core["places"]), 2 * int(core["leaves"])
        if core["heap_room"] < state.used["turns"] + messages + codes.SPARE:
            room = _next_power_of_two(state.used["turns"] + 2 * (messages + codes.SPARE))
            state.room("turns", room - state.used["turns"])
            state.room("heap", 2 * room - state.used["heap"])
            core["heap_room"] = room

    def _widen_links(self, old_width: int, width: int) -> None:
        """Give each message ``width`` links instead of ``old_width``, for routes with more channels."""
        state, used = self.state, int(self.core["messages"])
        self.core["width"], self.core["shift"] = width, width.bit_length() - 1  # width = 2^shift
        if not used:  # no message has links yet
            return
        old_links = state["links"][: used * old_width].copy()
        for name in ("previous", "next"):
            old_links[name] = _renumbered_links(old_links[name], old_width, width)
        channels = state["channels"]
        for name in ("head", "tail"):
            channels[name] = _renumbered_links(channels[name], old_width, width)
        state.used["links"] = 0  # so that `room` copies no old links, which are written below
        links = state.room("links", used * width)[: used * width]
        links[:] = 0
        links_of_message = links.reshape(used, width)
        links_of_message[: len(old_links) // old_width, :old_width] = old_links.reshape(-1, old_width)

    def _make_room_for(self, kind: int) -> None:
        """Write the plan of a kind of collectives, and make room in the tables for one more collective of the kind."""
        self.kinds.write_plan(kind)
        plan = self.state["plans"][kind]
        self.state.room("instances", 1)
        self.state.room("ranks", int(plan["workers"]))
        self.state.room("messages", int(plan["message_records"]))
        self.state.room("slots", int(plan["num_messages"]))
        self.state.room("ports", int(plan["connections"]))  # of gloo's connections

    # The end of a run.

    def _error_line(self, reason: int, stream: int) -> str:
        """Return the error line about a stream whose program cannot go on, for the core's reason (a code)."""
        instruction: Any = self._instruction(stream)
        operation = self._operation(stream)
        worker = int(self.state["streams"][stream]["worker"])
        if reason == codes.REFUSED:
            return self.assembly.errors[int(operation["number"])]
        if reason == codes.TWICE:
            expected = "a different tag for each message in flight"
            return f"worker {worker} sends {instruction.tag!r} to {instruction.to}; expected {expected}"
        # The other reasons are about a collective: compare the worker's join with the first join of the same key.
        part = self.state["parts"][self.state["streams"][stream]["parts"] + operation["number"]]
        instance = self.state["instances"][self.state["keys"][part["key"]]["instance"]]
        first_join: Any = self.assembly.instructions[instance["operation"]]
        first_join, join = self.assembly.resolve(first_join), self.assembly.resolve(instruction)
        if reason == codes.DISAGREE:
            return (
                f"worker {worker} joins {first_join} with {join}; "
                "expected the same kind, size and algorithm, group, stream and rounds"
            )
        assert reason == codes.FOREIGN
        return f"worker {worker} joins {first_join}; expected a worker of its group"

    def _raise_stuck(self, has_ended: NDArray[np.bool_], unfinished: NDArray[np.bool_]) -> None:
        """Raise the error about the first worker with a program or a collective that has not ended.

        Args:
            has_ended: whether the program of each stream has ended.
            unfinished: whether a worker has joined each part (a collective in its program) and has not finished it.
        """
        stuck_at: dict[int, Any] = {}  # current instruction of each worker whose program has not ended
        for stream in np.flatnonzero(~has_ended).tolist():  # a worker's main stream comes first
            worker = int(self.state["streams"][stream]["worker"])
            stuck_at.setdefault(worker, self._instruction(stream))
        worker_of_part = self.state["parts"]["worker"][: len(unfinished)]
        for worker in range(self.workers):
            unfinished_parts = np.flatnonzero(unfinished & (worker_of_part == worker))
            if len(unfinished_parts):
                operation = self.state["parts"][unfinished_parts[0]]["operation"]
                collective: Any = self.assembly.instructions[operation]
                raise SynclineError(
                    f"worker {worker} never finishes {self.assembly.resolve(collective)}: "
                    "every worker must join it, in the same order"
                )
            if worker in stuck_at:
                line = f"worker {worker} never gets past {stuck_at[worker]}: no worker sends what it waits for"
                raise Stuck(line, stuck_at)

    def _check_received(self) -> None:
        """Raise an error if a message was queued but its receiver never received it; name the first such message."""
        messages = self.state["messages"]  # ``sent`` until they are received; ``turn`` counts the sends
        numbers = self.assembly.messages.by_address()
        unread = [address for address, message in numbers.items() if messages[message]["sent"]]
        if unread:
            sender, receiver, tag = min(unread, key=lambda address: int(messages[numbers[address]]["turn"]))
            raise SynclineError(f"worker {sender} never sends {tag!r} to {receiver}, which does not receive it")

    def timeline(self) -> Timeline:
        """Return the timeline of all instructions and collectives that have ended."""
        spans, assembly = self.state["spans"][: int(self.core["spans"])], self.assembly
        last_names, names = np.array(assembly.span_names, dtype=np.int64).reshape(-1, 4), assembly.names
        span_names = np.concatenate([*assembly.span_name_blocks, last_names])[spans["operation"]]
        columns = {
            "worker": spans["worker"], "start_s": spans["start"], "end_s": spans["end"], "nbytes": spans["nbytes"],
            "stream": names.words(span_names[:, 0]), "what": names.words(span_names[:, 1]),
            "label": names.words(span_names[:, 2]), "step": span_names[:, 3],
        }  # fmt: skip
        return Timeline.from_columns(columns, self.workers)


def _next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(0, number - 1).bit_length()


def _renumbered_links(links: NDArray[np.int32], old_width: int, width: int) -> NDArray[np.int32]:
    """Return the numbers of links, or -1 for none, after a change of the number of links per message.

    Link h of message m has the number ``m width + h``.
    """
    return np.where(links < 0, links, links // old_width * width + links % old_width)
