"""Every example prints what its docstring says, to the letter, and the list of examples has them all."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import textwrap
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_prints_what_it_says(file, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(file)])
    told = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    expected = textwrap.dedent(told.partition("\nOutput:\n\n")[2])
    assert expected, "an example says what it prints"
    runpy.run_path(str(file), run_name="__main__")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == expected.splitlines()


def test_the_list_has_every_example():
    assert sorted(re.findall(r"\]\((\w+\.py)\)", (FOLDER / "README.md").read_text())) == [one.name for one in EXAMPLES]
