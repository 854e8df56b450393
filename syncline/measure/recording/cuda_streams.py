"""Virtual streams and events in place of those of ``torch.cuda``, for a script traced on a machine without a GPU."""

from __future__ import annotations

from typing import Any

import torch

from syncline.measure.recording import streams
from syncline.measure.recording.clocks import ClockReading
from syncline.measure.recording.cuda_devices import Current


class CudaStream(streams.VirtualStream):
    """A virtual stream in place of ``torch.cuda.Stream``."""

    cuda_stream = 0
    priority = 0

    @property
    def device(self) -> torch.device:
        """Return the current GPU."""
        return torch.device("cuda", Current.index)

    def record_event(self, event: streams.VirtualEvent | None = None) -> streams.VirtualEvent:
        """Record an event, which can measure time, in this stream and return it."""
        return super().record_event(event or CudaEvent())


class CudaEvent(streams.VirtualEvent):
    """A virtual event in place of ``torch.cuda.Event``."""

    def elapsed_time(self, end: streams.VirtualEvent) -> float:
        """Return the milliseconds between two events during the recording.

        The script may print the result but may not branch on it.
        """
        if self.mark is None or end.mark is None:
            raise RuntimeError("elapsed_time() of an event that was not recorded")
        return ClockReading(super().elapsed_time(end))


def stream_replacements() -> dict[str, Any]:
    """Return the replacements of the stream functions and classes of ``torch.cuda``, by name."""
    return {
        "Stream": CudaStream,
        "Event": CudaEvent,
        "ExternalStream": CudaStream,
        "StreamContext": streams.StreamContext,
        "stream": streams.StreamContext,
        "set_stream": streams.set_stream,
        "current_stream": lambda *_: CudaStream(number=streams.current_stream().number),
        "default_stream": lambda *_: CudaStream(number=0),
        "synchronize": streams.synchronize,
    }
