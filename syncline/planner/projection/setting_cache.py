"""A cache of values by model, computing and batch, for settings that share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from syncline.specs import ProjectSpec

A = TypeVar("A")


def once_each(specs: Sequence[ProjectSpec], ask: Callable[[ProjectSpec], A]) -> list[A]:
    """Return a value for each spec, computed once for specs of the same model, computing and batch."""
    cache: dict[tuple[int, int, int], A] = {}
    answers = []
    for spec in specs:
        key = id(spec.model), id(spec.compute), spec.worker_tokens
        if key not in cache:
            cache[key] = ask(spec)
        answers.append(cache[key])
    return answers
