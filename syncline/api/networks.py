"""A link as people say it."""

from __future__ import annotations

import dataclasses

from syncline import costmodel
from syncline.api.arguments import checked
from syncline.errors import SpecError
from syncline.specs import network


@checked
def Link(latency: str | float, bandwidth: str | float, name: str | None = None) -> costmodel.Link:
    """A network of one link that each worker has.

    Args:
        latency: one way: ``"20 ms"``, or seconds.
        bandwidth: ``"1 Gbit/s"`` (bits), ``"125 MB/s"`` (bytes), or bytes per second.
        name: what tables call it; both numbers unless given.

    Returns:
        What every ``networks=`` takes; its other fields are those of `syncline.costmodel.Link`.

    Raises:
        SpecError: a number without a unit that is known, or out of range.

    >>> Link("20 ms", "1 Gbit/s").describe()
    '20 ms one way, 1 Gbit/s'
    >>> Link(0.02, 125e6, name="dsl") == Link("20 ms", "125 MB/s", name="dsl")
    True
    """
    try:
        made = network({"latency": latency, "bandwidth": bandwidth}, "")
    except SpecError as error:
        raise SpecError(error.path.strip("."), error.value, error.expected) from None
    assert isinstance(made, costmodel.Link)
    return made if name is None else dataclasses.replace(made, name=name)
