"""The figure of a study of tied votes."""

from __future__ import annotations

from replication.figures.rates import sign_shares
from replication.studies.vote_ties.spec import VoteTiesSpec
from syncline.specs import Figures, Record


def tie_figures(spec: VoteTiesSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield the figure of match, flip and tie rates per number of workers, beside those of the paper."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        panel = panels.setdefault(f"{row['workers']} workers", {})
        panel[f"{row['distribution']} votes"] = row
        panel["the paper's GPT"] = {share: row[f"paper_{share}"] for share in ("match", "flip")}
        panel["the paper's GPT"]["zero"] = row["paper_tie_rate"]
    yield "sign_shares", sign_shares(panels, bar_label="votes")
