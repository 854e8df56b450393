"""A plugin for pytest: continuous integration fails where a test is skipped for a reason that nobody expects."""

from __future__ import annotations

import os

import pytest

EXPECTED = (
    "a GPU is here",
    "no chromium here",
    "no glibc of version 2.35",
    "no schema, or no protoc",
    "shaped links",
    "this CPU has no kernels",
    "could not import 'sklearn",
)
"""Beginnings of the reasons that are accepted: what a machine lacks, and what a checkout does not install."""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Print the unexpected reasons and fail the session, where the environment has ``CI``."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI"):
        return
    reasons = {str(report.longrepr[2]).removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ())}
    unexpected = sorted(reason for reason in reasons if not reason.startswith(EXPECTED))
    if unexpected:
        reporter.write_line(f"\ntests that should run were skipped: {'; '.join(unexpected)}", red=True)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
