"""What was measured on: the device, its driver and clocks, and the versions of everything."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import torch

import syncline
from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting

QUERIED = (
    "driver_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "power.limit",
    "temperature.gpu",
    "persistence_mode",
    "compute_mode",
    "mig.mode.current",
)


AT_WORK = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")
"""What a device does about its clocks while it works: at rest they say nothing of a measurement."""

WORKED_S = 0.5
"""For how long there is something queued while the driver is asked, which takes some 50 ms."""


def facts(setting: Setting) -> Iterator[Row]:
    """One row."""
    row: Row = {
        "device": setting.name,
        "hardware": setting.hardware.name if setting.hardware else None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "syncline": syncline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if setting.device == "cuda":
        about = torch.cuda.get_device_properties(setting.on)
        row |= {
            "capability": f"{about.major}.{about.minor}",
            "memory_bytes": about.total_memory,
            "multiprocessors": about.multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else None,
        }
        row |= told_by_driver(_uuid(setting))
    yield row


def at_work(work: Callable[[], object], call_s: float, setting: Setting) -> dict[str, str]:
    """What the driver tells while the device does such work, of calls of so many seconds; nothing on a CPU."""
    if setting.device != "cuda":
        return {}
    for _ in range(min(max(1, round(WORKED_S / call_s)), 10_000)):
        work()
    told = told_by_driver(_uuid(setting), AT_WORK)
    torch.cuda.synchronize(setting.on)
    return told


def _uuid(setting: Setting) -> str:
    return str(getattr(torch.cuda.get_device_properties(setting.on), "uuid", ""))


def told_by_driver(uuid: str, names: Sequence[str] = QUERIED) -> dict[str, str]:
    """What ``nvidia-smi`` tells of a device; nothing where it is not there or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    which = ["-i", f"GPU-{uuid}"] if uuid else []
    command = [program, *which, f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return parsed(told, names)


def parsed(told: str, names: Sequence[str] = QUERIED) -> dict[str, str]:
    """The first line's values by name, without those that the device does not have."""
    lines = told.splitlines() or [""]
    values = [value.strip() for value in lines[0].split(",")]
    return {
        name: value
        for name, value in zip(names, values, strict=False)
        if value and not value.startswith("[") and value != "N/A"
    }
