"""A process group that notes each call and passes the data on to gloo, so that values are exact."""

# torch declares each method several times over, by the shapes of its arguments; Python calls the ones below.
# mypy: disable-error-code="override,assignment,call-arg"

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BroadcastOptions,
    ProcessGroupGloo,
)

from syncline.measure.recording.record import MessageAwaited, MessageSent, Started, Waited
from syncline.measure.recording.recorder import RECORDER, Refusal, site

NAME = "syncline"
"""Of the backend."""


class TracedWork(dist.Work):
    """A call under way, whose waits are noted."""

    def __init__(self, inner: Any, call: int) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def wait(self, timeout: Any = None) -> bool:
        """Until the values are there."""
        with RECORDER.silence():
            self.inner.wait()
        RECORDER.note(Waited(self.call, RECORDER.stream))
        return True

    def synchronize(self) -> None:
        """The same."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same: nothing but the stream waits, where streams are told apart."""
        self.wait()

    def is_completed(self) -> bool:
        """Refused: an answer would depend on the time that the recording took."""
        raise Refusal("is_completed() asks when; a record cannot know that. Use wait()")

    def is_success(self) -> bool:
        """Nothing failed so far."""
        return True

    def exception(self) -> None:
        """None."""

    def result(self) -> Any:
        """What gloo has."""
        return self.inner.result()

    def get_future(self) -> Any:
        """Gloo's; whoever asked is taken to wait for it."""
        RECORDER.wait_unseen(self.call)
        return self.inner.get_future()


def size_of(tensors: Sequence[Tensor]) -> int:
    """Bytes."""
    return sum(x.numel() * x.element_size() for x in tensors)


