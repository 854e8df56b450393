"""Communicators: the collectives that methods call, in simulation, in processes and on shapes; and their ledger.

Every tensor that differs between workers has a leading *worker axis* of length ``R``, a row for each worker of this
process. The annotations name axes: ``R`` rows, ``M`` workers in the group, ``*s`` the shape of one worker's tensor. The
ledger has the bytes that each worker handed to each collective at each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from jaxtyping import Shaped
from torch import Tensor

from syncline.comm.wire import DENSE, Cast, Dense, WireFormat
from syncline.costmodel.traffic.call import Call, Ranks, Spans, groups_like
from syncline.errors import SpecError
from syncline.units import is_whole


class Details(NamedTuple):
    """Properties of a collective call that the optimizer knows and the communicator does not.

    Attributes:
        wait_steps: number of steps until the method needs the result.
        in_backward: whether parts of the payload are ready during the backward pass.
        encoded_bytes: fp32 bytes that the method itself encoded into the payload, see `encoding_details`; if None, the
            communicator counts the bytes that its wire format encodes.
        spans: parts of the gradient that the payload covers if it is sent ``in_backward``; empty: all of it.
    """

    wait_steps: int = 0
    in_backward: bool = False
    encoded_bytes: int | None = None
    spans: Spans = ()


PLAIN = Details()
"""Details of a call that sends tensors as they are at the end of a step, and ends before the next step begins."""


class Ledger:
    """A record of the collective calls of a training, in order; the optimizer sets ``step`` at the start of each step.

    Attributes:
        records: the calls.
        readbacks: for each step, how many numbers a worker copied from its device to the host to decide if it sends.
    """

    def __init__(self) -> None:
        self.records: list[Call] = []
        self.readbacks: Counter[int] = Counter()
        self.step = 0
        self._paused = False

    def append(self, call: Call) -> None:
        """Add a call to the end of the ledger, unless the ledger is paused."""
        if not self._paused:
            self.records.append(call)

    def record_readback(self, numbers: int) -> None:
        """Record that ``numbers`` numbers are read back from the device in the current step."""
        if not self._paused:
            self.readbacks[self.step] += numbers

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context in which the ledger records nothing, because measurements are not traffic of a training."""
        was_paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = was_paused

    def payload_bytes(self) -> int:
        """Return the bytes that one worker has handed to all collectives together."""
        return int(sum(call.payload_bytes for call in self.records))

    def __len__(self) -> int:
        return len(self.records)


PerWorker = Shaped[Tensor, "R *s"]
"""One tensor of each local worker."""

PerPeer = Shaped[Tensor, "R M *s"]
"""Blocks of each local worker, one for (or from) each worker of the group."""

Scalars = Shaped[Tensor, " R"]
"""One number of each local worker."""

ReduceOp = Literal["mean", "sum", "max"]
REDUCE_OPS = ("mean", "sum", "max")


class Handle:
    """A collective that was started and may still be in progress."""

    def __init__(self, finish: Callable[[], list[Tensor]]) -> None:
        self._finish: Callable[[], list[Tensor]] | None = finish
        self._result: list[Tensor] = []

    def wait(self) -> list[Tensor]:
        """Block until the result is available and return it; a second call returns the same tensors."""
        if self._finish is not None:
            self._result, self._finish = self._finish(), None
        return self._result


