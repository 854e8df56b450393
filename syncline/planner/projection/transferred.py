"""Parts of projections that lie outside of what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.planner.transfer import Transfer, transfers
from syncline.specs import ProjectSpec


def transfers_of(specs: Iterable[Any]) -> tuple[Transfer, ...]:
    """Return the parts of projections that lie outside of what was measured; specs of studies have none."""
    parts: dict[tuple[Any, ...], tuple[str, Uncertainty]] = {}
    for spec in specs:
        if not isinstance(spec, ProjectSpec):
            continue
        key: tuple[Any, ...] = id(spec.model), id(spec.compute), spec.workers  # specs with equal keys compute alike
        if key not in parts:
            parts[key] = "computing", spec.compute.uncertainty(spec.width, spec.workers, spec.kernel_experts)
        for network in spec.networks if spec.workers > 1 else ():
            key = id(network), spec.algorithm, spec.workers
            if key not in parts:
                uncertainty = communication_uncertainty(network, spec.algorithm_on(network), spec.workers)
                parts[key] = "communication", uncertainty
    return transfers(parts.values())
