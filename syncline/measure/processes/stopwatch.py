"""A stopwatch that cuts the steps of one process into gradients, optimizer and collectives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from syncline.costmodel import Call
from syncline.measure.processes.progress import Progress


class Lap(NamedTuple):
    """A span of time of one process on one stream, in nanoseconds of the monotonic clock. See `syncline.sim.Span`."""

    stream: str
    what: str
    label: str
    start_ns: int
    end_ns: int
    nbytes: int
    step: int


class Stopwatch:
    """A recorder of the laps of one process.

    The stopwatch cuts the compute stream of a step into laps: the time before the optimizer's step is ``compute``, the
    optimizer's step is ``optimizer``, and the time inside collectives in either is ``wait``. It records no laps between
    steps.

    Args:
        device: the device; a CUDA device is synchronized at every boundary, so that a lap contains the work that was
            started in it.
        clock: returns nanoseconds; local processes use the same clock.
    """

    def __init__(
        self, progress: Progress, device: torch.device | str = "cpu", clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.progress = progress
        self.laps: list[Lap] = []
        self.done = 0
        self.begun_ns = self.ended_ns = 0
        self._clock, self._device = clock, torch.device(device)
        self._step, self._what, self._since_ns = 0, "", 0

    def now_ns(self) -> int:
        """Return the time in nanoseconds after the device has finished its queued work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._clock()

    def host_ns(self) -> int:
        """Return the time in nanoseconds without waiting for the device.

        Use it in a thread that sends or receives, which must not wait for work that the computing thread has queued.
        """
        return self._clock()

    def begin(self, step: int, activity: str = "compute") -> None:
        """Begin a step with its gradients, or with another kind of computation."""
        self._step, self._what = step, activity
        self.progress.step(step, self.done)
        self.begun_ns = self._since_ns = self.now_ns()

    def begin_optimizer(self) -> None:
        """End the lap of the gradients and begin that of the optimizer."""
        self._until(self.now_ns())
        self._what = "optimizer"

    def slow_down(self, factor: float) -> None:
        """Sleep for ``factor`` times the duration of the step so far, to emulate a slower machine."""
        now_ns = self.now_ns()
        self._until(now_ns)
        time.sleep(factor * (now_ns - self.begun_ns) / 1e9)
        self._since_ns = self.now_ns()
        self._note("compute", "compute", "slowed", now_ns, self._since_ns, 0, self._step)

    def end(self) -> None:
        """End the step, and record its last lap and the progress."""
        self.ended_ns = self.now_ns()
        self._until(self.ended_ns)
        self._what = ""
        self.done += 1
        self.progress.step(self._step + 1, self.done)

    def record_receive(self, start_ns: int, end_ns: int, label: str, nbytes: int, step: int) -> None:
        """Record that this process waited for a message."""
        self._note("compute", "recv", label, start_ns, end_ns, nbytes, step)

    def record_send(self, start_ns: int, end_ns: int, label: str, nbytes: int, step: int) -> None:
        """Record that a message was sent; the caller is another thread than the one that computes."""
        self._note("send", "send", label, start_ns, end_ns, nbytes, step)

    def record_wait(self, start_ns: int, end_ns: int, label: str) -> None:
        """Record that this process waited for a collective."""
        if self._what:
            self._until(start_ns)
            self._note("compute", "wait", label, start_ns, end_ns, 0, self._step)
            self._since_ns = end_ns

    def record_transfer(self, start_ns: int, end_ns: int, call: Call) -> None:
        """Record the time during which a collective was in progress on the network."""
        self._note("network", call.collective, call.label, start_ns, end_ns, int(call.payload_bytes), call.step)

    def take_laps(self) -> list[Lap]:
        """Return and clear the laps since the last call."""
        laps, self.laps = self.laps, []
        return laps

    def _until(self, now_ns: int) -> None:
        """End the current lap at this time, and begin the next one."""
        self._note("compute", self._what, self._what, self._since_ns, now_ns, 0, self._step)
        self._since_ns = now_ns

    def _note(
        self, stream: str, activity: str, label: str, start_ns: int, end_ns: int, nbytes: int, step: int
    ) -> None:  # fmt: skip
        """Record a lap that took any time."""
        if end_ns > start_ns:
            self.laps.append(Lap(stream, activity, label, start_ns, end_ns, nbytes, step))
