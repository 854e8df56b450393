"""Commands that trace foreign scripts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import completion
from syncline.cli.shell import (
    AlgorithmOption,
    JsonOption,
    NetworksOption,
    OutOption,
    app,
    each_network,
    emit,
    examples,
    new_console,
    print_tables,
    say,
    show_files,
)
from syncline.cli.usage import Missing

if TYPE_CHECKING:
    from syncline.api.result import Result

PANEL = "A script of your own"

ScriptArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- SCRIPT ...", help="A file, or -m and a module's name; its arguments."),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME",
        help="See 'syncline list hardware'; or measured[:SCALE], what recording took; a100 by default.",
        autocompletion=completion.hardware,
    ),
]
TargetOption = Annotated[
    float | None,
    typer.Option("--target-loss", metavar="X", help="Say when it is reached; of several the highest final loss."),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="ahead|waits",
        help="Whether the host goes ahead of its device, as a GPU's, or waits, as a CPU; by the hardware.",
        autocompletion=completion.among("ahead", "waits"),
    ),
]


@app.command(
    "trace",
    rich_help_panel=PANEL,
    epilog=examples(
        "syncline trace --workers 4 -- train.py --epochs 1",
        "syncline trace --network 10gbe --network wan --hardware h100 -- -m my.training",
        "syncline trace --shapes --workers 256 --network dgx-h100 -- train.py",
        "syncline trace --script 'train.py --every 1' --script 'train.py --every 8'",
    ),
)
def trace_command(
    script: ScriptArgument = None,
    several: Annotated[
        list[str] | None,
        typer.Option(
            "--script", metavar="WORDS", help="In place of --, repeatable: scripts to compare, as one types them."
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", metavar="P", help="Ranks, one process each.")] = 4,
    network: NetworksOption = None,
    hardware: MachineOption = None,
    algorithm: AlgorithmOption = None,
    host: HostOption = None,
    target_loss: TargetOption = None,
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu",
            metavar="auto|none",
            help="none: the script sees no GPU; auto: CUDA_VISIBLE_DEVICES', else one for each rank.",
            autocompletion=completion.among("auto", "none"),
        ),
    ] = "auto",
    clock: Annotated[
        str,
        typer.Option(
            "--clock",
            metavar="refuse|allow",
            help="Whether the script may decide by the clock, as it is during the recording.",
            autocompletion=completion.among("refuse", "allow"),
        ),
    ] = "refuse",
    shapes: Annotated[
        bool, typer.Option("--shapes", help="By shapes alone: no values and no losses, of hundreds of ranks.")
    ] = False,
    ranks: Annotated[
        str | None,
        typer.Option("--ranks", metavar="R,R,...", help="With --shapes: which are recorded; found unless named."),
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a torch.distributed script as it is, with its own math, and say what it would take on networks.

    What the script prints goes to standard error. Its operations are counted, and timed on the hardware.
    """
    from syncline.api.traces import HARDWARE, NETWORKS, folder_name, replay_result
    from syncline.measure.recording.ranks import TraceOptions, script_of, traced
    from syncline.measure.recording.shapes import Shaping, parse_ranks
    from syncline.measure.replaying.scenario import ReplayedOn
    from syncline.measure.replaying.trace import MOST_SHAPED, MOST_WORKERS, trace

    programs = [script_of(words) for words in _scripts(script, several)]
    question = ReplayedOn.from_options(
        each_network(network) or list(NETWORKS), hardware or HARDWARE, algorithm, host=host, target_loss=target_loss
    )
    options = TraceOptions(gpu, clock)
    target = out or Path("runs") / folder_name(programs)
    if ranks is not None and not shapes:
        from syncline.errors import SpecError

        raise SpecError("--ranks", ranks, "--shapes beside it, as with real math all ranks are recorded")
    run = Shaping(parse_ranks(ranks)) if shapes else traced
    limit = MOST_SHAPED if shapes else MOST_WORKERS
    answer = trace(
        programs, workers, question, target, exact=out is not None, run=run, max_workers=limit, options=options
    )
    result = replay_result("trace", answer, question)
    _show(result, as_json)
    if not as_json:
        say(f"on other networks, and what decides: syncline whatif {shlex.quote(str(result.folder))} --network NET")


def _scripts(script: list[str] | None, several: list[str] | None) -> list[list[str]]:
    """Return the words of each script."""
    if bool(script) == bool(several):
        raise Missing("script", "one script behind --, or --script with what one types, once for each")
    try:
        words = [shlex.split(text) for text in several or ()]
    except ValueError as error:
        from syncline.errors import SpecError

        raise SpecError("--script", several, f"words as one types them ({error})") from None
    if several and not all(words):
        raise Missing("--script", "a file, or -m and a module's name; its arguments")
    return words or [list(script or ())]


@app.command(
    "whatif",
    rich_help_panel=PANEL,
    epilog=examples(
        "syncline whatif runs/trace-train --network two-sites",
        "syncline whatif runs/trace-train --scale-bandwidth .5 --overlap off",
        "syncline whatif runs/trace-train runs/trace-other --network wan",
    ),
)
def whatif_command(
    records: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORD...", help="Folders of traces; the first is the baseline.", autocompletion=completion.runs
        ),
    ],
    network: NetworksOption = None,
    hardware: MachineOption = None,
    algorithm: AlgorithmOption = None,
    host: HostOption = None,
    bandwidth: Annotated[
        float, typer.Option("--scale-bandwidth", metavar="X", help="Factor on the bandwidth of all links.")
    ] = 1.0,
    latency: Annotated[
        float, typer.Option("--scale-latency", metavar="X", help="Factor on the latency of all links.")
    ] = 1.0,
    compute: Annotated[
        float, typer.Option("--scale-compute", metavar="X", help="Factor on the speed of computing.")
    ] = 1.0,
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap",
            metavar="on|off",
            help="off: what a collective brings is waited for at once.",
            autocompletion=completion.among("on", "off"),
        ),
    ] = "on",
    target_loss: TargetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="A new folder for results; none by default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay records of traces on other networks or hardware, and say what decides their step times.

    Nothing is run. Several records are compared.
    """
    from syncline.api.traces import HARDWARE, NETWORKS, replay_result
    from syncline.errors import SpecError, one_of
    from syncline.measure.replaying.scenario import Changes, ReplayedOn
    from syncline.measure.replaying.trace import whatif

    if overlap not in ("on", "off"):
        raise SpecError("--overlap", overlap, one_of(("on", "off"), overlap))
    changes = Changes(bandwidth, latency, compute, overlap == "on")
    machine, networks = hardware or HARDWARE, each_network(network) or list(NETWORKS)
    question = ReplayedOn.from_options(networks, machine, algorithm, host, changes, target_loss)
    _show(replay_result("whatif", whatif(records, question, out, exact=out is not None), question), as_json)


def _show(result: Result, as_json: bool) -> None:
    """Print the JSON object, or tables and the paths of files."""
    if as_json:
        emit(result)
        return
    console: Any = new_console()
    print_tables(console, result)
    if result.folder is not None:
        show_files(console, result.folder)
