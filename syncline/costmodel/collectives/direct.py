"""An all-reduce by direct exchange: each worker owns a part, gets it from all others at once, and sends the sum back.

Every worker sends n/P bytes to each of the P - 1 others at the same time, over a connection to each; once the others'
bytes of its own part have arrived, it sends the sum to each of them. The connections share links by max-min fairness.
On equal links of latency alpha, overhead o and R bytes per second it takes

    2 (alpha + o) + 2 n (P - 1) / (P R).

The many messages cost their sender nothing beside o, which counts once, so that this form would be the fastest of all:
no policy chooses ``direct``. On a network with the costs of hivemind (`syncline.costmodel.network.hivemind_costs`) it
is the default, and contains them. Where lines differ, lockstep or events tell the time.

Source: M. Ryabinin, E. Gorbunov, V. Plokhotnyuk, G. Pekhimenko, "Moshpit SGD" (2021), the butterfly of hivemind;
ASTRA-sim's ``direct``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray


class DirectAlgorithm(NamedTuple):
    """An algorithm whose messages all leave at once, over a connection between each two workers."""


DIRECT = "direct"
"""The name of the all-reduce by direct exchange."""


def direct_s(workers: IntOrArray, nbytes: FloatOrArray, link: Link) -> FloatOrArray:
    """Return the seconds of an all-reduce of n bytes by direct exchange on equal links, 0 for one worker.

    >>> f"{direct_s(4, 1e9, Link(10e-3, 125e6)):.2f}"
    '12.02'
    """
    directions = 2 if link.duplex == "half" else 1
    bytes_s = directions * nbytes * (2 * (np.subtract(workers, 1)) / workers) / link.goodput_bytes_per_s
    return np.where(np.greater(workers, 1), 2 * (link.latency_s + link.overhead_s) + bytes_s, 0.0)[()]
