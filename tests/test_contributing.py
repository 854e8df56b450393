"""CONTRIBUTING.md names what there is: the layers, the files and the functions of the recipes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache

from tests.reference import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MADE_UP = {"NameSpec", "my_package", "one_at_a_time"}
"""Names of the reader's own, in examples."""


def test_the_layers_are_those_that_the_linter_checks() -> None:
    (shown,) = re.findall(r"^```\n(__main__ > .*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["syncline"])
    held = [set(layer.split(" | ")) for layer in layers]
    assert [set(part.split(" | ")) for part in " ".join(shown.split()).split(" > ")] == held


@cache
def sources() -> str:
    """Return the names of all tracked files and the text of those in Python, but this one's."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    code = [name for name in names if name.endswith(".py") and not name.endswith("test_contributing.py")]
    return "\n".join([*names, *((ROOT / name).read_text(encoding="utf-8") for name in code if (ROOT / name).exists())])


def test_files_and_functions_of_the_recipes_are_there() -> None:
    quoted = " ".join(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)))
    quoted = re.sub(r"[\w/.]*\b(?:NAME|COMMAND)\b[\w/.]*|\w+_NAME\b", "", quoted)  # for the reader's own
    paths = set(re.findall(r"(?:syncline|replication|tests|docs)/[\w/.]*\w", quoted))
    assert len(paths) > 20 and {path for path in paths if not (ROOT / path).exists()} == set()
    names = set(re.findall(r"\b(?:[a-z]+_[a-z_]+|[A-Z]+_?[A-Z]{3,}|[A-Z][a-z]+[A-Z]\w+)\b", quoted)) - MADE_UP
    assert len(names) > 30 and {name for name in names if not re.search(rf"\b{name}\b", sources())} == set()
