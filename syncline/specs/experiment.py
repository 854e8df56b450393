"""Specs of whole experiments: one training, a comparison, a projection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticSerializationError
from typing_extensions import override

from syncline.costmodel import Exchange, Hardware, ModelShape
from syncline.errors import SpecError, SynclineError, within
from syncline.fields import Seed, Spec, Steps, Threads, Workers, parsed, refusal
from syncline.methods import MethodBase, MethodSpec
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.methods.parts.remedies import remedy_of
from syncline.specs.clock import ClockSpec
from syncline.specs.cluster.spec_fields import NetworkField, check_joinable
from syncline.specs.compute import ComputeSpec
from syncline.specs.failures import FailuresField
from syncline.specs.faults import FaultsSpec
from syncline.specs.layout import LayoutSpec
from syncline.specs.memory import MemorySpec
from syncline.specs.models import ModelField
from syncline.specs.problem import ProblemField
from syncline.specs.speeds import Speed, relative_speeds
from syncline.specs.stages import StagesSpec
from syncline.specs.watch import WatchSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


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

    @override
    def model_dump(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the fields, as pydantic does.

        Raises:
            SynclineError: a function of the user's is called with an object that no file can say.
        """
        try:
            return super().model_dump(*args, **options)
        except PydanticSerializationError as error:
            raise SynclineError(f"spec: no file can say one of its values: {error}") from None

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
    """What every spec of a training has. Gradients travel in fp32 unless ``precision`` says otherwise.

    ``speeds``: of each worker, where they differ; a step takes ``1 / speed`` of what ``compute`` says. Hardware stands
    for its rate ``peak_flops mfu`` over that of ``compute.hardware``, or, where seconds are given, of the first named.
    ``failures``: of machines, by time. ``pipeline``: the stages that the model of one worker is cut into, which then
    are what the network joins.
    """

    problem: ProblemField
    workers: Workers
    steps: Steps
    seeds: SeedsField = (0,)
    eval_every: int = Field(default=0, ge=0)
    schedule: ScheduleSpec = ScheduleSpec()
    compute: ComputeSpec = ComputeSpec()
    speeds: tuple[Speed, ...] = ()
    faults: FaultsSpec = FaultsSpec()
    failures: FailuresField | None = None
    timeline_steps: int = Field(default=50, ge=0)
    watch: WatchSpec = WatchSpec()
    threads: Threads = 1
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    execution: Literal["eager", "compiled", "graph"] = "eager"
    pipeline: StagesSpec | None = None

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
        if self.failures is not None:
            self.failures.check(self.workers)
            self.faults.refuse_absences("none beside failures, which say by time who is away")
        if self.speeds and len(self.speeds) != self.workers:
            raise refusal("speeds", self.speeds, f"one speed per worker ({self.workers})")
        if self.pipeline is not None:
            self.pipeline.check(self)
            if self.failures is not None:
                raise refusal("failures", "given", "none beside pipeline, whose stages do not fail here")
            self.watch.refuse("none beside pipeline, whose stages are no workers")
        return self

    @property
    def joined(self) -> int:
        """How many the network joins: the workers, or the stages of a pipeline."""
        return self.workers if self.pipeline is None else self.pipeline.stages

    @property
    def joined_what(self) -> str:
        """What the network joins, in a word."""
        return "workers" if self.pipeline is None else "stages"

    def check_lateness(self, method: MethodBase, path: str) -> None:
        """Refuse what stages cannot have, and remedies for late gradients where there are none.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        remedy = remedy_of(method)
        if self.failures is not None and self.failures.recovery == "reform" and asynchronous_of(method) is None:
            self.failures.check_method(method, path)
        if self.pipeline is not None:
            self.pipeline.check_method(method, path)
        elif remedy is not None:
            raise refusal(f"{path}.remedy", remedy.kind, "none without pipeline, whose gradients are late")

    def check_asynchronous(self, method: MethodBase, path: str) -> None:
        """Refuse an asynchronous method where it cannot be.

        Raises:
            PydanticCustomError: with the path from the spec's root.
        """
        how = asynchronous_of(method)
        if how is None:
            return
        none = f"none beside {method.name}, whose workers have no common steps"
        if self.compute.optimizer:
            expected = f"0 beside {method.name}, whose server updates in no time"
            raise refusal("compute.optimizer", self.compute.optimizer, expected)
        self.watch.refuse(none)
        how.check_workers(self.workers, path)
        self.faults.refuse_absences(none)

    @property
    def relative_speeds(self) -> tuple[float, ...]:
        """Each worker's, to what ``compute`` says: its number, or its machine's rate over that of compute's."""
        return relative_speeds(self.speeds, self.compute)

    def step_times(self, base_s: float, steps: int, work: Sequence[float] | None = None) -> np.ndarray:
        """Seconds of each worker in its first steps, ``(steps, P)``, as the first seed draws what disturbs them.

        Args:
            base_s: of an undisturbed step.
            steps: how many.
            work: of each worker, next to that of ``base_s``; 1 unless given.
        """
        import numpy as np

        factors = self.faults.stragglers.factors(steps, self.workers, self.seeds[0])
        if self.speeds:
            factors = factors / np.array(self.relative_speeds)
        if work is not None:
            factors = factors * np.array(work)
        return self.compute.sample(base_s, steps, self.workers, self.seeds[0], factors)

    @property
    def lasting_factors(self) -> np.ndarray:
        """How much longer each worker computes in every step than ``compute`` says, ``(P,)``."""
        import numpy as np

        factors = np.ones(self.workers)
        for slow in self.compute.slow_workers:
            factors[slow.worker] *= slow.factor
        return factors / np.array(self.relative_speeds) if self.speeds else factors

    @property
    def number_format(self) -> str:
        """In which gradients are taken to be computed, and so travel."""
        return self.precision or "fp32"

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
        sent = {exchange.label for exchange in exchanges if exchange.num_runs(self.steps)}
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
        self.check_asynchronous(self.method, "method")
        self.check_lateness(self.method, "method")
        self.compute.check_optimizer([self.method])
        return self

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        clock = self.clock_warnings([self.method], [self.network])
        return self.problem_notes() + self.compute.warnings() + clock + self.never_averaged(self.method, "method")

    @model_validator(mode="after")
    def _joins(self) -> RunSpec:
        check_joinable([self.network], self.joined)
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
        check_joinable(self.networks, self.joined)
        for i, method in enumerate(self.methods):
            self.faults.check_method(method, f"methods.{i}")
            self.check_asynchronous(method, f"methods.{i}")
            self.check_lateness(method, f"methods.{i}")
        self.compute.check_optimizer(self.methods)
        return self


