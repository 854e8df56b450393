"""Specs of whole experiments: one training, a comparison, a projection."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, InstanceOf, PlainSerializer, model_validator

from syncline.costmodel import HARDWARE, BatchTimes, Exchange, ModelShape, compute_s
from syncline.errors import SpecError, within
from syncline.fields import Seconds, Seed, Spec, Steps, Threads, Workers, parsed, refusal
from syncline.methods import MethodBase, MethodSpec
from syncline.specs.clock import BandwidthField, ClockSpec
from syncline.specs.cluster.spec_fields import NetworkField, check_joinable
from syncline.specs.faults import FaultsSpec
from syncline.specs.memory import HardwareField, MemorySpec
from syncline.specs.models import ModelField
from syncline.specs.problem import ProblemField
from syncline.units import parse_seconds

if TYPE_CHECKING:
    import numpy as np
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


def _table(value: Any, path: str) -> BatchTimes:
    """Seconds by batch size, from text or numbers."""
    if isinstance(value, BatchTimes):
        return value
    if not isinstance(value, dict):
        raise SpecError(path, value, "seconds by batch size, as in {1: 12 ms, 8: 60 ms}")
    times_s = {}
    for size, seconds in value.items():
        try:
            number = float("" if isinstance(size, bool) else size)
        except (TypeError, ValueError):
            raise SpecError(path, size, "a batch size, as in {1: 12 ms, 8: 60 ms}") from None
        times_s[number] = parse_seconds(seconds, str(size))
    try:
        return BatchTimes(times_s)
    except SpecError as error:
        raise SpecError(error.path.removeprefix("table").removeprefix("."), error.value, error.expected) from None


TableField = Annotated[InstanceOf[BatchTimes], parsed(_table), PlainSerializer(lambda table: dict(table.times_s))]
"""Seconds by batch size: ``{1: 12 ms, 8: 60 ms, 32: 210 ms}``."""


class SlowWorkerSpec(Spec):
    """A worker that computes slower than the others."""

    worker: int = Field(ge=0)
    factor: float = Field(ge=1e-6, le=1e6)


class PauseSpec(Spec):
    """A worker that stands still once."""

    worker: int = Field(ge=0)
    step: int = Field(ge=0)
    seconds: Seconds


class ComputeSpec(Spec):
    """How long a worker computes in a step: ``seconds``, a ``table``, or the problem's FLOPs on ``hardware``.

    A table has seconds by batch size, ``samples`` (windows, images, sequences) or ``tokens`` of one worker and step.
    ``measure``, which ``compute: measure`` is short for, stands for the seconds of a step on the machine that trains: a
    training measures them once before it begins, and its ``spec.yaml`` has them in its place.

    Disturbances: log-normal jitter (sigma of the logarithm, mean kept), slow workers, pauses, late starts.

    Overheads: ``encode``, the fp32 bytes that a worker turns into a wire format and back per second (in no time if not
    given); ``readback``, the time to read one number back from the device, which a trigger does once per layer. Of
    CurvaDion's logs the second is 0.2 ms: 16 ms more per step with 72 matrices. Of the first, results/benchmarks.md has
    1 to 8 GB/s on a CPU core.
    """

    seconds: Seconds | None = None
    measure: bool = False
    table: TableField | None = None
    table_unit: Literal["samples", "tokens"] = "samples"
    extrapolate: bool = False
    hardware: HardwareField | None = None
    mfu: Annotated[float, Field(gt=0, le=1)] | None = None
    jitter: float = Field(default=0.0, ge=0, le=10)
    slow_workers: tuple[SlowWorkerSpec, ...] = ()
    pauses: tuple[PauseSpec, ...] = ()
    starts: tuple[Seconds, ...] = ()
    encode: BandwidthField | None = None
    readback: Seconds = 0.0

    @model_validator(mode="before")
    @classmethod
    def _by_word(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "measure":
            raise refusal("", value, "measure, or fields, as in {seconds: 5 ms}")
        return {"measure": True} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_source(self) -> ComputeSpec:
        others = {"seconds": self.seconds, "table": self.table, "hardware": self.hardware}
        if self.measure and any(value is not None for value in others.values()):
            beside = next(name for name, value in others.items() if value is not None)
            raise refusal("measure", True, f"no {beside} beside it: one of them says how long a step takes")
        if self.seconds is not None and self.hardware is not None:
            raise refusal("hardware", self.hardware.name, "nothing beside seconds, which fixes the time alone")
        if self.table is not None and (self.seconds is not None or self.hardware is not None):
            fixed = "seconds" if self.seconds is not None else "hardware"
            raise refusal("table", dict(self.table.times_s), f"nothing beside {fixed}, which fixes the time alone")
        if self.extrapolate and (self.table is None or len(self.table.sizes) == 1):
            raise refusal("extrapolate", True, "false without a table of two batch sizes at least")
        if self.table_unit != "samples" and self.table is None:
            raise refusal("table_unit", self.table_unit, "a table beside it, whose sizes it counts")
        if self.mfu is not None and self.hardware is None:
            raise refusal("mfu", self.mfu, "hardware beside it, whose peak it is a fraction of")
        return self

    def base_s(
        self, flops: float | None, what: str, *, samples: float | None = None, tokens: float | None = None
    ) -> float:
        """Seconds of an undisturbed step.

        Args:
            flops: of one worker; None if they cannot be counted.
            what: the problem or the model, for the error line.
            samples: of one worker's batch; None if it has none.
            tokens: the same in tokens.

        Raises:
            SpecError: if only FLOPs could tell and there are none, or a table has no such batch.
        """
        if self.measure:
            raise SpecError("compute.measure", True, "seconds, a table or hardware, as nothing is measured here")
        if self.seconds is not None:
            return self.seconds
        if self.table is not None:
            batch = tokens if self.table_unit == "tokens" else samples
            if batch is None:
                expected = f"seconds per step instead, as {what} has no batch of {self.table_unit}"
                raise SpecError("compute.table", dict(self.table.times_s), expected)
            with within("compute"):
                return self.table.seconds(batch, self.extrapolate)
        if flops is None:
            raise SpecError("compute.seconds", None, f"seconds per step, as {what} has no FLOPs to derive them from")
        machine = self.hardware or HARDWARE["cpu-core"]
        if self.mfu is not None:
            machine = dataclasses.replace(machine, mfu=self.mfu)
        return float(compute_s(flops, machine))

    def note(self) -> str:
        """Where the seconds come from, unless the spec has them: a sentence for people, or nothing."""
        if self.seconds is not None or self.table is not None or self.measure:
            return ""
        return f" Compute: the problem's operations on {(self.hardware or HARDWARE['cpu-core']).name}."

    def warnings(self) -> list[str]:
        """Batch sizes of a table that take less time than smaller ones, a line each."""
        pairs = self.table.falls_at if self.table is not None else []
        return [f"compute.table: a batch of {large:g} takes less time than one of {small:g}" for small, large in pairs]

    def sample(
        self, base_s: float, steps: int, workers: int, seed: int, factors: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Seconds that each worker computes in each step, ``(T, P)``; ``factors`` lengthen it, but no pause.

        Fewer steps of the same seed are the first of more.
        """
        import numpy as np

        from syncline.seeds import generator
        from syncline.sim import ComputeTime, Disturbance, LogNormalJitter, Pause, SlowWorker
        from syncline.sim.programs import first_if_same

        disturbances: list[Disturbance] = [
            *([LogNormalJitter(self.jitter)] if self.jitter else []),
            *(SlowWorker(slow.worker, slow.factor) for slow in self.slow_workers),
        ]
        rng = generator(seed, "compute time")
        times = ComputeTime(base_s, tuple(disturbances)).sample(steps, workers, rng)
        times = np.broadcast_to(first_if_same(times) * first_if_same(np.asarray(factors)), times.shape)
        for pause in (pause for pause in self.pauses if pause.step < steps):
            times = Pause(pause.worker, pause.step, pause.seconds).disturb(times, rng)
        return times

    def check(self, workers: int, steps: int) -> None:
        """Refuse disturbances of workers or steps that there are not.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        if self.starts and len(self.starts) != workers:
            raise refusal("compute.starts", self.starts, f"one time per worker ({workers})")
        disturbed = [(f"slow_workers.{i}.worker", slow.worker, workers) for i, slow in enumerate(self.slow_workers)]
        for i, pause in enumerate(self.pauses):
            disturbed += [(f"pauses.{i}.worker", pause.worker, workers), (f"pauses.{i}.step", pause.step, steps)]
        for path, index, length in disturbed:
            if index >= length:
                raise refusal(f"compute.{path}", index, f"a number from 0 to {length - 1}")


class ScheduleSpec(Spec):
    """Learning rate over the steps: linear warmup, flat, ``1 - sqrt`` cooldown. Both zero: constant."""

    warmup_steps: int = Field(default=0, ge=0)
    cooldown_steps: int = Field(default=0, ge=0)

    def check(self, steps: int) -> None:
        """Refuse one that is longer than the training.

        Raises:
            PydanticCustomError: with the path from the training to the longer of both.
        """
        parts = {"warmup_steps": self.warmup_steps, "cooldown_steps": self.cooldown_steps}
        total, longer = sum(parts.values()), max(parts, key=parts.__getitem__)
        if total > steps:
            room = max(0, steps - (total - parts[longer]))
            expected = f"at most {room}, as warmup and cooldown are within the {steps} steps"
            raise refusal(f"schedule.{longer}", parts[longer], expected)

    def build(self, optimizer: Optimizer, steps: int) -> LRScheduler | None:
        """Torch's scheduler; None if the rate is constant."""
        from syncline.optim import warmup_stable_decay

        if not (self.warmup_steps or self.cooldown_steps):
            return None
        return warmup_stable_decay(optimizer, steps, self.warmup_steps, self.cooldown_steps)


