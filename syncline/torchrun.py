"""Entry point for torchrun: ``torchrun --nproc-per-node 4 -m syncline.torchrun SPEC``."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli.shell import (
    TIMEOUT,
    BackendOption,
    DeviceOption,
    NoCodeOption,
    PerProcessOption,
    ReproducibleOption,
    SetOption,
    TimeoutOption,
    overridden,
)
from syncline.cli.usage import UsageError, refusal
from syncline.errors import SpecError, SynclineError
from syncline.interrupts import exit_code


def torchrun_command(
    spec: Annotated[str | None, typer.Argument(help="A YAML file or a bundled spec.")] = None,
    overrides: SetOption = None,
    device: DeviceOption = "auto",
    backend: BackendOption = "auto",
    timeout: TimeoutOption = TIMEOUT,
    reproducible: ReproducibleOption = False,
    workers_per_process: PerProcessOption = 1,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where rank 0 writes results.")] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Do what 'syncline calibrate' does, and write cluster.yaml or --out.")
    ] = False,
    network: Annotated[
        str | None, typer.Option("--network", metavar="NET", help="With --calibrate: latency and bandwidth, if known.")
    ] = None,
    sizes: Annotated[str | None, typer.Option("--sizes", help="With --calibrate: of the collectives.")] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="With --calibrate: for each collective and size.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="TIME", help="With --calibrate: for training steps.")
    ] = None,
    no_code: NoCodeOption = False,
) -> None:
    """Run a spec in processes that torchrun started, one worker or more in each; or calibrate their machines."""
    if calibrate:
        if reproducible:
            raise SpecError("--reproducible", True, "none, as a calibration adds nothing up")
        _calibrate(spec, overrides, network, sizes, budget, window, device, backend, timeout, out)
        return
    if spec is None:
        raise SpecError("SPEC", None, "a YAML file or a bundled spec; without one there is only --calibrate")
    for name, value in (("--network", network), ("--sizes", sizes), ("--budget", budget), ("--window", window)):
        if value is not None:
            raise SpecError(name, value, "--calibrate beside it, whose option it is")
    from syncline.measure.launching.process import Launch
    from syncline.measure.launching.torchrun import run_under_torchrun
    from syncline.specs import RunSpec, load_spec
    from syncline.units import number_or_text, parse_seconds

    launch = Launch(
        device,
        backend,
        parse_seconds(number_or_text(timeout), "--timeout"),
        reproducible,
        workers_per_process=workers_per_process,
    )
    processes = os.environ.get("WORLD_SIZE", "")
    workers = int(processes) * workers_per_process if processes.isdecimal() else None
    loaded = load_spec(spec, overridden(overrides, {"WORLD_SIZE": ("workers", workers)}), RunSpec)
    result = run_under_torchrun(loaded, out or Path("runs") / loaded.name, launch, exact=out is not None)
    if "folder" in result:
        print(f"results in {result['folder']}/", file=sys.stderr)
    if result["failed"]:
        where = "; what was measured until then is in the folder above" if "folder" in result else ""
        print(f"error: {result['failed']}{where}", file=sys.stderr)
        _leave(1)
    if result.get("interrupted"):
        print("interrupted: what was measured until then is in the folder above", file=sys.stderr)
        _leave(exit_code())


def _calibrate(
    spec: str | None,
    overrides: list[str] | None,
    network: str | None,
    sizes: str | None,
    budget: str | None,
    window: str | None,
    device: str,
    backend: str,
    timeout: str,
    out: Path | None,
) -> None:
    from syncline.cli.shell import new_console
    from syncline.measure.calibration.calibrate import calibrate_under_torchrun
    from syncline.measure.calibration.plan import planned
    from syncline.measure.calibration.tables import calibrate_tables
    from syncline.measure.launching.process import Launch
    from syncline.units import number_or_text, parse_seconds

    plan = planned(spec, overrides or (), known_network=network, sizes=sizes, budget=budget, window=window)
    launch = Launch(device, backend, parse_seconds(number_or_text(timeout), "--timeout"))
    command = shlex.join(["python", "-m", "syncline.torchrun", *sys.argv[1:]])
    target = out or Path("cluster.yaml")
    result = calibrate_under_torchrun(plan, target, launch, command=command, exact=out is not None)
    if "failed" in result:
        print(f"error: {result['failed']}", file=sys.stderr)
        _leave(1)
    if result:
        console = new_console()
        for table in calibrate_tables(result):
            console.print(table)
        print(f"results in {result['file']}", file=sys.stderr)


def _leave(code: int, error: str = "") -> None:
    if error and os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Torch may abort while the interpreter shuts down, and a thread may be stuck in a collective.
    os._exit(code)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(torchrun_command)
    try:
        app(prog_name="python -m syncline.torchrun", standalone_mode=False)
    except SynclineError as error:
        _leave(2, str(error))
    except UsageError as error:
        _leave(2, str(refusal(error)))
    except SystemExit as end:
        _leave(int(end.code or 0))
