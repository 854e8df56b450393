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
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    unset_fake_temporarily,
)
from torch.distributed import device_mesh, distributed_c10d
from torch.distributed.pipelining.stage import InferenceMode, PipelineStage

from syncline.measure.recording import hooks, shaped_ddp
from syncline.measure.recording.group import TracedGroup, size_of
from syncline.measure.recording.operations import OperationCounter
from syncline.measure.recording.record import Started, Waited
from syncline.measure.recording.recorder import RECORDER, Refusal, site

POLL_S, PATIENCE_S = 0.02, 300.0


class NullGroup:
    """A process group that sends nothing, and also a completed call of that group."""

    def __getattr__(self, name: str) -> Callable[..., NullGroup]:
        return lambda *args, **kwargs: self

    def get_future(self) -> Any:
        """Return a completed future with an empty list."""
        future: Any = torch.futures.Future()
        future.set_result([])
        return future


class ShapedGroups:
    """The process groups of a script with ``workers`` ranks, including those without this rank."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def group(self, options: Any, group_options: Any = None) -> TracedGroup:
        """Create the process group that torch asks the backend for when a script makes a group."""
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        return TracedGroup(NullGroup(), options.group_rank, ranks, name=options.group_id)

    def noting(self, helper: Callable[..., Any]) -> Callable[..., Any]:
        """Return torch's function ``helper``, which creates a group on every rank, such that it notes the group."""

        def create(size: int, rank: int, ranks: Sequence[int], backend: Any, store: Any, name: str, **rest: Any) -> Any:
            self.made.append((name, tuple(ranks) or tuple(range(self.workers))))
            return helper(size, rank, ranks, backend, store, name, **rest)

        return create


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
                return 1.0  # the number of steps, on which no shape depends
            raise NeedsValues(func) from error
        if func.namespace == "_c10d_functional" and result is not NotImplemented:
            note_functional(func, args, result)
        return result


ASKING = {"local_scalar_dense": ".item(), float() or if", "index": "a mask as an index", "nonzero": "where it is true"}
"""Code in a script that reads values, by torch's name of the operation."""


class NeedsValues(Refusal):
    """A refusal of a script that reads a value although only shapes are known."""

    def __init__(self, func: Any) -> None:
        """Name torch's operation that asked for a value, and the remedies."""
        name = func._overloadpacket.__name__.strip("_")
        super().__init__(
            f"asks for values ({ASKING.get(name, name)}), of which --shapes has none. "
            "Leave it out of what is recorded, name ranks that do not ask (--ranks), or trace without --shapes"
        )


def is_called_by_optimizer() -> bool:
    """Return whether an optimizer of torch is the nearest caller outside torch's dispatch code."""
    frame: Any = sys._getframe(2)
    while frame is not None and "/torch/optim/" not in frame.f_code.co_filename:
        if "/torch/" not in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return frame is not None


FUNCTIONAL = {
    "all_reduce": "all_reduce", "all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all", "broadcast": "broadcast",
}  # fmt: skip
"""The timed kind of each functional collective of torch, whose name may also end in ``_`` or ``_coalesced``."""