SHORTEST_S, LONGEST_S = 1e-12, 1e9
"""Of a step: below a clock cycle of any processor, above a human life; jitter and factors stay within doubles."""

MOST_SEEDS = 100_000
"""Replicas that one training is asked for: no statistic needs more, and listing them takes seconds."""

MOST_LETTERS = 200
"""Of a name: a folder is called by it, and file systems take 255 bytes with what is put around it."""


class Experiment(Spec):
    """What every spec has."""

    name: str = Field(min_length=1, max_length=MOST_LETTERS, pattern=r"^[A-Za-z0-9._-]+$")
    description: str = ""
    source: str = ""

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        return []


def _counted(value: Any, path: str) -> Any:
    """A number of seeds as the seeds from 0 on."""
    if not isinstance(value, int):
        return value
    if not 1 <= value <= MOST_SEEDS:
        raise SpecError(path, value, f"a number of seeds from 1 to {MOST_SEEDS}, or a list of them")
    return tuple(range(value))


SeedsField = Annotated[tuple[Seed, ...], parsed(_counted), Field(min_length=1, max_length=MOST_SEEDS)]
"""Seeds of repetitions; ``3`` stands for 0, 1, 2."""


class Training(ClockSpec, Experiment):
    """What every spec of a training has."""

    problem: ProblemField
    workers: Workers
    steps: Steps
    seeds: SeedsField = (0,)
    eval_every: int = Field(default=0, ge=0)
    schedule: ScheduleSpec = ScheduleSpec()
    compute: ComputeSpec = ComputeSpec()
    faults: FaultsSpec = FaultsSpec()
    timeline_steps: int = Field(default=50, ge=0)
    threads: Threads = 1
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"

    @model_validator(mode="after")
    def _fits(self) -> Training:
        self.schedule.check(self.steps)
        if len(set(self.seeds)) < len(self.seeds):
            raise refusal("seeds", self.seeds, "seeds that differ from each other")
        self.compute.check(self.workers, self.steps)
        if self.compute.seconds is not None and not SHORTEST_S <= self.compute.seconds <= LONGEST_S:
            expected = f"a time above 0, from {SHORTEST_S:g} to {LONGEST_S:g} s, which steps are measured by"
            raise refusal("compute.seconds", self.compute.seconds, expected)
        self.faults.check(self.workers, self.steps)
        return self

    def problem_notes(self) -> list[str]:
        """What the problem itself has to say, a line each."""
        said: list[str] = getattr(self.problem, "notes", list)()
        return said

    def never_averaged(self, method: MethodBase, path: str) -> list[str]:
        """A warning if the training ends before something is averaged for the first time.

        What a method sends in several phases is averaged if it is in one of them.

        Raises:
            SpecError: below ``path``, if the method cannot serve so many workers.
        """
        with within(path):
            exchanges = method.exchanges(1, self.workers)
        sent = {exchange.label for exchange in exchanges if exchange.times(self.steps)}
        late = {exchange.label: exchange for exchange in reversed(exchanges) if exchange.label not in sent}
        if not late or self.workers == 1:
            return []
        states = ", ".join(f"{label} ({_when(exchange)})" for label, exchange in reversed(late.items()))
        return [f"{method.name}: never averaged in {self.steps} steps: {states}"]


