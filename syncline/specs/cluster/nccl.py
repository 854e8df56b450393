"""Costs of NCCL, with the pieces into which it cuts tensors, from a user's description, and their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.errors import SpecError
from syncline.fields import Seconds, parsed
from syncline.specs.cluster.reading import Description, Number, count_validator
from syncline.units import parse_bytes

NCCL_EXAMPLE = "true (NCCL's defaults over sockets), or fields, as in {channels: 2, buffer_size: 4 MiB}"


class NcclDescription(Description):
    """Costs of NCCL: ``buffer_size`` of a channel, ``channels``, ``slices`` of a ring's piece, ``call_overhead``.

    ``ring_latencies``, ``chain_latencies``: latencies of the link that a call takes besides its messages. ``stored``:
    the part of a ring's piece that a worker receives before it forwards the piece.
    """

    needs: ClassVar[str] = NCCL_EXAMPLE

    buffer_size: Annotated[float, parsed(parse_bytes)] | None = None
    channels: Annotated[int | None, count_validator("channels")] = None
    slices: Annotated[int | None, count_validator("slices")] = None
    call_overhead: Seconds | None = None
    ring_latencies: Number | None = None
    chain_latencies: Number | None = None
    stored: Number | None = None


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
    if value is None or isinstance(value, NcclCosts):
        return value
    if isinstance(value, bool):
        return NcclCosts() if value else None
    if not isinstance(value, Mapping):
        raise SpecError(path, value, NCCL_EXAMPLE)
    described = NcclDescription.read(value, path)
    fields: dict[str, Any] = {
        "buffer_bytes": described.buffer_size,
        "channels": described.channels,
        "slices": described.slices,
        "call_s": described.call_overhead,
        "ring_latencies": described.ring_latencies,
        "chain_latencies": described.chain_latencies,
        "stored_part": described.stored,
    }
    part, slices = described.stored, described.slices or NcclCosts.slices
    if part is not None and not 1 / slices <= part <= 1:
        raise SpecError(f"{path}.stored", part, f"a part from {1 / slices:g} (1 / slices) to 1")
    try:
        return NcclCosts(**{name: field_value for name, field_value in fields.items() if field_value is not None})
    except SpecError as error:
        raise SpecError(f"{path}.{error.path.removeprefix('nccl.')}", error.value, error.expected) from None


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
