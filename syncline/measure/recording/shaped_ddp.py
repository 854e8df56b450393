"""A stand-in for `DistributedDataParallel` on fake tensors, which sends the same messages.

The reducer of torch's DDP reads data in C++, so it cannot run on fake tensors. Gradients travel in buckets. In the
first step one bucket contains all gradients. Later buckets contain the gradients in the order in which they were ready
in the first step. A bucket leaves as soon as its last gradient is ready. The first bucket is full at 1 MiB and the
others at ``bucket_cap_mb``; if the script sets ``bucket_cap_mb``, it is the limit of all buckets. With
``find_unused_parameters`` the buckets are filled in the order of the parameters and leave in the reverse order, and
each backward pass ends with an all-reduce of a number for each parameter, whether it has a gradient. With
``static_graph`` only the first backward pass does so, and the second one gives the order of the gradients.

The first rank sends three things besides: the shapes of the parameters when the module is made, its parameters and
buffers, and the contents of the buckets before the next forward pass after the one that gave their order.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from syncline.costmodel.traffic.overlap import BUCKET_BYTES, FIRST_BUCKET_BYTES
from syncline.measure.recording.operations import tensor_bytes
from syncline.measure.recording.record import CountedOperation
from syncline.measure.recording.recorder import RECORDER, Refusal

SYNC_BYTES = 250 * 2**20
"""Bytes of a bucket of the first rank's parameters. Source: ``DistributedDataParallel.broadcast_bucket_size``."""


def _record_copies(tensors: Sequence[Tensor]) -> None:
    """Record a kernel for each tensor that reads and writes each of its bytes once."""
    for tensor in tensors:
        RECORDER.add_operation(CountedOperation(flops=0.0, nbytes=2.0 * tensor_bytes([tensor])))


def assign_to_buckets(tensors: Sequence[Tensor], *limits_bytes: float, in_order: bool = False) -> list[list[Tensor]]:
    """Return buckets of tensors of one type each, as torch's DDP does; a bucket is full when it reaches its limit.

    Args:
        limits_bytes: the limits of the first buckets of a type, in bytes; the last limit holds for all further ones.
        in_order: whether buckets come in the order in which they become full; otherwise in that of their first tensors.
    """
    if not tensors:  # torch raises an error for an empty list
        return []
    limits = [int(limit) for limit in limits_bytes]
    indices = list(range(len(tensors))) if in_order else []
    buckets, _ = dist._compute_bucket_assignment_by_size(list(tensors), limits, [], indices)
    return [[tensors[index] for index in bucket] for bucket in buckets]


