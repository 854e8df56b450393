"""Rates of several TCP streams over a line: ``min(k W / RTT, cap)`` for k streams, each with a window of W bytes.

The window follows from the rate r of the fewest streams, which share least: ``W = r RTT / k``. Measurements that reach
less than the share `CAPPED_BELOW` of ``k W / RTT`` are limited by something that all streams share (a card, a policer);
the cap is the mean of their rates. Without such measurements no cap is known, and the largest rate stands for it.

Source: M. Mathis et al. (1997): a connection has a window of bytes in flight in each round trip.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.measure.logs import Logged, log_error

CAPPED_BELOW = 0.9
"""Share of the windows' rate below which streams are held back by a cap."""

NO_BOUNDS = Uncertainty(1.0, 1.0, 0, "streams by the window of the fewest")
"""Bounds of a line with too few measurements to tell an error."""


@dataclass
class Line:
    """Measurements of a line between two places: rates of one direction, and round trips in seconds."""

    rates: list[Logged] = field(default_factory=list)
    round_trips_s: list[float] = field(default_factory=list)


def lines_by_ends(logged: Iterable[Logged]) -> dict[tuple[str, str], Line]:
    """Return the measurements of each direction of a line; a round trip counts for both directions.

    Raises:
        SynclineError: a rate without a round trip.
    """
    lines: dict[tuple[str, str], Line] = {}  # by sender and receiver
    round_trips_s: dict[frozenset[str], list[float]] = {}  # by the two ends in any order
    for entry in logged:
        if entry.quantity not in ("rate", "round trip"):
            continue
        ends = entry.setting["source"], entry.setting["target"]
        rtt_s = entry.value if entry.quantity == "round trip" else entry.setting["rtt_s"]
        if rtt_s is not None:
            round_trips_s.setdefault(frozenset(ends), []).append(rtt_s)
        if entry.quantity == "rate":
            lines.setdefault(ends, Line()).rates.append(entry)
    for ends, line in lines.items():
        line.round_trips_s = round_trips_s.get(frozenset(ends), [])
        if not line.round_trips_s:
            first = line.rates[0]
            raise log_error(
                first.file, first.line, f"no round trip from {ends[0]} to {ends[1]}: add the output of ping"
            )
    return lines


class StreamLaw(NamedTuple):
    """The rate of k TCP streams over a line: ``min(k W / RTT, cap)``.

    Attributes:
        window_bytes: window W, the bytes of a stream in flight.
        rtt_s: round trip RTT in seconds.
        cap_bytes_per_s: largest rate of all streams together.
        is_capped: whether a measurement reached the cap.
        bounds: bounds of predicted times. The rates of the fewest streams give W; the errors of the others give bounds.
    """

    window_bytes: float
    rtt_s: float
    cap_bytes_per_s: float
    is_capped: bool
    bounds: Uncertainty = NO_BOUNDS

    @classmethod
    def from_line(cls, line: Line) -> StreamLaw:
        """Fit the window and the cap to the measured rates and round trips of a line, as the module describes."""
        rtt_s = float(np.median(line.round_trips_s))
        streams = np.array([float(entry.setting["streams"]) for entry in line.rates])
        rates = np.array([entry.value for entry in line.rates])
        has_fewest_streams = streams == streams.min()
        windows = rates * rtt_s / streams
        window_bytes = float(np.median(windows[has_fewest_streams]))
        is_capped = rates < CAPPED_BELOW * (streams * window_bytes / rtt_s)
        cap = float(rates[is_capped].mean() if is_capped.any() else rates.max())
        law = cls(window_bytes, rtt_s, cap, bool(is_capped.any()))
        time_errors = []
        for count, rate in zip(streams[~has_fewest_streams], rates[~has_fewest_streams], strict=True):
            time_errors.append(rate / law.rate_bytes_per_s(count) - 1)  # a time is the inverse of a rate
        if len(time_errors) < 2:  # a single error gives no bounds
            return law
        return law._replace(bounds=uncertainty_of(time_errors, NO_BOUNDS.basis))

    def rate_bytes_per_s(self, streams: float) -> float:
        """Return the bytes per second of this many streams together.

        >>> law = StreamLaw(2.7e6, 0.1, 775e6, True)  # 2.7 MB in flight, 100 ms, 6.2 Gbit/s
        >>> [round(8e-9 * law.rate_bytes_per_s(count), 2) for count in (1, 10, 80)]
        [0.22, 2.16, 6.2]
        """
        return min(streams * self.window_bytes / self.rtt_s, self.cap_bytes_per_s)
