"""Spec fields of the clock: overlap, collective algorithms, message protocol, number format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from syncline.costmodel.collectives.policies import POLICIES, algorithm_or_auto, all_by_library
from syncline.costmodel.collectives.table import TABLE
from syncline.costmodel.network.paths import Network
from syncline.costmodel.traffic.overlap import BUCKET_BYTES, Overlap
from syncline.errors import require_one_of
from syncline.fields import Spec, parsed
from syncline.methods.parts.method_spec import MethodBase
from syncline.units import parse_bandwidth, parse_bytes

ALGORITHM_NAMES = tuple(dict.fromkeys(name for algorithms in TABLE.values() for name in algorithms))


def parse_algorithm(value: Any, path: str) -> str | None:
    """Return the name of a policy or an algorithm, or None; refuse an unknown name."""
    if value is None:
        return None
    names = (*POLICIES, *ALGORITHM_NAMES)
    require_one_of(path, value, names)
    return str(value)


AlgorithmField = Annotated[str | None, parsed(parse_algorithm)]
"""A policy or an algorithm. A collective without this algorithm takes its default one."""

BandwidthField = Annotated[float, parsed(parse_bandwidth), Field(gt=0)]
"""A rate: ``5 GB/s``, ``10 Gbit/s``, or a number of bytes per second."""

BytesField = Annotated[float, parsed(parse_bytes), Field(gt=0)]
"""A size: ``25 MiB``, ``4096``."""


NumberFormat = Literal["fp32", "bf16", "fp16"]
"""A number format in which gradients can be computed."""

ProductFormat = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
"""A number format in which a projection can compute products."""

PRODUCT_FORMATS: tuple[str, ...] = get_args(ProductFormat)


class ClockSpec(Spec):
    """The settings of the clock that times a training.

    ``overlap``: with ``ddp`` gradients travel in buckets of ``bucket_size`` bytes during the backward pass; with
    ``none`` workers compute, then communicate; with ``async`` workers wait for the exchange of a step one step later.
    ``algorithm``: the algorithm of all collectives; for the default see `algorithm_on`. ``protocol``: when a message
    starts, see docs/clock.md. ``precision``: the number format in which gradients are computed and travel; by default a
    training takes fp32, and a projection takes the format of its hardware's peak.
    """

    overlap: Overlap = "ddp"
    bucket_size: BytesField = BUCKET_BYTES
    algorithm: AlgorithmField = None
    protocol: Literal["eager", "rendezvous"] = "eager"
    precision: NumberFormat | None = None

    def algorithm_on(self, network: Network) -> str | None:
        """Return the algorithm of collectives on a network.

        It is the spec's ``algorithm``. By default it is the library's own on links with the costs of gloo or NCCL, and
        ``auto``, the fastest for each size, on others.
        """
        return algorithm_or_auto(self.algorithm, network)

    def clock_warnings(
        self, methods: Iterable[MethodBase], networks: Sequence[Network], trains: bool = True
    ) -> list[str]:
        """Return warnings about fields that have no effect or affect only the clock, one line each.

        ``methods`` are timed on ``networks``; ``trains`` tells whether they are also trained, so that there are losses.
        """
        lines = []
        if self.bucket_size != BUCKET_BYTES:
            # ``in_backward`` is a field of methods that can be set to send during the backward pass.
            send_in_backward = [m.sends_in_backward or getattr(m, "in_backward", False) for m in methods]
            if self.overlap != "ddp":
                lines.append(f"bucket_size has no effect with overlap {self.overlap}; it is the size of DDP's buckets")
            elif not any(send_in_backward):
                lines.append("bucket_size has no effect, as nothing is sent during the backward pass")
        if self.protocol != "eager":
            are_run_by_library = [all_by_library(self.algorithm_on(network), network) for network in networks]
            if all(are_run_by_library):
                subject = f"protocol {self.protocol} has no effect on what gloo and NCCL run"
                lines.append(f"{subject}, which have protocols of their own")
        if self.overlap == "async" and trains:
            lines.append("overlap async changes only the clock: losses are those of the methods without the delay")
        return lines
