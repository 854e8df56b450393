"""What the commands have in common that print rows of measurements: options, a stopwatch, rows as a table or JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

R = TypeVar("R", bound=NamedTuple)


def parser_of(module: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser named after the module, with its docstring's first line and the option ``--json``."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(doc or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object with 'rows', and nothing else")
    return parser


def show(rows: Sequence[R], table: Callable[[Sequence[R]], str], as_json: bool) -> None:
    """Print rows."""
    print(json.dumps({"rows": [row._asdict() for row in rows]}, indent=2) if as_json else table(rows))


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process in a call."""
    start_s = time.process_time()
    work()
    return time.process_time() - start_s
