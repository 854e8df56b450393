"""What ``import syncline`` offers: lazily, and the same to people, editors and type checkers."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys

import pytest

import syncline as sl
from syncline.api import functions
from syncline.questions import question_of
from tests.api import stub

HEAVY = ("torch", "simpy", "numpy", "pandas", "pyarrow", "pydantic", "matplotlib", "rich", "yaml", "numba")


def test_importing_loads_nothing_heavy() -> None:
    code = f"import sys, syncline; print(sorted({set(HEAVY)} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("question", "never"),
    [("project", ("torch", "matplotlib", "pandas", "numba")), ("collectives", ("torch", "matplotlib", "pandas"))],
)
def test_an_answer_without_training_loads_no_torch(question: str, never: tuple[str, ...]) -> None:
    """``collectives`` plays its rows by events too, which are compiled: Numba is loaded for them alone."""
    code = f"import sys, syncline as sl; sl.{question}(); print(sorted({set(never)} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_every_name_is_there_and_says_what_it_is() -> None:
    assert set(sl.__all__) <= set(dir(sl))
    assert [name for name in sl.__all__ if not getattr(sl, name).__doc__ and name != "__version__"] == []


def test_the_stub_is_that_of_the_declarations() -> None:
    """The two differ in line breaks alone. Run ``python -m tests.api.stub`` after a change of a question."""
    committed, made = (ast.unparse(ast.parse(text)) for text in (stub.FILE.read_text(encoding="utf-8"), stub.stub()))
    assert "".join(committed.split()) == "".join(made.split())


@pytest.mark.parametrize("name", functions.ANSWERS)
def test_a_function_is_that_of_its_question(name: str) -> None:
    question, function = question_of(name), getattr(sl, name)
    assert inspect.signature(function) == question.signature() and function.__name__ == name
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^    (\*\*)?{parameter}: [A-Z]", function.__doc__, re.MULTILINE), parameter


def test_another_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="No syncline attribute compair"):
        sl.compair  # noqa: B018
