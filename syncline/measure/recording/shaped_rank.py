"""The life of one rank of which only shapes are known: its script under fake tensors, with nobody to talk to."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    unset_fake_temporarily,
)
from torch.distributed import device_mesh, distributed_c10d
from torch.distributed.pipelining.stage import InferenceMode, PipelineStage

from syncline.measure.recording.group import TracedGroup, size_of
from syncline.measure.recording.operations import OperationCounter
from syncline.measure.recording.record import Started, Waited
from syncline.measure.recording.recorder import RECORDER, Refusal, site

POLL_S, PATIENCE_S = 0.02, 300.0


class Nothing:
    """A group that passes nothing on, and a call of it that is done."""

    def __getattr__(self, name: str) -> Callable[..., Nothing]:
        return lambda *args, **kwargs: self

    def get_future(self) -> Any:
        """Done."""
        done: Any = torch.futures.Future()
        done.set_result([])
        return done


class ShapedGroups:
    """The groups of a rank, also those that it is not in: by them ranks that are alike are known.

    Args:
        workers: P.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def group(self, options: Any, group_options: Any = None) -> TracedGroup:
        """What torch asks for when a script makes a group."""
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        return TracedGroup(Nothing(), options.group_rank, ranks, options.group_id)

    def noting(self, helper: Callable[..., Any]) -> Callable[..., Any]:
        """Torch's maker of groups, which every rank calls for each of them."""

        def made(size: int, rank: int, ranks: Sequence[int], backend: Any, store: Any, name: str, **rest: Any) -> Any:
            self.made.append((name, tuple(ranks) or tuple(range(self.workers))))
            return helper(size, rank, ranks, backend, store, name, **rest)

        return made


class ShapedCounter(OperationCounter):
    """Counts operations on fake tensors, notes functional collectives, and refuses what asks for a value."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException) as error:
            if func is torch.ops.aten._local_scalar_dense.default and asked_by_an_optimizer():
                return 1.0  # a count of steps, which no shape depends on
            raise NeedsValues(func) from error
        if func.namespace == "_c10d_functional" and out is not NotImplemented:
            note_functional(func, args, out)
        return out


ASKING = {"local_scalar_dense": ".item(), float() or if", "index": "a mask as an index", "nonzero": "where it is true"}
"""What a script writes that asks for values, by torch's name of it."""


class NeedsValues(Refusal):
    """A script asks for a value where there are shapes alone."""

    def __init__(self, func: Any) -> None:
        name = func._overloadpacket.__name__.strip("_")
        super().__init__(
            f"asks for values ({ASKING.get(name, name)}), of which --shapes has none. "
            "Leave it out of what is recorded, name ranks that do not ask (--ranks), or trace without --shapes"
        )


def asked_by_an_optimizer() -> bool:
    """Whether the nearest caller but torch's dispatch is one of torch's optimizers."""
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
"""How the collectives of ``torch.distributed._functional_collectives`` are timed, with ``_`` or ``_coalesced`` too."""


