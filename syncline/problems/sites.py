"""Data that differ from site to site, or from worker to worker: who sees the same part."""

from __future__ import annotations

from syncline.errors import SpecError


def check_skew(skew: float, sites: int | None, full_skew: str) -> None:
    """Refuse a skew outside [0, 1], and an invalid number of sites.

    Args:
        skew: share of a worker's data that is from its own part of the data.
        sites: number of sites, whose workers share a part of the data; None if each worker has its own part.
        full_skew: description of a skew of 1, for the error line.

    Raises:
        SpecError: names the wrong value, and what would be accepted.
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
        worker: number of the worker, from 0.
        workers: M, number of workers.
        sites: number of sites, whose workers share a part. All sites but the last have equally many workers. None if
            each worker has its own part.

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
