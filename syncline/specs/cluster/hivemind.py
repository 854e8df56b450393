"""Costs of hivemind's averaging from a user's description, and descriptions of such costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import InstanceOf

from syncline.costmodel.network.hivemind_costs import HivemindCosts
from syncline.errors import SpecError
from syncline.fields import Seconds, parsed
from syncline.specs.cluster.reading import Description

HIVEMIND_EXAMPLE = "true (as measured), or fields, as in {call_overhead: 6 s, byte_overhead: 6 ns}"


class HivemindDescription(Description):
    """The costs of hivemind: ``call_overhead``, ``peer_overhead`` and ``byte_overhead``, see `HivemindCosts`."""

    needs: ClassVar[str] = HIVEMIND_EXAMPLE

    call_overhead: Seconds | None = None
    peer_overhead: Seconds | None = None
    byte_overhead: Seconds | None = None


def hivemind_costs(value: Any, path: str = "hivemind") -> HivemindCosts | None:
    """Return the costs that a user describes: ``true`` for the measured ones, a mapping, or ``HivemindCosts``.

    Raises:
        SpecError: a field is unknown or unusable; the error line says what would be accepted.
    """
    if value is None or isinstance(value, HivemindCosts):
        return value
    if isinstance(value, bool):
        return HivemindCosts() if value else None
    if not isinstance(value, Mapping):
        raise SpecError(path, value, HIVEMIND_EXAMPLE)
    described = HivemindDescription.read(value, path)
    fields = {"call_s": described.call_overhead, "peer_s": described.peer_overhead, "byte_s": described.byte_overhead}
    try:
        return HivemindCosts(**{name: seconds for name, seconds in fields.items() if seconds is not None})
    except SpecError as error:
        name = error.path.removeprefix("hivemind.").replace("_s", "_overhead")
        raise SpecError(f"{path}.{name}", error.value, error.expected) from None


def hivemind_fields(costs: HivemindCosts) -> dict[str, float]:
    """Return the mapping of fields from which ``hivemind_costs`` builds the same costs again."""
    return {"call_overhead": costs.call_s, "peer_overhead": costs.peer_s, "byte_overhead": costs.byte_s}


HivemindField = Annotated[InstanceOf[HivemindCosts] | bool | None, parsed(hivemind_costs)]
"""Costs of hivemind's averaging; ``true`` for the measured ones."""