def note_functional(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """Record the start of a functional collective or a wait for it.

    Fake tensors never reach a process group, so the group cannot record these calls.
    """
    name = func._overloadpacket.__name__
    if name == "wait_tensor":
        if (call := getattr(args[0], "_syncline_call", None)) is not None:
            args[0]._syncline_call = None
            RECORDER.note(Waited(call))
        return
    kind = FUNCTIONAL.get(name.removesuffix("_out").removesuffix("_coalesced_").removesuffix("_coalesced").rstrip("_"))
    if kind is None:
        raise Refusal(f"{name} is not known with --shapes")
    group: Any = next(x for x in reversed(args) if isinstance(x, str | dist.ProcessGroup))
    if isinstance(group, str):
        group = distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
    inputs = [args[0]] if isinstance(args[0], torch.Tensor) else list(args[0])
    call, key = RECORDER.new_call(), (group.key, RECORDER.number(group.key))
    RECORDER.note(
        Started(call, kind, asked=kind, payload_bytes=size_of(inputs), ranks=group.ranks, key=key, site=site())
    )
    outputs: list[Any] = [out] if isinstance(out, torch.Tensor) else list(out)
    for output in outputs:
        output._syncline_call = call


class Objects:
    """Messages with Python objects between ranks, through a folder that all ranks share.

    Objects have no shape, so their values are sent. The trace also records the ranks that send or receive them.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank, self.folder = rank, folder
        self.counts: Counter[tuple[int, int]] = Counter()

    def _file(self, source: int, to: int) -> Path:
        """Return the file of the next message between two ranks."""
        self.counts[source, to] += 1
        return self.folder / f"object-{source}-{to}-{self.counts[source, to]}"

    def send(self, objects: list[Any], dst: int | None = None, group: Any = None, *_: Any, **rest: Any) -> None:
        """Send objects to another rank, in place of ``send_object_list``."""
        target = peer(dst, rest.get("group_dst"), group)
        file = self._file(self.rank, target)
        with unset_fake_temporarily(), RECORDER.silence():
            file.with_name("." + file.name).write_bytes(pickle.dumps(objects))
        file.with_name("." + file.name).rename(file)
        (self.folder / f"want-{target}").touch()  # the receiver is recorded too

    def receive(self, objects: list[Any], src: int | None = None, group: Any = None, *_: Any, **rest: Any) -> int:
        """Receive objects from another rank, in place of ``recv_object_list``."""
        source = peer(src, rest.get("group_src"), group)
        file, until_s = self._file(source, self.rank), time.monotonic() + PATIENCE_S
        (self.folder / f"want-{source}").touch()  # the sender is recorded too
        while not file.exists():
            if time.monotonic() > until_s:
                raise Refusal(f"rank {self.rank} waits for an object that rank {source} never sends")
            time.sleep(POLL_S)
        with unset_fake_temporarily(), RECORDER.silence():
            objects[:] = pickle.loads(file.read_bytes())
        return source


def peer(rank: int | None, in_group: int | None, group: Any) -> int:
    """Return the global rank of the peer of a send or receive.

    Args:
        rank: global rank of the peer; None if the call gives the rank in the group.
        in_group: rank of the peer in the group; None means 0.
        group: the process group; None for the default group.
    """
    if rank is not None:
        return rank
    world: Any = dist.group.WORLD
    return int(dist.get_global_rank(group or world, int(in_group or 0)))


def refusal_of(name: str) -> Callable[..., Any]:
    """Return a replacement that refuses a function, because the function needs objects of several ranks."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(f"{name}() needs what other ranks say, of which --shapes has none")

    return call


def on_real_tensors(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that runs a function on real tensors, such as the ranks of a mesh."""

    def real(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily(), RECORDER.silence():
            return call(*args, **kwargs)

    return real


def init_without_peers(init: Callable[..., Any], rank: int, workers: int) -> Callable[..., Any]:
    """Return the function ``init_process_group`` that waits for no other rank."""

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Create a group whose collectives do nothing, of the rank and size of the trace."""
        world_size = kwargs.get("world_size", -1)
        if world_size not in (-1, workers):
            raise Refusal(f"asks for {world_size} ranks where --workers says {workers}")
        options = {name: kwargs[name] for name in ("group_name", "pg_options") if name in kwargs}
        with unset_fake_temporarily():
            return init(backend, store=dist.HashStore(), rank=rank, world_size=workers, **options)

    return init_process_group


REFUSED = ("all_gather_object", "gather_object", "scatter_object_list", "broadcast_object_list")
"""Functions that need objects of several ranks."""

MESH = ("__init__", "__getitem__", "_flatten", "_unflatten", "get_coordinate", "get_local_rank", "_get_all_submeshes",
        "_create_sub_mesh", "__eq__", "__hash__", "_concatenate")  # fmt: skip
"""Methods of a mesh that compute with real tensors."""


def install_shapes(rank: int, workers: int, folder: Path) -> ShapedGroups:
    """Install the hooks by which a script runs in this process as one rank without any other rank."""
    groups, objects = ShapedGroups(workers), Objects(rank, folder)
    hooks.install(groups.group, losses=False)
    c10d: Any = distributed_c10d
    c10d._new_process_group_helper = groups.noting(c10d._new_process_group_helper)
    for name, call in (
        ("init_process_group", init_without_peers(c10d.init_process_group, rank, workers)),
        ("send_object_list", objects.send),
        ("recv_object_list", objects.receive),
        *((name, refusal_of(name)) for name in REFUSED),
    ):
        setattr(c10d, name, call)
        setattr(dist, name, call)
    mesh: Any = device_mesh.DeviceMesh
    for name in MESH:
        if name in vars(mesh):
            method = vars(mesh)[name]
            static = isinstance(method, staticmethod)
            real = on_real_tensors(method.__func__ if static else method)
            setattr(mesh, name, staticmethod(real) if static else real)
    hooks.replace_everywhere(device_mesh.init_device_mesh, on_real_tensors(device_mesh.init_device_mesh))
    PipelineStage._warmup_backward_result = static_shape_vote(PipelineStage._warmup_backward_result)  # type: ignore[method-assign]
    torch.nn.Module._apply = apply_to_tensors  # type: ignore[method-assign]
    shaped_ddp.replace_ddp()
    return groups


def apply_to_tensors(
    module: torch.nn.Module, call: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> Any:
    """Convert the parameters and buffers of a module, in place of ``Module._apply``.

    Modules use it to change device or type. Torch's version swaps memory, which fake tensors do not have.
    """
    converted: dict[int, Any] = {}
    for child in module.modules() if recurse else [module]:
        for kind, tensors in (("parameter", child._parameters), ("buffer", child._buffers)):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in converted:
                    with torch.no_grad():
                        result = call(tensor)
                    if result is not tensor and kind == "parameter":
                        result = torch.nn.Parameter(result, tensor.requires_grad)
                    converted[id(tensor)] = result
                tensors[name] = converted[id(tensor)]
    return module


class StageVote:
    """A vote of pipeline stages in a message without a value; the result is the vote of this stage."""

    def __init__(self, sent: Any, vote: int) -> None:
        self.sent, self.says = sent, vote

    def item(self) -> int:
        """Return the vote, like the method of a tensor."""
        return self.says


def static_shape_vote(result: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for a method of ``PipelineStage`` by which stages agree whether shapes are static.

    All stages run the same script, so each is assumed to vote as this stage does.

    Args:
        result: torch's method, which sends and receives the votes.
    """

    def agreed(stage: Any, received_result: Any = None) -> StageVote:
        if isinstance(received_result, StageVote):
            received_result = received_result.sent
        static = not InferenceMode.needs_dynamic(stage._user_meta, True)
        return StageVote(result(stage, received_result=received_result), int(static))

    return agreed
