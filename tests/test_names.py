"""Names and docstrings say what a thing is: the number of those that do not can only become smaller."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

EMPTY_WORDS = """
told one of here made able found said each whole apart asked given known left most least beside there kept held sought
gone way ways late begun taken what who how off at once over own so by again all_ ones those them tell says
"""
"""Words that name nothing by themselves."""

ODD_FIRST_WORDS = "what who whom whose how of whether where as those which so from in by for when that it"
"""First words of a docstring that says neither what is done nor what a thing is."""

MOST_EMPTY_NAMES = 10
MOST_ODD_DOCSTRINGS = 4

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.Module | ast.ClassDef


@cache
def nodes() -> tuple[Documented, ...]:
    """Return the modules, classes and functions of the packages."""
    modules = [module for package in ("syncline", "replication") for module in sorted((ROOT / package).rglob("*.py"))]
    trees = (ast.parse(module.read_text(encoding="utf-8")) for module in modules)
    return tuple(node for tree in trees for node in ast.walk(tree) if isinstance(node, Documented))


def bound_names(function: Function) -> set[str]:
    """Return the names of a function, of its parameters and of its variables."""
    parameters = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {function.name.lstrip("_"), *(parameter.arg for parameter in parameters), *stored}


def is_odd(docstring: str) -> bool:
    """Return whether a docstring's first line has fewer than four words, or begins with an odd one."""
    words = docstring.splitlines()[0].split()
    return len(words) < 4 or words[0].strip("`*,.:").lower() in ODD_FIRST_WORDS.split()


def test_functions_that_bind_an_empty_word_do_not_become_more() -> None:
    functions = [node for node in nodes() if isinstance(node, Function)]
    assert sum(bool(bound_names(function) & {*EMPTY_WORDS.split()}) for function in functions) <= MOST_EMPTY_NAMES


def test_docstrings_that_say_nothing_do_not_become_more() -> None:
    assert sum(is_odd(docstring) for node in nodes() if (docstring := ast.get_docstring(node))) <= MOST_ODD_DOCSTRINGS
