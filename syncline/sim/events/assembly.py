"""The assembly of programs into the core's operations: the record of each instruction, and the names of its span."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import repeat
from operator import is_
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, first_on, knows_library
from syncline.costmodel.network.topology import Floats, Ints, Topology, among
from syncline.sim.events.kinds import CollectiveKinds
from syncline.sim.events.names import NOTHING, Choice, ChosenOption, Names, Operation, Told, WorkerNames
from syncline.sim.events.numbering import Messages
from syncline.sim.events.records import write_shared
from syncline.sim.events.routes import Routes
from syncline.sim.events.state import (
    COMPUTE,
    END,
    FIRST,
    HOLD,
    JOIN,
    JUMP,
    MARK,
    RECV,
    SEND,
    THEN,
    WAIT,
    WRONG,
    CoreState,
)
from syncline.sim.program.instructions import Collective, Compute, Program, Recv, Send, SharedProgram, Wait
from syncline.sim.program.queued import OnStream, Queued, StreamMark, StreamWait
from syncline.sim.program.timeline import COMPUTING

ColumnAssembler: TypeAlias = Callable[["Assembly", list[int], Sequence[Program]], list[int]]
"""A function that assembles the programs of some workers column by column and returns the workers that are left."""


class Assembly:
    """The operations of all programs, in the core's tables.

    Args:
        state: the tables.
        topology: the topology.
        routes: routes between workers.
        kinds: kinds of collectives.
        starts_s: time at which each worker begins, ``(P,)``.
    """

    def __init__(
        self, state: CoreState, topology: Topology, routes: Routes, kinds: CollectiveKinds, starts_s: Floats
    ) -> None:
        self.state, self.over, self.routes, self.kinds, self.workers = state, topology, routes, kinds, len(starts_s)
        self.starts_s = starts_s
        self.names = Names()
        self.instructions: list[OnStream | None] = []  # instruction of each operation
        self.told: list[Told] = []
        self.choices: list[Choice] = []
        self.taken: list[ChosenOption] = []
        self.wrong: list[str] = []
        self.messages = Messages(self.workers)
        self.told_before: list[Ints] = []
        self.keys: dict[Hashable, int] = {}
        self.ports: dict[str, int] = {}  # first port of each stream
        self.spans = 0  # upper bound of their number
        self._named: dict[int, WorkerNames] = {}
        self._resolved: dict[int, tuple[Collective, Collective]] = {}
        self.route: dict[tuple[int, int], int] = {}
        # Assembled records that are not yet in the tables.
        self._rows: list[Operation] = []
        self._parts: list[Ints] = []
        self._part_count = 0
        self._receivers: list[int] = []
        self._ways: list[tuple[int, int, int]] = []

    def all(self, programs: Sequence[Program], by_columns: ColumnAssembler) -> int | None:
        """Assemble the programs of all workers; a program that several workers share is assembled once.

        Args:
            programs: the program of each worker.
            by_columns: assembles what it can of some workers' programs at once; returns the workers that are left.

        Returns:
            The kind of the first collective of all; None if it is not known beforehand.
        """
        self.state.take("workers", self.workers)[1]["of"] = np.arange(self.workers)
        workers_of: dict[int, list[int]] = {}
        are_alike = isinstance(programs, SharedProgram) or (
            self.workers > 0 and all(map(is_, programs, repeat(programs[0])))
        )
        if are_alike and _is_shared(programs[0], range(self.workers)):
            self._shared(np.arange(self.workers), programs[0])
            return int(self.state["parts"]["what"][0]) if self.state["operations"]["code"][0] == JOIN else None
        if len(set(map(id, programs))) < len(programs):
            for worker, program in enumerate(programs):
                workers_of.setdefault(id(program), []).append(worker)
            workers_of = {
                first: workers for first, workers in workers_of.items() if _is_shared(programs[workers[0]], workers)
            }
        for workers in workers_of.values():
            self._shared(np.array(workers), programs[workers[0]])
        separate = [worker for worker, program in enumerate(programs) if id(program) not in workers_of]
        separate = by_columns(self, separate, programs)
        for worker in separate:
            program = programs[worker]
            if isinstance(program, Queued):
                self._lanes(worker, program)
            else:
                self.state["workers"][worker]["at"] = self._assemble_program(worker, program)
        self.flush()
        return None

    def span_name_columns(self) -> NDArray[np.int64]:
        """Return the names of the span of each operation, as numbers ``(N, 4)``: stream, what, label and step."""
        return np.concatenate([*self.told_before, np.array(self.told, dtype=np.int64).reshape(-1, 4)])

    def assemble_more(self, worker: int, program: Program, back: int) -> int:
        """Assemble a worker's next instructions and a jump to ``back``; return their first operation."""
        begin = self._assemble_program(worker, program, back)
        self.flush()
        return begin

    def _lanes(self, worker: int, program: Queued) -> None:
        """Assemble the instructions that a worker has queued on its streams; each stream is a program of its own."""
        named, lanes = self.named(worker), program.lanes()
        number = self.state.used["parts"] + self._part_count
        for lane in lanes.values():
            for instruction in lane:
                if type(instruction) is Collective:
                    named.parts[instruction.key], named.joined[instruction.key] = number, instruction
                    number += 1
        for stream, lane in lanes.items():
            row = worker
            if stream != COMPUTING:
                row, worker_rows = self.state.take("workers", 1)
                worker_rows["of"] = worker
            named.lane = stream
            self.state["workers"][row]["at"] = self._assemble_program(worker, lane, queued=True)
        self.state.take("marks", len(named.marks))
        named.lane = COMPUTING

    def _lane(self, worker: int, named: WorkerNames, lane: Sequence[Any], parts: list[tuple[int, ...]]) -> None:
        """Assemble the instructions of a stream; the frequent kinds are handled inline, because there are many."""
        rows, instructions, span_names, names = self._rows, self.instructions, self.told, self.names
        marks, first, hidden = named.marks, self.state.used["marks"], named.lane != COMPUTING
        stream, wait = names(named.lane), names("wait")
        for instruction in lane:
            instruction_type = type(instruction)
            if instruction_type is Compute:
                rows.append((COMPUTE, instruction.effect is not None, 0, 0, 0, instruction.seconds))
                span_names.append((stream, names(instruction.what), names(instruction.label), instruction.step))
            elif instruction_type is StreamMark:
                rows.append((MARK, 0, marks.setdefault(instruction.key, first + len(marks)), 0, 0, 0.0))
                span_names.append(NOTHING)
            elif instruction_type is StreamWait:
                rows.append((HOLD, 0, marks.setdefault(instruction.key, first + len(marks)), hidden, 0, 0.0))
                span_names.append(NOTHING if hidden else (stream, wait, names(instruction.label), instruction.step))
            else:
                self._add(worker, named, instruction, parts)
                continue
            instructions.append(instruction)

    def _assemble_program(
        self, worker: int, program: Sequence[OnStream], return_to: int = -1, queued: bool = False
    ) -> int:
        named, begin = self.named(worker), len(self.instructions)
        parts: list[tuple[int, ...]] = []
        if queued:
            self._lane(worker, named, program, parts)
        else:
            for instruction in program:
                self._add(worker, named, instruction, parts)
        named.check(worker)
        self._end(return_to)
        if parts:
            self._parts.append(np.array(parts))
            self._part_count += len(parts)
        self.spans += len(program)
        return begin

    def assemble_option(self, worker: int, choice: Choice, option: int, back: int) -> int:
        """Assemble the chosen option of a `First`: its receive, then the request for what follows."""
        begin = len(self.instructions)
        recv = choice.first.options[option]
        if recv is not None:
            self._add(worker, self._named[worker], recv, [])
        self._append_operation((THEN, 0, len(self.taken), 0, 0, 0.0), choice.first, NOTHING)
        self.taken.append(ChosenOption(choice.first, option, back))
        self.flush()
        self.spans += 1
        return begin

    def _append_operation(self, row: Operation, instruction: OnStream | None, span_names: Told) -> None:
        self._rows.append(row)
        self.instructions.append(instruction)
        self.told.append(span_names)

    def _add(self, worker: int, named: WorkerNames, instruction: OnStream, parts: list[tuple[int, ...]]) -> None:
        row, span_names = self._row(worker, named, instruction, parts)
        self._append_operation(row, instruction, span_names)

    def _row(  # noqa: PLR0911
        self, worker: int, named: WorkerNames, instruction: Any, parts: list[tuple[int, ...]]
    ) -> tuple[Operation, Told]:
        instruction_type, names = type(instruction), self.names
        if instruction_type is Compute:
            span_names = names(named.lane), names(instruction.what), names(instruction.label), instruction.step
            return (COMPUTE, instruction.effect is not None, 0, 0, 0, instruction.seconds), span_names
        if instruction_type is Send:
            named.sends.add(instruction.stream)
            receiver = instruction.to
            span_names = (
                names(instruction.stream),
                names("send"),
                names(instruction.label or str(instruction.tag)),
                instruction.step,
            )
            if receiver == worker or not 0 <= receiver < self.workers:
                return self._never(
                    f"worker {worker} sends {instruction.tag!r} to {receiver}; expected another worker"
                ), span_names
            port = self.port(instruction.stream) + worker
            self._ways.append((len(self._rows), worker, receiver))
            message = self.message(worker, receiver, instruction.tag)
            return (SEND, 0, message, port, 0, instruction.nbytes), span_names
        if instruction_type is Recv:
            span_names = (
                names("compute"),
                names("recv"),
                names(instruction.label or str(instruction.tag)),
                instruction.step,
            )
            message = self.message(instruction.source, worker, instruction.tag)
            return (RECV, instruction.effect is not None, message, named.lane != COMPUTING, 0, 0.0), span_names
        if instruction_type is Collective:
            collective = self.resolved(instruction)
            span_names = names(collective.stream), names(collective.kind), names(collective.label), collective.step
            key = instruction.key
            named.streams.add(instruction.stream)
            number = self.state.used["parts"] + self._part_count + len(parts)
            if named.parts.get(key, number) != number:
                line = f"worker {worker} starts collective {key!r} twice; expected a key of its own"
                return self._never(line), span_names
            collective_kind = self.kinds.number_of(collective)
            named.parts[key] = number
            named.joined[key] = instruction
            place = self.kinds.place(collective_kind, worker)
            port = self.port(instruction.stream) + worker
            numbered = self.kinds.is_numbered(collective, place)
            key_number = self.keys.setdefault(key, len(self.keys))
            parts.append((worker, collective_kind, key_number, place, port, numbered, len(self.instructions)))
            return (JOIN, 0, number, 0, 0, 0.0), span_names
        if instruction_type is Wait:
            return self._wait(worker, named, instruction)
        messages = [-1 if recv is None else self.message(recv.source, worker, recv.tag) for recv in instruction.options]
        self.choices.append(Choice(instruction, messages))
        return (FIRST, 0, len(self.choices) - 1, 0, 0, 0.0), NOTHING

    def _wait(self, worker: int, named: WorkerNames, wait: Wait) -> tuple[Operation, Told]:
        names, key = self.names, wait.key
        if key not in named.parts:
            line = f"worker {worker} waits for collective {key!r}, which it has not started"
            return self._never(line), NOTHING
        collective = named.joined[key]
        step = collective.step if wait.step is None else wait.step
        span_names = names("compute"), names("wait"), names(collective.label), step
        return (WAIT, wait.effect is not None, named.parts[key], named.lane != COMPUTING, 0, 0.0), span_names

    def _shared(self, workers: NDArray[np.int64], program: Program) -> None:
        """Assemble a program that several workers share; each worker has its own parts in the same operations."""
        begin, before, named = len(self.instructions), self.state.used["parts"], WorkerNames()
        first = int(workers[0])
        parts: list[tuple[int, ...]] = []
        for instruction in program:
            self._add(first, named, instruction, parts)
        for index, (code, effect, number, *others) in enumerate(self._rows):
            if code in (JOIN, WAIT):
                self._rows[index] = code, effect, number - before, *others  # type: ignore[assignment]
        self._end(-1)
        self.spans += len(program) * len(workers)
        self.flush()
        self.state.take("parts", len(parts) * len(workers))
        self._name_keys()
        part_table = np.array(parts, dtype=np.int64).reshape(-1, 7)
        places, numbered = np.empty((2, len(parts), len(workers)), dtype=np.int64)
        for number, (_, kind, *_, index) in enumerate(parts):
            places[number], numbered[number] = workers, 1
            if self.kinds[kind].group is not None:
                collective: Any = self.instructions[index]
                places[number] = [self.kinds.place(kind, worker) for worker in workers.tolist()]
                numbered[number] = [self.kinds.is_numbered(collective, place) for place in places[number].tolist()]
        write_shared(self.state.address, workers, begin, part_table, places, numbered, before)

    def _end(self, return_to: int) -> None:
        self._append_operation(
            (END, 0, 0, 0, 0, 0.0) if return_to < 0 else (JUMP, 0, return_to, 0, 0, 0.0), None, NOTHING
        )

    def _never(self, line: str) -> Operation:
        self.wrong.append(line)
        return WRONG, 0, len(self.wrong) - 1, 0, 0, 0.0

    def flush(self) -> None:
        """Write the assembled records into the tables."""
        new = [pair for pair in dict.fromkeys((a, b) for _, a, b in self._ways) if pair not in self.route]
        if new:
            ends = np.array(new)
            first = self.routes.add(ends[:, 0], ends[:, 1])
            self.route.update(zip(new, range(first, first + len(new)), strict=True))
        _, operations = self.state.take("operations", len(self._rows))
        if len(self._rows) < 8:
            for row_index, operation in enumerate(self._rows):
                operations[row_index] = operation
        else:
            columns = zip(*self._rows, strict=True)
            for name, column in zip(operations.dtype.names or (), columns, strict=True):
                operations[name] = column
        for row_index, a, b in self._ways:
            operations[row_index]["c"] = self.route[a, b]
        if self._receivers:
            _, messages = self.state.take("messages", len(self._receivers))
            messages["receiver"] = self._receivers
        if self._parts:
            self._write_parts(np.concatenate(self._parts))
        self._rows, self._ways, self._receivers, self._parts, self._part_count = [], [], [], [], 0

    def _write_parts(self, parts: Ints) -> None:
        _, table = self.state.take("parts", len(parts))
        names = "worker", "what", "key", "place", "port", "numbered", "operation"
        for name, column in zip(names, parts.T, strict=True):
            table[name] = column
        for name in ("rank", "next_number", "next_of_key", "after"):
            table[name] = -1
        self._name_keys()

    def _name_keys(self) -> None:
        new = len(self.keys) - self.state.used["keys"]
        if new:
            _, keys = self.state.take("keys", new)
            keys["first"] = keys["last"] = keys["instance"] = -1

    def named(self, worker: int) -> WorkerNames:
        """Return the keys, streams and marks that a worker's program has named so far."""
        return self._named.setdefault(worker, WorkerNames())

    def port(self, stream: str) -> int:
        """Return the port of worker 0 on a stream; the ports of the other workers follow it."""
        first = self.ports.get(stream)
        if first is None:
            first, ports = self.state.take("ports", self.workers)
            self.ports[stream] = first
            for name in ("head", "serving", "last_number", "last_part"):
                ports[name] = -1
            ports["idle_since"] = self.starts_s
        return first

    def message(self, sender: int, receiver: int, tag: Hashable) -> int:
        """Return the number of the message from one worker to another with this tag."""
        address = sender, receiver, tag
        messages = self.messages.by_address()
        message = messages.get(address)
        if message is None:
            message = messages[address] = self.state.used["messages"] + len(self._receivers)
            self._receivers.append(receiver)
        return message

    def _measured(self, collective: Collective) -> Collective:
        """Return the collective with its seconds as a whole."""
        cached = self._resolved.get(id(collective))
        if cached is None:
            joined = self.over if collective.group is None else among(self.over, collective.group)
            kind, nbytes, algorithm = collective.kind, collective.nbytes, collective.algorithm
            seconds = float(collective_s(kind, joined.workers, nbytes, joined, algorithm))
            cached = collective, replace(collective, algorithm=None, takes_s=seconds)
            self._resolved[id(collective)] = cached
        return cached[1]

    def resolved(self, collective: Collective) -> Collective:
        """Return a collective with the algorithm that carries it, if the network determines it."""
        if collective.algorithm in TIMED_AS_A_WHOLE:
            return self._measured(collective)
        is_explicit = collective.rounds is not None or collective.takes_s is not None
        if is_explicit or collective.algorithm is not None or not knows_library(self.over):
            return collective
        cached = self._resolved.get(id(collective))
        if cached is None:
            cached = collective, replace(collective, algorithm=first_on(collective.kind, self.over))
            self._resolved[id(collective)] = cached
        return cached[1]


def _is_shared(program: Program, workers: Sequence[int]) -> bool:
    """Return whether several workers share a program that names none of them."""
    if isinstance(program, Queued):
        return False
    return len(workers) > 1 and all(type(instruction) in (Compute, Collective, Wait) for instruction in program)
