"""Bytes that leave sites in collectives, for which providers charge by the byte."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.network.link import Link
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.topology import Network
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError


def egress_bytes(collective: str, payload_bytes: float, sizes: Sequence[int]) -> float:
    """Return the bytes that leave all sites in one collective, with sums inside each site wherever possible.

    Site i of k sites has ``m_i`` of the P workers, and a worker contributes n bytes::

        all_reduce            2 (k - 1) n
        reduce_scatter          (k - 1) n
        broadcast, reduce       (k - 1) n
        all_gather              (k - 1) n P
        gather                          n (P - m_1)
        send                            n   from the first site to the last
        all_to_all                  sum_i n m_i (P - m_i) / P

    Args:
        collective: name of the collective.
        payload_bytes: n, see `Call`.
        sizes: m_i, workers of each site; a single site sends nothing.

    Raises:
        SpecError: a collective without a rule.

    >>> egress_bytes("all_reduce", 100.0, [4, 4]), egress_bytes("all_gather", 100.0, [4, 4])
    (200.0, 800.0)
    """
    other_sites, workers = len(sizes) - 1, sum(sizes)
    factors = {
        "all_reduce": 2.0 * other_sites,
        "reduce_scatter": float(other_sites),
        "broadcast": float(other_sites),
        "reduce": float(other_sites),
        "send": float(other_sites > 0),
        "all_gather": float(other_sites * workers),
        "gather": float(workers - sizes[0]),
        "all_to_all": sum(size * (workers - size) for size in sizes) / workers,
    }
    if collective not in factors:
        raise SpecError("collective", collective, f"one whose bytes between sites are counted: {', '.join(factors)}")
    return payload_bytes * factors[collective]


def site_sizes(network: Network, workers: int) -> tuple[int, ...] | None:
    """Return the number of workers of each site of a network of so many workers.

    Returns:
        The sizes of the sites or places, or of the units of the outermost of several levels. On a network with one link
        per worker each worker is a site; all nodes of a two-level network are one site. None for a graph, whose
        machines have no sites.

    >>> from syncline.costmodel import NETWORKS
    >>> site_sizes(NETWORKS["two-sites"].network, 8), site_sizes(NETWORKS["wan"].network, 3)
    ((4, 4), (1, 1, 1))
    """
    if workers == 1 or isinstance(network, TwoLevel):
        return (workers,)
    if isinstance(network, Sites):
        return network.sizes(workers)
    if isinstance(network, Matrix):
        return tuple(size for size in network.sizes(workers) if size)
    if isinstance(network, MultiLevel):
        units = network.sizes(workers)[-1]
        return (workers // units,) * units
    return (1,) * workers if isinstance(network, Link) else None
