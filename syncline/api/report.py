"""Kept results as one page that anybody can open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.api.arguments import checked
from syncline.api.folders import load
from syncline.api.report_page import ReportPage, reported, write_page
from syncline.api.result import Result
from syncline.errors import SpecError

if TYPE_CHECKING:
    from syncline.runs.report.reported import Reported


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
    results = list(what) if isinstance(what, Sequence) and not isinstance(what, str) else [what]
    if not results:
        raise SpecError("report", results, "at least one result")
    return write_page([_reported(result) for result in results], out, title)


def _reported(what: str | Path | Result) -> Reported:
    if isinstance(what, Result):
        return reported(what)
    result = load(what)
    return reported(result, result.folder.name if result.folder is not None else "")
