"""How a training is timed: what overlaps, and which algorithms carry the collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from syncline.costmodel.collectives.policies import POLICIES, all_by_library, unless_named
from syncline.costmodel.collectives.table import TABLE
from syncline.costmodel.network.topology import Network
from syncline.costmodel.traffic.overlap import BUCKET_BYTES, Overlap
from syncline.errors import SpecError, one_of
from syncline.fields import Spec, parsed
from syncline.methods.parts.method_spec import MethodBase
from syncline.units import parse_bandwidth, parse_bytes

ALGORITHM_NAMES = tuple(dict.fromkeys(name for of in TABLE.values() for name in of))


def known_algorithm(value: Any, path: str) -> str | None:
    """The name of a policy or an algorithm, or none.

    Raises:
        SpecError: another name.
    """
    known = (*POLICIES, *ALGORITHM_NAMES)
    if value is not None and value not in known:
        raise SpecError(path, value, one_of(known, value))
    return None if value is None else str(value)


AlgorithmField = Annotated[str | None, parsed(known_algorithm)]
"""A policy or an algorithm; a collective that has no such algorithm takes its first, as with none."""

BandwidthField = Annotated[float, parsed(parse_bandwidth), Field(gt=0)]
"""A rate: ``5 GB/s``, ``10 Gbit/s``, or a number of bytes per second."""

BytesField = Annotated[float, parsed(parse_bytes), Field(gt=0)]
"""A size: ``25 MiB``, ``4096``."""


NumberFormat = Literal["fp32", "bf16", "fp16"]

NUMBER_FORMATS: tuple[str, ...] = get_args(NumberFormat)
"""In which gradients can be computed."""


class ClockSpec(Spec):
    """How a training is timed; what nobody says is what they would otherwise run.

    ``overlap``: ``ddp``: gradients travel in buckets of ``bucket`` bytes during the backward pass; ``none``: compute,
    then communicate; ``async``: what is sent after a step is waited for one step later. ``algorithm``: of all
    collectives; if there is none, see `algorithm_on`. ``rule``: when a message starts, see docs/clock.md.
    ``precision``: the number format in which gradients are computed and travel; if there is none, a training takes fp32
    and a projection what its hardware's peak is of.
    """

    overlap: Overlap = "ddp"
    bucket: BytesField = BUCKET_BYTES
    algorithm: AlgorithmField = None
    rule: Literal["eager", "rendezvous"] = "eager"
    precision: NumberFormat | None = None

    def algorithm_on(self, network: Network) -> str | None:
        """What carries collectives: the spec's; if it has none, the library's own on links that know one.

        Elsewhere ``auto``, the fastest of each size, as a library tuned for the network would take.
        """
        return unless_named(self.algorithm, network)

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
        if self.bucket != BUCKET_BYTES:
            if self.overlap != "ddp":
                lines.append(f"bucket has no effect with overlap {self.overlap}; it is the size of DDP's buckets")
            elif not any(one.sends_in_backward or getattr(one, "in_backward", False) for one in methods):
                lines.append("bucket has no effect, as nothing is sent during the backward pass")
        if self.rule != "eager" and all(all_by_library(self.algorithm_on(network), network) for network in networks):
            lines.append(f"rule {self.rule} has no effect on what gloo and NCCL run, which have rules of their own")
        if self.overlap == "async" and trains:
            lines.append("overlap async delays the clock alone: losses are those of the methods without the delay")
        return lines
