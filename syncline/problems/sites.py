"""Data that differ from site to site, or from worker to worker: who sees the same part."""

from __future__ import annotations

from syncline.errors import SpecError


def check_skew(skew: float, sites: int | None, full_skew: str) -> None:
    """Refuse a skew, or sites, that cannot be.

    Args:
        skew: share of what a worker sees that is of its own part.
        sites: whose workers share a part; none: each worker has one.
        full_skew: what a skew of 1 is, in words.

    Raises:
        SpecError: which of the two, and what would be accepted.
    """
    if not 0 <= skew <= 1:
        raise SpecError("problem.skew", skew, f"a number from 0 (alike) to 1 ({full_skew})")
    if sites is None:
        return
    if isinstance(sites, bool) or sites < 1:
        raise SpecError("problem.sites", sites, "a number of sites, at least 1")
    if not skew:
        raise SpecError("problem.sites", sites, "none without a skew, as all sites then see the same")


def site_part(worker: int, workers: int, sites: int | None) -> tuple[int, int]:
    """Return the number of a worker's part, and how many there are: equal parts of the workers in their order.

    Args:
        worker: which.
        workers: M.
        sites: whose workers share a part, as many of each but the last; none: each worker has its own.

    Raises:
        SpecError: more sites than workers.

    >>> [site_part(worker, 5, 2) for worker in range(5)]
    [(0, 2), (0, 2), (0, 2), (1, 2), (1, 2)]
    """
    if sites is None:
        return worker, workers
    if sites > workers:
        raise SpecError("problem.sites", sites, f"at most {workers}, the workers")
    size = -(-workers // sites)
    return worker // size, -(-workers // size)
