"""Results as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncline.api.arguments import checked
from syncline.api.folders import load
from syncline.api.report_page import ReportPage, reported, write_page
from syncline.api.result import Result
from syncline.errors import SpecError
from syncline.runs.report.reported import Reported


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
    results = list(what) if isinstance(what, Sequence) and not isinstance(what, str) else [what]
    if not results:
        raise SpecError("report", results, "at least one result")
    return write_page([_reported(result) for result in results], out, title)


def _reported(source: str | Path | Result) -> Reported:
    if isinstance(source, Result):
        return reported(source)
    result = load(source)
    return reported(result, result.folder.name if result.folder is not None else "")
