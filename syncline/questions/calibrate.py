"""The question of ``syncline calibrate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import Question, option


class Calibrate(
    Question,
    panel=shared.PROCESSES,
    examples=(
        "syncline calibrate",
        "syncline calibrate --workers 2,4 --out lab.yaml",
        "syncline calibrate --from nccl.log -o my-cluster.yaml",
        "syncline calibrate --from iperf/*.json -o lines.yaml",
        "syncline project --network cluster.yaml",
    ),
):
    """Measure collectives, training steps and wire formats on this machine, and write a cluster file for specs.

    With --from the file comes from logs instead: a network from nccl-tests or DeepSpeed's communication benchmarks, or
    lines between places (kind: matrix) from iperf3, ping and tables of regions.

    Returns:
        The result; ``networks=`` and ``hardware=`` accept its ``json()["file"]``, and `Result.save` keeps that file.

    Raises:
        SynclineError: an argument is wrong, which the function reports before it measures; or a process died or hung.
    """

    spec: str | Path | None = shared.spec(
        help="Spec whose problem's training steps are timed; by default the problem digits.", description="",
        reader="text", completion="specs_of:run,compare",
    )  # fmt: skip
    logs: Sequence[str] | None = option(
        "Logs to make the network from, in place of measurements: outputs of nccl-tests, DeepSpeed's communication "
        "benchmarks, iperf3 -J, ping, or tables of regions.", flag="--from", metavar="FILE", repeatable=True,
        several=True,
    )  # fmt: skip
    workers: int | Sequence[int] = option(
        "Numbers of processes to measure with, one after another.", (2, 4), shell_default="2,4", metavar="P,P",
        reader="process_counts",
    )  # fmt: skip
    fields: Mapping[str, Any] | None = shared.fields()
    network: Any = option("Network whose latency and bandwidth are known; by default both are fitted.", metavar="NET")
    sizes: str | Sequence[str | float] | None = option(
        "Tensor sizes of the collectives; by default 4 B to 16 MiB.", metavar="SIZE,SIZE", reader="text"
    )
    budget: str | float | None = option("Time for each collective and size; by default 150 ms.", metavar="TIME")
    window: str | float | None = option(
        "Time for the training steps, and again for the matrix products; by default 1 s.", metavar="TIME"
    )
    device: str = shared.device()
    backend: str = shared.backend()
    timeout: str | float = shared.timeout()
    out: str | Path | None = option(
        "Cluster file to write; by default cluster.yaml.",
        description="Cluster file to write; by default a temporary file that goes with the result.", metavar="FILE",
        flag="--out -o",
    )  # fmt: skip
    json: bool = shared.json()
