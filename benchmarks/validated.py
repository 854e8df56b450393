"""What is validated how well, in the README's table: ``python -m benchmarks.validated``.

Each row is computed from measurements that are kept beside what was predicted of them; a test holds the README to it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from syncline.measure.validation.cluster_files import BUNDLED_FILES, predicted_rows

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "syncline" / "measure" / "validation" / "measured"
HEAD = "| predicted, then measured | points | median error | worst |\n|---|---|---|---|\n"


def row(what: str, errors: Iterable[float]) -> str:
    """A line of absolute errors of ``predicted / measured - 1``."""
    off = np.abs(np.fromiter(errors, float))
    return f"| {what} | {off.size} | {np.median(off):.1%} | {off.max():.0%} |\n"


def kept_errors(path: Path, predicted: str, measured: str) -> list[float]:
    """Of a table that has both."""
    with path.open(encoding="utf-8", newline="") as file:
        return [float(one[predicted]) / float(one[measured]) - 1 for one in csv.DictReader(file)]


def validated() -> str:
    """The table, in Markdown."""
    by_file = {
        path.name: [one["error"] for one in predicted_rows(path) if one["error"] is not None] for path in BUNDLED_FILES
    }
    gloo, steps = (
        kept_errors(MEASURED / f"own_{one}.csv", "predicted_ms", "measured_ms") for one in ("collectives", "steps")
    )
    traces = kept_errors(ROOT / "results" / "trace" / "shaped.csv", "predicted_s", "measured_s")
    return HEAD + "".join(
        [
            row("collectives of gloo, over links that we set ([how](results/validation/collectives.md))", gloo),
            row("steps of small trainings, over links that we set ([how](results/validation/trainings.md))", steps),
            row("steps of unmodified scripts, traced, over links that we set ([how](results/trace/shaped.md))", traces),
            row(
                "collectives of NCCL and gloo, others' cloud machines ([how](docs/clusters.md))",
                by_file["collectives.csv"],
            ),
            row("steps of DDP and DiLoCo, others' GPUs over TCP ([how](docs/clusters.md))", by_file["l40s_steps.csv"]),
            row("steps of GPTs, one node of A100 ([how](docs/validation.md))", by_file["a100_one_node.csv"]),
            row("steps of GPTs, several nodes of A100 ([how](docs/validation.md))", by_file["a100_nodes.csv"]),
        ]
    )


if __name__ == "__main__":
    print(validated(), end="")
