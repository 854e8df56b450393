"""A name has one meaning: public classes, functions and type aliases of the package are defined once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "syncline"


def defined(module: Path) -> Iterator[str]:
    """What a module defines at its top level, without constants and variables of types, which are its own affair."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name) and not each.id.isupper())


def test_a_name_is_defined_once() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for module in sorted(PACKAGE.rglob("*.py")):
        # A command and a function of the API have the name of what they call, and an entry point is called main.
        if module.parent.name not in ("commands", "api") and module.name != "__main__.py":
            for name in defined(module):
                if not name.startswith("_"):
                    where[name].append(str(module.relative_to(PACKAGE)))
    assert {name: modules for name, modules in where.items() if len(modules) > 1} == {}
