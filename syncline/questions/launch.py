"""The question of ``syncline launch``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syncline.questions import shared, training
from syncline.questions.declare import REQUIRED, Question, option


class Launch(
    Question,
    panel=shared.PROCESSES,
    examples=(
        "syncline launch rosenbrock-mt-dao --workers 2 --set steps=200",
        "syncline launch pipeline-text --set stages=2",
        "syncline launch my-run.yaml --workers 4 --device cpu --backend gloo",
    ),
):
    """Run a spec on real processes of this machine and measure it: one process per worker or pipeline stage.

    Returns:
        The result with the measured rows; `Result.json` also has ``simulated``. If a process died or hung, the result
        has the rows measured until then, the function warns, and `Result.failed` names the process.

    Raises:
        SynclineError: an argument is wrong; the check runs before the training starts.
    """

    spec: Any = shared.spec(shell_default=REQUIRED, completion="specs_of:run,pipeline")
    fields: Mapping[str, Any] | None = shared.fields()
    problem: Any = training.problem(help="The problem to train; cloudpickle packs an object for each process.")
    method: Any = training.method()
    network: Any = shared.network()
    workers: int | None = option("Number of workers, or of pipeline stages; by default the spec's.", metavar="P")
    steps: int | None = training.steps()
    seeds: Any = shared.seeds()
    device: str = shared.device()
    backend: str = shared.backend()
    timeout: str | float = shared.timeout()
    workers_per_process: int = option("Number of workers that share a process, as rows of its tensors.", 1, metavar="R")
    port: int = option("TCP port at which the processes meet; by default any free port.", 0, metavar="PORT")
    reproducible: bool = option(
        "Sum in the simulator's order, so that the results equal the simulator's bit for bit; sends the same number of "
        "bytes.", False,
    )  # fmt: skip
    rejoins: int = option("Number of restarts of each worker of an asynchronous method that dies.", 3, metavar="N")
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    on_progress: Callable[[int], None] | None = training.on_progress()
    json: bool = shared.json()
