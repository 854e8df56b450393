"""Specs of whole experiments: a training of one method, a comparison of methods, and what both record and schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticSerializationError
from typing_extensions import override

from syncline.costmodel import Network
from syncline.errors import SpecError, SynclineError, within
from syncline.fields import Seed, Spec, Steps, Threads, Workers, parsed, refusal
from syncline.methods import MethodBase, MethodSpec
from syncline.methods.parts.asynchronous import asynchronous_of, remedy_of
from syncline.specs.clock import ClockSpec
from syncline.specs.cluster.clusters import NetworkField, check_network_sizes
from syncline.specs.compute import ComputeSpec, Speed, relative_speeds
from syncline.specs.failures import FailuresField
from syncline.specs.faults import FaultsSpec
from syncline.specs.problem import ProblemField
from syncline.specs.stages import StagesSpec
from syncline.units import is_whole

if TYPE_CHECKING:
    import numpy as np
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from syncline.optim.measures import Watch


class WatchSpec(Spec):
    """Measures of the workers that a training records in ``watched.parquet``, in addition to its losses.

    ``measures``: ``rounds``, ``update-vectors``, ``momentum-spread`` (`syncline.optim.measures`). ``every``: number of
    steps between two records, for measures of single steps.
    """

    measures: tuple[Literal["rounds", "update-vectors", "momentum-spread"], ...] = ()
    every: int = Field(default=1, ge=1)

    def build(self) -> Watch | None:
        """Return the recorder of the measures; None without measures."""
        from syncline.optim.measures import MEASURES, Watch

        if not self.measures:
            return None
        return Watch([MEASURES[name]() for name in self.measures], self.every)

    def refuse(self, expected: str, error: Callable[[str, Any, str], Exception] = refusal) -> None:
        """Raise an error if there are measures, which the rest of a spec or a command rules out.

        Args:
            expected: accepted value, for the error line.
            error: function that makes the exception from path, value and ``expected``; a command passes `SpecError`.
        """
        if self.measures:
            raise error("watch.measures", self.measures, expected)


class ScheduleSpec(Spec):
    """A learning-rate schedule: linear warmup, constant rate, cooldown; constant if both are zero.

    ``warmup_steps``: first steps, in which the rate grows linearly to the method's learning rate. ``cooldown_steps``:
    last steps, in which the rate falls to 0. ``shape``: of the cooldown, ``1-sqrt`` or ``cosine``.
    """

    warmup_steps: int = Field(default=0, ge=0)
    cooldown_steps: int = Field(default=0, ge=0)
    shape: Literal["1-sqrt", "cosine"] = "1-sqrt"

    def check(self, steps: int) -> None:
        """Refuse a schedule that is longer than the training; the error names the longer of warmup and cooldown."""
        if self.warmup_steps + self.cooldown_steps > steps:
            field = "cooldown_steps" if self.cooldown_steps > self.warmup_steps else "warmup_steps"
            largest = max(0, steps - min(self.warmup_steps, self.cooldown_steps))
            expected = f"at most {largest}, as warmup and cooldown are within the {steps} steps"
            raise refusal(f"schedule.{field}", getattr(self, field), expected)

    def build(self, optimizer: Optimizer, steps: int) -> LRScheduler | None:
        """Return torch's learning-rate scheduler; None if the rate is constant."""
        from syncline.optim import warmup_stable_decay

        if not (self.warmup_steps or self.cooldown_steps):
            return None
        return warmup_stable_decay(optimizer, steps, self.warmup_steps, self.cooldown_steps, self.shape)


SHORTEST_S, LONGEST_S = 1e-12, 1e9
"""Bounds of the seconds of a step. The shortest is below a clock cycle of any processor, the longest is 32 years; with
jitter and factors, times stay within the range of doubles."""

MOST_SEEDS = 100_000
"""Largest number of seeds of a training: no statistic needs more, and listing them takes seconds."""

MOST_LETTERS = 200
"""Largest number of characters of a name: it becomes part of a folder's name, and file systems allow 255 bytes."""