class ProjectSpec(ClockSpec, Experiment):
    """The clock alone, in closed form: a model's shape, methods, networks. No training."""

    kind: Literal["project"]
    model: ModelField
    tokens_per_worker: int = Field(ge=1, le=10**15)
    workers: Workers
    steps: Steps = 10_000
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    networks: tuple[NetworkField, ...] = Field(min_length=1)
    compute: ComputeSpec = ComputeSpec()
    faults: FaultsSpec = FaultsSpec()
    memory: MemorySpec = MemorySpec()
    layout: LayoutSpec = LayoutSpec()

    @property
    def memory_machine(self) -> Hardware | None:
        """Whose memory a worker has to fit into; none: nobody says."""
        return self.memory.hardware or self.compute.hardware

    @property
    def number_format(self) -> str:
        """In which gradients are computed: the spec's, or that of the hardware's peak; fp32 where nobody says."""
        machine = self.compute.hardware or self.memory.hardware
        return self.precision or (machine.number_format if machine else "fp32")

    @model_validator(mode="after")
    def _distinct(self) -> ProjectSpec:
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("networks", [link.name for link in self.networks])
        for i, method in enumerate(self.methods):
            if asynchronous_of(method) is not None:
                expected = "a method without it: only 'run' and 'compare' play who comes when"
                raise refusal(f"methods.{i}.asynchronous", method.name, expected)
            if (remedy := remedy_of(method)) is not None:
                raise refusal(f"methods.{i}.remedy", remedy.kind, "none, as no gradient of a projection is late")
        self.compute.check_optimizer(self.methods)
        if self.memory.activations not in (None, "selective") and not isinstance(self.model, ModelShape):
            expected = f"none, as {self.model.name} is a module: they are estimated for transformers by name or config"
            raise refusal("memory.activations", self.memory.activations, expected)
        return self

    @model_validator(mode="after")
    def _laid_out(self) -> ProjectSpec:
        self.layout.check(self.model, self.workers)
        return self

    def warnings(self) -> list[str]:
        """Disturbances, which a closed form cannot see, and updates that are not counted."""
        given = self.compute.model_dump(include={"jitter", "slow_workers", "pauses", "starts"}, exclude_defaults=True)
        fields = [f"compute.{field}" for field in given]
        fields += [f"faults.{field}" for field in self.faults.model_dump(exclude_defaults=True)]
        inert = [f"{field} has no effect on a closed form; use 'run' or 'compare'" for field in fields]
        clock = self.clock_warnings(self.methods, self.networks, trains=False)
        return self.compute.warnings() + clock + inert + self._updates_left_out()

    def _updates_left_out(self) -> list[str]:
        """A warning if updates take a good part of a step by their products, and no part of the clock."""
        measured = self.compute.seconds is not None or self.compute.table is not None  # and the update with the step
        if measured or self.compute.optimizer != 0 or self.layout.made().workers > 1:
            return []
        flops = self.model.flops_per_token * self.tokens_per_worker
        shares = {one.name: COUNTING.optimizer_s(one, self.model.tensors, 1.0, flops, "") for one in self.methods}
        large = ", ".join(f"{share:.0%} ({name})" for name, share in shares.items() if share >= LEAST_UPDATE)
        told = f"updates take no time here; their products are {large} of a step's operations"
        return [f"{told}, which compute.optimizer=counted adds"] if large else []


COUNTING = ComputeSpec(optimizer="counted")

LEAST_UPDATE = 0.05
"""Of a step's operations, from which on it is told that an update's are left out."""


def _when(exchange: Exchange) -> str:
    return f"every {exchange.period}" + (f", from step {exchange.start}" if exchange.start else "")


def check_distinct(field: str, names: list[str]) -> None:
    """Refuse a name that is there twice."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise refusal(field, names, f"different names; {doubled[0]!r} is there twice (a method's label is its name)")
