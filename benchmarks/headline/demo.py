"""The headline from what is kept of its runs, beside a few of its trainings made afresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.headline.__main__ import figures
from benchmarks.headline.kept import TARGETS, Finals, finals
from benchmarks.headline.tables import markdown, seconds
from syncline.runs.compare import compare
from syncline.specs import CompareSpec, load_spec

FRESH = "compare-text"
"""Some of the headline's methods, at its first seed."""


def demo(out: Path = Path("runs")) -> None:
    """Print who is when at a loss, draw the pictures, train again and hold the losses against those that are kept."""
    kept = finals()
    drawn = figures(kept, out / "headline")
    print(in_columns(at_a_glance(kept)))
    print("Ranges over the seeds, other losses and larger models: results/headline/README.md")
    spec = load_spec(FRESH, (), CompareSpec)
    print(f"\ntraining {', '.join(one.name for one in spec.methods)} again, seed {spec.seeds[0]} ...", flush=True)
    fresh = compare(spec, out / FRESH)
    print(in_columns(beside(kept, spec.seeds[0], fresh["rows"])))
    for path in (*drawn, Path(fresh["folder"])):
        print(path)


def at_a_glance(kept: Finals, target: float = TARGETS[1]) -> str:
    """A table that 80 characters hold: when most seeds were at a loss on each network, and the loss at the end."""
    at: dict[str, list[str]] = {}
    for row in kept.rows((target,)):
        at.setdefault(row.method, [f"{row.loss:.3f}"]).append(seconds(row.reached[target].median_s))
    networks = [f"on {link.name}" for link in kept.spec.networks]
    return markdown([f"time to {target:.2f}", "last loss", *networks], ([name, *cells] for name, cells in at.items()))


def beside(kept: Finals, seed: int, rows: list[dict[str, Any]]) -> str:
    """Final losses of one seed, kept and made afresh; another processor's rounding changes some digits."""
    found = {row["method"]: row["loss"] for row in rows}
    cells = []
    for name, loss in found.items():
        history = kept.trained[name].history
        before = float(history.evaluation["loss"][-1, history.seeds.index(seed)])
        cells.append([name, f"{before:.4f}", f"{loss:.4f}", f"{loss - before:+.4f}"])
    return markdown([f"final loss at seed {seed}", "kept", "made afresh", "difference"], cells)


def in_columns(text: str) -> str:
    """Tables in Markdown with columns of one width, without lines below their heads."""
    lines, table = [], list[list[str]]()
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if set(cells) != {"---"}:
                table.append(cells)
            continue
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        lines, table = [*lines, line], []
    return "\n".join(lines)
