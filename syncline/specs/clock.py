"""How a training is timed: what overlaps, and which algorithms carry the collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from syncline.costmodel.collectives.policies import POLICIES, all_by_library
from syncline.costmodel.collectives.table import TABLE
from syncline.costmodel.network.topology import Network
from syncline.costmodel.traffic.overlap import BUCKET_BYTES, Overlap
from syncline.errors import SpecError, one_of
from syncline.fields import Spec, parsed
from syncline.methods.base import MethodBase
from syncline.units import parse_bandwidth, parse_bytes

ALGORITHM_NAMES = tuple(dict.fromkeys(name for of in TABLE.values() for name in of))


def _algorithm(value: Any, path: str) -> str | None:
    known = (*POLICIES, *ALGORITHM_NAMES)
    if value is not None and value not in known:
        raise SpecError(path, value, one_of(known, str(value)))
    return None if value is None else str(value)


AlgorithmField = Annotated[str | None, parsed(_algorithm)]
"""A policy or an algorithm; a collective that has no such algorithm takes its first, as with none."""

BandwidthField = Annotated[float, parsed(parse_bandwidth), Field(gt=0)]
"""A rate: ``5 GB/s``, ``10 Gbit/s``, or a number of bytes per second."""

BytesField = Annotated[float, parsed(parse_bytes), Field(gt=0)]
"""A size: ``25 MiB``, ``4096``."""


class ClockSpec(Spec):
    """How a training is timed.

    ``overlap``: ``none``: compute, then communicate; ``ddp``: gradients travel in buckets of ``bucket`` bytes during
    the backward pass; ``async``: what is sent after a step is waited for one step later. ``rule``: when a message
    starts, see docs/clock.md.
    """

    overlap: Overlap = "none"
    bucket: BytesField = BUCKET_BYTES
    algorithm: AlgorithmField = None
    rule: Literal["eager", "rendezvous"] = "eager"

    def clock_warnings(
        self, methods: Iterable[MethodBase], networks: Sequence[Network], trains: bool = True
    ) -> list[str]:
        """What these fields cannot do, or what they leave out, a line each.

        Args:
            methods: whose clock it is.
            networks: on which.
            trains: whether there are losses beside the clock.
        """
        lines = []
        if self.overlap == "ddp":
            late = ", ".join(method.name for method in methods if not method.sends_in_backward)
            if late:
                lines.append(f"overlap ddp has no effect on what sends nothing during the backward pass: {late}")
        elif self.bucket != BUCKET_BYTES:
            lines.append(f"bucket has no effect with overlap {self.overlap}; it is the size of DDP's buckets")
        if self.rule != "eager" and all(all_by_library(self.algorithm, network) for network in networks):
            lines.append(f"rule {self.rule} has no effect on what gloo and NCCL run, which have rules of their own")
        if self.overlap == "async" and trains:
            lines.append("overlap async delays the clock alone: losses are those of the methods without the delay")
        return lines
