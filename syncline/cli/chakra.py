"""The command that converts records to Chakra execution traces and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import completion
from syncline.cli.shell import JsonOption, OutOption, app, emit, examples, say
from syncline.cli.traces import PANEL, HostOption, MachineOption
from syncline.units import format_bytes

ACTIONS = ("export", "import")


@app.command(
    "chakra",
    rich_help_panel=PANEL,
    epilog=examples(
        "syncline chakra export runs/trace-train --hardware h100 --out for-astra-sim",
        "syncline chakra import from-others --out runs/from-others",
        "syncline whatif runs/from-others --hardware measured --network 10gbe",
    ),
)
def chakra_command(
    action: Annotated[
        str,
        typer.Argument(metavar="export|import", help="Which way.", autocompletion=completion.among(*ACTIONS)),
    ],
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of a record to export, or of traces NAME.0.et, NAME.1.et, ...")
    ],
    hardware: MachineOption = None,
    host: HostOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn the record of a trace into Chakra execution traces, one file per rank, as ASTRA-sim reads them; or back.

    An export says microseconds of the hardware beside FLOPs and bytes, and what waits for what as its host does.
    """
    from syncline.api.traces import HARDWARE
    from syncline.errors import SpecError, one_of
    from syncline.measure.replaying.chakra.folders import export_record, take_chakra

    if action not in ACTIONS:
        raise SpecError("action", action, one_of(ACTIONS, action))
    if action == "export":
        target = out or Path("runs") / f"{source.resolve().name}-chakra"
        rows, folder = export_record(source, hardware or HARDWARE, host, target, exact=out is not None)
        summary = f"{len(rows)} ranks, {format_bytes(sum(row['bytes'] for row in rows))} in {folder}/"
    else:
        target = out or Path("runs") / f"{source.resolve().name}-record"
        rows, folder = take_chakra(source, target, exact=out is not None)
        summary = f"record in {folder}/; on networks: syncline whatif {folder} --hardware measured --network NET"
    if as_json:
        emit({"rows": rows, "folder": str(folder)})
    else:
        say(summary)
