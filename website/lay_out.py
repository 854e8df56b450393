"""Lay the sources of the documentation out as Sphinx reads them; ``make docs`` runs ``python website/lay_out.py``.

Pages stay where a code host shows them and link each other by file; under ``build/site`` they stand in the same places,
with the notebooks as they were executed and the pages that are of the site alone. Copies keep their times, by which
Sphinx knows what changed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import method_pages

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "build" / "site"
FILES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "NOTICE", "CITATION.cff"]
FOLDERS = ["docs", "examples", "results", "syncline", "replication", "tests/outside"]


def lay_out() -> None:
    """Make ``build/site`` anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name in FILES:
        shutil.copy2(ROOT / name, TARGET / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, TARGET / name, ignore=shutil.ignore_patterns("__pycache__", "trainings"))
    shutil.copytree(ROOT / "build" / "notebooks", TARGET / "notebooks")
    shutil.copytree(ROOT / "website", TARGET, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    method_pages.write(TARGET / "methods")


if __name__ == "__main__":
    lay_out()
