"""What a communicator is.

Every tensor that differs between workers has a leading *worker axis* of length ``R``, the rows that live in this
process; axis names in the annotations: ``R`` rows, ``M`` workers in the group. Methods are written against this
protocol alone, and so run unchanged in the simulator, on real processes and on shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Shaped
from torch import Tensor

from syncline.comm.ledger import PLAIN, Details, Ledger
from syncline.comm.wire import DENSE, Cast, Dense, WireFormat
from syncline.costmodel.traffic.call import Call, Ranks, parts_like
from syncline.errors import SpecError
from syncline.units import is_whole

PerWorker = Shaped[Tensor, "R *s"]
"""A tensor of each local worker."""

PerPeer = Shaped[Tensor, "R M *s"]
"""A block of each local worker for, or from, each worker of the group."""

Scalars = Shaped[Tensor, " R"]
"""A number of each local worker."""

ReduceOp = Literal["mean", "sum", "max"]
REDUCE_OPS = ("mean", "sum", "max")


class Handle:
    """A collective that was started and may still be under way."""

    def __init__(self, finish: Callable[[], list[Tensor]]) -> None:
        self._finish: Callable[[], list[Tensor]] | None = finish
        self._result: list[Tensor] = []

    def wait(self) -> list[Tensor]:
        """Block until the result is there; a second call returns the same tensors."""
        if self._finish is not None:
            self._result, self._finish = self._finish(), None
        return self._result


@runtime_checkable
class Communicator(Protocol):
    """A group of ``M`` workers, of which the rows of this process's tensors are some.

    Every collective notes one call in ``ledger``. ``label`` says what was sent, for people who read it; ``details`` is
    what the communicator cannot know, and a clock must.
    """

    ledger: Ledger

    @property
    def world_size(self) -> int:
        """M: workers in the group."""
        ...

    @property
    def local_workers(self) -> Sequence[int]:
        """Which worker each row is; ``len(local_workers) == R``."""
        ...

    @property
    def replicas(self) -> int:
        """Independent repetitions of the group that live side by side along the worker axis (1 in processes)."""
        ...

    def all_reduce(
        self, x: PerWorker, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """The mean, sum or maximum over the group, on every worker. May be a read-only view.

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
        """Several tensors reduced in one call: one latency."""
        ...

    def all_gather(self, x: PerWorker, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        """Every worker's tensor, on every worker. May be a read-only view."""
        ...

    def gather(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerPeer:
        """Every worker's tensor, on the root. The other workers' rows hold zeros and are not meant to be read."""
        ...

    def all_to_all(self, x: PerPeer, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN) -> PerPeer:
        """Worker i's block j becomes worker j's block i."""
        ...

    def reduce_scatter(
        self, x: PerPeer, op: ReduceOp = "mean", wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """Worker j gets the reduction over workers of their blocks j."""
        ...

    def broadcast(
        self, x: PerWorker, root: int = 0, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> PerWorker:
        """The root's tensor, on every worker. May be a read-only view."""
        ...

    def mean_within(
        self, xs: Sequence[Tensor], size: int, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> list[Tensor]:
        """Means over blocks of ``size`` neighbours, each block by an all-reduce of its own, all at once.

        With one worker per block, nothing is sent.
        """
        ...

    def all_gather_across(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        """What those have that are in the same place of each block of ``size`` neighbours, ``(R, M/size, *s)``.

        Each place by an all-gather of its own, all at once; with one block, nothing is sent.
        """
        ...

    def all_gather_within(self, x: Tensor, size: int, label: str = "", details: Details = PLAIN) -> Tensor:
        """What each block of ``size`` neighbours has, on all of them, ``(R, size, *s)``; all blocks at once."""
        ...

    def all_reduce_max(self, flag: Scalars, label: str = "", details: Details = PLAIN) -> Scalars:
        """The largest of one scalar per worker: a trigger that all must agree on."""
        return self.all_reduce(flag, op="max", label=label, details=details)

    def start_all_reduce(
        self,
        xs: Sequence[Tensor],
        op: ReduceOp = "mean",
        wire: WireFormat = DENSE,
        label: str = "",
        details: Details = PLAIN,
    ) -> Handle:
        """``all_reduce_coalesced`` that returns at once; the tensors must not change before ``wait``."""
        done = [x.clone() for x in self.all_reduce_coalesced(xs, op, wire, label, details)]  # of what they hold now
        return Handle(lambda: done)

    def start_all_gather(
        self, x: Tensor, wire: WireFormat = DENSE, label: str = "", details: Details = PLAIN
    ) -> Handle:
        """``all_gather`` that returns at once; its ``wait`` gives a list of one tensor."""
        done = self.all_gather(x, wire, label, details).clone()
        return Handle(lambda: [done])


def elements_per_row(x: Tensor) -> int:
    """How many numbers one worker holds of ``x``."""
    return x.numel() // x.size(0) if x.dim() and x.size(0) else 0


FP32_BYTES = 4


def fp32_bytes(*xs: Tensor) -> int:
    """Bytes that one worker's numbers take in fp32, the unit in which encoding is counted, whatever their type."""
    return FP32_BYTES * sum(elements_per_row(x) for x in xs)


def encoded_from(*xs: Tensor) -> Details:
    """The details of a call whose payload was made of these: whoever encodes by itself says of how much."""
    return Details(encoded_bytes=fp32_bytes(*xs))


def note(
    ledger: Ledger, collective: str, xs: Sequence[Tensor], wire: WireFormat, group: Ranks, label: str, details: Details
) -> None:
    """Note what one worker hands to a collective: its bytes, and those that were encoded to get there.

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
        )
    )


def note_parts(
    ledger: Ledger, collective: str, xs: Sequence[Tensor], wire: WireFormat, part: range, workers: int, label: str,
    details: Details,
) -> None:  # fmt: skip
    """Note the collectives of all parts that are like one, if it has more than one worker."""
    check_call(xs, wire, details)
    for each in parts_like(part, workers) if len(part) > 1 else ():
        note(ledger, collective, xs, wire, each, label, details)


def check_count(field: str, value: int) -> None:
    """Refuse what is no number of workers."""
    if not is_whole(value) or value < 1:
        raise SpecError(field, value, "an integer >= 1")


def check_tensors(xs: Sequence[Tensor]) -> None:
    """Refuse what is no list of tensors."""
    if not isinstance(xs, list | tuple) or not all(isinstance(x, Tensor) for x in xs):
        raise SpecError("tensors", xs, "tensors with the workers in the first dimension")


def check_call(xs: Sequence[Tensor], wire: WireFormat, details: Details) -> None:
    """Refuse arguments of a collective that are of another kind than it takes."""
    check_tensors(xs)
    if not isinstance(wire, Dense | Cast) and not isinstance(wire, WireFormat):
        raise SpecError("wire", wire, "a wire format, as those in syncline.comm")
    if not isinstance(details, Details):
        raise SpecError("details", details, "syncline.comm.Details")


def check_blocks(size: int, workers: int) -> None:
    """Refuse blocks that do not make up the group."""
    if not is_whole(size) or not 1 <= size <= workers or workers % size:
        raise SpecError("per_node", size, f"a divisor of the number of workers ({workers})")


def check_op(op: ReduceOp, xs: Sequence[Tensor]) -> None:
    """Refuse another reduction than those there are, and the mean of integers, which need not be one."""
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
    """``x`` reduced along ``dim``, which stays as a dimension of length 1; integers stay in their type."""
    check_op(op, [x])
    if x.shape[dim] == 1:  # its own mean, sum and maximum
        return x
    if op == "mean":
        return x.mean(dim, keepdim=True)
    if op == "sum":
        return x.sum(dim, keepdim=True, dtype=x.dtype)
    return x.amax(dim, keepdim=True)


def flat(x: Tensor) -> Tensor:
    """``(R, *s)`` as ``(R, n)``; a scalar per row is one number."""
    return x.reshape(x.shape[0], -1)


def once(x: Tensor, comm: Communicator) -> Tensor:
    """Of each replica its first row, ``(R, *s) -> (S, *s)``: what all received alike need not be decoded by all."""
    return x.unflatten(0, (comm.replicas, -1))[:, 0]


def for_all(x: Tensor, rows: int) -> Tensor:
    """``(S, *s)`` to all R rows; may be a read-only view."""
    return x.unsqueeze(1).expand(len(x), rows // len(x), *x.shape[1:]).flatten(0, 1)
