"""What settings that share a model, computing and a batch are asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from syncline.specs import ProjectSpec

A = TypeVar("A")


def once_each(specs: Sequence[ProjectSpec], ask: Callable[[ProjectSpec], A]) -> list[A]:
    """An answer for each spec, asked once for those of the same model, computing and batch."""
    known: dict[tuple[int, int, int], A] = {}
    answers = []
    for spec in specs:
        key = id(spec.model), id(spec.compute), spec.tokens_per_worker
        if key not in known:
            known[key] = ask(spec)
        answers.append(known[key])
    return answers
