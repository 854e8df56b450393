"""Results as one self-contained page."""

from __future__ import annotations

from pathlib import Path

from syncline.api.folders import load
from syncline.api.report_page import ReportPage, reported, write_page
from syncline.api.result import Result, check_results
from syncline.errors import SpecError
from syncline.questions.report import Report
from syncline.runs.report.reported import Reported


def answer_report(question: Report) -> ReportPage:
    """Return the page of results, or of the folders of results."""
    check_results("what", question.what)
    if not question.what:
        raise SpecError("report", question.what, "at least one result")
    return write_page([_reported(result) for result in question.what], question.out, question.title)


def _reported(source: str | Path | Result) -> Reported:
    if isinstance(source, Result):
        return reported(source)
    result = load(source)
    return reported(result, result.folder.name if result.folder is not None else "")
