"""One rank of a trace by shapes: it runs the script on fake tensors, without any other rank."""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    unset_fake_temporarily,
)
from torch.distributed import device_mesh, distributed_c10d
from torch.distributed.pipelining.stage import InferenceMode, PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.optim import optimizer
from torch.utils import _foreach_utils

from syncline.measure.recording import hooks
from syncline.measure.recording.cuda_devices import refusing
from syncline.measure.recording.group import TracedGroup, as_list
from syncline.measure.recording.operations import OperationCounter, tensor_bytes
from syncline.measure.recording.record import Started, Waited
from syncline.measure.recording.recorder import RECORDER, Refusal, script_line
from syncline.measure.recording.shaped_ddp import ShapedDataParallel

POLL_S = 0.02
"""Seconds between two checks whether an object from another rank has arrived."""

OBJECT_TIMEOUT_S = 300.0
"""Seconds for which a rank waits for an object from another rank."""


class NullGroup:
    """A process group that sends nothing; each of its methods returns the group, which serves as a completed call."""

    def __getattr__(self, name: str) -> Callable[..., NullGroup]:
        return lambda *args, **kwargs: self

    def get_future(self) -> Any:
        """Return a completed future with an empty list."""
        future: Any = torch.futures.Future()
        future.set_result([])
        return future


class ShapedGroups:
    """The process groups that a script with ``workers`` ranks has created, including those without this rank.

    Attributes:
        groups: name and ranks of each group, in the order of creation.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.groups: list[tuple[str, tuple[int, ...]]] = []

    def make_group(self, options: Any, group_options: Any = None) -> TracedGroup:
        """Create the process group that torch asks the backend for when a script makes a group."""
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))  # none are listed if all join
        return TracedGroup(NullGroup(), options.group_rank, ranks, name=options.group_id)

    def wrap_group_helper(self, helper: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of torch's function that creates a group on a rank; it also adds the group to the list."""

        def create_and_list(
            size: int, rank: int, ranks: Sequence[int], backend: Any, store: Any, name: str, **options: Any
        ) -> Any:
            self.groups.append((name, tuple(ranks) or tuple(range(self.workers))))  # torch lists no ranks if all join
            return helper(size, rank, ranks, backend, store, name, **options)

        return create_and_list


class ShapedCounter(OperationCounter):
    """A counter of operations on fake tensors that records functional collectives and refuses reads of values."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation on shapes alone; refuse one that reads a value."""
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException) as error:
            if func is torch.ops.aten._local_scalar_dense.default and is_called_by_optimizer():
                return 1.0  # optimizers read only their number of steps, on which no shape depends
            raise NeedsValues(func) from error
        if func.namespace == "_c10d_functional" and result is not NotImplemented:
            record_functional(func, args, result)
        return result

    def has_no_data(self, tensor: Any) -> bool:
        """Return whether a tensor is on the device ``meta``; fake tensors stand for those of the script here."""
        return getattr(tensor, "is_meta", False)


CODE_THAT_READS = {
    "local_scalar_dense": ".item(), float() or if", "index": "a mask as an index", "nonzero": "where it is true",
}  # fmt: skip
"""Code in a script that reads values, by torch's name of the operation."""


class NeedsValues(Refusal):
    """A refusal of a script that reads a value although only shapes are known."""

    def __init__(self, func: Any) -> None:
        name = func._overloadpacket.__name__.strip("_")
        super().__init__(
            f"asks for values ({CODE_THAT_READS.get(name, name)}), which --shapes does not have. "
            "Leave it out of what is recorded, name ranks that do not need them (--ranks), or trace without --shapes"
        )


def is_called_by_optimizer() -> bool:
    """Return whether an optimizer of torch has called the current operation, perhaps through other files of torch."""
    frame: Any = sys._getframe(2)  # frame 1 is the counter, which calls this function
    while frame is not None and "/torch/optim/" not in frame.f_code.co_filename:
        if "/torch/" not in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return frame is not None


FUNCTIONAL_COLLECTIVES = {
    "all_reduce": "all_reduce", "all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all", "broadcast": "broadcast",
}  # fmt: skip
"""The timed kind of each functional collective of torch, whose name may also end in ``_`` or ``_coalesced``."""


