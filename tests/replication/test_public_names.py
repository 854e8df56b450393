"""The evidence uses what Syncline offers: public names of public modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPLICATION = Path(__file__).resolve().parents[2] / "replication"


def private_names(text: str) -> Iterator[str]:
    """Yield the private names of Syncline that a module imports or reads from what it imports."""
    tree = ast.parse(text)
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = f"{module}.{alias.name}".strip(".")
                if name.split(".")[0] == "syncline":
                    imported.add(alias.asname or alias.name.split(".")[0])
                    if any(part.startswith("_") for part in name.split(".")):
                        yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            is_private = node.attr.startswith("_") and not node.attr.startswith("__")
            if is_private and node.value.id in imported:
                yield f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from syncline.runs.run import _start", ["syncline.runs.run._start"]),
        ("from syncline._hidden import shown", ["syncline._hidden.shown"]),
        ("import syncline as sl; sl._hidden", ["sl._hidden"]),
        ("from syncline.specs import STUDIES; STUDIES._known", ["STUDIES._known"]),
        ("import syncline as sl; from replication import _ours; sl.run", []),
    ],
)
def test_private_names_are_found(text: str, expected: list[str]) -> None:
    assert list(private_names(text)) == expected


def test_the_evidence_imports_public_names_alone() -> None:
    files = sorted(REPLICATION.rglob("*.py"))
    assert len(files) > 80
    assert [(file.name, name) for file in files for name in private_names(file.read_text(encoding="utf-8"))] == []
