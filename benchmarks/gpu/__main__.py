"""What one GPU does with Syncline's work, in one command, in at most 20 minutes and without a network.

    python -m benchmarks.gpu [--parts ceilings,compute] [--budget 20min] [--out results/gpu/my-gpu.json]
    python -m benchmarks.gpu --device cpu --tiny

Writes results/gpu/NAME.json, named after the device, after each part; a part that fails is told there and the others go
on. `--tiny` only shows that the code runs; on the CPU nothing is written without `--out`. Exit code 77: no GPU, said in
one line. 1: a part failed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.gpu.ceilings import ceilings
from benchmarks.gpu.collectives import alone, nccl, shared
from benchmarks.gpu.compute import compute
from benchmarks.gpu.facts import facts
from benchmarks.gpu.kernels import kernels
from benchmarks.gpu.optimizers import optimizers, other_optimizers
from benchmarks.gpu.parts import Part, run
from benchmarks.gpu.readback import readback
from benchmarks.gpu.report import show
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.shapes import shapes
from benchmarks.gpu.updates import updates
from benchmarks.gpu.workers import workers
from syncline.errors import SpecError, one_of
from syncline.units import parse_seconds

SKIPPED = 77
FOLDER = Path("results/gpu")
WIDTH = 160  # of tables in a file

PARTS = {
    part.name: part
    for part in (
        Part("facts", facts, 20.0),
        Part("ceilings", ceilings, 45.0),
        Part("shapes", shapes, 90.0),
        Part("compute", compute, 90.0),
        Part("readback", readback, 15.0),
        Part("alone", alone, 30.0),
        Part("nccl", nccl, 60.0),
        Part("shared", shared, 60.0),
        Part("kernels", kernels, 60.0),
        Part("updates", updates, 60.0),
        Part("optimizers", optimizers, 150.0),
        Part("other-optimizers", other_optimizers, 90.0),
        Part("workers", workers, 380.0),
    )
}
"""In their order; `facts` comes first whatever is asked for."""


def parser() -> argparse.ArgumentParser:
    of = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    of.add_argument("--parts", default=",".join(PARTS), help=f"with commas between: {', '.join(PARTS)}")
    of.add_argument("--budget", default="20min", help="of all parts together; those that do not fit are skipped")
    of.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    of.add_argument("--tiny", action="store_true", help="sizes that take no time and mean nothing")
    of.add_argument("--out", type=Path, help=f"a .json; default {FOLDER}/NAME.json")
    return of


def chosen(text: str) -> list[Part]:
    """Parts by name, in their own order."""
    names = {"facts"}
    for name in text.split(","):
        if name not in PARTS:
            raise SpecError("--parts", name, one_of(PARTS, name))
        names.add(name)
    return [part for name, part in PARTS.items() if name in names]


def path_of(options: argparse.Namespace, device: str, parts: list[Part]) -> Path | None:
    """Where the result goes; that of some parts alone never takes the place of a whole one."""
    if options.out or options.device == "cpu":
        return options.out
    words = [device, *(["tiny"] if options.tiny else [])]
    words += [part.name for part in parts if part.name != "facts"] if len(parts) < len(PARTS) else []
    return FOLDER / f"{re.sub('[^a-z0-9]+', '-', ' '.join(words).lower()).strip('-')}.json"


def write(result: dict[str, Any], path: Path) -> None:
    """All of it, or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial")
    beside.write_text(json.dumps(result, indent=1) + "\n")
    beside.replace(path)


def measure(parts: list[Part], options: argparse.Namespace, words: list[str], budget_s: float) -> int:
    start_s = time.monotonic()
    setting, console = Setting(options.device, options.tiny), Console(width=None if sys.stdout.isatty() else WIDTH)
    result: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.gpu", *words]),
        "tiny": options.tiny,
        "parts": {},
    }
    path, device = None, "unknown"
    for part in parts:
        result["parts"][part.name] = run(part, setting, budget_s - (time.monotonic() - start_s))
        if part.name == "facts":
            device = next((row["device"] for row in result["parts"]["facts"]["rows"]), device)
            path = path_of(options, device, parts)
        result["seconds"] = time.monotonic() - start_s
        if path:
            write(result, path)
        show(part.name, result, console)
    if path:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
    return int(any("failed" in part for part in result["parts"].values()))


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(words)
    try:
        parts, budget_s = chosen(options.parts), parse_seconds(options.budget, "--budget")
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch finds no GPU here (--device cpu --tiny shows that the code runs)", file=sys.stderr)
        return SKIPPED
    return measure(parts, options, words, budget_s)


if __name__ == "__main__":
    sys.exit(main())
