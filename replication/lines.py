"""Files of JSON lines to which an interrupted replication appends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def resumed_lines(path: Path) -> list[Any]:
    """Return the lines of a file of JSON lines to which the caller will append; none without the file.

    A last line that a kill has cut off is removed from the file, so that the next line begins where it began.
    """
    content = path.read_bytes() if path.is_file() else b""
    complete_bytes = content.rfind(b"\n") + 1
    if complete_bytes < len(content):
        os.truncate(path, complete_bytes)
    return [json.loads(line) for line in content[:complete_bytes].splitlines()]
