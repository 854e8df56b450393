"""Every module of the benchmarks can be imported: a name that the package no longer has shows here."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest

import benchmarks

MODULES = [module.name for module in walk_packages(benchmarks.__path__, "benchmarks.") if "__main__" not in module.name]


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert import_module(name).__doc__
