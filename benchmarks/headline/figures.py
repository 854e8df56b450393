"""The headline's pictures: the README's, the one with all methods and networks, and the steps of larger models."""

from __future__ import annotations

from pathlib import Path

from benchmarks.headline.finals import TARGETS, Finals
from benchmarks.headline.sizes import sizes
from benchmarks.headline.step_times import step_times
from syncline.analysis import loss_against_clock, method_styles, save

README_NETWORKS = "infiniband", "wan"
README_METHODS = "ddp-adam", "dion", "local-adam", "demo-muon", "curvadion"
"""Data parallelism by Adam, and four methods that change how often or how much is sent."""


def figures(finals: Finals, folder: Path) -> list[Path]:
    """Draw the three pictures, and return their paths."""
    loss_label = "validation loss (nats per byte)"
    curves = {method: cell.curve for method, cell in finals.cells.items()}
    styles = method_styles(curves)
    all_methods = loss_against_clock(
        list(curves.values()), finals.networks, loss_label=loss_label, target=TARGETS, log_loss=True, styles=styles
    )
    readme = loss_against_clock(
        [curves[method] for method in README_METHODS],
        {name: finals.networks[name] for name in README_NETWORKS},
        loss_label=loss_label,
        target=TARGETS[1],
        log_loss=True,
        styles=styles,
    )
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for row in sizes(finals):
        panels.setdefault(row.model, {}).setdefault(row.method, {})[row.network] = row.step_time_s / row.compute_s
    return [
        save(readme, folder / "two_networks.png"),
        save(all_methods, folder / "loss_against_clock.png"),
        save(step_times(panels), folder / "step_times_by_size.png"),
    ]