class RunSpec(Training):
    """One method on one problem, timed on one network."""

    kind: Literal["run"]
    method: MethodSpec
    network: NetworkField

    @model_validator(mode="after")
    def _can_be_absent(self) -> RunSpec:
        self.faults.check_method(self.method, "method")
        return self

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        clock = self.clock_warnings([self.method], [self.network])
        return self.problem_notes() + self.compute.warnings() + clock + self.never_averaged(self.method, "method")

    @model_validator(mode="after")
    def _joins(self) -> RunSpec:
        check_joinable([self.network], self.workers)
        return self


class CompareSpec(Training):
    """Several methods on one problem, timed on several networks. The first method is the baseline of the speedups.

    ``target_loss`` is the loss whose time is told; by default the highest final loss of the methods that ended below
    where they began, which each of them has reached.
    """

    kind: Literal["compare"]
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    networks: tuple[NetworkField, ...] = Field(min_length=1)
    target_loss: float | None = None

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        late = [line for i, one in enumerate(self.methods) for line in self.never_averaged(one, f"methods.{i}")]
        clock = self.clock_warnings(self.methods, self.networks)
        return self.problem_notes() + self.compute.warnings() + clock + late

    @model_validator(mode="after")
    def _distinct(self) -> CompareSpec:
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("networks", [network.name for network in self.networks])
        check_joinable(self.networks, self.workers)
        for i, method in enumerate(self.methods):
            self.faults.check_method(method, f"methods.{i}")
        return self


