"""A function that all parts of a replication's page share."""

from __future__ import annotations

import textwrap


def filled(text: str) -> str:
    """Return a paragraph in lines of 120 characters; names are not broken at their hyphens."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)
