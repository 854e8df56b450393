"""Seeds trained one after another, for methods that cannot train them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from syncline.specs.study import Report

if TYPE_CHECKING:
    from syncline.training import History

T = TypeVar("T")


def sequential_results(
    train_seed: Callable[[int, Report | None], T], seeds: Sequence[int], steps: int, on_step: Report | None
) -> Iterator[T]:
    """Yield the result of each seed's training; ``on_step`` gets the steps of all together, from 0 to T once."""
    for number, seed in enumerate(seeds):
        # Each training counts to T by itself.
        report = on_step and (lambda done, n=number: on_step((n * steps + done) // len(seeds)))  # type: ignore[misc]
        yield train_seed(seed, report)


def histories_in_turn(
    train_seed: Callable[[int, Report | None], History], seeds: Sequence[int], steps: int, on_step: Report | None
) -> History:
    """Return the histories side by side, up to the first that was interrupted."""
    from syncline.training import History

    parts: list[History] = []
    for part in sequential_results(train_seed, seeds, steps, on_step):
        parts.append(part)
        if part.interrupted:
            break
    return History.concatenate(parts)
