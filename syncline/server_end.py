"""What the server of processes of a command imports first: it ends with the command, also while it imports."""

from __future__ import annotations

import os
import sys

from syncline.interrupts import end_with_parent

if sys.platform == "linux":  # elsewhere a thread would watch, and a process that forks must not have one
    end_with_parent(os.getppid())
