"""Entry point for torchrun: ``torchrun --nproc-per-node 4 -m syncline.torchrun SPEC``."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import typer

from syncline.cli.application import UsageError, error_of_click
from syncline.cli.commands import SETTINGS, Command, callback_of
from syncline.errors import SpecError, SynclineError
from syncline.interrupts import exit_code
from syncline.questions.processes import Torchrun


def run_under_torchrun(question: Torchrun) -> None:
    """Run a spec in the processes that torchrun started, or calibrate their machines."""
    if question.calibrate:
        if question.reproducible:
            raise SpecError("--reproducible", True, "a SPEC without --calibrate, as only a training has this option")
        _calibrate(question)
        return
    if question.spec is None:
        raise SpecError("SPEC", None, "a YAML file or a bundled spec; without one there is only --calibrate")
    for option in ("network", "sizes", "budget", "window"):
        value = getattr(question, option)
        if value is not None:
            raise SpecError(f"--{option}", value, "--calibrate as well, as only a calibration has this option")
    from syncline.measure.launching import torchrun
    from syncline.measure.launching.process import Launch
    from syncline.specs import Override, RunSpec, load_spec
    from syncline.units import parse_seconds

    launch = Launch(
        question.device, question.backend,
        timeout_s=parse_seconds(question.timeout, "--timeout"), reproducible=question.reproducible,
        workers_per_process=question.workers_per_process,
    )  # fmt: skip
    changes = [Override.parse(text) for text in question.fields or ()]
    num_processes = os.environ.get("WORLD_SIZE", "")  # torchrun sets it
    if num_processes.isdecimal():
        workers = int(num_processes) * question.workers_per_process
        changes.append(Override.option("WORLD_SIZE", "workers", workers))
    spec = load_spec(question.spec, changes, RunSpec)
    target = question.out or Path("runs") / spec.name
    is_exact = question.out is not None  # a folder that the user names gets no number
    result = torchrun.run_under_torchrun(spec, target, launch, exact=is_exact)
    if "folder" in result:
        print(f"results in {result['folder']}/", file=sys.stderr)
    if result["failed"]:
        note = "; what was measured until then is in the folder above" if "folder" in result else ""
        print(f"error: {result['failed']}{note}", file=sys.stderr)
        _exit_at_once(1)
    if result.get("interrupted"):
        print("interrupted: what was measured until then is in the folder above", file=sys.stderr)
        _exit_at_once(exit_code())


def _calibrate(question: Torchrun) -> None:
    """Calibrate the machines of the processes that torchrun started, and print the result on the first rank."""
    from syncline.cli.shell import new_console
    from syncline.measure.calibration.calibrate import calibrate_under_torchrun
    from syncline.measure.calibration.plan import plan_of_options
    from syncline.measure.calibration.tables import calibrate_tables
    from syncline.measure.launching.process import Launch
    from syncline.units import parse_seconds

    plan = plan_of_options(
        question.spec, question.fields or (), known_network=question.network, sizes=question.sizes,
        budget=question.budget, window=question.window,
    )  # fmt: skip
    launch = Launch(question.device, question.backend, parse_seconds(question.timeout, "--timeout"))
    command = shlex.join(["python", "-m", "syncline.torchrun", *sys.argv[1:]])
    target, is_exact = question.out or Path("cluster.yaml"), question.out is not None  # as in `run_under_torchrun`
    result = calibrate_under_torchrun(plan, target, launch, command=command, exact=is_exact)
    if "failed" in result:
        print(f"error: {result['failed']}", file=sys.stderr)
        _exit_at_once(1)
    if result:
        console = new_console()
        for table in calibrate_tables(result):
            console.print(table)
        print(f"results in {result['file']}", file=sys.stderr)


def _exit_at_once(code: int, error: str = "") -> None:
    """End this process at once with an exit code; rank 0 prints the error first."""
    if error and os.environ.get("RANK", "0") == "0":
        print(f"error: {error}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Torch may abort while the interpreter shuts down, and a thread may be stuck in a collective.
    os._exit(code)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, **SETTINGS)
    app.command(cls=Command)(callback_of(Torchrun, run_under_torchrun))
    try:
        app(prog_name="python -m syncline.torchrun", standalone_mode=False)
    except SynclineError as error:
        _exit_at_once(2, str(error))
    except UsageError as error:
        _exit_at_once(2, str(error_of_click(error)))
    except SystemExit as end:
        _exit_at_once(int(end.code or 0))