class Experiment(Spec):
    """The fields that every experiment has: a name, a description, a source."""

    name: str = Field(min_length=1, max_length=MOST_LETTERS, pattern=r"^[A-Za-z0-9._-]+$")
    description: str = ""
    source: str = ""

    @override
    def model_dump(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the fields, as pydantic does; refuse an object that no file can hold by a `SynclineError`."""
        try:
            return super().model_dump(*args, **options)
        except PydanticSerializationError as error:
            raise SynclineError(f"spec: a file cannot hold one of its values: {error}") from None

    def warnings(self) -> list[str]:
        """Return warnings about settings that are allowed but likely a mistake, one line each."""
        return []


def _seeds_from_count(value: Any, path: str) -> Any:
    """Return ``n`` seeds from 0 on if the value is a number ``n``; return any other value unchanged."""
    if isinstance(value, list | tuple):
        return value
    if not is_whole(value) or not 1 <= value <= MOST_SEEDS:
        raise SpecError(path, value, f"a number of seeds from 1 to {MOST_SEEDS}, or a list of them")
    return tuple(range(value))


SeedsField = Annotated[tuple[Seed, ...], parsed(_seeds_from_count), Field(min_length=1, max_length=MOST_SEEDS)]
"""Seeds of the repetitions; ``3`` is short for the seeds 0, 1 and 2."""


class Training(ClockSpec, Experiment):
    """The fields of every training. Gradients travel in fp32 unless ``precision`` is set.

    ``eval_every``: steps between evaluations; 0: only before and after the training. ``speeds``: the relative speed of
    each worker, if speeds differ; a step of the worker takes ``1 / speed`` times the seconds of ``compute``. The speed
    of hardware is its rate ``peak_flops mfu`` over that of ``compute.hardware``, or of the first hardware in the list
    if ``compute`` has seconds. ``failures``: failures of machines. ``timeline_steps``: first steps that the timeline
    keeps. ``threads`` of torch, ``device``, ``dtype``, ``execution`` and ``autocast`` say how gradients are computed.
    ``pipeline``: the stages of the single worker's model, which the network then connects.
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
    execution: Literal["eager", "loop", "compiled", "graph"] = "eager"
    autocast: Literal["none", "bfloat16"] = "none"
    pipeline: StagesSpec | None = None

    @model_validator(mode="after")
    def _check_sizes_and_contradictions(self) -> Training:
        """Refuse settings that are out of range for the training's workers and steps, or that exclude each other."""
        self.schedule.check(self.steps)
        if len(set(self.seeds)) < len(self.seeds):
            raise refusal("seeds", self.seeds, "seeds that differ from each other")
        self.compute.check(self.workers, self.steps)
        if self.compute.seconds is not None and not SHORTEST_S <= self.compute.seconds <= LONGEST_S:
            expected = f"a time above 0, from {SHORTEST_S:g} to {LONGEST_S:g} s, which steps are measured by"
            raise refusal("compute.seconds", self.compute.seconds, expected)
        if self.autocast != "none" and self.dtype != "float32":
            raise refusal("autocast", self.autocast, f"none with dtype {self.dtype}, as it casts float32")
        self.faults.check(self.workers, self.steps)
        if self.failures is not None:
            self.failures.check(self.workers)
            self.faults.refuse_absences("none with failures, which say when workers are absent")
        if self.speeds and len(self.speeds) != self.workers:
            raise refusal("speeds", self.speeds, f"one speed per worker ({self.workers})")
        if self.pipeline is not None:
            self.pipeline.check(self)
            if self.failures is not None:
                raise refusal("failures", "given", "none with pipeline, whose stages do not fail here")
            self.watch.refuse("none with pipeline, whose stages are not workers")
        return self

    @property
    def num_endpoints(self) -> int:
        """Return the number of endpoints that the network connects: the workers, or the stages of a pipeline."""
        return self.workers if self.pipeline is None else self.pipeline.stages

    @property
    def endpoint_noun(self) -> str:
        """Return what the network connects: ``workers`` or ``stages``."""
        return "workers" if self.pipeline is None else "stages"

    def check_method(self, method: MethodBase, path: str) -> None:
        """Refuse a method that the faults, the failures or the pipeline of the training rule out."""
        self.faults.check_method(method, path)
        self._check_asynchronous(method, path)
        if self.failures is not None and asynchronous_of(method) is None:
            self.failures.check_method(method, path)
        remedy = remedy_of(method)
        if self.pipeline is not None:
            self.pipeline.check_method(method, path)
        elif remedy is not None:
            raise refusal(f"{path}.remedy", remedy.kind, "none without pipeline, whose gradients are late")

    def _check_asynchronous(self, method: MethodBase, path: str) -> None:
        """Refuse an asynchronous method together with settings that need common steps of all workers."""
        asynchrony = asynchronous_of(method)
        if asynchrony is None:
            return
        if self.compute.optimizer_time:
            expected = f"0 with {method.name}, whose server's updates take no time"
            raise refusal("compute.optimizer_time", self.compute.optimizer_time, expected)
        no_common_steps = f"none with {method.name}, whose workers have no common steps"
        self.watch.refuse(no_common_steps)
        asynchrony.check_workers(self.workers, path)
        self.faults.refuse_absences(no_common_steps)

    @property
    def relative_speeds(self) -> tuple[float, ...]:
        """Return each worker's speed relative to ``compute``: its number, or its machine's rate over compute's."""
        return relative_speeds(self.speeds, self.compute)

    def step_times(self, base_s: float, steps: int, relative_durations: Sequence[float] | None = None) -> np.ndarray:
        """Return the seconds that each worker computes in each of the first steps, ``(steps, P)``.

        Stragglers and jitter are random; the experiment's first seed samples them.

        Args:
            base_s: seconds of an undisturbed step.
            relative_durations: duration of each worker's step relative to ``base_s``, ``(P,)``; 1 by default.
        """
        import numpy as np

        factors = self.faults.stragglers.factors(steps, self.workers, self.seeds[0])
        if self.speeds:
            factors = factors / np.array(self.relative_speeds)
        if relative_durations is not None:
            factors = factors * np.array(relative_durations)
        return self.compute.sample(base_s, steps, self.workers, self.seeds[0], factors)

    @property
    def persistent_slowdowns(self) -> np.ndarray:
        """Return for each worker the factor by which all its steps are longer than ``compute`` says, ``(P,)``."""
        import numpy as np

        factors = np.ones(self.workers)
        for slow in self.compute.slow_workers:
            factors[slow.worker] *= slow.factor
        return factors / np.array(self.relative_speeds) if self.speeds else factors

    @property
    def arithmetic(self) -> dict[str, str]:
        """Return the fields that decide how gradients are computed: ``dtype``, ``execution`` and ``autocast``."""
        return {"dtype": self.dtype, "execution": self.execution, "autocast": self.autocast}

    @property
    def number_format(self) -> str:
        """Return the number format in which gradients are computed and travel; fp32 by default."""
        return self.precision or "fp32"

    def unaveraged_warnings(self, method: MethodBase, path: str) -> list[str]:
        """Return a warning if the training ends before some state of the method is averaged for the first time.

        A method can average a state at several periods, one after another; then one average is enough. ``path`` is the
        method's field, for errors.
        """
        with within(path):
            # Any model exchanges at the same steps, so one parameter will do.
            exchanges = method.exchanges(model=1, workers=self.workers)
        averaged_states = {exchange.label for exchange in exchanges if exchange.num_runs(self.steps)}
        unaveraged: dict[str, str] = {}  # text by state, with its first period
        for exchange in exchanges:
            if exchange.label not in averaged_states and exchange.label not in unaveraged:
                first_step = f", from step {exchange.start}" if exchange.start else ""
                unaveraged[exchange.label] = f"{exchange.label} (every {exchange.period}{first_step})"
        if not unaveraged or self.workers == 1:
            return []
        return [f"{method.name}: never averaged in {self.steps} steps: {', '.join(unaveraged.values())}"]

    def method_warnings(self, methods: Mapping[str, MethodBase], networks: Sequence[Network]) -> list[str]:
        """Return warnings about the problem, the compute times, and the methods on networks.

        ``methods``: the methods by their paths in the spec.
        """
        warnings: list[str] = self.problem.notes() if hasattr(self.problem, "notes") else []
        warnings = warnings + self.compute.warnings() + self.clock_warnings(list(methods.values()), networks)
        for path, method in methods.items():
            warnings += self.unaveraged_warnings(method, path)
        return warnings


class RunSpec(Training):
    """The spec of a training: a problem, a method, and the network on which the training is timed."""

    kind: Literal["run"]
    method: MethodSpec
    network: NetworkField

    @model_validator(mode="after")
    def _check_method_and_network(self) -> RunSpec:
        """Refuse a method that the training's settings rule out, and a network that cannot join its workers."""
        self.check_method(self.method, "method")
        self.compute.check_optimizer([self.method])
        check_network_sizes([self.network], self.num_endpoints)
        return self

    @override
    def warnings(self) -> list[str]:
        return self.method_warnings({"method": self.method}, [self.network])


class CompareSpec(Training):
    """A comparison of methods on one problem, timed on several networks. Speedups are relative to the first method.

    ``target_loss``: the loss to which times are reported. By default it is the highest final loss among the methods
    whose loss went down, because all of these reach it.
    """

    kind: Literal["compare"]
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    networks: tuple[NetworkField, ...] = Field(min_length=1)
    target_loss: float | None = None

    @model_validator(mode="after")
    def _check_methods_and_networks(self) -> CompareSpec:
        """Refuse equal names, methods that the settings rule out, and networks that cannot join the workers."""
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("networks", [network.name for network in self.networks])
        check_network_sizes(self.networks, self.num_endpoints)
        for index, method in enumerate(self.methods):
            self.check_method(method, f"methods.{index}")
        self.compute.check_optimizer(self.methods)
        return self

    @override
    def warnings(self) -> list[str]:
        return self.method_warnings({f"methods.{i}": method for i, method in enumerate(self.methods)}, self.networks)


def check_distinct(field: str, names: list[str]) -> None:
    """Refuse ``names`` that are not distinct; the error names the ``field`` and a name that occurs twice."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise refusal(field, names, f"different names; {doubled[0]!r} is named twice (a method's label is its name)")
