"""A plugin for runs of notebooks: kernels talk over files of their own, not over ports that other tests may take."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

over_ports = KernelManager.__init__


def over_files(self: KernelManager, *args: Any, **given: Any) -> None:
    """As it was, with sockets in a folder of its own."""
    over_ports(self, *args, transport="ipc", ip=str(Path(tempfile.mkdtemp(prefix="kernel-")) / "ipc"), **given)


KernelManager.__init__ = over_files  # type: ignore[method-assign]
