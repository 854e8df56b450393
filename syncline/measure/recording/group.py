"""A process group that records each call and forwards the data to gloo, so that values are exact."""

# Torch declares several overloads of each method; Python calls the methods below.
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

from syncline.measure.recording.operations import tensor_bytes
from syncline.measure.recording.record import MessageAwaited, MessageSent, Started, Waited
from syncline.measure.recording.recorder import RECORDER, Refusal, script_line

BACKEND_NAME = "syncline"
"""The name of the backend."""


class TracedWork(dist.Work):
    """A collective or message in progress, which records each wait for it.

    Args:
        gloo_work: the call in progress that carries the values.
        call: the number of the call in the record.
    """

    def __init__(self, gloo_work: Any, call: int) -> None:
        super().__init__()
        self.gloo_work, self.call = gloo_work, call

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the values have arrived, and record the wait."""
        with RECORDER.silence():
            self.gloo_work.wait()
        RECORDER.record_event(Waited(self.call, RECORDER.stream))
        return True

    def synchronize(self) -> None:
        """Wait until the values have arrived, as `wait` does."""
        self.wait()

    def block_current_stream(self) -> None:
        """Wait as `wait` does, and record a wait of the current stream, although here the host waits too."""
        self.wait()

    def is_completed(self) -> bool:
        """Refuse the question, because the answer would depend on the time of the recording."""
        raise Refusal("is_completed() asks when; a record cannot know that. Use wait()")

    def is_success(self) -> bool:
        """Return True, because the call has not failed."""
        return True

    def exception(self) -> None:
        """Return None, because the call has not failed."""

    def result(self) -> Any:
        """Return the result of the call that gloo carried out."""
        return self.gloo_work.result()

    def get_future(self) -> Any:
        """Return gloo's future, and record a wait, because the caller is assumed to wait for it."""
        RECORDER.record_wait_in_cpp(self.call)
        return self.gloo_work.get_future()


def as_list(tensors: Any) -> list[Tensor]:
    """Return a list of tensors, with one element for a single tensor."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def options_for_gloo(opts: Any) -> tuple[AllreduceOptions, bool]:
    """Return gloo's options for a reduction, and whether the caller must divide the sum, because gloo has no mean."""
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    is_mean = op == dist.ReduceOp.AVG
    options = AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM if is_mean else op
    return options, is_mean


