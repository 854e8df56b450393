"""Parts of projections that lie outside of what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.transfer import Transfer, transfers
from syncline.specs import ProjectSpec


def transfers_of(specs: Iterable[Any]) -> tuple[Transfer, ...]:
    """Return the transferred parts of projections; other specs have none."""
    parts: list[tuple[str, Uncertainty]] = []
    seen: set[tuple[Any, ...]] = set()
    for spec in specs:
        if not isinstance(spec, ProjectSpec):
            continue
        key = id(spec.model), id(spec.compute), spec.workers  # specs of one key have the same parts
        if key in seen:
            continue
        seen.add(key)
        parts.append(("computing", spec.compute.uncertainty(spec.width, spec.workers, spec.kernel_experts)))
        for network in spec.networks if spec.workers > 1 else ():
            uncertainty = communication_uncertainty(network, spec.algorithm_on(network), spec.workers)
            parts.append(("communication", uncertainty))
    return transfers(parts)
