"""What stands for torch's GPUs has the kinds of things that torch has, and as many as the environment says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from syncline.measure.recording import (
    cuda_devices,
    hooks,
    rank_processes,
    streams,
)
from syncline.measure.recording import (
    hooks as cuda,
)
from syncline.measure.recording import (
    hooks as eager,
)
from syncline.measure.recording.cuda_devices import CurrentDevice, refusing
from syncline.measure.recording.rank_processes import fork_process
from syncline.measure.recording.recorder import Refusal


def classes() -> set[tuple[str, str]]:
    """Return the names of classes in torch's modules and in ``time``."""
    return {
        (name, key)
        for name, module in list(sys.modules.items())
        if module is not None and (name in {"time", "torch"} or name.startswith("torch."))
        for key, value in list(vars(module).items())
        if isinstance(value, type)
    }


def test_a_class_of_torch_stays_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pid = fork_process()
    if not pid:  # everything that is installed stays in this copy
        try:
            before = classes()
            hooks.install()
            eager.replace_compile_and_spawn()
            streams.install_clocks()
            cuda.install_cuda()
            (tmp_path / "functions").write_text(json.dumps(sorted(before - classes())))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert json.loads((tmp_path / "functions").read_text()) == []


@pytest.mark.parametrize("name", ["CUDAGraph", "graph", "MemPool"])
def test_a_refused_class_can_be_named_and_not_made(name: str) -> None:
    kind: Any = refusing(getattr(torch.cuda, name), "there is no GPU")
    assert kind | None and not isinstance(3, kind) and issubclass(type("Own", (kind,), {}), kind)
    for made in (kind, type("Own", (kind,), {})):
        with pytest.raises(Refusal, match="there is no GPU"):
            made()


VISIBLE = {None: 4, "": 0, "-1": 0, "NoDevFiles": 0, "0": 1, "2, 3": 2, "0,-1,1": 1, "GPU-ab12,MIG-cd34": 2}
"""Values of ``CUDA_VISIBLE_DEVICES``, and how many of four GPUs a process sees."""


@pytest.mark.parametrize("value", VISIBLE)
def test_visible_devices(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(cuda_devices.GpuState, "script_uses_gpu", False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    count = VISIBLE[value]
    assert cuda_devices.device_count() == count
    if count:
        assert cuda_devices.simulated_gpu(f"cuda:{count - 1}") == torch.device("cuda", count - 1)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        cuda_devices.simulated_gpu(f"cuda:{count}")


def test_the_current_device_is_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cuda_devices.GpuState, "script_uses_gpu", False)
    with CurrentDevice("cuda:1"):
        assert cuda_devices.GpuState.current_index == 1
        with CurrentDevice(None):
            assert cuda_devices.GpuState.current_index == 1
    assert cuda_devices.GpuState.current_index == 0


@pytest.mark.parametrize("on_gpu", [False, True])
def test_devices_of_a_module_on_the_cpu_reach_torch(on_gpu: bool) -> None:
    seen: list[Any] = []
    module = torch.nn.Linear(2, 2)
    if on_gpu:
        cuda_devices.mark_device(list(module.parameters()), torch.device("cuda", 0))
    cuda.init_ddp(lambda self, *args, **kwargs: seen.extend(args), None, module, device_ids=[0])
    assert seen == [module, *([None, None] if on_gpu else [[0], None])]


def test_a_process_beside_a_trace_joins_groups_as_ever() -> None:
    rank_processes.end_trace_if_child()  # returns
