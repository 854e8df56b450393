"""Software costs of hivemind's averaging, which exchanges parts directly between all peers.

A peer's program handles its peers' bytes one after another, and the bytes of the last of them while the line carries
them. So with n bytes on each of P peers, the software takes, on top of a direct exchange (`direct`),

    call_s + (P - 2) (peer_s + byte_s 2 n / P),        and a connection carries at most 1 / byte_s.

A `Matrix` can carry these costs: then ``direct`` is the default of all-reduces on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.numerics.arrays import require


@dataclass(frozen=True)
class HivemindCosts:
    """The seconds of an averaging by hivemind on top of its messages.

    The defaults are fitted to averagings of 560 and 198 million parameters in half precision among 2 to 8 T4 machines
    of one zone (`docs/wide_area.md`); they contain the wait for the group to form.

    Args:
        call_s: seconds of each averaging, for the group to form and the parts to be prepared.
        peer_s: seconds for each peer beyond the first.
        byte_s: seconds for each byte that is sent to a peer; positive.

    Raises:
        SpecError: a field out of range.

    Source: GitHub cirquit/hivemind-multi-cloud 654cc02 (A. Erben, R. Mayer, H.-A. Jacobsen, PVLDB 17, 2024), MIT.
    """

    call_s: float = 6.74
    peer_s: float = 0.159
    byte_s: float = 6.19e-9

    def __post_init__(self) -> None:
        for name in ("call_s", "peer_s"):
            seconds = getattr(self, name)
            require(np.isfinite(seconds) & (seconds >= 0), f"hivemind.{name}", seconds, "seconds, at least 0")
        require(np.isfinite(self.byte_s) & (self.byte_s > 0), "hivemind.byte_s", self.byte_s, "seconds, positive")

    @property
    def connection_bytes_per_s(self) -> float:
        """Return the bytes per second that the software handles of one peer."""
        return 1 / self.byte_s

    def before_s(self, workers: int, nbytes: float) -> float:
        """Return the seconds of an averaging before the messages that its slowest line carries."""
        others = max(workers - 2, 0)
        return (self.call_s + others * (self.peer_s + self.byte_s * 2 * nbytes / workers)) if workers > 1 else 0.0
