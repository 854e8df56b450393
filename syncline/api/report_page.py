"""A page of results, and the form that results have on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.checkout import has_replication, import_replication

if TYPE_CHECKING:
    from syncline.runs.report.reported import Reported


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


def write_page(results: Sequence[Reported], out: str | Path | None, title: str) -> ReportPage:
    """Return a page of results, and write it if ``out`` is given."""
    from syncline.runs.report.page import report_page, write_report

    html = report_page(_titled(list(results)), title)
    return ReportPage(html, None if out is None else write_report(html, Path(out)))


def reported(result: Any, folder_name: str = "") -> Reported:
    """Return a `Result` as a page shows it; the title is its name, or else ``folder_name``, or else its command."""
    from syncline.runs.report.reported import Reported

    shown = Reported("", result.command, result.told, result.tables, result.spec, result.folder, _findings(result))
    name = getattr(result.spec, "name", None) or shown.noted.get("name")
    return replace(shown, title=str(name or folder_name or result.command))


def _findings(result: Any) -> list[dict[str, Any]]:
    """Return the registered claims of the papers of these methods, with a title per paper; nothing in a wheel."""
    if not has_replication():
        return []
    spec = result.spec
    trained = [*(getattr(spec, "methods", None) or ()), getattr(spec, "method", None)]
    names = {str(row.get("method")) for row in result.told["rows"]} | {
        str(getattr(method, "kind", "")) for method in trained
    }
    findings: list[dict[str, Any]] = import_replication("scoreboard.claim_register").findings_of(names)
    return findings


def _titled(results: list[Reported]) -> list[Reported]:
    """Return the results with distinct titles: their folders, or numbers, tell equal titles apart."""
    titles = [result.title for result in results]
    return [
        replace(result, title=f"{result.title} ({number if result.folder is None else result.folder.name})")
        if titles.count(result.title) > 1 else result
        for number, result in enumerate(results, start=1)
    ]  # fmt: skip
