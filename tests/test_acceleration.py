"""Memory that a process keeps, and the line on a compilation."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from syncline.acceleration import COMPILE_S, OWN_SETTINGS
from tests.reference import ROOT

PAGES_OF_THE_SECOND_BLOCK = """
import resource
import numpy as np
from syncline.acceleration import keep_freed_memory

assert keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = np.full(2**23, 1.0)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


HAS_SETTINGS = platform.libc_ver()[0] == "glibc" and platform.libc_ver()[1] >= "2.35"
"""Whether blocks of more than 32 MiB can be kept."""


@pytest.mark.skipif(not HAS_SETTINGS, reason="no glibc of version 2.35 or later")
def test_a_freed_block_of_64_mib_is_used_again_without_new_pages():
    environment = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    command = [sys.executable, "-c", PAGES_OF_THE_SECOND_BLOCK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # more than 500 huge pages, or 16,384 small ones, if the block was given back


COMPILED_MODULE = """
from syncline.acceleration import compiled

@compiled
def used(number):
    return number + 1

@compiled
def unused(number):
    return number - 1
"""
USE = """
import sys
sys.path.insert(0, ".")
from syncline.acceleration import Kernels
module = Kernels("small_module", break_even_units=0).load()
print(module.used(1), module.used(2))
"""


def test_a_compilation_is_announced_when_it_happens_and_only_then(tmp_path: Path) -> None:
    """The second process finds the function that it calls in the cache; that another one is not there is no matter."""
    (tmp_path / "small_module.py").write_text(COMPILED_MODULE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    line = f"compiling small_module, once on this machine: about {COMPILE_S} s\n"
    for announced in (line, ""):
        done = subprocess.run(
            [sys.executable, "-c", USE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "2 3\n", announced)
