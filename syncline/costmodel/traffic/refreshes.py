"""Steps at which 0/1 Adam's public code refreshes its second moment: multiples of an interval that doubles."""

from __future__ import annotations

from collections.abc import Iterator


def refresh_intervals(kappa: int) -> Iterator[tuple[int, int, int]]:
    """Yield each interval, its first step and the step after its last, without end.

    Within them, step t refreshes if ``(t + 1) % interval == 0``. After ``kappa`` refreshes the interval doubles. Step 0
    belongs to no interval, because it prepares buffers.

    >>> intervals = refresh_intervals(4)
    >>> [t for i, begin, end in (next(intervals) for _ in range(3)) for t in range(begin, end) if (t + 1) % i == 0]
    [1, 2, 3, 4, 5, 7, 9, 11, 15, 19, 23, 27]

    Source: DeepSpeed, ``ZeroOneAdam``, whose steps count from 1.
    """
    interval, begin = 1, 1
    while True:
        end = (begin // interval + kappa) * interval
        yield interval, begin, end
        interval, begin = 2 * interval, end
