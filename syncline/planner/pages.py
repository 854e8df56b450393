"""Shared parts of the pages of ``report`` and ``explore``: templates, colours, and values in a script."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

LIGHT = {"ink": "#1b1f24", "quiet": "#59636e", "rule": "#d8dee4", "ground": "#ffffff"}
DARK = {"ink": "#e6e9ec", "quiet": "#9aa5b1", "rule": "#343b43", "ground": "#14181c"}
"""Colours of text, secondary text, lines and background, by the name of the CSS variable, for example ``--ink``."""


@cache
def templates(package: str) -> Environment:
    """Return the templates in a package's folder; they escape every text, and refuse names without a value."""
    return Environment(
        loader=PackageLoader(package, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