class ShapedDataParallel(nn.Module):
    """A module whose gradients are averaged over a group, with the arguments of ``DistributedDataParallel``.

    It refuses a communication hook and an uneven number of batches (``join``), which need values.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **other_options: Any,
    ) -> None:
        super().__init__()
        if device_ids or output_device:
            raise ValueError(
                f"device_ids: got {device_ids} with a module on the CPU; expected None, or a module on a GPU"
            )
        self.module = module
        self.process_group: Any = process_group or dist.group.WORLD
        self.broadcast_buffers, self.gradient_as_bucket_view = broadcast_buffers, gradient_as_bucket_view
        self.require_backward_grad_sync = True
        self.expects_gradients = False  # whether the next backward pass sends its gradients
        limit_bytes = bucket_cap_mb * 2**20 if bucket_cap_mb else BUCKET_BYTES  # 0 means the default, as in torch
        # If the user sets the limit, the first bucket has the same one.
        self.limits_bytes = [FIRST_BUCKET_BYTES, limit_bytes] if bucket_cap_mb is None else [limit_bytes]
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        parameters = [parameter for name, parameter in module.named_parameters() if name not in ignored]
        self.parameters_to_average = [parameter for parameter in parameters if parameter.requires_grad]
        self.module_buffers = [buffer for name, buffer in module.named_buffers() if name not in ignored]
        self.sends_buffers_next = broadcast_buffers and bool(self.module_buffers)
        if init_sync:
            self._compare_shapes()
            self._broadcast([x.detach() for x in (*parameters, *self.module_buffers)])
        self.is_first_of_static_graph = static_graph
        self.finds_unused_always = self.has_final_buckets = find_unused_parameters and not static_graph
        self.has_new_buckets = False  # whether the first rank has yet to send the contents of the final buckets
        # Without this option, the first step has one bucket; then `_finish_backward` knows the order of the gradients.
        limits = self.limits_bytes if self.finds_unused_always else [sys.maxsize]
        self.buckets = assign_to_buckets(self.parameters_to_average, *limits)[::-1]  # gradients come last to first
        self.ready: list[Tensor] = []  # parameters whose gradients the current backward pass has computed
        self.all_reduces: list[tuple[Any, list[Tensor]]] = []  # calls of the current backward pass, with their buckets
        for parameter in self.parameters_to_average:
            parameter.register_post_accumulate_grad_hook(self._handle_gradient)

    @property
    def first_rank(self) -> int:
        """Return the global rank of the first rank of the group."""
        return dist.get_global_rank(self.process_group, 0)

    def _compare_shapes(self) -> None:
        """Gather the number of parameters, and broadcast their shapes and strides, with which each rank compares."""
        with RECORDER.silence():
            count = torch.empty(1, dtype=torch.int64)
            counts = torch.empty(dist.get_world_size(self.process_group), dtype=torch.int64)
            shapes = torch.empty(2 * sum(x.dim() for x in self.parameters_to_average), dtype=torch.int64)
        dist.all_gather(list(counts.split(1)), count, group=self.process_group)
        dist.broadcast(shapes, self.first_rank, group=self.process_group)
        _record_copies([shapes])

    def _send_buckets(self) -> None:
        """Broadcast the parameters of each bucket and the sizes of the buckets, as numbers of 4 bytes each."""
        for length in (len(self.parameters_to_average) + 1, len(self.buckets)):
            with RECORDER.silence():
                numbers = torch.empty(length, dtype=torch.int32)
            _record_copies([numbers])  # to the device
            dist.broadcast(numbers, self.first_rank, group=self.process_group)
            _record_copies([numbers])  # and back

    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Broadcast tensors from the first rank of the group, in buckets, of which two may be on their way."""
        in_flight: list[tuple[Any, list[Tensor]]] = []

        def finish_oldest() -> None:
            broadcast, bucket = in_flight.pop(0)
            broadcast.wait()
            _record_copies(bucket)  # out of the bucket

        for bucket in assign_to_buckets(tensors, SYNC_BYTES):
            if len(in_flight) == 2:
                finish_oldest()
            flat = bucket[0].view(-1) if len(bucket) == 1 else torch.cat([x.reshape(-1) for x in bucket])
            broadcast = dist.broadcast(flat, self.first_rank, group=self.process_group, async_op=True)
            in_flight.append((broadcast, bucket))
        while in_flight:
            finish_oldest()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the module, after the first rank has broadcast new buckets and its buffers."""
        if self.has_new_buckets and torch.is_grad_enabled():
            self.has_new_buckets = False
            self._send_buckets()
        if self.sends_buffers_next:
            self._broadcast(self.module_buffers)
        # As in torch, `no_sync` counts where the forward pass runs. The forward pass after one that sends no gradients
        # sends no buffers.
        will_send = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.expects_gradients |= will_send
        self.sends_buffers_next = will_send and self.broadcast_buffers and bool(self.module_buffers)
        output = self.module(*args, **kwargs)
        if self.finds_unused_always or self.is_first_of_static_graph:  # torch then copies the outputs
            output = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, output)
        return output

    def _handle_gradient(self, parameter: Tensor) -> None:
        """Send the buckets that are complete now that the gradient of a parameter is ready."""
        if not self.expects_gradients:
            return
        if not self.ready:  # the first gradient of a backward pass
            torch.autograd.Variable._execution_engine.queue_callback(self._finish_backward)
            self.missing_ids = [{id(x) for x in bucket} for bucket in self.buckets]  # parameters without gradient
            self.next_bucket = 0
        self.ready.append(parameter)
        for missing_in_bucket in self.missing_ids:
            missing_in_bucket.discard(id(parameter))
        while self.next_bucket < len(self.buckets) and not self.missing_ids[self.next_bucket]:
            self._send_next_bucket()

    def _send_next_bucket(self) -> None:
        """Start the all-reduce of the next bucket."""
        bucket = self.buckets[self.next_bucket]
        self.next_bucket += 1
        with RECORDER.silence():
            flat = torch.empty(sum(x.numel() for x in bucket), dtype=bucket[0].dtype)
        ready_ids = {id(x) for x in self.ready}
        for tensor in bucket:
            if id(tensor) in ready_ids:
                _record_copies([tensor])  # into the bucket, divided by the number of ranks
            else:  # a parameter without gradient sends zeros
                RECORDER.add_operation(CountedOperation(flops=0.0, nbytes=float(tensor_bytes([tensor]))))
        self.all_reduces.append((dist.all_reduce(flat, group=self.process_group, async_op=True), bucket))

    def _finish_backward(self) -> None:
        """Send the remaining buckets at the end of a backward pass, and wait for all."""
        while self.next_bucket < len(self.buckets):
            self._send_next_bucket()
        ready_ids = {id(x) for x in self.ready}
        unused = [x for x in self.parameters_to_average if id(x) not in ready_ids]
        usage = None
        if self.finds_unused_always or self.is_first_of_static_graph:
            # The ranks then agree on which parameters have a gradient on any of them.
            with RECORDER.silence():
                are_used = torch.empty(len(self.parameters_to_average), dtype=torch.int32)
            _record_copies([are_used])  # to the device
            usage = dist.all_reduce(are_used, group=self.process_group, async_op=True)
        for all_reduce, bucket in self.all_reduces:
            all_reduce.wait()
            if usage is not None and any(id(x) not in ready_ids for x in bucket):
                usage.wait()
                _record_copies([are_used])  # back to the host, which reads it
                RECORDER.record_host_wait()
                usage = None
            if not self.gradient_as_bucket_view:
                _record_copies([x for x in bucket if id(x) in ready_ids])  # out of the bucket
        if usage is not None:
            usage.wait()
        if not self.has_final_buckets and not self.is_first_of_static_graph:
            self.has_final_buckets = self.has_new_buckets = True
            self.buckets = assign_to_buckets([*self.ready, *unused], *self.limits_bytes, in_order=True)
        self.is_first_of_static_graph = self.expects_gradients = False
        self.all_reduces, self.ready = [], []

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let the backward passes of forward passes in a ``with`` block send nothing."""
        previous, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = previous

    def register_comm_hook(self, *args: Any, **kwargs: Any) -> None:
        """Refuse a communication hook, which needs values."""
        raise Refusal("a communication hook of DDP is not known with --shapes; trace without it")

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse uneven numbers of batches, which need messages from other ranks."""
        raise Refusal("join() needs values of other ranks, which --shapes does not have")