def note_functional(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """A functional collective began, or is waited for: fake tensors never reach a process group."""
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
    given = [args[0]] if isinstance(args[0], torch.Tensor) else list(args[0])
    call, key = RECORDER.new_call(), (group.key, RECORDER.number(group.key))
    RECORDER.note(Started(call, kind, kind, size_of(given), group.ranks, key, site()))
    made: list[Any] = [out] if isinstance(out, torch.Tensor) else list(out)
    for one in made:
        one._syncline_call = call


class Objects:
    """Objects that ranks send each other, by way of a folder: they are of no shape, and are sent as they are.

    A rank that is asked for is recorded, too, from then on.

    Args:
        rank: this one.
        folder: that all ranks share.
    """

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank, self.folder = rank, folder
        self.counts: dict[tuple[int, int], int] = {}

    def _file(self, source: int, to: int) -> Path:
        number = self.counts.get((source, to), 0)
        self.counts[source, to] = number + 1
        return self.folder / f"object-{source}-{to}-{number}"

    def want(self, rank: int) -> None:
        """That a rank is recorded, too."""
        (self.folder / f"want-{rank}").touch()

    def send(self, objects: list[Any], dst: int | None = None, group: Any = None, *_: Any, **rest: Any) -> None:
        """As ``send_object_list``."""
        to = peer(dst, rest.get("group_dst"), group)
        file = self._file(self.rank, to)
        with unset_fake_temporarily(), RECORDER.silence():
            file.with_name("." + file.name).write_bytes(pickle.dumps(objects))
        file.with_name("." + file.name).rename(file)
        self.want(to)

    def receive(self, objects: list[Any], src: int | None = None, group: Any = None, *_: Any, **rest: Any) -> int:
        """As ``recv_object_list``.

        Raises:
            Refusal: nothing came.
        """
        source = peer(src, rest.get("group_src"), group)
        file, until_s = self._file(source, self.rank), time.monotonic() + PATIENCE_S
        self.want(source)
        while not file.exists():
            if time.monotonic() > until_s:
                raise Refusal(f"rank {self.rank} waits for an object that rank {source} never sends")
            time.sleep(POLL_S)
        with unset_fake_temporarily(), RECORDER.silence():
            objects[:] = pickle.loads(file.read_bytes())
        return source


def peer(rank: int | None, in_group: int | None, group: Any) -> int:
    """The global rank that a script means."""
    if rank is not None:
        return rank
    whole: Any = dist.group.WORLD
    return int(dist.get_global_rank(group or whole, int(in_group or 0)))


def refused(name: str) -> Callable[..., Any]:
    """A function that hands objects to several ranks, which only real ranks can."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(f"{name}() needs what other ranks say, of which --shapes has none")

    return call


def without_fakes(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that needs its own small tensors: the ranks of a mesh."""

    def real(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily(), RECORDER.silence():
            return call(*args, **kwargs)

    return real


def starting_alone(init: Callable[..., Any], rank: int, workers: int) -> Callable[..., Any]:
    """``init_process_group`` that waits for nobody."""

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("world_size", -1)
        if asked not in (-1, workers):
            raise Refusal(f"asks for {asked} ranks where --workers says {workers}")
        kept = {name: kwargs[name] for name in ("group_name", "pg_options") if name in kwargs}
        with unset_fake_temporarily():
            return init(backend, store=dist.HashStore(), rank=rank, world_size=workers, **kept)

    return init_process_group


MESH = ("__init__", "__getitem__", "_flatten", "_unflatten", "get_coordinate", "get_local_rank", "_get_all_submeshes",
        "_create_sub_mesh", "__eq__", "__hash__", "_concatenate")  # fmt: skip
"""What of a mesh computes with tensors of its own."""


def install_shapes(rank: int, workers: int, folder: Path) -> ShapedGroups:
    """Let a script run alone in this process, from now on, for one of its ranks."""
    from syncline.measure.recording import hooks, shaped_ddp

    groups, objects = ShapedGroups(workers), Objects(rank, folder)
    hooks.install(groups.group, losses=False)
    made: Any = distributed_c10d
    made._new_process_group_helper = groups.noting(made._new_process_group_helper)
    for name, call in (
        ("init_process_group", starting_alone(made.init_process_group, rank, workers)),
        ("send_object_list", objects.send),
        ("recv_object_list", objects.receive),
        *((one, refused(one)) for one in ("all_gather_object", "gather_object", "scatter_object_list")),
        ("broadcast_object_list", refused("broadcast_object_list")),
    ):
        setattr(made, name, call)
        setattr(dist, name, call)
    mesh: Any = device_mesh.DeviceMesh
    for name in MESH:
        if name in vars(mesh):
            given = vars(mesh)[name]
            static = isinstance(given, staticmethod)
            real = without_fakes(given.__func__ if static else given)
            setattr(mesh, name, staticmethod(real) if static else real)
    hooks.replace_everywhere(device_mesh.init_device_mesh, without_fakes(device_mesh.init_device_mesh))
    PipelineStage._warmup_backward_result = agreeing(PipelineStage._warmup_backward_result)  # type: ignore[method-assign]
    torch.nn.Module._apply = applied  # type: ignore[method-assign]
    shaped_ddp.replace_ddp()
    return groups


def applied(module: torch.nn.Module, call: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
    """``Module._apply``, by which modules go to a device or type, without the swap of memory that fakes do not have."""
    known: dict[int, Any] = {}
    for one in module.modules() if recurse else [module]:
        for kind, own in (("parameter", one._parameters), ("buffer", one._buffers)):
            for name, given in own.items():
                if given is None:
                    continue
                if id(given) not in known:
                    with torch.no_grad():
                        made = call(given)
                    if made is not given and kind == "parameter":
                        made = torch.nn.Parameter(made, given.requires_grad)
                    known[id(given)] = made
                own[name] = known[id(given)]
    return module


class StageVote:
    """What stages of a pipeline agree on, in a message that has no value: what this one says."""

    def __init__(self, sent: Any, says: int) -> None:
        self.sent, self.says = sent, says

    def item(self) -> int:
        """As a tensor."""
        return self.says


def agreeing(result: Callable[..., Any]) -> Callable[..., Any]:
    """The end of a vote among stages whether shapes are known: all run one script, and are taken to say the same."""

    def agreed(stage: Any, received_result: Any = None) -> StageVote:
        if isinstance(received_result, StageVote):
            received_result = received_result.sent
        static = not InferenceMode.needs_dynamic(stage._user_meta, True)
        return StageVote(result(stage, received_result=received_result), int(static))

    return agreed


def fake_mode() -> FakeTensorMode:
    """In which a script runs: tensors have shapes, and small ones that it writes down their values."""
    return FakeTensorMode(allow_non_fake_inputs=True)
