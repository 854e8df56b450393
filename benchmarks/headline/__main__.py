"""The headline's commands: see ``benchmarks.headline``."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import benchmarks.headline
from benchmarks.headline.choose import chosen_methods, in_one_line, keep_again, second_look
from benchmarks.headline.kept import RESULTS, TARGETS, Finals, finals, keep_losses
from benchmarks.headline.sizes import sizes
from benchmarks.headline.step_times import step_times
from benchmarks.headline.tables import by_network, by_size, losses
from benchmarks.headline.words import words
from syncline.analysis import loss_against_clock, method_styles, save

FIRST = "method", "trial", "loss"
README_NETWORKS = "infiniband", "wan"
README_METHODS = "ddp-adam-untuned", "dion", "mt-dao", "demo", "curvadion"
"""The data-parallel baseline with the lowest last loss, and four methods that change how often or how much is sent."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.headline", description=benchmarks.headline.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("search", help="trials.csv of a search's folder")
    part.add_argument("folder", type=Path)
    part.add_argument("trials", type=int, help="of each method; what more there is was not finished for all")
    part = parts.add_parser("again", help="the spec of what is seen again of the search, to be swept")
    part.add_argument("path", type=Path)
    part = parts.add_parser(
        "seen-again", help="its losses into trials.csv, of its sweep's folder; prints what is chosen"
    )
    part.add_argument("folder", type=Path)
    part = parts.add_parser("collect", help="NAME.parquet of the folder of a sweep over the bundled spec NAME")
    part.add_argument("name")
    part.add_argument("folders", type=Path, nargs="+")
    part = parts.add_parser("calls", help="what a method sent whose calls a trigger decides, of a run's folder")
    part.add_argument("name")
    part.add_argument("folder", type=Path)
    parts.add_parser("words", help="what the README says")
    parts.add_parser("tables", help="what docs/findings.md says")
    parts.add_parser("longer", help="likewise, of the longer trainings")
    part = parts.add_parser("figures", help="the three pictures")
    part.add_argument("folder", type=Path)
    parts.add_parser("demo", help="tables and pictures, beside a few trainings made afresh")
    asked = parser.parse_args(argv)
    if asked.part == "search":
        keep_trials(asked.folder, asked.trials, RESULTS / "trials.csv")
    elif asked.part == "again":
        second_look(asked.path)
    elif asked.part == "seen-again":
        keep_again(asked.folder)
        for fields in chosen_methods().values():
            print(f"  - {in_one_line(fields)}")
    elif asked.part == "collect":
        keep_losses([run for folder in asked.folders for run in runs_of(folder)], RESULTS / f"{asked.name}.parquet")
    elif asked.part == "calls":
        keep_calls(asked.folder, asked.name)
    elif asked.part == "words":
        print(words(finals(), finals("headline-long")))
    elif asked.part == "tables":
        print(tables(finals()))
    elif asked.part == "longer":
        print(losses(finals("headline-long")))
    elif asked.part == "figures":
        figures(finals(), asked.folder)
    else:
        from benchmarks.headline.demo import demo

        demo()
    return 0


def tables(of: Finals) -> str:
    """All of them."""
    return "\n".join((losses(of), by_network(of), by_size(sizes(of))))


def figures(of: Finals, folder: Path) -> list[Path]:
    """Draw the README's picture, the one with all methods and networks, and the steps of larger models."""
    links = {link.name: link for link in of.spec.networks}
    label = "validation loss (nats per byte)"
    curves = of.curves()
    styles = method_styles(curve.label for curve in curves)
    loss = loss_against_clock(curves, links, loss_label=label, target=TARGETS, log_loss=True)
    by_name = {curve.label: curve for curve in curves}
    readme = loss_against_clock(
        [by_name[name] for name in README_METHODS],
        {name: links[name] for name in README_NETWORKS},
        loss_label=label,
        target=TARGETS[1],
        log_loss=True,
        styles=styles,
    )
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for row in sizes(of):
        panels.setdefault(row.model, {}).setdefault(row.method, {})[row.network] = row.step_time_s / row.compute_s
    return [
        save(readme, folder / "two_networks.png"),
        save(loss, folder / "loss_against_clock.png"),
        save(step_times(panels), folder / "step_times_by_size.png"),
    ]


def keep_trials(folder: Path, trials: int, path: Path) -> None:
    """A row per trial: its method, its number, its loss, and the knobs that were searched."""
    told = json.loads((folder / "sweep.json").read_text())
    rows: list[dict[str, Any]] = []
    for row in told["rows"]:
        knobs = {name.removeprefix("method."): value for name, value in row.items() if name.startswith("method.")}
        trial = 1 + sum(one["method"] == row["method"] for one in rows)
        if trial <= trials:
            rows.append({"method": row["method"], "trial": trial, "loss": row["loss"], **knobs})
    names = [*FIRST, *sorted({name for row in rows for name in row} - set(FIRST))]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        order = {name: i for i, name in enumerate(dict.fromkeys(row["method"] for row in rows))}
        for row in sorted(rows, key=lambda one: (order[one["method"]], one["trial"])):
            writer.writerow({name: f"{v:.5g}" if isinstance(v, float) else v for name, v in row.items()})
    for name in order:
        best = min((row for row in rows if row["method"] == name), key=lambda row: row["loss"] or float("inf"))
        print(
            ", ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in best.items() if v is not None)
        )


def runs_of(folder: Path) -> list[tuple[str, int, pa.Table]]:
    """Method, seed and metrics of each run of a sweep; networks share a training."""
    told = json.loads((folder / "sweep.json").read_text())
    found: dict[tuple[str, int], str] = {}
    for row in told["rows"]:
        if row["error"]:
            sys.exit(f"error: {row['method']}, seed {row['seed']}: {row['error']}")
        found.setdefault((row["method"], row["seed"]), row["run"])
    metrics = {key: pq.read_table(folder / "runs" / run / "metrics.parquet") for key, run in found.items()}
    return [(method, seed, table) for (method, seed), table in metrics.items()]


def keep_calls(folder: Path, name: str) -> None:
    """The ledger of a run whose method sends when a trigger says so."""
    table = pq.read_table(folder / "ledger.parquet")
    (method,) = set(table["method"].to_pylist())
    kept = table.select(["step", "label", "collective", "payload_bytes"])
    pq.write_table(kept, RESULTS / f"{name}-{method}-calls.parquet", compression="zstd")


if __name__ == "__main__":
    raise SystemExit(main())
