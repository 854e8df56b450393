"""Software costs of hivemind's averaging, which exchanges parts directly between all peers.

The program of each of P peers handles the P parts of its n bytes one after another. The peer handles its own part and
the last part while the slowest line carries the last part. So on top of a direct exchange (`direct`) the software takes

    call_s + (P - 2) (peer_s + byte_s n / P),        and a connection carries at most 1 / byte_s,

which makes ``call_s + (P - 2) peer_s + byte_s n`` on a fast network.

A `Matrix` can carry these costs: then ``direct`` is the default of all-reduces on the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.numerics.arrays import require


@dataclass(frozen=True)
class HivemindCosts:
    """The seconds of an averaging by hivemind on top of its messages.

    The defaults are fitted to averagings of 560 and 198 million parameters in half precision among 2 to 8 machines with
    a T4 in one zone (see docs/wide_area.md); they contain the wait for the group to form.

    Args:
        call_s: seconds of each averaging, for the group to form and the parts to be prepared.
        peer_s: seconds for each peer beyond the first.
        byte_s: seconds for each byte of a part; positive.

    Raises:
        SpecError: a field out of range.

    Source: GitHub cirquit/hivemind-multi-cloud 654cc02 (A. Erben, R. Mayer, H.-A. Jacobsen, PVLDB 17, 2024), MIT.
    """

    call_s: float = 2.55
    peer_s: float = 0.95
    byte_s: float = 10.9e-9

    def __post_init__(self) -> None:
        for name in ("call_s", "peer_s"):
            seconds = getattr(self, name)
            require(np.isfinite(seconds) & (seconds >= 0), f"hivemind.{name}", seconds, "seconds, at least 0")
        require(np.isfinite(self.byte_s) & (self.byte_s > 0), "hivemind.byte_s", self.byte_s, "seconds, positive")

    def slowed(self, factor: float) -> HivemindCosts:
        """Return costs of ``factor`` times the seconds."""
        return HivemindCosts(factor * self.call_s, factor * self.peer_s, factor * self.byte_s)

    @property
    def connection_bytes_per_s(self) -> float:
        """Return the bytes per second that the software handles of one peer."""
        return 1 / self.byte_s

    def before_s(self, workers: int, nbytes: float) -> float:
        """Return the seconds of an averaging of n bytes among P workers, without the messages on its slowest line."""
        others = max(workers - 2, 0)
        return (self.call_s + others * (self.peer_s + self.byte_s * nbytes / workers)) if workers > 1 else 0.0