def record_functional(func: Any, args: tuple[Any, ...], result: Any) -> None:
    """Record the start of a functional collective of torch, or a wait for one.

    Fake tensors never reach a process group, so the group cannot record these calls.

    Args:
        args: the arguments of the operation: a tensor or a list of tensors, and later the group or its name.
        result: the tensor or tensors that the operation returned; they carry the number of the call until the wait.
    """
    name = func._overloadpacket.__name__
    if name == "wait_tensor":
        awaited_call = getattr(args[0], "_syncline_call", None)
        if awaited_call is not None:
            args[0]._syncline_call = None
            RECORDER.record_event(Waited(awaited_call))
        return
    base_name = name.removesuffix("_out").removesuffix("_coalesced_").removesuffix("_coalesced").rstrip("_")
    kind = FUNCTIONAL_COLLECTIVES.get(base_name)
    if kind is None:
        raise Refusal(f"{name} is not known with --shapes")
    # The group, or its name, is the last such argument: a text before it names the reduction, such as "sum".
    group: Any = [x for x in args if isinstance(x, str | dist.ProcessGroup)][-1]
    if isinstance(group, str):
        group = distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    call, number_in_group = RECORDER.new_call(), RECORDER.next_number(group.key)
    started = Started(
        call, kind, asked=kind, payload_bytes=tensor_bytes(as_list(args[0])), ranks=group.ranks,
        key=(group.key, number_in_group), site=script_line(),
    )  # fmt: skip
    RECORDER.record_event(started)
    for output in as_list(result):
        output._syncline_call = call  # type: ignore[attr-defined]


class ObjectMessages:
    """Messages with Python objects between ranks, through a folder that all ranks share.

    Objects have no shape, so their values are sent. The trace also records the ranks that send or receive them.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank, self.folder = rank, folder
        self.num_messages: Counter[tuple[int, int]] = Counter()  # by sender and receiver

    def _next_file(self, sender: int, receiver: int) -> Path:
        """Return the file of the next message between two ranks."""
        self.num_messages[sender, receiver] += 1
        return self.folder / f"object-{sender}-{receiver}-{self.num_messages[sender, receiver]}"

    def send(self, objects: list[Any], dst: int | None = None, group: Any = None, *_: Any, **options: Any) -> None:
        """Send objects to another rank, in place of ``send_object_list``."""
        receiver = global_rank(dst, options.get("group_dst"), group)
        file = self._next_file(self.rank, receiver)
        incomplete_file = file.with_name("." + file.name)
        with unset_fake_temporarily(), RECORDER.silence():
            incomplete_file.write_bytes(pickle.dumps(objects))
        incomplete_file.rename(file)
        (self.folder / f"want-{receiver}").touch()  # `run_ranks` then records the receiver too

    def receive(self, objects: list[Any], src: int | None = None, group: Any = None, *_: Any, **options: Any) -> int:
        """Receive objects from another rank, in place of ``recv_object_list``, and return the sender."""
        sender = global_rank(src, options.get("group_src"), group)
        file, deadline_s = self._next_file(sender, self.rank), time.monotonic() + OBJECT_TIMEOUT_S
        (self.folder / f"want-{sender}").touch()  # `run_ranks` then records the sender too
        while not file.exists():
            if time.monotonic() > deadline_s:
                raise Refusal(f"rank {self.rank} waits for an object that rank {sender} never sends")
            time.sleep(POLL_S)
        with unset_fake_temporarily(), RECORDER.silence():
            objects[:] = pickle.loads(file.read_bytes())
        return sender


def global_rank(rank: int | None, rank_in_group: int | None, group: Any) -> int:
    """Return the global rank of a message's other end: ``rank``, else ``rank_in_group`` (None: 0) of the group."""
    if rank is not None:
        return rank
    world: Any = dist.group.WORLD
    return int(dist.get_global_rank(group or world, int(rank_in_group or 0)))


def on_real_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that runs a function on real tensors, such as the ranks of a mesh."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily(), RECORDER.silence():
            return function(*args, **kwargs)

    return wrapper


def init_without_peers(init: Callable[..., Any], rank: int, workers: int) -> Callable[..., Any]:
    """Return a replacement of ``init_process_group`` that waits for no other rank, and whose collectives do nothing."""

    def init_process_group(backend: Any = None, *_: Any, **kwargs: Any) -> Any:
        world_size = kwargs.get("world_size", -1)  # -1: torch's default, the number of ranks in the environment
        if world_size not in (-1, workers):
            raise Refusal(f"asks for {world_size} ranks where --workers says {workers}")
        options = {name: kwargs[name] for name in ("group_name", "pg_options") if name in kwargs}
        with unset_fake_temporarily():
            return init(backend, store=dist.HashStore(), rank=rank, world_size=workers, **options)

    return init_process_group


REFUSED = ("all_gather_object", "gather_object", "scatter_object_list", "broadcast_object_list")
"""Functions that need objects of several ranks."""

