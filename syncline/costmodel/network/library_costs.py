"""Costs of communication libraries on a network of several links, which the links carry."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from syncline.costmodel.network.gloo_costs import GlooCosts
from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.costmodel.network.scaled_links import each_link
from syncline.errors import SpecError


class CostsOfLinks:
    """A network of several links, whose library is the one whose costs the links carry."""

    @cached_property
    def gloo(self) -> GlooCosts | None:
        """Return gloo's software costs on the links, or None."""
        costs: GlooCosts | None = _common_costs(self, "gloo")
        return costs

    @cached_property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs on the links, or None."""
        costs: NcclCosts | None = _common_costs(self, "nccl")
        return costs

    def check_costs(self) -> None:
        """Refuse links with different costs of a library, or with costs of two libraries.

        Raises:
            SpecError: names the library.
        """
        gloo, nccl = self.gloo, self.nccl
        if gloo is not None and nccl is not None:
            raise SpecError("network.nccl", nccl, "none beside gloo: one library carries what names no algorithm")


class CostsOfNetwork:
    """A topology with the costs of libraries on its ``network``."""

    network: Any

    @property
    def gloo(self) -> GlooCosts | None:
        """Return gloo's software costs on the network, or None."""
        costs: GlooCosts | None = self.network.gloo
        return costs

    @property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs on the network, or None."""
        costs: NcclCosts | None = self.network.nccl
        return costs


def _common_costs(network: Any, library: str) -> Any:
    """Return the costs of a library that all links with such costs have, or None."""
    costs = {getattr(link, library) for link in each_link(network)} - {None}
    if len(costs) > 1:
        raise SpecError(f"network.{library}", f"{len(costs)} different costs", "equal costs on all links with costs")
    return costs.pop() if costs else None
