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
    """Train the seeds one after another, and yield the result of each.

    Args:
        train_seed: function that trains one seed; its second argument reports the number of finished steps.
        seeds: seeds, in the order in which they train.
        steps: number of steps of each training.
        on_step: function that is called with the progress of all seeds together, scaled to the range 0 to ``steps``.
    """
    for number, seed in enumerate(seeds):
        # Each training counts to T by itself.
        report = on_step and (lambda done, n=number: on_step((n * steps + done) // len(seeds)))  # type: ignore[misc]
        yield train_seed(seed, report)


def histories_in_turn(
    train_seed: Callable[[int, Report | None], History], seeds: Sequence[int], steps: int, on_step: Report | None
) -> History:
    """Train the seeds one after another, and return their histories as one; stop after an interrupted training."""
    from syncline.training import History

    parts: list[History] = []
    for part in sequential_results(train_seed, seeds, steps, on_step):
        parts.append(part)
        if part.interrupted:
            break
    return History.concatenate(parts)
