"""When the steps of a script's optimizer end, of a script that knows nothing of it.

    python -m benchmarks.shaped.steps FILE SCRIPT ARGUMENTS...     (run on every host by benchmarks.shaped.traced)

Hosts on one kernel have one monotonic clock. FILE.RANK gets seconds of it, one per step, of the outermost optimizer.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def main(file: str, script: str, *arguments: str) -> None:
    """Run it and note."""
    torch.set_num_threads(1)
    ends: list[float] = []
    depth = 0

    def begin(*_: Any) -> None:
        nonlocal depth
        depth += 1

    def end(*_: Any) -> None:
        nonlocal depth
        depth -= 1
        if not depth:
            ends.append(time.monotonic())

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
    Path(f"{file}.{os.environ['RANK']}").write_text(json.dumps(ends))


if __name__ == "__main__":
    main(*sys.argv[1:])
