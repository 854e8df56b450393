"""Blocks of random draws that the tasks of one problem share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


class DrawnBlocks:
    """A cache of random draws of the whole group, which tasks of one problem share if each has some of the workers.

    Args:
        capacity: largest number of blocks that are kept.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._kept = capacity
        self._blocks: dict[tuple[object, ...], Tensor] = {}

    def get(self, key: tuple[object, ...], draw: Callable[[], Tensor]) -> Tensor:
        """Return the block of a stream; draw it if it is not cached, and drop the least recently used block."""
        drawn = self._blocks.pop(key, None)
        if drawn is None:
            drawn = draw()
            while len(self._blocks) >= self._kept:
                del self._blocks[next(iter(self._blocks))]
        self._blocks[key] = drawn
        return drawn
