"""Every module of the benchmarks can be imported: a name that the package no longer has shows here."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import benchmarks

MODULES = [module.name for module in walk_packages(benchmarks.__path__, "benchmarks.") if "__main__" not in module.name]


def test_benchmarks_can_be_imported_and_have_docstrings() -> None:
    assert all(import_module(name).__doc__ for name in MODULES)
