"""A link: what it costs to send one message, in the alpha-beta model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.arrays import FloatOrArray, require


@dataclass(frozen=True)
class Link:
    """A worker's full-duplex link to the network: both directions carry ``bandwidth_bytes_per_s`` at once.

    A message of n bytes takes ``alpha + n / B``. The latency alpha does not occupy the link.

    Args:
        latency_s: alpha, one way, from sender to receiver (half a round trip), in seconds; at least 0.
        bandwidth_bytes_per_s: B, in each direction, in bytes per second; positive.
        name: for people.

    Both may be arrays, so that one call prices many networks (such links cannot be compared or hashed).

    Raises:
        SpecError: a latency that is negative, a bandwidth that is not positive, or either not finite.

    Source: R. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994): the alpha-beta model.
    """

    latency_s: FloatOrArray
    bandwidth_bytes_per_s: FloatOrArray
    name: str = ""

    def __post_init__(self) -> None:
        latency, bandwidth = self.latency_s, self.bandwidth_bytes_per_s
        require(np.isfinite(latency) & np.greater_equal(latency, 0), "link.latency_s", latency, "seconds, at least 0")
        require(
            np.isfinite(bandwidth) & np.greater(bandwidth, 0),
            "link.bandwidth_bytes_per_s",
            bandwidth,
            "bytes per second, positive and finite",
        )

    def transfer_s(self, nbytes: FloatOrArray) -> FloatOrArray:
        """Seconds until a message of ``nbytes`` has arrived over the idle link: ``alpha + n / B``."""
        return self.latency_s + nbytes / self.bandwidth_bytes_per_s
