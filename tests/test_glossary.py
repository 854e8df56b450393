"""The glossary names what there is, and a name has one meaning."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

ROOT = Path(__file__).resolve().parents[1]
LINES = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
TERMS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in LINES
    if line.startswith("| ") and not line.startswith("| term ")
]


def test_every_term_has_one_meaning() -> None:
    names = [name for term, *_ in TERMS for name in term.split(", ")]
    assert len(names) > 80
    # A gradient's and a message's delay are told apart where each stands.
    assert {name for name in names if names.count(name) > 1} == {"delay"}
    assert all(meaning for _, _, meaning, _ in TERMS)


def test_what_a_term_names_in_the_code_is_there() -> None:
    missing = []
    for term, _, _, in_code in TERMS:
        names = re.findall(r"`([^`]+)`", in_code)
        assert names, term
        for name in names:
            try:
                resolve_name(f"syncline.{name}")
            except (ImportError, AttributeError):
                missing.append(name)
    assert missing == []
