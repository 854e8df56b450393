"""Where the measurements and timings of others lie: a folder beside the checkout, or the one that is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

REFERENCE = Path(os.environ.get("SYNCLINE_REFERENCE", ROOT.parent / "shared" / "reference"))
"""The folder of reference data; ``SYNCLINE_REFERENCE`` names another one."""

ABSENT = "no reference data"
"""The beginning of the reason for which a test that needs the folder is skipped."""

needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason=f"{ABSENT} at {REFERENCE}: set SYNCLINE_REFERENCE")