def listed(tensors: Any) -> list[Tensor]:
    """A list, also of one."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


class TracedGroup(dist.ProcessGroup):
    """A process group over gloo's.

    Args:
        inner: gloo's.
        rank: in the group.
        ranks: global ranks of the group.
        name: of the group, the same on all its ranks.
    """

    def __init__(self, inner: Any, rank: int, ranks: tuple[int, ...], name: str) -> None:
        super().__init__(rank, len(ranks))
        self.inner, self.own, self.ranks, self.key = inner, rank, ranks, name
        self._name: str | None = None

    def getBackendName(self) -> str:
        """As it was registered."""
        return NAME

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self) -> str:
        """Torch's own name of it."""
        return self._name or self.key

    group_name = property(getGroupName)
    group_desc = property(lambda self: NAME)

    def _set_group_desc(self, text: str) -> None:
        pass

    def getGroupDesc(self) -> str:
        """The backend's name."""
        return NAME

    def size(self) -> int:
        """Its ranks."""
        return len(self.ranks)

    def rank(self) -> int:
        """One's own."""
        return self.own

    def _collective(self, kind: str, nbytes: int, run: Callable[[], Any], asked: str = "") -> TracedWork:
        call = RECORDER.new_call()
        key = self.key, RECORDER.number(self.key)
        RECORDER.note(Started(call, kind, asked or kind, nbytes, self.ranks, key, site(), RECORDER.stream))
        with RECORDER.silence():
            return TracedWork(run(), call)

    def allreduce(self, tensors: Any, opts: Any = None) -> TracedWork:
        """Also means, which gloo does not have."""
        given, how = listed(tensors), AllreduceOptions()
        op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        how.reduceOp = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op

        def run() -> Any:
            work = self.inner.allreduce(given, how)
            if op == dist.ReduceOp.AVG:
                work.wait()
                for x in given:
                    x.div_(len(self.ranks))
            return work

        return self._collective("all_reduce", size_of(given), run)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any) -> TracedWork:
        """As gloo's."""
        given = listed(tensors)
        return self._collective("broadcast", size_of(given), lambda: self.inner.broadcast(given, opts))

    def reduce(self, tensors: Any, opts: Any) -> TracedWork:
        """As gloo's; a broadcast backwards."""
        given = listed(tensors)
        return self._collective("broadcast", size_of(given), lambda: self.inner.reduce(given, opts), "reduce")

    def allgather(self, outs: Any, given: Any, opts: Any = None) -> TracedWork:
        """As gloo's; parts of several shapes, which NCCL takes, by a broadcast of each."""
        how = opts or AllgatherOptions()
        if len({part.shape for part in outs[0]}) > 1:
            return self._collective("all_gather", size_of(given), lambda: self._gathered_one_by_one(outs[0], given[0]))
        return self._collective("all_gather", size_of(given), lambda: self.inner.allgather(outs, given, how))

    def _gathered_one_by_one(self, parts: Sequence[Tensor], given: Tensor) -> Any:
        work = None
        for root, part in enumerate(parts):
            if root == self.own:
                part.copy_(given)
            how = BroadcastOptions()
            how.rootRank = root
            work = self.inner.broadcast([part], how)
            work.wait()
        return work

    def all_gather_single(self, out: Tensor, given: Tensor, opts: Any = None) -> TracedWork:
        """Into one tensor."""
        parts = list(torch.chunk(out.view(-1), len(self.ranks)))
        own = [given.reshape(-1)]
        return self._collective(
            "all_gather", size_of([given]), lambda: self.inner.allgather([parts], own, AllgatherOptions())
        )

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outs: Any, given: Any, opts: Any = None) -> TracedWork:
        """Several, one after another."""
        return [self.all_gather_single(out, one) for out, one in zip(outs, given, strict=True)][-1]

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outs: Any, given: Any, opts: Any) -> TracedWork:
        """As gloo's."""
        return self._collective("gather", size_of(given), lambda: self.inner.gather(outs, given, opts))

    def scatter(self, outs: Any, given: Any, opts: Any) -> TracedWork:
        """As gloo's; a gather backwards."""
        return self._collective("gather", size_of(outs), lambda: self.inner.scatter(outs, given, opts), "scatter")

    def reduce_scatter_single(self, out: Tensor, given: Tensor, opts: Any = None) -> TracedWork:
        """Which gloo does not have: by an all-reduce of a copy."""
        op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        how = AllreduceOptions()
        how.reduceOp = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op

        def run() -> Any:
            copy = given.contiguous().clone()
            work = self.inner.allreduce([copy], how)
            work.wait()
            part = torch.chunk(copy.view(-1), len(self.ranks))[self.own]
            with torch.no_grad():
                out.detach().view(-1).copy_(part / len(self.ranks) if op == dist.ReduceOp.AVG else part)
            return work

        return self._collective("reduce_scatter", size_of([given]), run)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outs: Any, given: Any, opts: Any = None) -> TracedWork:
        """Of lists."""
        return self.reduce_scatter_single(outs[0], torch.cat([x.reshape(-1) for x in given[0]]), opts)

    def reduce_scatter_single_coalesced(self, outs: Any, given: Any, opts: Any = None) -> TracedWork:
        """Several, one after another."""
        return [self.reduce_scatter_single(out, one, opts) for out, one in zip(outs, given, strict=True)][-1]

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(self, out: Tensor, given: Tensor, there: Any, here: Any, opts: Any = None) -> TracedWork:
        """As gloo's."""
        return self._collective(
            "all_to_all",
            size_of([given]),
            lambda: self.inner.alltoall_base(out, given, there, here, AllToAllOptions()),
        )

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> TracedWork:
        """A sum of one number."""
        return self._collective(
            "all_reduce", 4, lambda: self.inner.allreduce([torch.zeros(1)], AllreduceOptions()), "barrier"
        )

    def send(self, tensors: Any, to: int, tag: int = 0) -> TracedWork:
        """As gloo's."""
        given, call = listed(tensors), RECORDER.new_call()
        nbytes, key = size_of(given), self._tag(self.own, to)
        RECORDER.note(MessageSent(call, self.ranks[to], nbytes, key, site(), RECORDER.stream))
        with RECORDER.silence():
            return TracedWork(self.inner.send(given, to, tag), call)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> TracedWork:
        """As gloo's."""
        given, call = listed(tensors), RECORDER.new_call()
        RECORDER.note(MessageAwaited(call, self.ranks[source], self._tag(source, self.own), site(), RECORDER.stream))
        with RECORDER.silence():
            return TracedWork(self.inner.recv(given, source, tag), call)

    def _tag(self, source: int, to: int) -> tuple[str, int, int, int]:
        ends = self.ranks[source], self.ranks[to]
        return self.key, *ends, RECORDER.number((self.key, *ends))


def traced_group(options: Any, group_options: Any = None) -> TracedGroup:
    """What torch asks for when a script makes a group."""
    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    inner = ProcessGroupGloo(options.store, options.group_rank, options.group_size, timedelta(minutes=10))
    return TracedGroup(inner, options.group_rank, ranks, RECORDER.group_name(options.group_id))
