"""One summary figure per paper, drawn from the numbers of the scoreboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replication.claims import PAPERS
from replication.scoreboard.board import Scored, board_of
from syncline import SpecError
from syncline.errors import one_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

Bars = dict[str, dict[str, float]]


def summary_figure(paper: str) -> Figure:
    """Return the summary figure of a paper: a message, the bars behind it, and the verdicts on all of its numbers.

    Args:
        paper: ``curvadion``, ``demo``, ``mt-dao``, ``basis-rotation`` or ``lion-cub``.

    Raises:
        SpecError: there is no such paper.
    """
    from replication.figures.papers import paper_summary, verdict_counts

    if paper not in SUMMARIES:
        raise SpecError("paper", paper, one_of(SUMMARIES, paper))
    rows = board_of(paper)
    message, bars, look = SUMMARIES[paper](rows)
    return paper_summary(message, bars, verdict_counts([row["verdict"] for row in rows if not row["target"]]), **look)


def save_summaries(folder: Path, paper: str | None = None) -> list[Path]:
    """Write ``summary_PAPER.png`` of one paper, or of every paper, into a folder.

    Returns:
        The paths of the files.

    Raises:
        SpecError: there is no such paper, or the folder cannot be written to.
    """
    from syncline.analysis import save

    if folder.exists() and not folder.is_dir():
        raise SpecError("--plot", str(folder), "a folder, new or not")
    figures = {name: summary_figure(name) for name in ([paper] if paper is not None else PAPERS)}
    try:
        return [save(figure, folder / f"summary_{name.replace('-', '_')}.png") for name, figure in figures.items()]
    except OSError as error:
        raise SpecError("--plot", str(folder), f"a place that can be written to ({error.strerror})") from None


def _row(rows: list[Scored], where: str, quantity: str) -> Scored:
    return next(row for row in rows if row["where"].startswith(where) and row["quantity"] == quantity)


def _pair(row: Scored) -> dict[str, float]:
    return {"paper": float(row["paper_value"]), "Syncline": float(row["ours"])}


def _curvadion(rows: list[Scored]) -> tuple[str, Bars, dict[str, Any]]:
    networks = {"InfiniBand": "InfiniBand", "10GbE": "10GbE", "WAN": "the WAN"}
    bars = {
        name: _pair(_row(rows, "Table 3 and Appendix E", f"speedup on {network}")) for name, network in networks.items()
    }
    ring = _row(rows, "Table 3", "speedup on the WAN by a ring of two")
    bars["WAN"]["Syncline, sync time of a ring of two"] = ring["ours"]
    message = (
        f"CurvaDion's {bars['WAN']['paper']:.2f}x on a WAN follows from its printed sync times; "
        f"the time of a ring on that link gives {ring['ours']:.1f}x"
    )
    return message, bars, {
        "value_label": "speedup over Dion (times)", "group_label": "network", "format_value": "{:.2f}x".format,
    }  # fmt: skip


def _demo(rows: list[Scored]) -> tuple[str, Bars, dict[str, Any]]:
    table = "Table 1"
    received = _row(rows, "Section 5", "received per step grows with the workers (OLMo-300M, k 32)")["ours"]
    reduction = _row(rows, "Section 3.3", "less than AdamW, OLMo-300M at k 8")["ours"]
    bars = {"AdamW, sent": _pair(_row(rows, table, "AdamW, OLMo-300M"))}
    bars["DeMo k 32, sent"] = _pair(_row(rows, table, "OLMo-300M, k 32, chunks of 64"))
    bars["DeMo k 8, sent"] = _pair(_row(rows, table, "olmo-300m, k 8, chunks of 64"))
    bars |= {f"k 32, received,\n{workers}": {"Syncline": mb} for workers, mb in received.items()}
    max_workers = max(received, key=received.__getitem__)
    traffic_ratio = received[max_workers] / bars["AdamW, sent"]["Syncline"]
    message = (
        f"DeMo sends {reduction:.0f} times less than AdamW at k 8, as printed; but what a worker receives grows with "
        f"their number: {traffic_ratio:.1f} times AdamW's with {max_workers} at k 32"
    )
    return (
        message,
        bars,
        {
            "value_label": "MB per step (OLMo-300M)",
            "group_label": "method",
            "log": True,
            "format_value": lambda mb: f"{mb:,.0f}" if mb >= 100 else f"{mb:.3g}",
        },
    )


def _mt_dao(rows: list[Scored]) -> tuple[str, Bars, dict[str, Any]]:
    section = "Figure 5 and abstract"
    overlaps = {"no overlap": "no overlap", "data parallelism overlapped": "data parallelism overlaps"}
    bars = {
        f"{model}, {rate}": {
            name: _row(rows, section, f"time saved per step, {model}, {rate}, {overlap}")["ours"]
            for overlap, name in overlaps.items()
        }
        for model in ("125M", "720M")
        for rate in ("50 Gbit/s", "100 Gbit/s")
    }
    printed = _row(rows, section, "time saved per step, 125M, 50 Gbit/s, no overlap")["paper_value"]
    low, high = (float(part) for part in str(printed).split(" to "))
    smallest_saving = min(group["data parallelism overlaps"] for group in bars.values())
    message = (
        f"MT-DAO's {low:g} to {high:g} % less time per step holds beside data parallelism that does not overlap; "
        f"beside one that does it falls to {smallest_saving:.1f} %"
    )
    return message, bars, {
        "value_label": "time saved per step (%)", "group_label": "model, network", "format_value": "{:.1f}".format,
        "span": (low, high, f"printed: {low:g} to {high:g} %"),
    }  # fmt: skip


def _basis_rotation(rows: list[Scored]) -> tuple[str, Bars, dict[str, Any]]:
    table = "Figures 5 and 9"
    named = {
        "Basis Rotation": "2nd, both sides (16 stages in the place of 32)", "SOAP": "SOAP",
        "Scion, no basis": "Scion", "Muon, no basis, at least": "Muon, at least",
    }  # fmt: skip
    bars = {
        name: {
            "paper, 32 stages": float(row["paper_value"]),
            "Syncline, a small GPT, 16 stages": float(row["ours"]),
        }
        for name, row in ((name, _row(rows, table, f"slowdown, {method}")) for name, method in named.items())
    }
    losses = _row(rows, "Figure 5", "final loss, 16 stages: rotation below Adam, its remedies and Nesterov")["ours"]
    printed, ours = bars["Basis Rotation"].values()
    message = (
        f"Under late gradients Basis Rotation ends below Adam ({losses['2nd-bi']:.2f} for {losses['pipedream']:.2f}), "
        f"but in small it is slowed down {ours:.1f}x, not {printed:.2f}x, and Scion ends at {losses['scion']:.2f}"
    )
    return message, bars, {
        "value_label": "slowdown: steps to the target over those without delay (times)", "group_label": "method",
        "format_value": "{:.2f}x".format,
    }  # fmt: skip


def _lion_cub(rows: list[Scored]) -> tuple[str, Bars, dict[str, Any]]:
    from syncline.planner.projection.project import project_all
    from syncline.specs import load_spec

    table = [row for row in project_all([load_spec("lion-cub-table4")]) if row["bandwidth_bytes_per_s"] == SLOWEST]
    bars = {
        row["method"]: {"paper": 1e3 * row["paper_step_s"], "Syncline, from traffic": 1e3 * row["step_s"]}
        for row in table
    }
    vote = next(row for row in table if row["method"] == "lion-cub-1bit")
    extra_ms = 1e3 * (vote["paper_step_s"] - vote["step_s"])
    message = (
        f"Lion Cub at 1 Gbit/s: traffic explains the steps down to 4 bits; the one-bit vote's are {extra_ms:.0f} ms "
        "longer than what it sends"
    )
    return message, bars, {
        "value_label": "step time (ms)", "group_label": "optimizer and its bits", "format_value": "{:.0f}".format,
    }  # fmt: skip


SLOWEST = 1.25e8
"""Bandwidth of 1 Gbit/s, at which communication takes the largest share of a step."""

SUMMARIES: dict[str, Callable[[list[Scored]], tuple[str, Bars, dict[str, Any]]]] = {
    "curvadion": _curvadion, "demo": _demo, "mt-dao": _mt_dao, "basis-rotation": _basis_rotation,
    "lion-cub": _lion_cub,
}  # fmt: skip
"""Per paper, the function that turns its rows into a message, bars and keyword arguments for the figure."""
