"""Costs of NCCL, with the pieces into which it cuts tensors, from a user's description, and their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import model_validator

from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.fields import Seconds, parsed, refusal
from syncline.specs.cluster.reading import Description, Number, count_validator, described_costs
from syncline.units import parse_bytes

NCCL_EXAMPLE = "true (NCCL's defaults over sockets), or fields, as in {channels: 2, buffer_size: 4 MiB}"


class NcclDescription(Description):
    """Costs of NCCL: ``buffer_size`` of a channel, ``channels``, ``slices`` of a ring's piece, ``call_overhead``.

    ``ring_latencies``, ``chain_latencies``: latencies of the link that a call takes besides its messages. ``stored``:
    the part of a ring's piece that a worker receives before it forwards the piece.
    """

    needs: ClassVar[str] = NCCL_EXAMPLE
    attributes: ClassVar[Mapping[str, str]] = {
        "buffer_size": "buffer_bytes", "channels": "channels", "slices": "slices", "call_overhead": "call_s",
        "ring_latencies": "ring_latencies", "chain_latencies": "chain_latencies", "stored": "stored_part",
    }  # fmt: skip

    buffer_size: Annotated[float, parsed(parse_bytes)] | None = None
    channels: Annotated[int | None, count_validator("channels")] = None
    slices: Annotated[int | None, count_validator("slices")] = None
    call_overhead: Seconds | None = None
    ring_latencies: Number | None = None
    chain_latencies: Number | None = None
    stored: Number | None = None

    @model_validator(mode="after")
    def _stores_a_slice(self) -> Self:
        slices = self.slices or NcclCosts.slices
        if self.stored is not None and not 1 / slices <= self.stored <= 1:
            raise refusal("stored", self.stored, f"a part from {1 / slices:g} (1 / slices) to 1")
        return self


def nccl_costs(value: Any, path: str = "nccl") -> NcclCosts | None:
    """Return the costs that a user describes.

    Args:
        value: ``true`` for NCCL's defaults; ``false`` for none, with textbook collectives; a mapping, see
            `NcclDescription`; or ``NcclCosts``.
        path: the field's name, for the error line.

    Raises:
        SpecError: a field is unknown or unusable; the error line says what would be accepted.

    >>> nccl_costs({"channels": 4, "call_overhead": "20 us"}) == NcclCosts(channels=4, call_s=2e-05)
    True
    """
    return described_costs(value, path, NcclCosts, NcclDescription)


def nccl_fields(costs: NcclCosts) -> dict[str, Any]:
    """Return the mapping of fields from which ``nccl_costs`` builds the same costs again."""
    fields = {"buffer_size": float(costs.buffer_bytes), "channels": costs.channels, "slices": costs.slices}
    more = {
        "call_overhead": costs.call_s,
        "ring_latencies": costs.ring_latencies,
        "chain_latencies": costs.chain_latencies,
        "stored": costs.stored_part,
    }
    return fields | {name: float(value) for name, value in more.items() if value}
