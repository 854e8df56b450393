"""First import of multiprocessing's fork server: it ends the server when the command ends, also during imports."""

from __future__ import annotations

import os
import sys

from syncline.interrupts import end_with_parent

if sys.platform == "linux":  # elsewhere it would start a thread, and a forking process must not have threads
    end_with_parent(os.getppid())
