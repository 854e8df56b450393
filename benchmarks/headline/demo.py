"""The headline from its tables, and four trainings of the small form made again."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.headline.figures import figures
from benchmarks.headline.finals import TARGETS, Finals, finals
from benchmarks.headline.tables import markdown, seconds
from syncline.runs.compare import compare
from syncline.specs import CompareSpec, load_spec

SMALL, SMALL_RUN = "compare-text", "protocol-2-small"
"""A bundled spec, and the run in ``results/replication`` that has its trainings among its finals."""


def demo(out: Path = Path("runs")) -> None:
    """Print times to a loss, draw the pictures, train four methods again, and compare their losses with the stored."""
    paths = figures(finals(), out / "headline")
    print(in_columns(times_table(finals(), TARGETS[1])))
    print("Ranges over the seeds, other losses and larger models: docs/findings.md")
    spec = load_spec(SMALL, (), CompareSpec)
    names = ", ".join(method.name for method in spec.methods)
    print(f"\ntraining {names} again in a smaller form, seed {spec.seeds[0]} ...", flush=True)
    result = compare(spec, out / SMALL)
    print(in_columns(differences(finals(SMALL_RUN), spec.seeds[0], result["rows"])))
    for path in (*paths, Path(result["folder"])):
        print(path)


def times_table(stored: Finals, target: float) -> str:
    """A table of at most 80 characters: the last loss, and when most seeds reached a loss on each network."""
    rows = [
        [
            method,
            f"{median(stored.last_losses(method)):.3f}",
            *(seconds(stored.median_time_s(method, network, target)) for network in stored.networks),
        ]
        for method in stored.cells
    ]
    return markdown([f"time to {target:.2f}", "last loss", *(f"on {network}" for network in stored.networks)], rows)


def differences(stored: Finals, seed: int, rows: list[dict[str, Any]]) -> str:
    """A table of final losses at a seed, stored and trained again; another processor's rounding changes some digits."""
    losses = {row["method"]: row["loss"] for row in rows}
    index = stored.setting.seeds.index(seed)
    cells = []
    for method, loss in losses.items():
        before = stored.last_losses(method)[index]
        cells.append([method, f"{before:.4f}", f"{loss:.4f}", f"{loss - before:+.4f}"])
    return markdown([f"final loss at seed {seed}", "stored", "trained again", "difference"], cells)


def in_columns(text: str) -> str:
    """Write a table in Markdown as columns for a terminal."""
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    del lines[1]
    return "\n".join(lines) + "\n"
