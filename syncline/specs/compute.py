"""Specs of the compute time of a worker's step, of what disturbs it, and of the relative speeds of workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainSerializer, model_validator

from syncline.costmodel import HARDWARE, BatchTimes, Hardware, TensorShape, compute_s
from syncline.costmodel.bases import computing_uncertainty
from syncline.costmodel.compute.transformer_operations import AttentionKind, Software
from syncline.costmodel.compute.update_work import UpdateKernels, Updating
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, within
from syncline.fields import INSTANCE, Seconds, Spec, parsed, refusal
from syncline.methods import MethodBase
from syncline.seeds import generator
from syncline.specs.clock import BandwidthField
from syncline.specs.cluster.clusters import HardwareField
from syncline.specs.cluster.hardware import hardware, hardware_fields
from syncline.specs.faults import check_number
from syncline.units import parse_seconds

if TYPE_CHECKING:
    import numpy as np


class KernelsSpec(Spec):
    """The kernels of a training's software, for transformers on GPUs whose kernels are known.

    Args:
        attention: ``flash`` (FlashAttention-2), ``flash-1`` (the first version), ``cudnn``, or ``eager`` (products with
            softmax between them); by default the first one that is known for the GPU.
        compiled: whether a compiler or a library joins elementwise kernels.
        fused_loss: whether the loss is one kernel; by default as ``compiled``.
        fused_optimizer: whether the optimizer's update is one kernel; by default as ``compiled``.
        tensor_overlap: whether collectives of tensor parallelism overlap with the products beside them.
        expert_overlap: whether messages to experts overlap with the computing of another micro-batch.
        once_per_node: whether a library of messages to experts (DeepEP, HybridEP) sends a token once to each node.
        updates: ``eager``, this package's methods with products in fp32; ``tf32``, the same in TF32; or ``optimised``,
            with Newton-Schulz iterations in bf16, other products in TF32, and QR decompositions by Cholesky.
    """

    attention: AttentionKind | None = None
    compiled: bool = False
    fused_loss: bool | None = None
    fused_optimizer: bool | None = None
    tensor_overlap: bool = False
    expert_overlap: bool = False
    once_per_node: bool = False
    updates: UpdateKernels = "eager"

    @property
    def overlapped(self) -> tuple[str, ...]:
        """Return the dimensions of parallelism whose collectives overlap with computing."""
        overlaps = {"tensor": self.tensor_overlap, "expert": self.expert_overlap}
        return tuple(dimension for dimension, is_overlapped in overlaps.items() if is_overlapped)

    def build(self) -> Software:
        """Return the kernels as the cost model's `Software`, which has neither overlaps nor updates."""
        return Software(
            self.attention, self.compiled, self.fused_loss, self.fused_optimizer, once_per_node=self.once_per_node
        )


def _parse_batch_times(value: Any, path: str) -> BatchTimes:
    """Return the table of seconds by batch size that a user wrote as a mapping of texts or numbers."""
    if isinstance(value, BatchTimes):
        return value
    if not isinstance(value, dict):
        raise SpecError(path, value, "seconds by batch size, as in {1: 12 ms, 8: 60 ms}")
    times_s = {}
    for size, seconds in value.items():
        try:
            if isinstance(size, bool):
                raise ValueError("true and false are no sizes")
            batch_size = float(size)
        except (TypeError, ValueError):
            raise SpecError(path, size, "a batch size, as in {1: 12 ms, 8: 60 ms}") from None
        times_s[batch_size] = parse_seconds(seconds, str(size))
    try:
        return BatchTimes(times_s)
    except SpecError as error:
        raise SpecError(error.path.removeprefix("batch_times").removeprefix("."), error.value, error.expected) from None


BatchTimesField = Annotated[
    BatchTimes, INSTANCE, parsed(_parse_batch_times), PlainSerializer(lambda times: dict(times.times_s))
]
"""Seconds by batch size: ``{1: 12 ms, 8: 60 ms, 32: 210 ms}``."""


COUNTED: Literal["counted"] = "counted"
"""The ``optimizer_time`` that counts an update's kernels, or its matrix products and decompositions."""


def _is_word(value: Any) -> bool:
    """Return whether a value is text that cannot be a time, because it has no digit."""
    return isinstance(value, str) and not any(map(str.isdecimal, value))


def _parse_optimizer_time(value: Any, path: str) -> Any:
    """Return ``counted``, seconds, or seconds by method name from the text, number or mapping that a user wrote."""
    if value == COUNTED:
        return value
    if isinstance(value, Mapping):
        prefix = f"{path}." if path else ""
        return {str(name): parse_seconds(seconds, f"{prefix}{name}") for name, seconds in value.items()}
    if _is_word(value):
        raise SpecError(path, value, "a time, times by method as in {muon: 12 ms, adam: 1 ms}, or counted")
    return parse_seconds(value, path)


