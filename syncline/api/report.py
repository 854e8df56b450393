"""Reports: stored results as one self-contained page."""

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
    from syncline.experiments.reporting.reported import Reported


class ReportPage:
    """A report's page, as text and in a notebook.

    Attributes:
        html: the HTML of the page.
        path: the file of the page; None if it was not written.
    """

    def __init__(self, html: str, path: Path | None) -> None:
        self.html, self.path = html, path

    def _repr_html_(self) -> str:
        """Return the page in a frame for a notebook, which separates its styles and scripts from the notebook's."""
        frame = 'style="width:100%;height:720px;border:1px solid #8888;border-radius:8px"'
        return f'<iframe title="Syncline report" {frame} srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<report: {len(self.html.encode()):,} bytes{'' if self.path is None else f', {self.path}'}>"


@checked
def report(
    what: str | Path | Result | Sequence[str | Path | Result], out: str | Path | None = None, *, title: str = ""
) -> ReportPage:
    """Make one self-contained page of results: tables, charts, and the caveats of the numbers.

    Args:
        what: results, or the folders of results; one or several.
        out: the file to write; an older report there is replaced. By default no file is written.
        title: title of the page; by default made of the results' names.

    Returns:
        The page.

    Raises:
        SynclineError: a folder does not exist, is not a result's, or is incomplete; or the file to replace is no
            report.
    """
    from syncline.experiments.reporting.page import report_page, write_report

    sources = list(what) if isinstance(what, Sequence) and not isinstance(what, str) else [what]
    if not sources:
        raise SpecError("report", sources, "at least one result")
    html = report_page(_titled([_reported(source) for source in sources]), title)
    return ReportPage(html, None if out is None else write_report(html, Path(out)))


def _reported(source: str | Path | Result) -> Reported:
    from syncline.api.folders import load
    from syncline.experiments.reporting.reported import Reported

    result = source if isinstance(source, Result) else load(source)
    reported = Reported("", result.command, result.told, result.tables, result.spec, result.folder, _findings(result))
    named = getattr(result.spec, "name", None) or reported.noted.get("name")
    folder = result.folder.name if result.folder is not None and isinstance(source, str | Path) else ""
    return replace(reported, title=str(named or folder or result.command))


def _findings(result: Result) -> list[dict[str, Any]]:
    """Return the claims in the register about the papers of these methods, with a title per paper."""
    from syncline.studies.scoreboard.claim_register import STATES, TITLES, claims_of, plural_state
    from syncline.studies.scoreboard.rows import PAPERS

    spec = result.spec
    trained = [*(getattr(spec, "methods", None) or ()), getattr(spec, "method", None)]
    names = {str(row.get("method")) for row in result.told["rows"]} | {
        str(getattr(method, "kind", "")) for method in trained
    }
    findings = []
    for paper in PAPERS:
        if any(name == paper or name.startswith(f"{paper}-") for name in names):
            claims = claims_of(paper)
            counted = {state: sum(claim.state == state for claim in claims) for state in STATES}
            counts = ", ".join(f"{number} {plural_state(state)}" for state, number in counted.items() if number)
            findings.append({
                "title": f"What {TITLES[paper]}'s paper claims, and what was found here: {counts}",
                "claims": [
                    {"claim": claim.claim, "state": f"{claim.state} {claim.under}".strip(), "evidence": claim.evidence}
                    for claim in claims
                ],
            })  # fmt: skip
    return findings


def _titled(results: list[Reported]) -> list[Reported]:
    """Return the results with distinct titles: their folders, or numbers, tell equal titles apart."""
    titles = [result.title for result in results]
    return [
        replace(result, title=f"{result.title} ({number if result.folder is None else result.folder.name})")
        if titles.count(result.title) > 1 else result
        for number, result in enumerate(results, start=1)
    ]  # fmt: skip
