"""Memory that a process keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from syncline.acceleration import OWN_SETTINGS

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
