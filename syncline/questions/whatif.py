"""The question of ``syncline whatif``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.questions import shared, trace
from syncline.questions.declare import REQUIRED, Question, option


class Whatif(
    Question,
    panel=shared.SCRIPT,
    examples=(
        "syncline whatif runs/trace-train --network two-sites",
        "syncline whatif runs/trace-train --scale-bandwidth .5 --overlap off",
        "syncline whatif runs/trace-train runs/trace-other --network wan",
    ),
):
    """Replay recorded traces on other networks or hardware, and show what limits their step times.

    Nothing is run. Several records are compared with the first.

    Returns:
        The result with a row per record and network; `Result.json` also has ``sites``, ``links``, ``losses`` and
        ``sensitivities``.
    """

    record: Any = option(
        "Folders of recorded traces; the first is the baseline.", REQUIRED, in_order=True, metavar="RECORD...",
        positional=True, repeatable=True, completion="runs",
    )  # fmt: skip
    networks: Any = shared.networks()
    hardware: Any = trace.hardware()
    algorithm: str | None = shared.algorithm()
    host: str | None = trace.host()
    scale_bandwidth: float = option("Factor on the bandwidth of all links.", 1.0, metavar="X")
    scale_latency: float = option("Factor on the latency of all links.", 1.0, metavar="X")
    scale_compute: float = option("Factor on the speed of computation.", 1.0, metavar="X")
    overlap: bool = option(
        "off: wait for the result of each collective at once.", True,
        description="Let collectives run while a worker computes; otherwise a worker waits for each call at once.",
        shell_default="on", metavar="on|off", completion=("on", "off"), reader="on_or_off",
    )  # fmt: skip
    compiled: bool = option("Join elementwise operations, as a compiler does.", False)
    async_tp: bool = option("Overlap collectives that are waited for at once with the products beside them.", False)
    target_loss: float | None = trace.target_loss()
    out: str | Path | None = shared.out(
        help="New folder for the results; by default none is written.",
        description="New folder for the results; by default a temporary one that goes with the result.",
    )
    exact: bool = shared.exact()
    json: bool = shared.json()
