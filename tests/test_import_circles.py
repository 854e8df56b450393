"""The rooms of both packages: no circles among files or folders, imports inside functions and for types included."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("syncline", "replication")
MOST_LATE_IMPORTS = 197
"""Imports of our own inside functions or for types only, which keep torch and matplotlib out of quick answers."""

Graph = Mapping[str, Set[str]]


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the module of each import of our own in a file, and whether it stands in a function or is for types.

    A package whose names are imported when they are first used lists them in the stub beside it.
    """
    if path.name == "__init__.py" and (stub := path.with_suffix(".pyi")).exists():
        package = ".".join(path.parent.relative_to(ROOT).parts)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            assert isinstance(node, ast.ImportFrom) and node.level == 1, f"{stub}: more than its own names"
            yield from ((f"{package}.{node.module or alias.name}", False) for alias in node.names)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules() else str(node.module), id(node) in late
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in late


@cache
def all_imports() -> list[tuple[str, str, bool]]:
    """Return the importing module, the imported module and whether the import is late, for each import of our own."""
    return [
        (name, target, late)
        for name, path in modules().items()
        for target, late in imports(path)
        if target in modules() and target != name
    ]


@cache
def sub_room(module: str) -> str:
    """Return the room of a module, and its folder there (``*`` for the files beside the folders)."""
    package, *parts = module.split(".")
    if not parts:
        return package
    room = ROOT / package / parts[0]
    if not any(path.is_dir() and (path / "__init__.py").exists() for path in room.glob("*")):
        return f"{package}/{parts[0]}"
    folder = parts[1] if len(parts) > 1 and (room / parts[1]).is_dir() else "*"
    return f"{package}/{parts[0]}/{folder}"


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm).

    >>> circles({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    [['b', 'c']]
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            place = stack.index(node)
            component = sorted(stack[place:])
            del stack[place:]
            if len(component) > 1:
                components.append(component)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for node in sorted(graph):
            if node not in index:
                visit(node)
    finally:
        sys.setrecursionlimit(limit)
    return components


def test_the_search_finds_circles() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_files_import_in_no_circle() -> None:
    graph = defaultdict(set)
    for name, target, _ in all_imports():
        graph[name].add(target)
    assert circles(graph) == []


def test_folders_import_in_no_circle() -> None:
    graph = defaultdict(set)
    for name, target, _ in all_imports():
        if sub_room(name) != sub_room(target):
            graph[sub_room(name)].add(sub_room(target))
    assert circles(graph) == []


def test_imports_stand_at_the_head_of_a_file() -> None:
    assert sum(late for name, _, late in all_imports() if name.startswith("syncline")) <= MOST_LATE_IMPORTS
