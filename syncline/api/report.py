"""Kept results as one page that anybody can open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.errors import SpecError

if TYPE_CHECKING:
    from syncline.runs.report.reported import Reported


class ReportPage:
    """A page, as text and in a notebook.

    Attributes:
        html: all of it.
        path: where it was written; None if nowhere.
    """

    def __init__(self, html: str, path: Path | None) -> None:
        self.html, self.path = html, path

    def _repr_html_(self) -> str:
        """For a notebook: the page in a frame of its own, whose styles and scripts are its own."""
        frame = 'style="width:100%;height:720px;border:1px solid #8888;border-radius:8px"'
        return f'<iframe title="Syncline report" {frame} srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<report: {len(self.html.encode()):,} bytes{'' if self.path is None else f', {self.path}'}>"


@checked
def report(
    what: str | Path | Result | Sequence[str | Path | Result], out: str | Path | None = None, *, title: str = ""
) -> ReportPage:
    """One page of results, without anything to load: tables, charts, what to know before they are believed.

    Args:
        what: results, or the folders that they are kept in.
        out: the file to write; a report that is there is replaced. None of none.
        title: above all of them; made of their names unless given.

    Raises:
        SynclineError: a folder that is not there, is no result's or is half-written; a file that is no report.
    """
    from syncline.runs.report.page import report_page, write_report

    several = list(what) if isinstance(what, Sequence) and not isinstance(what, str) else [what]
    if not several:
        raise SpecError("report", several, "at least one result")
    html = report_page(_titled([_reported(one) for one in several]), title)
    return ReportPage(html, None if out is None else write_report(html, Path(out)))


def _reported(what: str | Path | Result) -> Reported:
    from syncline.api.folders import load
    from syncline.runs.report.reported import Reported

    result = what if isinstance(what, Result) else load(what)
    one = Reported("", result.command, result.told, result.tables, result.spec, result.folder, _findings(result))
    named = getattr(result.spec, "name", None) or one.noted.get("name")
    folder = result.folder.name if result.folder is not None and isinstance(what, str | Path) else ""
    return replace(one, title=str(named or folder or result.command))


def _findings(result: Result) -> list[dict[str, Any]]:
    """What the register of claims says of the papers whose methods these are."""
    from syncline.studies.scoreboard.claim_register import STATES, TITLES, claims_of, plural_state
    from syncline.studies.scoreboard.rows import PAPERS

    spec = result.spec
    trained = [*(getattr(spec, "methods", None) or ()), getattr(spec, "method", None)]
    names = {str(row.get("method")) for row in result.told["rows"]} | {str(getattr(one, "kind", "")) for one in trained}
    found = []
    for paper in PAPERS:
        if any(name == paper or name.startswith(f"{paper}-") for name in names):
            claims = claims_of(paper)
            counted = {state: sum(claim.state == state for claim in claims) for state in STATES}
            said = ", ".join(f"{number} {plural_state(state)}" for state, number in counted.items() if number)
            found.append({
                "title": f"What {TITLES[paper]}'s paper claims, and what was found here: {said}",
                "claims": [
                    {"claim": claim.claim, "state": f"{claim.state} {claim.under}".strip(), "evidence": claim.evidence}
                    for claim in claims
                ],
            })  # fmt: skip
    return found


def _titled(results: list[Reported]) -> list[Reported]:
    """Those that would be called the same are told apart by their folders, or by their numbers."""
    titles = [one.title for one in results]
    return [
        replace(one, title=f"{one.title} ({number if one.folder is None else one.folder.name})")
        if titles.count(one.title) > 1 else one
        for number, one in enumerate(results, start=1)
    ]  # fmt: skip
