"""What one process does when: its steps cut into gradients, optimizer, and collectives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from syncline.costmodel import Call
from syncline.measure.processes.progress import Progress


class Lap(NamedTuple):
    """What a process did on one stream; nanoseconds of the machine's monotonic clock. See `syncline.sim.Span`."""

    stream: str
    what: str
    label: str
    start_ns: int
    end_ns: int
    nbytes: int
    step: int


class Stopwatch:
    """The laps of one process.

    The compute stream of a step is cut at its boundaries: what is before the optimizer's step is ``compute``, what is
    in it is ``optimizer``, and what of both is spent in collectives is ``wait``. Nothing is noted between steps.

    Args:
        progress: where to tell how far this process is.
        device: on CUDA the device is waited for at every boundary, so that a lap holds the work that was started in it.
        clock: nanoseconds; of local processes the same one.
    """

    def __init__(
        self,
        progress: Progress,
        device: torch.device | str = "cpu",
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.progress = progress
        self.laps: list[Lap] = []
        self.done = 0
        self.begun_ns = self.ended_ns = 0
        self._clock, self._device = clock, torch.device(device)
        self._step, self._what, self._since_ns = 0, "", 0

    def now_ns(self) -> int:
        """The time, once the device has done what it was given."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._clock()

    def host_ns(self) -> int:
        """The time, whatever the device does: for a thread that would else wait for another's computing."""
        return self._clock()

    def begin(self, step: int, what: str = "compute") -> None:
        """A step begins, with its gradients; or another piece of computing."""
        self._step, self._what = step, what
        self.progress.step(step, self.done)
        self.begun_ns = self._since_ns = self.now_ns()

    def optimise(self) -> None:
        """Its gradients are there; the optimizer begins."""
        self._until(self.now_ns())
        self._what = "optimizer"

    def stretch(self, factor: float) -> None:
        """Wait for so many times what the step has taken so far, as a slower machine computes."""
        now_ns = self.now_ns()
        self._until(now_ns)
        time.sleep(factor * (now_ns - self.begun_ns) / 1e9)
        self._since_ns = self.now_ns()
        self._note("compute", "compute", "slowed", now_ns, self._since_ns, 0, self._step)

    def end(self) -> None:
        """The step ends."""
        self.ended_ns = self.now_ns()
        self._until(self.ended_ns)
        self._what = ""
        self.done += 1
        self.progress.step(self._step + 1, self.done)

    def received(self, start_ns: int, end_ns: int, label: str, nbytes: int, step: int) -> None:
        """This process waited for a message."""
        self._note("compute", "recv", label, start_ns, end_ns, nbytes, step)

    def sent(self, start_ns: int, end_ns: int, label: str, nbytes: int, step: int) -> None:
        """A message left; told by another thread than the one that computes."""
        self._note("send", "send", label, start_ns, end_ns, nbytes, step)

    def waited(self, start_ns: int, end_ns: int, label: str) -> None:
        """This process stood still for a collective."""
        if self._what:
            self._until(start_ns)
            self._note("compute", "wait", label, start_ns, end_ns, 0, self._step)
            self._since_ns = end_ns

    def carried(self, start_ns: int, end_ns: int, call: Call) -> None:
        """A collective was under way."""
        self._note("network", call.collective, call.label, start_ns, end_ns, int(call.payload_bytes), call.step)

    def taken(self) -> list[Lap]:
        """The laps since the last time this was asked."""
        laps, self.laps = self.laps, []
        return laps

    def _until(self, now_ns: int) -> None:
        self._note("compute", self._what, self._what, self._since_ns, now_ns, 0, self._step)
        self._since_ns = now_ns

    def _note(
        self, stream: str, what: str, label: str, start_ns: int, end_ns: int, nbytes: int, step: int
    ) -> None:  # fmt: skip
        if end_ns > start_ns:
            self.laps.append(Lap(stream, what, label, start_ns, end_ns, nbytes, step))
