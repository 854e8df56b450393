"""A skipped test is seen: its reason is expected, or continuous integration fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reference import ROOT
from tests.skips import EXPECTED

SKIPS = """
import pytest

@pytest.mark.skip(reason={reason!r})
def test_skipped():
    pass

def test_run():
    pass
"""


@pytest.mark.parametrize(
    ("reason", "environment", "code"),
    [(EXPECTED[0], {"CI": "true"}, 0), ("the data moved", {"CI": "true"}, 1), ("the data moved", {"CI": ""}, 0)],
)
def test_an_unexpected_reason_fails_in_continuous_integration(
    tmp_path: Path, reason: str, environment: dict[str, str], code: int
) -> None:
    (tmp_path / "test_some.py").write_text(SKIPS.format(reason=reason))
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider", "-c", os.devnull]
    here = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment  # plugins take seconds to import
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert ("tests that should run were skipped: the data moved" in done.stdout) == (code == 1)