MESH_METHODS = (
    "__init__", "__getitem__", "_flatten", "_unflatten", "get_coordinate", "get_local_rank", "_get_all_submeshes",
    "_create_sub_mesh", "__eq__", "__hash__", "_concatenate",
)  # fmt: skip
"""Methods of a mesh that compute with real tensors."""


def install_shapes(rank: int, workers: int, folder: Path) -> ShapedGroups:
    """Replace functions of torch so that a script runs in this process as one rank without any other rank.

    Args:
        folder: the folder that all ranks share, for objects that they send each other.

    Returns:
        The groups, to which the script adds those that it creates.
    """
    groups, objects = ShapedGroups(workers), ObjectMessages(rank, folder)
    hooks.install(groups.make_group, losses=False)  # a loss has no value here
    c10d: Any = distributed_c10d
    c10d._new_process_group_helper = groups.wrap_group_helper(c10d._new_process_group_helper)
    reason = "needs values of other ranks, which --shapes does not have"
    replacements = {name: refusing(None, f"{name}() {reason}") for name in REFUSED}
    replacements["init_process_group"] = init_without_peers(c10d.init_process_group, rank, workers)
    replacements["send_object_list"] = objects.send
    replacements["recv_object_list"] = objects.receive
    for name, replacement in replacements.items():
        setattr(c10d, name, replacement)
        setattr(dist, name, replacement)
    mesh_attributes = vars(device_mesh.DeviceMesh)  # unlike getattr, shows which methods are static
    for name in MESH_METHODS:
        method = mesh_attributes.get(name)
        if isinstance(method, staticmethod):
            setattr(device_mesh.DeviceMesh, name, staticmethod(on_real_tensors(method.__func__)))
        elif method is not None:
            setattr(device_mesh.DeviceMesh, name, on_real_tensors(method))
    hooks.replace_everywhere((device_mesh.init_device_mesh, on_real_tensors(device_mesh.init_device_mesh)))
    for supported_types in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        supported_types.append(FakeTensor)  # functions that update many tensors by one kernel do so for fake ones too
    # A DTensor finds the shape of a new result by an operation on fake tensors of the whole tensor's size.
    find_shape = "_propagate_tensor_meta_non_cached"
    setattr(ShardingPropagator, find_shape, silenced(getattr(ShardingPropagator, find_shape)))
    PipelineStage._warmup_backward_result = static_shape_vote(PipelineStage._warmup_backward_result)  # type: ignore[method-assign]
    torch.nn.Module._apply = apply_to_tensors  # type: ignore[method-assign]
    for module in (torch.nn.parallel, torch.nn.parallel.distributed):
        module.DistributedDataParallel = ShapedDataParallel  # type: ignore[attr-defined]
    return groups


def silenced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that runs a function without counting its operations."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with RECORDER.silence():
            return function(*args, **kwargs)

    return wrapper


def apply_to_tensors(
    module: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> Any:
    """Convert a module's tensors in place of ``Module._apply``, which swaps memory, which fake tensors lack."""
    converted_by_id: dict[int, Any] = {}  # a tensor that several modules share is converted once
    modules = module.modules() if recurse else [module]
    for child in modules:
        for tensors in (child._parameters, child._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in converted_by_id:
                    with torch.no_grad():
                        converted = convert(tensor)
                    if converted is not tensor and tensors is child._parameters:
                        converted = torch.nn.Parameter(converted, tensor.requires_grad)
                    converted_by_id[id(tensor)] = converted
                tensors[name] = converted_by_id[id(tensor)]
    return module


class StageVote:
    """The vote of a pipeline stage on whether shapes are static; torch votes by a tensor with a value.

    Args:
        message: the fake tensor that the stages send each other for the vote.
        vote: the vote of this stage, 1 or 0.
    """

    def __init__(self, message: Any, vote: int) -> None:
        self.message, self.vote = message, vote

    def item(self) -> int:
        """Return the vote, like the method of a tensor."""
        return self.vote


def static_shape_vote(exchange_votes: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap torch's ``_warmup_backward_result``, by which pipeline stages send each other votes on static shapes.

    The replacement assumes that all stages vote as this stage does, because they run the same script.
    """

    def exchange_known_votes(stage: Any, received_result: Any = None) -> StageVote:
        if isinstance(received_result, StageVote):
            received_result = received_result.message
        message = exchange_votes(stage, received_result=received_result)
        has_static_shapes = not InferenceMode.needs_dynamic(stage._user_meta, stage_has_backward=True)
        return StageVote(message, int(has_static_shapes))

    return exchange_known_votes
