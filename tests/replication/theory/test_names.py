"""The page of the theory has every function, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from replication import theory

PAGE = Path(__file__).resolve().parents[3] / "docs" / "theory.md"


def test_the_page_has_every_function():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[1])]
    assert sorted(named) == sorted(theory.__all__)
