"""The protocol of communicators: the collectives that methods call.

Every tensor that differs between workers has a leading *worker axis* of length ``R``, the rows that live in this
process. The annotations name axes: ``R`` rows, ``M`` workers in the group. Methods call only this protocol, and so they
run unchanged in the simulator, on real processes and on shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Shaped
from torch import Tensor

from syncline.comm.ledger import PLAIN, Details, Ledger
from syncline.comm.wire import DENSE, Cast, Dense, WireFormat
from syncline.costmodel.traffic.call import Call, Ranks, groups_like
from syncline.errors import SpecError
from syncline.units import is_whole

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


@runtime_checkable
class Communicator(Protocol):
    """A group of ``M`` workers; the rows of this process's tensors are some of them.

    Every collective notes one call in ``ledger``. ``label`` says what was sent, for human readers. ``details`` holds
    what a clock needs and the communicator cannot know.
    """

    ledger: Ledger

    @property
    def world_size(self) -> int:
        """Return M, the number of workers in the group."""
        ...

    @property
    def local_workers(self) -> Sequence[int]:
        """Return the worker of each row; ``len(local_workers) == R``."""
        ...

    @property
    def replicas(self) -> int:
        """Return the number of independent repetitions of the group along the worker axis (1 in processes)."""
        ...

    def all_reduce(
        self, x: PerWorker, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Return the mean, sum or maximum over the group, on every worker; it may be a read-only view.

        A format that is not exact rounds what is sent and what comes back:
        ``decode(encode(op_m decode(encode(x_m))))``, with the reduction in the tensor's own type. Integers are added
        exactly, in any order, and stay in their type; their mean is refused.
        """
        return self.all_reduce_coalesced([x], op, wire, label, details)[0]

    def all_reduce_coalesced(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> list[Tensor]:
        """Reduce several tensors in one call, which costs one latency."""
        ...

    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        """Return every worker's tensor, on every worker; it may be a read-only view."""
        ...

    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        """Return every worker's tensor, on the root; the other workers' rows hold zeros and must not be read."""
        ...

    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        """Exchange blocks: worker i's block j becomes worker j's block i."""
        ...

    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Reduce the blocks j of all workers and give the result to worker j."""
        ...

    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Return the root's tensor, on every worker; it may be a read-only view."""
        ...

    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        """Return means over blocks of ``size`` neighbouring workers.

        Each block runs its own all-reduce; all blocks run at once. With one worker per block, nothing is sent.
        """
        ...

    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        """Gather from the workers at the same position of each block of ``size`` neighbours, ``(R, M/size, *s)``.

        Each position runs its own all-gather; all positions run at once. With one block, nothing is sent.
        """
        ...

    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        """Gather the tensors of each block of ``size`` neighbours on its workers, ``(R, size, *s)``, all at once."""
        ...

    def all_reduce_max(self, flag: Scalars, label: str = "", details: Details = PLAIN) -> Scalars:
        """Return the largest of one scalar per worker, for a trigger on which all workers must agree."""
        return self.all_reduce(flag, op="max", label=label, details=details)

    def start_all_reduce(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> Handle:
        """Start ``all_reduce_coalesced`` and return at once; the tensors must not change before ``wait``."""
        done = [
            x.clone() for x in self.all_reduce_coalesced(xs, op, wire, label, details)
        ]  # copies of the present values
        return Handle(lambda: done)

    def start_all_gather(
        self, x: Tensor, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> Handle:
        """Start ``all_gather`` and return at once; ``wait`` returns a list of one tensor."""
        done = self.all_gather(x, wire, label, details).clone()
        return Handle(lambda: [done])


def elements_per_row(x: Tensor) -> int:
    """Return the number of elements of ``x`` that one worker holds."""
    return x.numel() // x.size(0) if x.dim() and x.size(0) else 0


FP32_BYTES = 4


def fp32_bytes(*xs: Tensor) -> int:
    """Return the bytes of one worker's numbers in fp32, whatever their type; encoding is counted in this unit."""
    return FP32_BYTES * sum(elements_per_row(x) for x in xs)


def encoded_from(*xs: Tensor) -> Details:
    """Return the details of a call whose payload the method itself encoded from these tensors."""
    return Details(encoded_bytes=fp32_bytes(*xs))


def note(
    ledger: Ledger, collective: str, xs: Sequence[Tensor], wire: WireFormat, group: Ranks, label: str, details: Details
) -> None:
    """Note one worker's part of a collective in the ledger: its payload bytes and the bytes encoded to make them.

    Raises:
        SpecError: an argument of another kind than the collective takes.
    """
    check_call(xs, wire, details)
    nbytes = sum(wire.nbytes(elements_per_row(x), x.dtype) for x in xs)
    encoded_bytes = details.encoded_bytes
    if encoded_bytes is None:
        encoded_bytes = 0 if wire.exact_dtype else fp32_bytes(*xs)
    ledger.append(
        Call(
            ledger.step,
            collective,
            nbytes,
            group,
            encoded_bytes=encoded_bytes,
            wait_steps=details.wait_steps,
            in_backward=details.in_backward,
            label=label,
            spans=details.spans,
        )
    )


def note_parts(
    ledger: Ledger, collective: str, xs: Sequence[Tensor], wire: WireFormat, part: range, workers: int, label: str,
    details: Details,
) -> None:  # fmt: skip
    """Note the collectives of all parts that are like ``part``, unless a part has only one worker."""
    check_call(xs, wire, details)
    for group in groups_like(part, workers) if len(part) > 1 else ():
        note(ledger, collective, xs, wire, group, label, details)


def check_count(field: str, value: int) -> None:
    """Refuse a value that is no number of workers."""
    if not is_whole(value) or value < 1:
        raise SpecError(field, value, "an integer >= 1")


def check_tensors(xs: Sequence[Tensor]) -> None:
    """Refuse anything but a list or tuple of tensors."""
    if not isinstance(xs, list | tuple) or not all(isinstance(x, Tensor) for x in xs):
        raise SpecError("tensors", xs, "tensors with the workers in the first dimension")


def check_call(xs: Sequence[Tensor], wire: WireFormat, details: Details) -> None:
    """Refuse arguments of a collective that have the wrong type."""
    check_tensors(xs)
    if not isinstance(wire, Dense | Cast) and not isinstance(wire, WireFormat):
        raise SpecError("wire", wire, "a wire format, as those in syncline.comm")
    if not isinstance(details, Details):
        raise SpecError("details", details, "syncline.comm.Details")


def check_blocks(size: int, workers: int) -> None:
    """Refuse a block size that does not divide the number of workers."""
    if not is_whole(size) or not 1 <= size <= workers or workers % size:
        raise SpecError("per_node", size, f"a divisor of the number of workers ({workers})")


def check_op(op: ReduceOp, xs: Sequence[Tensor]) -> None:
    """Refuse an unknown reduction, and the mean of integers, which need not be an integer."""
    check_tensors(xs)
    if not isinstance(op, str) or op not in REDUCE_OPS:
        raise SpecError("op", op, f"one of {', '.join(REDUCE_OPS)}")
    for x in xs:
        if op == "mean" and not (x.is_floating_point() or x.is_complex()):
            raise SpecError("op", op, f"sum for integers ({x.dtype}); divide what comes back")


def check_root(root: int, workers: int) -> None:
    """Refuse a root that is not in the group."""
    if not is_whole(root) or not 0 <= root < workers:
        raise SpecError("root", root, f"a worker from 0 to {workers - 1}")


def reduce_rows(x: Tensor, dim: int, op: ReduceOp) -> Tensor:
    """Reduce ``x`` along ``dim``, which stays as a dimension of length 1; integers stay in their type."""
    check_op(op, [x])
    if x.shape[dim] == 1:  # a single row is its mean, sum and maximum
        return x
    if op == "mean":
        return x.mean(dim, keepdim=True)
    if op == "sum":
        return x.sum(dim, keepdim=True, dtype=x.dtype)
    return x.amax(dim, keepdim=True)


def flat(x: Tensor) -> Tensor:
    """Reshape ``(R, *s)`` to ``(R, n)``; a scalar per row becomes one number."""
    return x.reshape(x.shape[0], -1)


def first_rows(x: Tensor, comm: Communicator) -> Tensor:
    """Return the first row of each replica, ``(R, *s) -> (S, *s)``, to decode a common result once."""
    return x.unflatten(0, (comm.replicas, -1))[:, 0]


def for_all(x: Tensor, rows: int) -> Tensor:
    """Repeat ``(S, *s)`` for all R rows; the result may be a read-only view."""
    return x.unsqueeze(1).expand(len(x), rows // len(x), *x.shape[1:]).flatten(0, 1)
