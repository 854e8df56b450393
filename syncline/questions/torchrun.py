"""The question of ``torchrun -m syncline.torchrun``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import Question, option


class Torchrun(Question):
    """Run a spec in processes that torchrun started, one worker or more in each; or calibrate their machines."""

    spec: Any = shared.spec(help="A YAML file or a bundled spec.")
    fields: Mapping[str, Any] | None = shared.fields()
    device: str = shared.device()
    backend: str = shared.backend()
    timeout: str | float = shared.timeout()
    reproducible: bool = option("Sum in the simulator's order: its bits, for the same bytes.", False)
    workers_per_process: int = option("Number of workers that share a process, as rows of its tensors.", 1, metavar="R")
    out: Path | None = option("Folder, or cluster file, that rank 0 writes.", metavar="FOLDER")
    calibrate: bool = option("Do what 'syncline calibrate' does, and write cluster.yaml or the file of --out.", False)
    network: str | None = option("With --calibrate: latency and bandwidth, if known.", metavar="NET")
    sizes: str | None = option("With --calibrate: sizes of the collectives.")
    budget: str | None = option("With --calibrate: time for each collective.", metavar="TIME")
    window: str | None = option("With --calibrate: time for training steps.", metavar="TIME")
