"""What a change touches, as arguments of pytest: ``python -m tests.touched`` prints them, a line each.

A changed module is its own doctests, the test file of its name in the mirrored folder, and the test files that import
it from there; where there are none, all of that folder, without the folders inside. The whole suite is ``make test``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ELSEWHERE = {
    "docs": ("tests/test_docs.py", "tests/test_glossary.py"),
    "examples": ("tests/test_examples.py",),
    "website": ("tests/test_website.py",),
    "README.md": ("tests/test_docs.py",),
    "CONTRIBUTING.md": ("tests/test_docs.py", "tests/test_contributing.py"),
}
"""Tests of what has no mirrored folder, by the first part of its path."""


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def changed() -> list[str]:
    """Return the paths that differ from where this branch left main; on main itself, from the commit before."""
    main = next((name for name in ("origin/main", "main") if git("rev-parse", "--verify", "--quiet", name)), "HEAD")
    base = git("merge-base", main, "HEAD")
    if base == git("rev-parse", "HEAD"):
        base = git("rev-parse", "--verify", "--quiet", "HEAD~1") or base
    return [*git("diff", "--name-only", *base), *git("ls-files", "--others", "--exclude-standard")]


def files_in(folder: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("test_*.py")}


@cache
def texts() -> dict[str, str]:
    """Return the test files and what is in them."""
    found = (ROOT / "tests").rglob("test_*.py")
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}


def mirrored(path: Path) -> set[str]:
    """Return the test files of a file of one of the packages or ``benchmarks``, or of one that tests share."""
    inside = path.parts if path.parts[0] in ("benchmarks", "replication") else path.parts[1:]
    folder = Path("tests", *inside[:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    names = re.compile(rf"\b{re.escape(module)}\b(?!\.)")
    name = path.stem if path.stem != "__init__" else path.parent.name
    found = {one for one in files_in(str(folder)) if Path(one).stem == f"test_{name}" or names.search(texts()[one])}
    for parent in path.parts[1:-1]:  # benchmarks/headline/finals.py: tests/benchmarks/test_headline.py
        found |= {one for one in files_in(str(folder)) if Path(one).stem == f"test_{parent}"}
    return found or files_in(str(folder))


def touched(paths: list[str]) -> Iterator[str]:
    """Yield what pytest is to collect for these paths."""
    for name in paths:
        path = Path(name)
        if path.match("test_*.py"):
            yield name
        elif path.parts[0] in ("syncline", "replication", "benchmarks", "tests"):
            yield from mirrored(path)
            if path.suffix == ".py" and ">>> " in (ROOT / path).read_text(encoding="utf-8"):
                yield name
        yield from ELSEWHERE.get(path.parts[0], ())


if __name__ == "__main__":
    print(*sorted(set(touched([path for path in changed() if (ROOT / path).is_file()]))), sep="\n")
