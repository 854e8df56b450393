"""The one table of all algorithms: those of any network, those that need nodes, gloo's and NCCL's.

What an algorithm is says how it is timed: an `Algorithm` by its messages and bytes, a `Hierarchy` by its parts, a
`GlooAlgorithm` and an `NcclAlgorithm` by their libraries' forms. Whoever asks which one carries a collective that names
none asks `first_on`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from syncline.costmodel.collectives.algorithms import FLAT, Algorithm
from syncline.costmodel.collectives.gloo.times import GLOO_ALGORITHMS, GlooAlgorithm
from syncline.costmodel.collectives.hierarchical import HIERARCHIES, Hierarchy, has_levels
from syncline.costmodel.collectives.nccl.sockets import NCCL_ALGORITHMS, NcclAlgorithm
from syncline.costmodel.network.gloo_costs import GLOO
from syncline.costmodel.network.nccl_costs import NCCL_RUNS, NcclCosts
from syncline.errors import SpecError, one_of

if TYPE_CHECKING:
    from syncline.costmodel.network.topology import Network, Topology

AnyAlgorithm: TypeAlias = Algorithm | Hierarchy | GlooAlgorithm | NcclAlgorithm

TABLE: dict[str, dict[str, AnyAlgorithm]] = {
    kind: {
        **flat,
        **(HIERARCHIES if kind == "all_reduce" else {}),
        GLOO[kind]: GLOO_ALGORITHMS[kind],
        NCCL_RUNS[kind]: NCCL_ALGORITHMS[kind],
    }
    for kind, flat in FLAT.items()
}
"""By collective and name."""


def _names_of(which: type[AnyAlgorithm]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(name for name, one in of.items() if isinstance(one, which)) for kind, of in TABLE.items()}


ALGORITHMS = _names_of(Algorithm)
"""The names of each collective's algorithms for any network; the first is taken if none is named."""

HIERARCHICAL = _names_of(Hierarchy)
"""The names of those that need nodes."""

OF_GLOO = _names_of(GlooAlgorithm)
"""The names of what gloo runs. Its messages wait for their receiver's notice, whatever the rule; nobody chooses one for
its speed, so `best_algorithm` leaves them out."""

OF_NCCL = _names_of(NcclAlgorithm)
"""The names of what NCCL runs over sockets, in pieces. No rule applies, and `best_algorithm` leaves them out."""

SERVERS = ("server-naive", "server-efficient")
"""All-reduces by a parameter server. Nobody chooses one for its speed, so neither does `best_algorithm`: where messages
cost no overhead, a server's many short ones would look free."""

COLLECTIVES = tuple(TABLE)
"""The names of the collectives, as the traffic ledger writes them."""


def algorithm_name(kind: str, algorithm: str | None = None) -> str:
    """The algorithm's name: of none, the collective's first.

    Raises:
        SpecError: an unknown collective, or an algorithm that it does not have.
    """
    if kind not in TABLE:
        raise SpecError("collective", kind, one_of(TABLE, kind))
    if algorithm is None:
        return ALGORITHMS[kind][0]
    if algorithm not in TABLE[kind]:
        raise SpecError(f"{kind}.algorithm", algorithm, one_of(TABLE[kind], algorithm))
    return algorithm


def is_gloo(kind: str, algorithm: str | None) -> bool:
    """Whether gloo carries it: each message waits until its receiver has posted a buffer."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), GlooAlgorithm)


def is_nccl(kind: str, algorithm: str | None) -> bool:
    """Whether NCCL carries it, in pieces that are sent on while the next ones come in."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), NcclAlgorithm)


def is_a_library_s(kind: str, algorithm: str | None) -> bool:
    """Whether gloo or NCCL carries it as it runs: no start rule applies."""
    return isinstance(TABLE.get(kind, {}).get(algorithm or ""), GlooAlgorithm | NcclAlgorithm)


def nccl_on(network: Network | Topology) -> NcclCosts | None:
    """What NCCL cuts tensors into on a network, where that is known: of a link to everybody alone."""
    return getattr(network, "nccl", None)


def knows_library(network: Network | Topology) -> bool:
    """Whether the network says which library runs what nobody names."""
    return network.gloo is not None or nccl_on(network) is not None


def first_on(kind: str, network: Network | Topology) -> str:
    """What carries a collective if nothing is named: its first algorithm, or that of the library that a network knows.

    Raises:
        SpecError: an unknown collective.
    """
    first = algorithm_name(kind)
    if network.gloo is not None:
        return GLOO[kind]
    return first if nccl_on(network) is None else NCCL_RUNS[kind]


def algorithms_on(kind: str, network: Network | Topology, workers: int) -> tuple[str, ...]:
    """The algorithms that can run on a network: the hierarchical ones where it has several nodes of several workers.

    Raises:
        SpecError: an unknown collective, or a number of workers that the network cannot join.
    """
    algorithm_name(kind)
    return ALGORITHMS[kind] + (HIERARCHICAL[kind] if has_levels(network, workers) else ())
