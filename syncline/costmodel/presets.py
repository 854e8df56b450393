"""Look-up of presets by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from syncline.errors import SpecError, one_of

T = TypeVar("T")


def preset(value: Any, presets: Mapping[str, T], path: str) -> T:
    """Return the preset with a name, in upper or lower case.

    Raises:
        SpecError: an unknown name; the error suggests the closest match.
    """
    if not isinstance(value, str) or value.lower() not in presets:
        raise SpecError(path, value, one_of(presets, str(value).lower()))
    return presets[value.lower()]