OptimizerTimeField = Annotated[float | Literal["counted"] | dict[str, float], parsed(_parse_optimizer_time)]
"""``12 ms``, ``{muon: 12 ms, adam: 1 ms}`` or ``counted``."""


class SlowWorkerSpec(Spec):
    """A slow worker, by its number from 0: each of its steps takes ``factor`` times as long."""

    worker: int = Field(ge=0)
    factor: float = Field(ge=1e-6, le=1e6)


class PauseSpec(Spec):
    """A pause: a worker stops for ``seconds`` in one step; workers and steps are numbered from 0."""

    worker: int = Field(ge=0)
    step: int = Field(ge=0)
    seconds: Seconds


def fields_from_shorthand(value: str | float) -> dict[str, Any]:
    """Return the fields of a `ComputeSpec` that is written as a time such as ``5 ms``, or as the word ``measure``."""
    return {"measure": True} if value == "measure" else {"seconds": value}


class ComputeSpec(Spec):
    """The compute time of a worker's step: ``seconds``, ``batch_times``, or the problem's FLOPs on ``hardware``.

    ``compute: 5 ms`` is short for ``{seconds: 5 ms}``. ``batch_times`` maps the batch size of one worker and step to
    seconds; its ``batch_unit`` is ``samples`` (windows, images, sequences) or ``tokens``. With ``measure`` (``compute:
    measure`` is short for it) a training measures the seconds of a step on its own machine before it begins, and writes
    them to its ``spec.yaml`` in place of ``measure``.

    Disturbances: log-normal jitter (sigma of the logarithm; the mean stays), slow workers, pauses, and
    ``start_offsets``, the time at which each worker begins.

    Overheads: ``encode_bandwidth`` is the rate at which a worker encodes fp32 bytes into a wire format and decodes them
    (infinite by default). ``readback_latency`` is the time to read one number back from the device, which a trigger
    does once per layer. CurvaDion's logs have a latency of 0.2 ms: 16 ms more per step with 72 matrices.
    results/benchmarks.md has encoding rates of 1 to 8 GB/s on a CPU core.

    ``optimizer_time`` is the time that a worker's update adds to each step, which includes Adam's: a time; times by the
    methods' names; or ``counted``. On a GPU whose kernels of updates are known (h100, h200), ``counted`` is the time of
    the update's kernels, and the default. Elsewhere it is the time of its matrix products and decompositions at the
    speed of the step, and the default is 0. A step of ``seconds`` or ``batch_times`` includes all updates by default.

    A projection of a transformer on hardware with ``kernels`` (docs/project.md) adds up the kernels of its step;
    ``kernels`` says which ones the software runs. With ``mfu`` the step takes its FLOPs at this share of the peak
    instead.
    """

    seconds: Seconds | None = None
    measure: bool = False
    batch_times: BatchTimesField | None = None
    batch_unit: Literal["samples", "tokens"] = "samples"
    extrapolate: bool = False
    hardware: HardwareField | None = None
    mfu: Annotated[float, Field(gt=0, le=1)] | None = None
    kernels: KernelsSpec = KernelsSpec()
    jitter: float = Field(default=0.0, ge=0, le=10)
    slow_workers: tuple[SlowWorkerSpec, ...] = ()
    pauses: tuple[PauseSpec, ...] = ()
    start_offsets: tuple[Seconds, ...] = ()
    encode_bandwidth: BandwidthField | None = None
    readback_latency: Seconds = 0.0
    optimizer_time: OptimizerTimeField | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthand(cls, value: Any) -> Any:
        """Return the fields of a spec that is written as a time or as the word ``measure``; other values unchanged."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return value
        if value != "measure" and _is_word(value):
            raise refusal("", value, "a time, as in 5 ms, or measure, or fields, as in {seconds: 5 ms}")
        return fields_from_shorthand(value)

    @model_validator(mode="after")
    def _refuse_several_sources(self) -> ComputeSpec:
        """Refuse several sources of a step's seconds, and settings of a source that is not there."""
        sources = [name for name in ("seconds", "batch_times", "hardware") if getattr(self, name) is not None]
        if self.measure and sources:
            raise refusal("measure", True, f"no {sources[0]} with it, as each gives the time of a step")
        if self.seconds is not None and self.hardware is not None:
            raise refusal("hardware", self.hardware.name, "none with seconds, which already fix the time")
        if self.batch_times is not None and len(sources) > 1:
            other_source = "seconds" if self.seconds is not None else "hardware"
            expected = f"none with {other_source}, which already fixes the time"
            raise refusal("batch_times", dict(self.batch_times.times_s), expected)
        if self.extrapolate and (self.batch_times is None or len(self.batch_times.sizes) == 1):
            raise refusal("extrapolate", True, "false without batch_times for at least two batch sizes")
        if self.batch_unit != "samples" and self.batch_times is None:
            raise refusal("batch_unit", self.batch_unit, "batch_times as well, whose sizes it counts")
        if self.mfu is not None and self.hardware is None:
            raise refusal("mfu", self.mfu, "hardware as well, of whose peak it is a fraction")
        return self

    def undisturbed_step_s(
        self, flops: float | None, workload_name: str, *, samples: float | None = None, tokens: float | None = None
    ) -> float:
        """Return the seconds of an undisturbed step, or raise a `SpecError` if the fields do not determine them.

        Args:
            flops: FLOPs of one worker's step; None if they cannot be counted.
            workload_name: name of the problem or the model, for the error line.
            samples: number of samples in one worker's batch; None if it has none.
            tokens: number of tokens in one worker's batch; None if it has none.
        """
        if self.measure:
            raise SpecError("compute.measure", True, "seconds, batch_times or hardware, as nothing is measured here")
        if self.seconds is not None:
            return self.seconds
        if self.batch_times is not None:
            batch_size = tokens if self.batch_unit == "tokens" else samples
            if batch_size is None:
                expected = f"seconds per step instead, as {workload_name} has no batch of {self.batch_unit}"
                raise SpecError("compute.batch_times", dict(self.batch_times.times_s), expected)
            with within("compute"):
                return self.batch_times.seconds(batch_size, self.extrapolate)
        if flops is None:
            expected = f"seconds per step, as {workload_name} has no FLOPs to derive them from"
            raise SpecError("compute.seconds", None, expected)
        return float(compute_s(flops, self.machine_at_mfu))

    @property
    def machine(self) -> Hardware:
        """Return the hardware that turns FLOPs into seconds; one CPU core by default."""
        return self.hardware or HARDWARE["cpu-core"]

    @property
    def machine_at_mfu(self) -> Hardware:
        """Return the hardware that turns FLOPs into seconds, with the spec's ``mfu`` if that is set."""
        return self.machine if self.mfu is None else dataclasses.replace(self.machine, mfu=self.mfu)

    @property
    def has_seconds(self) -> bool:
        """Return whether the seconds of a step are stated or measured, and do not follow from FLOPs."""
        return self.seconds is not None or self.batch_times is not None or self.measure

    @property
    def has_kernels(self) -> bool:
        """Return whether the hardware's kernels are known, and neither seconds nor ``mfu`` decide a step instead."""
        return not self.has_seconds and self.mfu is None and self.machine.kernels is not None

    @property
    def prices_updates(self) -> bool:
        """Return whether an update takes the time of its kernels."""
        kernels = None if self.hardware is None else self.hardware.kernels
        return self.optimizer_time in (None, COUNTED) and kernels is not None and kernels.updates is not None

    def optimizer_s(
        self, method: MethodBase, tensors: Sequence[TensorShape], step_s: float, flops: float | None, workload_name: str
    ) -> float:
        """Return the seconds that the update of an undisturbed worker adds to its step.

        Args:
            step_s: seconds of the step without the update.
            flops: FLOPs of one worker's step, from which ``counted`` derives the speed; None if they cannot be counted.
            workload_name: name of the problem or the model, for the error line.
        """
        if self.prices_updates:
            # The update includes the packing of messages, unless ``encode_bandwidth`` already does.
            updating = Updating(self.kernels.updates, with_messages=self.encode_bandwidth is None)
            return method.added_update_s(tensors, self.machine, updating=updating)
        if isinstance(self.optimizer_time, Mapping):
            return self.optimizer_time.get(method.name, 0.0)
        if self.optimizer_time != COUNTED:
            return self.optimizer_time or 0.0
        if not flops or not step_s:
            expected = f"a time, as {workload_name} has no FLOPs from which its speed follows"
            raise SpecError("compute.optimizer_time", COUNTED, expected)
        # The update runs at the speed of the step: its FLOPs over its seconds.
        machine = dataclasses.replace(self.machine, peak_flops=flops / step_s, mfu=1.0)
        return method.added_update_s(tensors, machine)

    def check_optimizer(self, methods: Iterable[MethodBase]) -> None:
        """Refuse an ``optimizer_time`` by method names that lacks the name of a method."""
        for method in methods:
            if isinstance(self.optimizer_time, Mapping) and method.name not in self.optimizer_time:
                raise refusal("compute.optimizer_time", dict(self.optimizer_time), f"a time for {method.name!r}, too")

    def uncertainty(
        self, width: int | None = None, workers: int | None = None, experts: int | None = None
    ) -> Uncertainty:
        """Return the uncertainty of an undisturbed step's seconds.

        Args:
            width: width of the model; None if it is not known.
            workers: number of workers; None if it is not known.
            experts: number of experts of a transformer, if the kernels of its step are added up; else None.
        """
        is_stated = self.seconds is not None or self.batch_times is not None
        machine = None if is_stated else self.machine  # stated seconds are exact
        return computing_uncertainty(machine, width, self.mfu, workers, experts)

    def source_note(self) -> str:
        """Return a sentence that names the hardware behind the seconds; empty text if they are stated or measured."""
        return "" if self.has_seconds else f" Compute: the problem's operations on {self.machine.name}."

    def warnings(self) -> list[str]:
        """Return a warning for each batch size of the table that takes less time than a smaller one."""
        if self.batch_times is None:
            return []
        return [
            f"compute.batch_times: a batch of {large:g} takes less time than one of {small:g}"
            for small, large in self.batch_times.decreasing_pairs
        ]

    def sample(
        self, base_s: float, steps: int, workers: int, seed: int, factors: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Return the compute seconds of each worker in each step, ``(T, P)``, as the seed samples the disturbances.

        ``factors`` multiply the compute time but not the pauses. With the same seed, a smaller number of steps yields
        the first rows of a larger number.
        """
        import numpy as np

        from syncline.sim import ComputeTime, Disturbance, LogNormalJitter, Pause, SlowWorker
        from syncline.sim.program.instructions import first_if_same

        disturbances: list[Disturbance] = [LogNormalJitter(self.jitter)] if self.jitter else []
        disturbances += [SlowWorker(slow.worker, slow.factor) for slow in self.slow_workers]
        rng = generator(seed, "compute time")
        compute_s = ComputeTime(base_s, tuple(disturbances)).sample(steps, workers, rng)
        # Equal steps are multiplied once, and repeated without taking memory.
        product_s = first_if_same(compute_s) * first_if_same(np.asarray(factors))
        compute_s = np.broadcast_to(product_s, compute_s.shape)
        for pause in self.pauses:
            if pause.step < steps:
                compute_s = Pause(pause.worker, pause.step, pause.seconds).disturb(compute_s, rng)
        return compute_s

    def check(self, workers: int, steps: int) -> None:
        """Refuse disturbances of workers or steps that do not exist in a training of this size."""
        if self.start_offsets and len(self.start_offsets) != workers:
            raise refusal("compute.start_offsets", self.start_offsets, f"one time per worker ({workers})")
        for i, slow in enumerate(self.slow_workers):
            check_number(f"compute.slow_workers.{i}.worker", slow.worker, count=workers)
        for i, pause in enumerate(self.pauses):
            check_number(f"compute.pauses.{i}.worker", pause.worker, count=workers)
            check_number(f"compute.pauses.{i}.step", pause.step, count=steps)


SLOWEST, FASTEST = 1e-6, 1e6
"""Bounds of a worker's speed relative to ``compute``, the same as for factors of slow workers."""


def _parse_speed(value: Any, path: str) -> float | Hardware:
    """Return a worker's speed, which a user writes as a number or as hardware."""
    if not isinstance(value, int | float):
        return hardware(value, path)
    if not SLOWEST <= value <= FASTEST:
        raise SpecError(path, value, f"a speed from {SLOWEST:g} to {FASTEST:g}, or hardware")
    return float(value)


Speed = Annotated[
    Any,
    parsed(_parse_speed),
    PlainSerializer(lambda speed: speed if isinstance(speed, float) else hardware_fields(speed)),
]
"""The speed of a worker: a number, or hardware as for ``compute.hardware``."""


def relative_speeds(speeds: tuple[float | Hardware, ...], compute: ComputeSpec) -> tuple[float, ...]:
    """Return each worker's speed relative to ``compute``: its number, or its machine's rate over the reference rate.

    The reference is the machine of ``compute``; if ``compute`` sets seconds, it is the first machine in ``speeds``.
    """
    machines = [speed for speed in speeds if isinstance(speed, Hardware)]
    # Seconds do not tell the rate of the machine on which they were measured.
    reference = machines[0] if machines and compute.has_seconds else compute.machine_at_mfu
    reference_flops = reference.peak_flops * reference.mfu
    relative = []
    for speed in speeds:
        relative.append(speed.peak_flops * speed.mfu / reference_flops if isinstance(speed, Hardware) else speed)
    return tuple(relative)
