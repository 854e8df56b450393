"""What was measured on: the device, its driver and clocks, and the versions of everything."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
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
        row |= told_by_driver(str(getattr(about, "uuid", "")))
    yield row


def told_by_driver(uuid: str) -> dict[str, str]:
    """What ``nvidia-smi`` tells of a device, at work in nothing; nothing where it is not there or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    which = ["-i", f"GPU-{uuid}"] if uuid else []
    command = [program, *which, f"--query-gpu={','.join(QUERIED)}", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=15, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return parsed(told)


def parsed(told: str) -> dict[str, str]:
    """The first line's values by name, without those that the device does not have."""
    lines = told.splitlines() or [""]
    values = [value.strip() for value in lines[0].split(",")]
    return {
        name: value
        for name, value in zip(QUERIED, values, strict=False)
        if value and not value.startswith("[") and value != "N/A"
    }
