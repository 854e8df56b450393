"""A stand-in for `DistributedDataParallel` on fake tensors, which sends the same messages.

The reducer of torch's DDP reads data in C++, so it cannot run on fake tensors. Gradients travel in buckets. In the
first step one bucket contains all gradients. Later buckets contain the gradients in the order in which they were ready
in the first step. A bucket leaves as soon as its last gradient is ready. The first bucket is full at 1 MiB and the
others at ``bucket_cap_mb``; if the script sets ``bucket_cap_mb``, it is the limit of all buckets. With
``find_unused_parameters`` the buckets are in the reverse order of the parameters from the first step on.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from syncline.costmodel.traffic.overlap import BUCKET_BYTES, FIRST_BUCKET_BYTES
from syncline.measure.recording.group import size_of
from syncline.measure.recording.record import Counted
from syncline.measure.recording.recorder import RECORDER, Refusal

SYNC_BYTES = 250 * 2**20
"""Bytes of a bucket of the first rank's parameters. Source: ``DistributedDataParallel.broadcast_bucket_size``."""


def buckets_of(tensors: Sequence[Tensor], limit: float, first: float | None = None) -> list[list[Tensor]]:
    """Return buckets of tensors of one type each, in order; a bucket is full when it reaches the limit.

    Args:
        tensors: tensors in the order in which they become ready.
        limit: bytes at which a bucket is full.
        first: bytes at which the first bucket of a type is full; ``limit`` if None.

    Source: ``torch.distributed._compute_bucket_assignment_by_size``.
    """
    buckets: list[list[Tensor]] = []
    open_buckets: dict[torch.dtype, list[Tensor]] = {}
    full_types: set[torch.dtype] = set()
    for x in tensors:
        bucket = open_buckets.setdefault(x.dtype, [])
        bucket.append(x)
        if size_of(bucket) >= (limit if first is None or x.dtype in full_types else first):
            buckets.append(open_buckets.pop(x.dtype))
            full_types.add(x.dtype)
    return [*buckets, *open_buckets.values()]


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
        **rest: Any,
    ) -> None:
        """Wrap a module whose gradients are averaged in buckets as they become ready."""
        super().__init__()
        if device_ids or output_device:
            raise ValueError(
                f"device_ids: got {device_ids} with a module on the CPU; expected None, or a module on a GPU"
            )
        self.module = module
        self.process_group: Any = process_group or dist.group.WORLD
        self.broadcast_buffers, self.as_view = broadcast_buffers, gradient_as_bucket_view
        self.require_backward_grad_sync = True
        cap_bytes = None if bucket_cap_mb is None else bucket_cap_mb * 2**20
        self.limit, self.first = cap_bytes or BUCKET_BYTES, FIRST_BUCKET_BYTES if cap_bytes is None else None
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.sent = [p for name, p in module.named_parameters() if p.requires_grad and name not in ignored]
        if init_sync:
            everything = [x.detach() for x in (*module.parameters(), *module.buffers())]
            for bucket in buckets_of(everything, SYNC_BYTES):
                self._broadcast(bucket)
        self.rebuilt = find_unused_parameters
        limits = (self.limit, self.first) if find_unused_parameters else (math.inf, None)
        self.buckets = buckets_of(self.sent[::-1], *limits)
        self.ready: list[Tensor] = []
        self.works: list[Any] = []
        for parameter in self.sent:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _broadcast(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([x.reshape(-1) for x in tensors])
        dist.broadcast(flat, dist.get_global_rank(self.process_group, 0), group=self.process_group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the module, after the first rank has broadcast its buffers."""
        buffers = list(self.module.buffers())
        if self.broadcast_buffers and buffers and self.require_backward_grad_sync and self.training:
            for bucket in buckets_of(buffers, SYNC_BYTES):
                self._broadcast(bucket)
        return self.module(*args, **kwargs)

    def _ready(self, parameter: Tensor) -> None:
        """Note that the gradient of a parameter is ready, and send the buckets that are complete."""
        if not self.require_backward_grad_sync:
            return
        if not self.ready:
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
            self.missing = [{id(x) for x in bucket} for bucket in self.buckets]  # parameters without gradient so far
            self.next = 0
        self.ready.append(parameter)
        for unready in self.missing:
            unready.discard(id(parameter))
        self._send(complete_only=True)

    def _send(self, complete_only: bool) -> None:
        """Start the all-reduces of the next buckets in order, up to one that lacks a gradient if ``complete_only``."""
        while self.next < len(self.buckets) and not (complete_only and self.missing[self.next]):
            bucket = self.buckets[self.next]
            self.next += 1
            nbytes = size_of(bucket)
            with RECORDER.silence():
                flat = torch.empty(sum(x.numel() for x in bucket), dtype=bucket[0].dtype)
            RECORDER.operation(Counted(0.0, 2.0 * nbytes))  # copies gradients into the bucket and divides them
            self.works.append((dist.all_reduce(flat, group=self.process_group, async_op=True), nbytes))

    def _finish(self) -> None:
        """Send the remaining buckets at the end of a backward pass, and wait for all."""
        self._send(complete_only=False)  # parameters without gradient send zeros
        for work, nbytes in self.works:
            work.wait()
            if not self.as_view:
                RECORDER.operation(Counted(0.0, 2.0 * nbytes))  # copies gradients out of the bucket
        if not self.rebuilt:
            self.rebuilt = True
            unused = [x for x in self.sent if all(x is not other for other in self.ready)]
            self.buckets = buckets_of([*self.ready, *unused], self.limit, self.first)
        self.works, self.ready = [], []

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes in a ``with`` block send nothing."""
        sync_before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = sync_before

    def register_comm_hook(self, *args: Any, **kwargs: Any) -> None:
        """Refuse a communication hook, which needs values."""
        raise Refusal("a communication hook of DDP is not known with --shapes; trace without it")

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse uneven numbers of batches, which need messages from other ranks."""
        raise Refusal("join() needs what other ranks say, of which --shapes has none")


def replace_ddp() -> None:
    """Replace torch's ``DistributedDataParallel`` by `ShapedDataParallel` in this process."""
    import torch.nn.parallel
    import torch.nn.parallel.distributed

    for module in (torch.nn.parallel, torch.nn.parallel.distributed):
        setattr(module, "DistributedDataParallel", ShapedDataParallel)  # noqa: B010 - a class is replaced
