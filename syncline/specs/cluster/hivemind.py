"""Costs of hivemind's averaging from a user's description, and descriptions of such costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import InstanceOf

from syncline.costmodel.network.hivemind_costs import HivemindCosts
from syncline.fields import Seconds, parsed
from syncline.specs.cluster.reading import Description, described_costs

HIVEMIND_EXAMPLE = "true (as measured), or fields, as in {call_overhead: 6 s, byte_overhead: 6 ns}"


class HivemindDescription(Description):
    """The costs of hivemind: ``call_overhead``, ``peer_overhead`` and ``byte_overhead``, see `HivemindCosts`."""

    needs: ClassVar[str] = HIVEMIND_EXAMPLE
    attributes: ClassVar[Mapping[str, str]] = {
        "call_overhead": "call_s", "peer_overhead": "peer_s", "byte_overhead": "byte_s",
    }  # fmt: skip

    call_overhead: Seconds | None = None
    peer_overhead: Seconds | None = None
    byte_overhead: Seconds | None = None


def hivemind_costs(value: Any, path: str = "hivemind") -> HivemindCosts | None:
    """Return the costs that a user describes: ``true`` for the measured ones, a mapping, or ``HivemindCosts``.

    Raises:
        SpecError: a field is unknown or unusable; the error line says what would be accepted.
    """
    return described_costs(value, path, HivemindCosts, HivemindDescription)


def hivemind_fields(costs: HivemindCosts) -> dict[str, float]:
    """Return the mapping of fields from which ``hivemind_costs`` builds the same costs again."""
    return {name: getattr(costs, attribute) for name, attribute in HivemindDescription.attributes.items()}


HivemindField = Annotated[InstanceOf[HivemindCosts] | bool | None, parsed(hivemind_costs)]
"""Costs of hivemind's averaging; ``true`` for the measured ones."""
