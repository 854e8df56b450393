"""The processor, and the code paths that torch and MKL take on it: the last bits of a sum depend on them."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

SETTINGS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
"""Environment variables that limit or fix a code path."""

INSTRUCTION_SETS = ("avx512f", "avx2", "avx", "sse4_2")
"""Flags of Linux, the widest first."""


def processor_record() -> dict[str, Any]:
    """Return the processor's model and widest instruction set, torch's choice, MKL's version, and what limits them.

    Facts that only torch knows are null if torch is not loaded, because a command that does not compute with torch must
    not load it for this. MKL does not report its code path: it follows from its version, the model and the settings.
    """
    cpuinfo = ""
    with suppress(OSError):
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    present = set(flags[1].split()) if flags else set()
    return {
        "model": model[1] if model else platform.processor() or None,
        "instructions": next((name for name in INSTRUCTION_SETS if name in present), None),
        **_torch_record(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
    }


def _torch_record() -> dict[str, str | None]:
    """Return ``aten``, the kernels that torch has chosen, and ``mkl``, the version that it was built with."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {"aten": None, "mkl": None}
    mkl = re.search(r"Math Kernel Library Version (\S+)", torch.__config__.show())
    return {"aten": torch.backends.cpu.get_cpu_capability(), "mkl": mkl[1] if mkl else None}
