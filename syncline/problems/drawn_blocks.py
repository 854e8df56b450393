"""Blocks of random draws that the tasks of one problem share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class DrawnBlocks:
    """Blocks of draws that tasks of one problem share, each of some workers: every one draws them for the whole group.

    Args:
        capacity: how many blocks.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._kept = capacity
        self._blocks: dict[tuple[object, ...], Tensor] = {}

    def get(self, key: tuple[object, ...], draw: Callable[[], Tensor]) -> Tensor:
        """Return the block of a stream, which is drawn if it is not there; the one not asked for the longest goes."""
        drawn = self._blocks.pop(key, None)
        if drawn is None:
            drawn = draw()
            while len(self._blocks) >= self._kept:
                del self._blocks[next(iter(self._blocks))]
        self._blocks[key] = drawn
        return drawn
