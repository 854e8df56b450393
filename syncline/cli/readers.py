"""Readers of options: each makes a value of an option's text."""

from __future__ import annotations

from typing import Any

from syncline.errors import SpecError


def yaml(flag: str, text: str) -> Any:
    """Return a value as YAML reads it."""
    return _parsed(flag, text, "a value in YAML")


def values(flag: str, text: str) -> Any:
    """Return a list of values in YAML with commas between."""
    return _parsed(flag, f"[{text}]", "values with commas between", text)


def words(flag: str, text: str) -> list[str]:
    """Return a list of words with commas between."""
    return [part.strip() for part in text.split(",")]


def _parsed(flag: str, yaml_text: str, expected: str, text: str | None = None) -> Any:
    from syncline.yamls import parse_yaml

    try:
        return parse_yaml(yaml_text)
    except ValueError:
        raise SpecError(flag, yaml_text if text is None else text, expected) from None