class TracedGroup(dist.ProcessGroup):
    """A process group that records calls and forwards them to a process group of gloo.

    Args:
        gloo_group: the process group that carries the values.
        rank: the rank of this process in the group.
        ranks: the global ranks of the group.
        name: the name of the group, the same on all its ranks.
    """

    def __init__(self, gloo_group: Any, rank: int, ranks: tuple[int, ...], name: str) -> None:
        super().__init__(rank, len(ranks))
        self.gloo_group, self.own_rank, self.ranks, self.key = gloo_group, rank, ranks, name
        self._torch_name: str | None = None

    def getBackendName(self) -> str:
        """Return the name under which the backend is registered, which also describes the group."""
        return BACKEND_NAME

    def _set_group_name(self, name: str) -> None:
        self._torch_name = name

    setGroupName = _set_group_name

    def getGroupName(self) -> str:
        """Return torch's name of the group, or the group's key if torch has set none."""
        return self._torch_name or self.key

    group_name = property(getGroupName)
    group_desc = property(getBackendName)
    getGroupDesc = getBackendName

    def _set_group_desc(self, text: str) -> None:
        """Ignore the description that torch sets."""

    def size(self) -> int:
        """Return the number of ranks in the group."""
        return len(self.ranks)

    def rank(self) -> int:
        """Return the rank of this process in the group."""
        return self.own_rank

    def _collective(self, kind: str, nbytes: int, run: Callable[[], Any], script_kind: str = "") -> TracedWork:
        """Record a collective, start it with gloo without recording what gloo does, and return the call in progress.

        Args:
            kind: the collective by which a replay times the call.
            nbytes: bytes as `syncline.costmodel.Call` counts them for the kind.
            script_kind: the collective that the script asks for, if it is not ``kind``.
        """
        call, number_in_group = RECORDER.new_call(), RECORDER.next_number(self.key)
        started = Started(
            call, kind, asked=script_kind or kind, payload_bytes=nbytes, ranks=self.ranks,
            key=(self.key, number_in_group), site=script_line(), stream=RECORDER.stream,
        )  # fmt: skip
        RECORDER.record_event(started)
        with RECORDER.silence():
            return TracedWork(run(), call)

    def allreduce(self, tensors: Any, opts: Any = None) -> TracedWork:
        """All-reduce tensors with gloo; a mean, which gloo lacks, is a sum and a division."""
        inputs = as_list(tensors)
        options, is_mean = options_for_gloo(opts)

        def run() -> Any:
            work = self.gloo_group.allreduce(inputs, options)
            if is_mean:
                work.wait()
                for x in inputs:
                    x.div_(len(self.ranks))
            return work

        return self._collective("all_reduce", tensor_bytes(inputs), run)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Any, opts: Any) -> TracedWork:
        """Broadcast tensors with gloo, and record the call."""
        inputs = as_list(tensors)
        return self._collective("broadcast", tensor_bytes(inputs), lambda: self.gloo_group.broadcast(inputs, opts))

    def reduce(self, tensors: Any, opts: Any) -> TracedWork:
        """Reduce tensors with gloo, and record the call."""
        inputs = as_list(tensors)
        return self._collective("reduce", tensor_bytes(inputs), lambda: self.gloo_group.reduce(inputs, opts))

    def allgather(self, outs: Any, inputs: Any, opts: Any = None) -> TracedWork:
        """All-gather one tensor of each rank into the list ``outs[0]`` with gloo.

        If the tensors have different shapes, which only NCCL allows, each rank broadcasts its own.
        """

        def run() -> Any:
            parts: Sequence[Tensor] = outs[0]  # torch passes a list for each local tensor, of which there is one
            if len({part.shape for part in parts}) == 1:
                return self.gloo_group.allgather(outs, inputs, opts or AllgatherOptions())
            work = None
            for root, part in enumerate(parts):
                if root == self.own_rank:
                    part.copy_(inputs[0])
                options = BroadcastOptions()
                options.rootRank = root
                work = self.gloo_group.broadcast([part], options)
                work.wait()
            return work

        return self._collective("all_gather", tensor_bytes(inputs), run)

    def all_gather_single(self, out: Tensor, tensor: Tensor, opts: Any = None) -> TracedWork:
        """All-gather one tensor of each rank into one output tensor with gloo."""
        outs = [list(torch.chunk(out.view(-1), len(self.ranks)))]  # gloo takes a list of outputs for each local tensor
        return self._collective(
            "all_gather", tensor_bytes([tensor]),
            run=lambda: self.gloo_group.allgather(outs, [tensor.reshape(-1)], AllgatherOptions()),
        )  # fmt: skip

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outs: Any, inputs: Any, opts: Any = None) -> TracedWork:
        """All-gather several tensors, each in a recorded call of its own."""
        # Gloo carries out the calls in order, so that a wait for the last one is a wait for all.
        return [self.all_gather_single(out, tensor) for out, tensor in zip(outs, inputs, strict=True)][-1]

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outs: Any, inputs: Any, opts: Any) -> TracedWork:
        """Gather tensors at one rank with gloo."""
        return self._collective("gather", tensor_bytes(inputs), lambda: self.gloo_group.gather(outs, inputs, opts))

    def scatter(self, outs: Any, inputs: Any, opts: Any) -> TracedWork:
        """Scatter tensors from one rank with gloo, and record a gather, which has the same cost in reverse."""
        return self._collective(
            "gather", tensor_bytes(outs), run=lambda: self.gloo_group.scatter(outs, inputs, opts), script_kind="scatter"
        )

    def reduce_scatter_single(self, out: Tensor, tensor: Tensor, opts: Any = None) -> TracedWork:
        """Reduce-scatter one tensor, which gloo lacks, by an all-reduce of a copy."""
        options, is_mean = options_for_gloo(opts)

        def run() -> Any:
            copy = tensor.contiguous().clone()
            work = self.gloo_group.allreduce([copy], options)
            work.wait()
            part = torch.chunk(copy.view(-1), len(self.ranks))[self.own_rank]
            with torch.no_grad():
                out.detach().view(-1).copy_(part / len(self.ranks) if is_mean else part)
            return work

        return self._collective("reduce_scatter", tensor_bytes([tensor]), run)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outs: Any, inputs: Any, opts: Any = None) -> TracedWork:
        """Reduce-scatter the list ``inputs[0]``, a tensor for each rank, into this rank's tensor ``outs[0]``."""
        return self.reduce_scatter_single(outs[0], torch.cat([x.reshape(-1) for x in inputs[0]]), opts)

    def reduce_scatter_single_coalesced(self, outs: Any, inputs: Any, opts: Any = None) -> TracedWork:
        """Reduce-scatter several tensors, each in a recorded call of its own."""
        # Each call has waited for its values, so that any of them stands for all.
        return [self.reduce_scatter_single(out, tensor, opts) for out, tensor in zip(outs, inputs, strict=True)][-1]

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(
        self, out: Tensor, tensor: Tensor, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> TracedWork:
        """Exchange blocks of one tensor between all ranks with gloo; the bytes are those sent, or received if more."""
        return self._collective(
            "all_to_all",
            max(tensor_bytes([tensor]), tensor_bytes([out])),
            lambda: self.gloo_group.alltoall_base(out, tensor, output_splits, input_splits, AllToAllOptions()),
        )

    alltoall_base = all_to_all_single

    def alltoall(self, outs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> TracedWork:
        """Exchange a tensor for each rank, which gloo lacks, as the blocks of one tensor."""

        def run() -> Any:
            sent = torch.cat([x.reshape(-1) for x in inputs])
            received_sizes = [x.numel() for x in outs]
            received = sent.new_empty(sum(received_sizes))
            sent_sizes = [x.numel() for x in inputs]
            work = self.gloo_group.alltoall_base(received, sent, received_sizes, sent_sizes, AllToAllOptions())
            work.wait()
            with torch.no_grad():
                for out, part in zip(outs, received.split(received_sizes), strict=True):
                    out.copy_(part.view_as(out))
            return work

        return self._collective("all_to_all", max(tensor_bytes(inputs), tensor_bytes(outs)), run)

    def barrier(self, opts: Any = None) -> TracedWork:
        """Wait for all ranks by an all-reduce of one number, a float32 of 4 bytes."""
        return self._collective(
            "all_reduce", nbytes=4, script_kind="barrier",
            run=lambda: self.gloo_group.allreduce([torch.zeros(1)], AllreduceOptions()),
        )  # fmt: skip

    def send(self, tensors: Any, to: int, tag: int = 0) -> TracedWork:
        """Send tensors to the rank ``to`` of the group with gloo; ``tag`` is gloo's number of the message."""
        inputs, call = as_list(tensors), RECORDER.new_call()
        sent = MessageSent(
            call, to=self.ranks[to], payload_bytes=tensor_bytes(inputs), tag=self._next_message_tag(self.own_rank, to),
            site=script_line(), stream=RECORDER.stream,
        )  # fmt: skip
        RECORDER.record_event(sent)
        with RECORDER.silence():
            return TracedWork(self.gloo_group.send(inputs, to, tag), call)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> TracedWork:
        """Receive tensors from the rank ``source`` of the group with gloo; ``tag`` is gloo's number of the message."""
        outputs, call = as_list(tensors), RECORDER.new_call()
        awaited = MessageAwaited(
            call, source=self.ranks[source], tag=self._next_message_tag(source, self.own_rank), site=script_line(),
            stream=RECORDER.stream,
        )  # fmt: skip
        RECORDER.record_event(awaited)
        with RECORDER.silence():
            return TracedWork(self.gloo_group.recv(outputs, source, tag), call)

    def _next_message_tag(self, source: int, to: int) -> tuple[str, int, int, int]:
        """Return group, sender, receiver (global ranks) and number of the next message from ``source`` to ``to``."""
        sender, receiver = self.ranks[source], self.ranks[to]
        number = RECORDER.next_number((self.key, sender, receiver))
        return self.key, sender, receiver, number


def traced_group(options: Any, group_options: Any = None) -> TracedGroup:
    """Create the process group that torch asks the backend for when a script makes a group."""
    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))  # torch lists no ranks if all join
    gloo_group = ProcessGroupGloo(options.store, options.group_rank, options.group_size, timedelta(minutes=10))
    return TracedGroup(gloo_group, options.group_rank, ranks, name=RECORDER.group_name(options.group_id))