class ProjectSpec(ClockSpec, Experiment):
    """The clock alone, in closed form: a model's shape, methods, networks. No training."""

    kind: Literal["project"]
    model: ModelField
    tokens_per_worker: int = Field(ge=1)
    workers: Workers
    steps: Steps = 10_000
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    networks: tuple[NetworkField, ...] = Field(min_length=1)
    compute: ComputeSpec = ComputeSpec()
    faults: FaultsSpec = FaultsSpec()
    memory: MemorySpec = MemorySpec()

    @model_validator(mode="after")
    def _distinct(self) -> ProjectSpec:
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("networks", [link.name for link in self.networks])
        if self.memory.activations is not None and not isinstance(self.model, ModelShape):
            expected = f"none, as {self.model.name} is a module: they are estimated for transformers by name or config"
            raise refusal("memory.activations", self.memory.activations, expected)
        return self

    def warnings(self) -> list[str]:
        """Disturbances, which a closed form cannot see."""
        given = self.compute.model_dump(include={"jitter", "slow_workers", "pauses", "starts"}, exclude_defaults=True)
        fields = [f"compute.{field}" for field in given]
        fields += [f"faults.{field}" for field in self.faults.model_dump(exclude_defaults=True)]
        inert = [f"{field} has no effect on a closed form; use 'run' or 'compare'" for field in fields]
        return self.compute.warnings() + self.clock_warnings(self.methods, self.networks, trains=False) + inert


def _when(exchange: Exchange) -> str:
    return f"every {exchange.period}" + (f", from step {exchange.start}" if exchange.start else "")


def check_distinct(field: str, names: list[str]) -> None:
    """Refuse a name that is there twice."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise refusal(field, names, f"different names; {doubled[0]!r} is there twice (a method's label is its name)")