class Communicator:
    """A group of ``M`` workers that exchange tensors; this process runs some of them, the local workers.

    Every collective checks its arguments and notes one call in ``ledger``; subclasses define how values travel. All
    collectives take ``wire``, the format in which values travel; ``label``, which describes the payload for human
    readers; and ``details``, which the communicator cannot know, for the simulation of times.

    Attributes:
        ledger: the calls of all collectives so far.
        world_size: M, number of workers in the group.
        local_workers: number of the worker to which each of the R rows of this process's tensors belongs.
        replicas: number of independent repetitions of the group along the worker axis (1 in processes).
    """

    ledger: Ledger
    world_size: int
    local_workers: Sequence[int]
    replicas: int = 1

    def all_reduce(
        self, x: PerWorker, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Return the mean, sum or maximum over the group, on every worker; the result may be a read-only view.

        A format that is not exact rounds each worker's tensor ``x_m`` and the result:
        ``decode(encode(op_m decode(encode(x_m))))``, with the reduction ``op`` over workers ``m`` in the tensor's own
        type. Integers are added exactly, in any order, and stay in their type; a mean of integers is refused.
        """
        return self.all_reduce_coalesced([x], op, wire, label, details)[0]

    def all_reduce_coalesced(
        self, xs: Sequence[Tensor], op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "",
        details: Details = PLAIN,
    ) -> list[Tensor]:  # fmt: skip
        """Return the reductions of several tensors ``(R, *s)`` in one call, so that they pay the latency once."""
        check_op(op, xs)
        self._record_call("all_reduce", xs, wire, label, details, op)
        return self._reduce(xs, op, wire)

    def record_mean(self, xs: Sequence[Tensor], wire: WireFormat, label: str, details: Details) -> None:
        """Record an all-reduce that is not run, because the tensors ``xs`` already hold its mean."""
        self._record_call("all_reduce", xs, wire, label, details, "mean")

    def start_all_reduce(
        self, xs: Sequence[Tensor], op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "",
        details: Details = PLAIN,
    ) -> Handle:  # fmt: skip
        """Start ``all_reduce_coalesced`` and return at once; the tensors must not change before ``wait``."""
        check_op(op, xs)
        self._record_call("all_reduce", xs, wire, label, details, op)
        return Handle(self._start_reduce(xs, op, wire))

    def all_reduce_max(self, flag: Scalars, label: str = "", details: Details = PLAIN) -> Scalars:
        """Return the maximum over all workers of one number per worker, ``(R,)``, for a decision that all share."""
        return self.all_reduce(flag, op="max", label=label, details=details)

    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        """Return every worker's tensor, on every worker; the result may be a read-only view."""
        self._record_call("all_gather", [x], wire, label, details)
        return self._all_gather(x, wire)

    def start_all_gather(
        self, x: Tensor, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> Handle:
        """Start ``all_gather`` and return its handle at once; ``handle.wait()`` returns a list with one tensor."""
        self._record_call("all_gather", [x], wire, label, details)
        finish = self._start_all_gather(x, wire)
        return Handle(lambda: [finish()])

    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        """Return every worker's tensor, on the root; the other workers' rows hold zeros and must not be read."""
        check_root(root, self.world_size)
        self._record_call("gather", [x], wire, label, details)
        return self._gather_to_root(x, root, wire)

    def reduce(
        self, x: PerWorker, op: ReduceOp = "mean", root: int = 0, wire: WireFormat = DENSE, label: str = "",
        details: Details = PLAIN,
    ) -> PerWorker:  # fmt: skip
        """Return the reduction of all workers' tensors, on the root; the other workers' rows must not be read.

        Every worker sends its tensor to the root, as to a parameter server.
        """
        check_op(op, [x])
        check_root(root, self.world_size)
        self._record_call("reduce", [x], wire, label, details)
        return reduce_along(self._gather_to_root(x, root, wire), dim=1, op=op).squeeze(1)

    def send(
        self, x: PerWorker, source: int, target: int, wire: WireFormat = DENSE, label: str = "",
        details: Details = PLAIN,
    ) -> PerWorker:  # fmt: skip
        """Return the tensor of worker ``source``, on worker ``target``; other workers' rows must not be read."""
        check_root(source, self.world_size, "source")
        check_root(target, self.world_size, "target")
        if source == target:
            raise SpecError("target", target, "a worker other than the source")
        self._check_arguments([x], wire, details)
        self._append_call("send", [x], wire, group=(source, target), label=label, details=details)
        return self._send(x, source, target, wire)

    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        """Exchange blocks between all workers: return the blocks so that worker i's block j is worker j's block i."""
        self._record_call("all_to_all", [x], wire, label, details)
        return self._all_to_all(x, wire)

    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Return, on worker j, the reduction of block j over all workers; each worker has M blocks."""
        check_op(op, [x])
        self._record_call("reduce_scatter", [x], wire, label, details)
        return self._reduce_scatter(x, op, wire)

    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Return the root's tensor, on every worker; the result may be a read-only view."""
        check_root(root, self.world_size)
        self._record_call("broadcast", [x], wire, label, details)
        return self._broadcast_from(x, root, wire)

    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        """Return the means of tensors over blocks of ``size`` neighbouring workers; each worker gets its block's mean.

        Each block runs its own all-reduce; all blocks run at once. With one worker per block, nothing is sent.
        """
        check_blocks(size, self.world_size)
        self._record_subgroup_calls("all_reduce", xs, wire, subgroup=range(size), label=label, details=details)
        return self._block_means(xs, size, wire) if size > 1 else list(xs)

    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        """Gather one tensor from each block of ``size`` neighbours, from the worker at the receiver's position.

        Each position runs its own all-gather; all positions run at once. With one block, nothing is sent.

        Returns:
            For each local worker, the tensors of the M / size blocks, ``(R, M / size, *s)``.
        """
        check_blocks(size, self.world_size)
        return self._all_gather_in_subgroups(x, range(0, self.world_size, size), label, details)

    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        """Gather the tensors of each block of ``size`` neighbouring workers on all its workers, ``(R, size, *s)``."""
        check_blocks(size, self.world_size)
        return self._all_gather_in_subgroups(x, range(size), label, details)

    def _all_gather_in_subgroups(self, x: Tensor, subgroup: range, label: str, details: Details) -> Tensor:
        """Run and record all-gathers in subgroups as `_record_subgroup_calls`; return ``(R, len(subgroup), *s)``."""
        self._record_subgroup_calls("all_gather", [x], wire=DENSE, subgroup=subgroup, label=label, details=details)
        return self._gather_in_subgroups(x, subgroup) if len(subgroup) > 1 else x.unsqueeze(1)

    def _record_call(
        self, collective: str, xs: Sequence[Tensor], wire: WireFormat, label: str, details: Details,
        op: ReduceOp | None = None,
    ) -> None:  # fmt: skip
        """Check the arguments of a collective of all workers, and record it in the ledger."""
        self._check_arguments(xs, wire, details)
        self._append_call(collective, xs, wire, group=self._participants(collective, op), label=label, details=details)

    def _record_subgroup_calls(
        self, collective: str, xs: Sequence[Tensor], wire: WireFormat, subgroup: range, label: str, details: Details
    ) -> None:
        """Check and record a collective in worker 0's ``subgroup`` and in the subgroups of equal shape beside it.

        A subgroup of a single worker sends nothing.
        """
        self._check_arguments(xs, wire, details)
        if len(subgroup) == 1:
            return
        for group in groups_like(subgroup, self.world_size):
            self._append_call(collective, xs, wire, group, label, details)

    def _append_call(
        self, collective: str, xs: Sequence[Tensor], wire: WireFormat, group: Ranks, label: str, details: Details
    ) -> None:
        """Append a call to the ledger, with the bytes that each worker sends, and the fp32 bytes encoded into them."""
        encoded_bytes = details.encoded_bytes
        if encoded_bytes is None:  # the wire format alone encodes the payload
            encoded_bytes = 0 if wire.exact_dtype else fp32_bytes(*xs)
        payload_bytes = sum(wire.nbytes(elements_per_row(x), x.dtype) for x in xs)
        self.ledger.append(Call(
            self.ledger.step, collective, payload_bytes=payload_bytes, group=group, encoded_bytes=encoded_bytes,
            wait_steps=details.wait_steps, in_backward=details.in_backward, label=label, spans=details.spans,
        ))  # fmt: skip

    def _participants(self, collective: str, op: ReduceOp | None) -> Ranks:
        """Return the workers that take part in a collective in the current step: all, unless some are absent."""
        return range(self.world_size)

    def _check_arguments(self, xs: Sequence[Tensor], wire: WireFormat, details: Details) -> None:
        """Raise a SpecError for an argument of the wrong type, or a tensor without a row per local worker."""
        check_tensors(xs)
        # The common formats are checked first, because ``isinstance`` with a protocol is slow.
        if not isinstance(wire, Dense | Cast) and not isinstance(wire, WireFormat):
            raise SpecError("wire", wire, "a wire format, as those in syncline.comm")
        if not isinstance(details, Details):
            raise SpecError("details", details, "syncline.comm.Details")
        rows = len(self.local_workers)
        for x in xs:
            if x.dim() == 0 or x.shape[0] != rows:
                raise SpecError("worker axis", tuple(x.shape), f"{rows} rows, a row per local worker")

    # Each subclass defines how values travel; the methods above have checked and recorded the call.

    def _reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> list[Tensor]:
        """Return the reductions of several tensors over all workers, sent one by one."""
        raise NotImplementedError

    def _start_reduce(self, xs: Sequence[Tensor], op: ReduceOp, wire: WireFormat) -> Callable[[], list[Tensor]]:
        """Start reductions of tensors; return the function that waits for the results and returns them."""
        reduced = [x.clone() for x in self._reduce(xs, op, wire)]  # the tensors may change before the wait
        return lambda: reduced

    def _all_gather(self, x: Tensor, wire: WireFormat) -> Tensor:
        """Return all workers' tensors on every worker, ``(R, M, *s)``."""
        raise NotImplementedError

    def _start_all_gather(self, x: Tensor, wire: WireFormat) -> Callable[[], Tensor]:
        """Start an all-gather of a tensor; return the function that waits for the result and returns it."""
        gathered = self._all_gather(x, wire).clone()  # ``x`` may change before the wait
        return lambda: gathered

    def _gather_to_root(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        """Return all workers' tensors on the root and zeros on the others, ``(R, M, *s)``."""
        raise NotImplementedError

    def _send(self, x: Tensor, source: int, target: int, wire: WireFormat) -> Tensor:
        """Return the tensor of worker ``source`` in the row of worker ``target``, and zeros in the other rows."""
        raise NotImplementedError

    def _all_to_all(self, x: Tensor, wire: WireFormat) -> Tensor:
        """Return the blocks that the local workers receive in an all-to-all, ``(R, M, *s)``."""
        raise NotImplementedError

    def _reduce_scatter(self, x: Tensor, op: ReduceOp, wire: WireFormat) -> Tensor:
        """Return the reduction of each worker's block, ``(R, *s)``, from the blocks of all workers, ``(R, M, *s)``.

        An all-to-all and a local reduction send as many bytes as a ring.
        """
        return reduce_along(self._all_to_all(x, wire), dim=1, op=op).squeeze(1)

    def _broadcast_from(self, x: Tensor, root: int, wire: WireFormat) -> Tensor:
        """Return the tensor of worker ``root``, copied to every worker."""
        raise NotImplementedError

    def _block_means(self, xs: Sequence[Tensor], size: int, wire: WireFormat) -> list[Tensor]:
        """Return the means over blocks of ``size`` neighbouring workers."""
        raise NotImplementedError

    def _gather_in_subgroups(self, x: Tensor, subgroup: range) -> Tensor:
        """Return the tensors of all workers of each worker's subgroup, ``(R, len(subgroup), *s)``.

        ``subgroup`` has the workers of worker 0's subgroup: a block of neighbours, ``range(size)``, or the workers at
        one position of all blocks, ``range(0, M, size)``. The other subgroups have the same shape.
        """
        raise NotImplementedError


def elements_per_row(x: Tensor) -> int:
    """Return the number of elements of one worker's tensor in ``x (R, *s)``; 0 for a tensor without rows."""
    return x.numel() // x.size(0) if x.dim() and x.size(0) else 0


FP32_BYTES = 4


def fp32_bytes(*xs: Tensor) -> int:
    """Return the bytes in fp32 of one worker's tensors in ``xs``, the unit in which encoding costs are measured."""
    return FP32_BYTES * sum(elements_per_row(x) for x in xs)


def encoding_details(*xs: Tensor) -> Details:
    """Return the details of a call that sends encoded tensors ``xs``: the fp32 bytes that the encoder reads."""
    return Details(encoded_bytes=fp32_bytes(*xs))


def check_count(field: str, value: int) -> None:
    """Raise a SpecError, which names the field, unless the value is a whole number of at least 1."""
    if not is_whole(value) or value < 1:
        raise SpecError(field, value, "an integer >= 1")


def check_tensors(xs: Sequence[Tensor]) -> None:
    """Raise a SpecError unless ``xs`` is a list or tuple of tensors."""
    if not isinstance(xs, list | tuple) or not all(isinstance(x, Tensor) for x in xs):
        raise SpecError("tensors", xs, "tensors with the workers in the first dimension")


def check_blocks(size: int, workers: int) -> None:
    """Raise a SpecError, about the field ``per_node``, if a block size does not divide the number of workers."""
    if not is_whole(size) or not 1 <= size <= workers or workers % size:
        raise SpecError("per_node", size, f"a divisor of the number of workers ({workers})")


def check_op(op: ReduceOp, xs: Sequence[Tensor]) -> None:
    """Raise a SpecError for an unknown reduction, or for a mean of integers, which need not be an integer."""
    check_tensors(xs)
    if not isinstance(op, str) or op not in REDUCE_OPS:
        raise SpecError("op", op, f"one of {', '.join(REDUCE_OPS)}")
    for x in xs:
        if op == "mean" and not (x.is_floating_point() or x.is_complex()):
            raise SpecError("op", op, f"sum for integers ({x.dtype}); divide the result")


def check_root(root: int, workers: int, field: str = "root") -> None:
    """Raise a SpecError, which names ``field``, if the group has no worker of number ``root``."""
    if not is_whole(root) or not 0 <= root < workers:
        raise SpecError(field, root, f"a worker from 0 to {workers - 1}")


def reduce_along(x: Tensor, dim: int, op: ReduceOp) -> Tensor:
    """Return the mean, sum or maximum of ``x`` along ``dim``, which becomes 1 long; integers stay in their type."""
    if x.shape[dim] == 1:  # a single row is its mean, sum and maximum
        return x
    if op == "mean":
        return x.mean(dim, keepdim=True)
    if op == "sum":
        return x.sum(dim, keepdim=True, dtype=x.dtype)
    return x.amax(dim, keepdim=True)


def flatten_rows(x: Tensor) -> Tensor:
    """Return a tensor ``(R, *s)`` as ``(R, n)``, with n elements per row; a scalar per row becomes one element."""
    return x.reshape(x.shape[0], -1)


def first_row_per_replica(x: Tensor, comm: Communicator) -> Tensor:
    """Return the row of the first worker of each of S replicas: ``(S, *s)`` for a tensor ``(R, *s)`` of all workers."""
    return x.unflatten(0, (comm.replicas, -1))[:, 0]


def repeat_for_workers(x: Tensor, num_rows: int) -> Tensor:
    """Return a tensor ``(S, *s)`` of S replicas repeated for their workers, ``(R, *s)``; it may be a read-only view."""
    replicas, workers = len(x), num_rows // len(x)
    return x.unsqueeze(1).expand(replicas, workers, *x.shape[1:]).flatten(0, 1)
