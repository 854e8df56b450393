"""The assembly of programs into the core's operations: the record of each instruction, and the names of its span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, default_algorithm, knows_library
from syncline.costmodel.network.link import among
from syncline.costmodel.network.paths import Floats, Ints, Topology
from syncline.sim.events import codes
from syncline.sim.events.kinds import CollectiveKinds
from syncline.sim.events.names import (
    NO_SPAN,
    Choice,
    ChosenOption,
    Messages,
    Numbers,
    Operation,
    Part,
    SpanNames,
    WorkerNames,
)
from syncline.sim.events.plans import Routes
from syncline.sim.events.state import CoreState
from syncline.sim.program.instructions import (
    Collective,
    Compute,
    First,
    OnStream,
    Program,
    Queued,
    Recv,
    Send,
    StreamMark,
    StreamWait,
    Wait,
)
from syncline.sim.program.timeline import COMPUTING

ColumnAssembler: TypeAlias = Callable[["Assembly", list[int], Sequence[Program]], list[int]]
"""A function that assembles the programs of some workers column by column and returns the workers that are left."""

NEW_PART = dict.fromkeys(("rank", "next_on_port", "next_of_key", "next_on_stream"), -1)
"""Fields of a part that the core sets later, with the value that stands for none."""


class Assembly:
    """The assembly of all programs into operations of the core's tables; workers begin at ``starts_s`` seconds.

    Attributes:
        instructions: instruction of each operation; None at the end of a program.
        span_name_blocks: names of the spans of the first operations, in blocks ``(N, 4)``.
        span_names: names of the span of each later operation.
        choices: the `First` instructions.
        chosen: the options that were chosen so far.
        errors: error lines about instructions that cannot run.
        max_spans: upper bound of the number of spans.
        route_indices: index of the route between two workers, by sender and receiver.
        worker_names: names that the assembled instructions of each worker use.
    """

    def __init__(
        self, state: CoreState, topology: Topology, routes: Routes, kinds: CollectiveKinds, starts_s: Floats
    ) -> None:
        self.state, self.topology, self.routes, self.kinds = state, topology, routes, kinds
        self.starts_s, self.workers = starts_s, len(starts_s)
        self.names, self.keys, self.messages = Numbers(), Numbers(), Messages(self.workers)
        self.instructions: list[OnStream | None] = []
        self.span_names: list[SpanNames] = []
        self.span_name_blocks: list[Ints] = []
        self.choices: list[Choice] = []
        self.chosen: list[ChosenOption] = []
        self.errors: list[str] = []
        self.max_spans = 0
        self.route_indices: dict[tuple[int, int], int] = {}
        self.worker_names: defaultdict[int, WorkerNames] = defaultdict(WorkerNames)
        self._first_ports: dict[str, int] = {}  # by stream
        # By the id of a collective, which is stored with the result so that no other object gets this id.
        self._resolved_collectives: dict[int, tuple[Collective, Collective]] = {}
        # Assembled records that are not yet in the tables.
        self._operations: list[Operation] = []
        self._parts: list[Part] = []
        self._receivers: list[int] = []
        self._routed_sends: list[tuple[int, int, int]] = []  # index of each send's operation, sender and receiver
        self._assembler_of: dict[type, Callable[[int, WorkerNames, Any], tuple[Operation, SpanNames]]] = {
            Compute: self._compute, Send: self._send, Recv: self._recv, Collective: self._join, Wait: self._wait,
            First: self._first, StreamMark: self._mark, StreamWait: self._wait_for_mark,
        }  # fmt: skip

    def assemble_all(self, programs: Sequence[Program], assemble_by_columns: ColumnAssembler) -> int | None:
        """Assemble the programs of all workers; a program that several workers share is assembled once.

        Args:
            assemble_by_columns: function that assembles what it can of some workers' programs at once, and returns the
                workers that are left.

        Returns:
            The index of the kind of collective with which all workers begin, if they share a program; else None.
        """
        _, streams = self.state.take("streams", self.workers)
        streams["worker"] = np.arange(self.workers)
        workers_of: defaultdict[int, list[int]] = defaultdict(list)  # by the id of a program
        for worker, program in enumerate(programs):
            workers_of[id(program)].append(worker)
        separate = []
        for workers in workers_of.values():
            program = programs[workers[0]]
            is_shared = len(workers) > 1 and not isinstance(program, Queued)
            if is_shared and all(type(instruction) in (Compute, Collective, Wait) for instruction in program):
                self._assemble_shared(np.array(workers), program)  # no instruction names a worker
            else:
                separate += workers
        is_one_program = self.workers and len(workers_of) == 1 and not separate
        if is_one_program and self.state["operations"]["code"][0] == codes.JOIN:
            return int(self.state["parts"]["kind"][0])  # the kind of its first collective
        for worker in assemble_by_columns(self, sorted(separate), programs):
            program = programs[worker]
            if isinstance(program, Queued):
                self._assemble_streams(worker, program)
            else:
                self.state["streams"][worker]["operation"] = self.assemble_program(worker, program)
        self.flush()
        return None

    def assemble_option(self, worker: int, choice: Choice, option: int, return_to: int) -> int:
        """Assemble the chosen option of a `First`; return the number of its first operation.

        The option is a receive, and then a request to Python to assemble what follows, with a jump to ``return_to``.
        """
        begin = len(self.instructions)
        recv = choice.first.options[option]
        if recv is not None:
            self._add(worker, self.worker_names[worker], recv)
        self._append(Operation(codes.AFTER_CHOICE, number=len(self.chosen)), choice.first, NO_SPAN)
        self.chosen.append(ChosenOption(choice.first, option, return_to))
        self.flush()
        self.max_spans += 1  # of the receive
        return begin

    def _assemble_streams(self, worker: int, program: Queued) -> None:
        """Assemble the instructions that a worker has queued on its streams; each stream is a program of its own."""
        worker_names, instructions_of = self.worker_names[worker], program.instructions_by_stream()
        # Number the parts first, because a wait on one stream may name a collective of a later stream.
        part_number = self.state.used["parts"] + len(self._parts)
        for instructions in instructions_of.values():
            for instruction in instructions:
                if type(instruction) is Collective:
                    worker_names.parts[instruction.key] = part_number
                    worker_names.joined[instruction.key] = instruction
                    part_number += 1
        for stream, instructions in instructions_of.items():
            stream_number = worker  # of the worker's main stream
            if stream != COMPUTING:
                stream_number, stream_record = self.state.take("streams", 1)
                stream_record["worker"] = worker
            worker_names.stream = stream
            self.state["streams"][stream_number]["operation"] = self.assemble_program(worker, instructions)
        self.state.take("marks", len(worker_names.marks))  # whose numbers `_mark_number` has given out
        worker_names.stream = COMPUTING

    def assemble_program(self, worker: int, program: Sequence[OnStream], return_to: int = -1) -> int:
        """Assemble instructions of one stream, and a jump unless ``return_to`` is -1; return the first operation."""
        worker_names, begin = self.worker_names[worker], len(self.instructions)
        for instruction in program:
            self._add(worker, worker_names, instruction)
        worker_names.check(worker)
        end = Operation(codes.END) if return_to < 0 else Operation(codes.JUMP, number=return_to)
        self._append(end, None, NO_SPAN)
        self.max_spans += len(program)
        return begin

    def _assemble_shared(self, workers: NDArray[np.int64], program: Program) -> None:
        """Assemble a program that several workers share: all run the same operations, each with its own parts."""
        begin, first_part, worker_names = len(self.instructions), self.state.used["parts"], WorkerNames()
        for instruction in program:
            self._add(int(workers[0]), worker_names, instruction)
        for index, operation in enumerate(self._operations):
            if operation.code in (codes.JOIN, codes.WAIT):  # the number of a part counts from each worker's first part
                self._operations[index] = operation._replace(number=operation.number - first_part)
        self._append(Operation(codes.END), None, NO_SPAN)
        self.max_spans += len(program) * len(workers)
        parts_of_first, self._parts = self._parts, []  # of the first worker; all workers' parts are written below
        self.flush()  # without the parts, and so without their keys
        self._write_keys()
        num_parts = len(parts_of_first)
        streams = self.state["streams"]
        streams["operation"][workers] = begin
        streams["parts"][workers] = first_part + num_parts * np.arange(len(workers))  # a block of parts per worker
        _, parts = self.state.take("parts", num_parts * len(workers))
        for part_index, part in enumerate(parts_of_first):
            columns: dict[str, Any] = part._asdict() | NEW_PART  # a column is an array, or a value for all workers
            columns |= {"worker": workers, "place": workers, "takes_turn": True}
            columns["port"] = part.port + workers - workers[0]
            if self.kinds[part.kind].group is not None:
                collective: Any = self.instructions[part.operation]
                places = [self.kinds.place(part.kind, worker) for worker in workers.tolist()]
                columns["place"] = places
                columns["takes_turn"] = [self.kinds.takes_turn(collective, place) for place in places]
            part_of_each_worker = parts[part_index::num_parts]
            for name, column in columns.items():
                part_of_each_worker[name] = column

    def _append(self, operation: Operation, instruction: OnStream | None, span_names: SpanNames) -> None:
        """Append an operation with its instruction and the names of its span."""
        self._operations.append(operation)
        self.instructions.append(instruction)
        self.span_names.append(span_names)

    def _add(self, worker: int, worker_names: WorkerNames, instruction: OnStream) -> None:
        """Append the operation that the compiled core runs for a worker's instruction."""
        assemble = self._assembler_of[type(instruction)]
        operation, span_names = assemble(worker, worker_names, instruction)
        self._append(operation, instruction, span_names)

    def _error(self, line: str) -> Operation:
        """Return an operation that raises an error with this message if the program comes to it."""
        self.errors.append(line)
        return Operation(codes.WRONG, number=len(self.errors) - 1)

    def _span(self, stream: str, activity: str, label: str, step: int) -> SpanNames:
        """Return the names of a span as the numbers that stand for them, and the span's step."""
        return self.names[stream], self.names[activity], self.names[label], step

    # One method for each kind of instruction, which returns its operation and the names of its span.

    def _compute(self, _worker: int, worker_names: WorkerNames, compute: Compute) -> tuple[Operation, SpanNames]:
        """Return the operation of a `Compute`, and the names of its span."""
        span_names = self._span(worker_names.stream, compute.what, compute.label, compute.step)
        return Operation(codes.COMPUTE, effect=compute.effect is not None, amount=compute.seconds), span_names

    def _mark(self, _worker: int, worker_names: WorkerNames, mark: StreamMark) -> tuple[Operation, SpanNames]:
        """Return the operation of a `StreamMark`, and no span names: the timeline does not show marks."""
        return Operation(codes.MARK, number=self._mark_number(worker_names, mark.key)), NO_SPAN

    def _wait_for_mark(self, _worker: int, worker_names: WorkerNames, wait: StreamWait) -> tuple[Operation, SpanNames]:
        """Return the operation of a `StreamWait`, and the names of its span; it has a span on the main stream alone."""
        is_hidden = worker_names.stream != COMPUTING
        span_names = NO_SPAN if is_hidden else self._span(worker_names.stream, "wait", wait.label, wait.step)
        mark = self._mark_number(worker_names, wait.key)
        return Operation(codes.WAIT_FOR_MARK, hidden=is_hidden, number=mark), span_names

    def _mark_number(self, worker_names: WorkerNames, key: Hashable) -> int:
        """Return the number of a worker's mark, a new one if the key is new."""
        return worker_names.marks.setdefault(key, self.state.used["marks"] + len(worker_names.marks))

    def _send(self, worker: int, worker_names: WorkerNames, send: Send) -> tuple[Operation, SpanNames]:
        """Return the operation of a `Send`, and the names of its span; its route is looked up later, in `flush`."""
        worker_names.send_streams.add(send.stream)
        span_names = self._span(send.stream, "send", send.label or str(send.tag), send.step)
        if send.to == worker or not 0 <= send.to < self.workers:
            return self._error(f"worker {worker} sends {send.tag!r} to {send.to}; expected another worker"), span_names
        self._routed_sends.append((len(self._operations), worker, send.to))
        message, port = self._message_number(worker, send.to, send.tag), self.first_port(send.stream) + worker
        return Operation(codes.SEND, number=message, port=port, amount=send.nbytes), span_names

    def _recv(self, worker: int, worker_names: WorkerNames, recv: Recv) -> tuple[Operation, SpanNames]:
        """Return the operation of a `Recv`, and the names of its span."""
        message = self._message_number(recv.source, worker, recv.tag)
        is_hidden = worker_names.stream != COMPUTING
        span_names = self._span("compute", "recv", recv.label or str(recv.tag), recv.step)
        return Operation(codes.RECV, effect=recv.effect is not None, hidden=is_hidden, number=message), span_names

    def _join(self, worker: int, worker_names: WorkerNames, join: Collective) -> tuple[Operation, SpanNames]:
        """Return the operation of a `Collective`, and the names of its span; add the worker's part in it."""
        collective, key = self.resolve(join), join.key
        span_names = self._span(collective.stream, collective.kind, collective.label, collective.step)
        worker_names.collective_streams.add(join.stream)
        part_number = self.state.used["parts"] + len(self._parts)
        # `_assemble_streams` may have noted this part's number for the key. Another number is that of an earlier join.
        if worker_names.parts.get(key, part_number) != part_number:
            line = f"worker {worker} starts collective {key!r} twice; expected an unused key"
            return self._error(line), span_names
        kind = self.kinds.number_of(collective)
        worker_names.parts[key], worker_names.joined[key] = part_number, join
        place = self.kinds.place(kind, worker)
        part = Part(
            worker, kind, key=self.keys[key], place=place, port=self.first_port(join.stream) + worker,
            takes_turn=self.kinds.takes_turn(collective, place), operation=len(self.instructions),
        )  # fmt: skip
        self._parts.append(part)
        return Operation(codes.JOIN, number=part_number), span_names

    def _wait(self, worker: int, worker_names: WorkerNames, wait: Wait) -> tuple[Operation, SpanNames]:
        """Return the operation of a `Wait`, and the names of its span."""
        if wait.key not in worker_names.parts:
            line = f"worker {worker} waits for collective {wait.key!r}, which it has not started"
            return self._error(line), NO_SPAN
        collective = worker_names.joined[wait.key]
        step = collective.step if wait.step is None else wait.step
        # Waits have spans on the worker's main stream alone.
        operation = Operation(
            codes.WAIT, effect=wait.effect is not None, hidden=worker_names.stream != COMPUTING,
            number=worker_names.parts[wait.key],
        )  # fmt: skip
        return operation, self._span("compute", "wait", collective.label, step)

    def _first(self, worker: int, _: WorkerNames, first: First) -> tuple[Operation, SpanNames]:
        """Return the operation of a `First`, and no span names; note its options as a `Choice`."""
        messages = []
        for recv in first.options:
            messages.append(-1 if recv is None else self._message_number(recv.source, worker, recv.tag))
        self.choices.append(Choice(first, messages))
        return Operation(codes.FIRST, number=len(self.choices) - 1), NO_SPAN

    # Records in the tables.

    def flush(self) -> None:
        """Write the operations, messages and parts that were assembled into the core's tables."""
        pairs = dict.fromkeys((sender, receiver) for _, sender, receiver in self._routed_sends)
        new_pairs = [pair for pair in pairs if pair not in self.route_indices]
        if new_pairs:
            senders, receivers = np.array(new_pairs).T
            first_route = self.routes.add(senders, receivers)
            for route_index, pair in enumerate(new_pairs, first_route):
                self.route_indices[pair] = route_index
        _, operations = self.state.take("operations", len(self._operations))
        if len(self._operations) < 8:  # few records are written faster one by one, many column by column
            for index, operation in enumerate(self._operations):
                operations[index] = operation
        else:
            columns = zip(*self._operations, strict=True)
            for name, column in zip(operations.dtype.names or (), columns, strict=True):
                operations[name] = column
        for index, sender, receiver in self._routed_sends:
            operations[index]["route"] = self.route_indices[sender, receiver]
        if self._receivers:
            _, messages = self.state.take("messages", len(self._receivers))  # numbered by `_message_number`
            messages["receiver"] = self._receivers
        if self._parts:
            _, parts = self.state.take("parts", len(self._parts))
            for name, column in zip(Part._fields, np.array(self._parts).T, strict=True):
                parts[name] = column
            for name, value in NEW_PART.items():
                parts[name] = value
            self._write_keys()
        self._operations, self._routed_sends, self._receivers, self._parts = [], [], [], []

    def _write_keys(self) -> None:
        """Add a record to the table ``keys`` for each new key of a collective."""
        num_new_keys = len(self.keys) - self.state.used["keys"]
        if num_new_keys:
            _, keys = self.state.take("keys", num_new_keys)
            keys["first"] = keys["last"] = keys["instance"] = -1

    def first_port(self, stream: str) -> int:
        """Return the port of worker 0 on a stream; the ports of the other workers follow it."""
        first_port = self._first_ports.get(stream)
        if first_port is None:
            first_port, ports = self.state.take("ports", self.workers)
            self._first_ports[stream] = first_port
            for name in ("head", "serving", "last_in_turn", "last_joined"):
                ports[name] = -1  # none
            ports["idle_since"] = self.starts_s
        return first_port

    def _message_number(self, sender: int, receiver: int, tag: Hashable) -> int:
        """Return the number of the message from one worker to another with this tag."""
        address = sender, receiver, tag
        number_of = self.messages.by_address()
        if address not in number_of:  # the next one behind those in the table and those that `flush` will write
            number_of[address] = self.state.used["messages"] + len(self._receivers)
            self._receivers.append(receiver)
        return number_of[address]

    def resolve(self, collective: Collective) -> Collective:
        """Return a collective with what the network determines: its default algorithm, or its duration."""
        is_timed_as_a_whole = collective.algorithm in TIMED_AS_A_WHOLE
        has_own = collective.rounds is not None or collective.takes_s is not None or collective.algorithm is not None
        gets_library_algorithm = not has_own and knows_library(self.topology)
        if not is_timed_as_a_whole and not gets_library_algorithm:
            return collective
        if id(collective) in self._resolved_collectives:
            _, resolved = self._resolved_collectives[id(collective)]
            return resolved
        if is_timed_as_a_whole:
            joined = self.topology if collective.group is None else among(self.topology, collective.group)
            kind, nbytes, algorithm = collective.kind, collective.nbytes, collective.algorithm
            seconds = float(collective_s(kind, joined.workers, nbytes, joined, algorithm))
            resolved = replace(collective, algorithm=None, takes_s=seconds)
        else:
            resolved = replace(collective, algorithm=default_algorithm(collective.kind, self.topology))
        self._resolved_collectives[id(collective)] = collective, resolved
        return resolved
