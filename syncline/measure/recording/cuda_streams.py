"""Streams and events of ``torch.cuda``, for a script that is traced on a machine without a GPU: the virtual ones."""

from __future__ import annotations

from typing import Any

import torch

from syncline.measure.recording import streams
from syncline.measure.recording.clocks import ClockReading
from syncline.measure.recording.cuda_devices import Current


class CudaStream(streams.VirtualStream):
    """``torch.cuda.Stream``."""

    cuda_stream = 0
    priority = 0

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", Current.index)

    def record_event(self, event: streams.VirtualEvent | None = None) -> streams.VirtualEvent:
        """An event that can be asked for the time."""
        return super().record_event(event or CudaEvent())


class CudaEvent(streams.VirtualEvent):
    """``torch.cuda.Event``."""

    def elapsed_time(self, end: streams.VirtualEvent) -> float:
        """Milliseconds of the recording: to be printed, not decided by."""
        if self.mark is None or end.mark is None:
            raise RuntimeError("elapsed_time() of an event that was not recorded")
        return ClockReading(super().elapsed_time(end))


def stream_answers() -> dict[str, Any]:
    """Of ``torch.cuda``, by name."""
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
