"""What all parts of a replication's page share."""

from __future__ import annotations

import textwrap


def filled(text: str) -> str:
    """A paragraph in lines; names are not parted at their hyphens."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
