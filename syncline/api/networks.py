"""Links in the units that users write."""

from __future__ import annotations

import dataclasses

from syncline import costmodel
from syncline.api.arguments import checked
from syncline.errors import SpecError
from syncline.specs import network


@checked
def Link(latency: str | float, bandwidth: str | float, name: str | None = None) -> costmodel.Link:
    """Return a network in which each worker has one link.

    Args:
        latency: one-way latency: ``"20 ms"``, or seconds.
        bandwidth: ``"1 Gbit/s"`` (bits), ``"125 MB/s"`` (bytes), or bytes per second.
        name: name of the network in tables; by default latency and bandwidth.

    Returns:
        A network that every ``networks=`` accepts; its other fields are those of `syncline.costmodel.Link`.

    Raises:
        SpecError: a number has an unknown unit, or is out of range.

    >>> Link("20 ms", "1 Gbit/s").describe()
    '20 ms one way, 1 Gbit/s'
    >>> Link(0.02, 125e6, name="dsl") == Link("20 ms", "125 MB/s", name="dsl")
    True
    """
    try:
        link = network({"latency": latency, "bandwidth": bandwidth}, "")
    except SpecError as error:
        raise SpecError(error.path.strip("."), error.value, error.expected) from None
    assert isinstance(link, costmodel.Link)
    return link if name is None else dataclasses.replace(link, name=name)
