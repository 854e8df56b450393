"""The questions about a user's script: ``trace`` records it, ``whatif`` replays and ``chakra`` converts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, REQUIRED, SHELL, Question, option

NETWORKS = ("infiniband", "10gbe", "wan")
"""Default networks of a trace."""

HARDWARE = "a100"
"""Default hardware of a trace."""

hardware = partial(
    shared.hardware,
    help="Hardware: a name from 'syncline list hardware', or measured[:SCALE] for the recorded times.",
    default=HARDWARE, metavar="NAME",
)  # fmt: skip
host = partial(
    option,
    help="Whether the host runs ahead of its device, as with a GPU, or waits for it, as with a CPU; by default by the "
    "hardware.", metavar="ahead|waits", completion=("ahead", "waits"),
)  # fmt: skip
target_loss = partial(
    option, help="Loss whose time to reach is reported; by default the highest of several scripts' final losses.",
    metavar="X",
)  # fmt: skip


class Trace(
    Question,
    panel=shared.SCRIPT,
    examples=(
        "syncline trace --workers 4 -- train.py --epochs 1",
        "syncline trace --network 10gbe --network wan --hardware h100 -- -m my.training",
        "syncline trace --shapes --workers 256 --network dgx-h100 -- train.py",
        "syncline trace --script 'train.py --every 1' --script 'train.py --every 8'",
    ),
):
    """Run an unmodified torch.distributed script, record its operations, and predict its time on networks.

    The script's own output goes to standard error. Syncline counts the script's operations and times them on the
    hardware.

    Returns:
        The result with a row per script and network; `Result.json` also has ``sites``, ``links`` and ``losses``.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted; or a rank failed, and the
            message has its traceback.
    """

    what: str | Path | Callable[[], object] | Sequence[str | Path | Callable[[], object]] | None = option(
        "A script, or a function without arguments that does the same; the first of several is the baseline of the "
        "speedups.", in_order=True, place=PYTHON,
    )  # fmt: skip
    script: Sequence[str] | None = option(
        "Script file, or -m and a module, followed by the script's arguments.", metavar="-- SCRIPT ...",
        positional=True, repeatable=True, place=SHELL,
    )  # fmt: skip
    scripts: Sequence[str] | None = option(
        "Command line of a script, in place of '-- SCRIPT'; repeatable, to compare scripts.", flag="--script",
        metavar="WORDS", repeatable=True, place=SHELL,
    )  # fmt: skip
    workers: int = option("Number of ranks; each is a process.", 4, metavar="P")
    networks: Any = shared.networks()
    hardware: Any = hardware()
    algorithm: str | None = shared.algorithm()
    host: str | None = host()
    target_loss: float | None = target_loss()
    gpu: str = option(
        "GPUs that the script sees: none, or auto (CUDA_VISIBLE_DEVICES, else one for each rank).", default="auto",
        metavar="auto|none", completion=("auto", "none"),
    )  # fmt: skip
    clock: str = option(
        "Allow the script to make decisions by the clock, which is that of the recording; or refuse it.", "refuse",
        metavar="refuse|allow", completion=("refuse", "allow"),
    )  # fmt: skip
    shapes: bool = option(
        "Record shapes only, without values or losses; works for hundreds of ranks.", default=False, place=SHELL
    )
    ranks: str | None = option(
        "With --shapes: ranks to record; by default Syncline finds the ranks that differ.", metavar="R,R,...",
        place=SHELL,
    )  # fmt: skip
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    json: bool = shared.json()


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
    hardware: Any = hardware()
    algorithm: str | None = shared.algorithm()
    host: str | None = host()
    scale_bandwidth: float = option("Factor on the bandwidth of all links.", 1.0, metavar="X")
    scale_latency: float = option("Factor on the latency of all links.", 1.0, metavar="X")
    scale_compute: float = option("Factor on the speed of computation.", 1.0, metavar="X")
    overlap: bool = option(
        "off: wait for the result of each collective at once.", True,
        description="Let collectives run while a worker computes; otherwise a worker waits for each call at once.",
        shell_default="on", metavar="on|off", completion=("on", "off"), reader="on_or_off",
    )  # fmt: skip
    compiled: bool = option("Join elementwise operations, as a compiler does.", False)
    async_tp: bool = option(
        "Overlap collectives whose results are needed at once with the products next to them.", False
    )
    target_loss: float | None = target_loss()
    out: str | Path | None = shared.out(
        help="New folder for the results; by default none is written.",
        description="New folder for the results; by default a temporary one that goes with the result.",
    )
    exact: bool = shared.exact()
    json: bool = shared.json()


ACTIONS = ("export", "import")
"""Directions of the conversion."""


class Chakra(
    Question,
    panel=shared.SCRIPT,
    examples=(
        "syncline chakra export runs/trace-train --hardware h100 --out for-astra-sim",
        "syncline chakra import from-others --out runs/from-others",
        "syncline whatif runs/from-others --hardware measured --network 10gbe",
    ),
):
    """Convert a recorded trace to Chakra execution traces for ASTRA-sim, one file per rank; or back.

    An export has FLOPs, bytes and the microseconds on the hardware, and the dependencies that the host imposes.
    """

    action: str = option(
        "Direction of the conversion: export or import.", REQUIRED, metavar="export|import", positional=True,
        completion=ACTIONS,
    )  # fmt: skip
    source: Path = option(
        "Folder of the record to export, or of the traces NAME.0.et, NAME.1.et, ...", REQUIRED, metavar="FOLDER",
        positional=True,
    )  # fmt: skip
    hardware: str | None = hardware()
    host: str | None = host()
    out: str | Path | None = shared.out()
    json: bool = shared.json()
