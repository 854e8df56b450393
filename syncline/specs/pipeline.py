"""Spec of a pipeline's clock: its schedules, the times of its stages, their messages and networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from syncline.costmodel import Link, Matrix, Network, compute_s
from syncline.costmodel.layouts.memory import FP32_BYTES, MODEL_BYTES, Precision
from syncline.costmodel.layouts.partition import stage_activation_bytes, stage_flops, stage_parameters
from syncline.costmodel.layouts.pipelines import LIBRARY, averaging_calls
from syncline.errors import SpecError
from syncline.fields import Seconds, Seed, Spec, parsed, refusal, refusals
from syncline.methods import MethodSpec
from syncline.methods.parts.asynchronous import remedy_of
from syncline.registry import PYTHON
from syncline.seeds import generator
from syncline.specs.cluster.clusters import HardwareField, NetworkField, check_network_sizes
from syncline.specs.experiment import Experiment, check_distinct
from syncline.specs.layout import PlacementField, positions_of
from syncline.specs.models import TransformerField
from syncline.specs.problem import ProblemField
from syncline.units import parse_bytes

if TYPE_CHECKING:
    from syncline.sim.pipelines.pipeline import Durations, Pipeline
    from syncline.sim.pipelines.schedules import Schedule


def _parse_schedule(value: Any, path: str) -> Any:
    """Return a schedule's name after a check, or a user's function that returns a schedule, with its arguments."""
    from syncline.sim.pipelines.schedules import CalledSchedule, schedule_kind

    if isinstance(value, CalledSchedule):
        return value
    if isinstance(value, Mapping):
        if value.get("kind") != PYTHON:
            raise SpecError("kind", value.get("kind"), "a schedule's name, or {kind: python, target: module:name, ...}")
        return CalledSchedule(value, path)
    try:
        schedule_kind(str(value))
    except SpecError as error:
        raise SpecError(path, value, error.expected) from None
    return str(value)


ScheduleName = Annotated[Any, parsed(_parse_schedule), PlainSerializer(lambda name: getattr(name, "fields", name))]
"""A name of ``syncline.sim.SCHEDULES``, ``module:name``, or ``{kind: python, target: module:name, ...}``."""

MOST_TASKS = 1 << 20
"""Largest number of forward passes of a schedule, which take 8 s and 1.2 GiB on one core."""

FREE = Link(0.0, 1e15, "free")
"""The network of stages without networks: messages take no time, and none are sent over it."""


def _as_tuple(value: Any) -> Any:
    """Return a list or a tuple unchanged, and a tuple of one value for any other value."""
    return value if isinstance(value, list | tuple) else (value,)


PerStage = Annotated[tuple[Seconds, ...], BeforeValidator(_as_tuple)]
"""Seconds: one value for all stages, or one value for each stage."""

Nbytes = Annotated[float, parsed(parse_bytes), Field(ge=0)]
"""A size in bytes, at least 0: ``8 MB``, ``4096``."""


def _check_averaging(value: Any) -> str:
    """Return the name of a way to average, or refuse an unknown name."""
    try:
        averaging_calls(str(value))
    except SpecError as error:
        raise refusal("", value, error.expected) from None
    return str(value)


AveragingName = Annotated[str, BeforeValidator(_check_averaging)]
"""The name of a way to average; see `syncline.costmodel.layouts.pipelines`."""

Limits = Annotated[tuple[int, ...], BeforeValidator(_as_tuple)]
"""Numbers of micro-batches: one for all stages, or one for each stage."""


class StageTrainingSpec(Spec):
    """The training of stages that are separate processes, which ``syncline launch`` starts.

    A micro-batch is a batch of the problem. The stages run the schedule ``repeats`` times; each time the pipeline is
    empty at the beginning and at the end. The seed determines the initial weights and the batches.
    """

    problem: ProblemField
    method: MethodSpec
    repeats: int = Field(default=1, ge=1)
    seed: Seed = 0

    @model_validator(mode="after")
    def _refuse_remedy(self) -> StageTrainingSpec:
        """Refuse a remedy of late gradients, which stages in processes of their own do not have."""
        remedy = remedy_of(self.method)
        if remedy is not None:
            expected = "none: stages that are launched take late gradients as they are"
            raise refusal("method.remedy", remedy.kind, expected)
        return self


class PipelineSpec(Experiment):
    """The spec of a pipeline, for its schedules' step times, their memory, and the gradient delays they cause.

    The spec sets the times of a micro-batch (``forward``, ``backward``, ``backward_weight``: one for all stages or one
    for each stage), or they follow from ``model`` on ``hardware`` with ``tokens_per_microbatch``. ``backward_weight``
    is the part of ``backward`` that computes the weights' gradient, by default half of it. Only a schedule that splits
    the backward pass can delay this part.

    Without ``networks`` messages between stages take no time. A schedule runs ``flushes`` times and accumulates
    gradients. When a stage has its gradient, its replicas average ``gradient_bytes`` by ``averaging``, and it updates
    its weights in the time ``update``. ``placement`` says where the ranks lie; rank r K + k is stage k of replica r.
    ``training``: what real processes train.
    """

    kind: Literal["pipeline"]
    schedules: tuple[ScheduleName, ...] = Field(min_length=1)
    stages: int = Field(ge=1, le=4096)
    microbatches: int = Field(ge=1, le=MOST_TASKS)
    chunks: int | None = Field(default=None, ge=2)
    max_in_flight: Limits | None = None
    forward: PerStage | None = None
    backward: PerStage | None = None
    backward_weight: PerStage | None = None
    model: TransformerField | None = None
    tokens_per_microbatch: int | None = Field(default=None, ge=1)
    hardware: HardwareField | None = None
    precision: Precision = "mixed"
    activation_bytes: Nbytes | None = None
    networks: tuple[NetworkField, ...] = ()
    replicas: int = Field(default=1, ge=1, le=4096)
    gradient_bytes: Annotated[tuple[Nbytes, ...], BeforeValidator(_as_tuple)] | None = None
    averaging: AveragingName = LIBRARY
    flushes: int = Field(default=1, ge=1, le=MOST_TASKS)
    update: PerStage = (0.0,)
    placement: PlacementField = "given"
    jitter: float = Field(default=0.0, ge=0, le=10)
    seed: Seed = 0
    training: StageTrainingSpec | None = None

    @model_validator(mode="after")
    def _check_source_of_times(self) -> PipelineSpec:
        """Refuse times of micro-batches beside a model, and a pipeline with neither."""
        if self.model is None:
            required, excluded = ["forward", "backward"], ["tokens_per_microbatch", "hardware"]
            expected_if_missing = "the time of a micro-batch; or a model, tokens_per_microbatch and hardware instead"
            expected_if_set = "a model as well, whose work it describes"
        else:
            required = ["tokens_per_microbatch", "hardware"]
            excluded = ["forward", "backward", "backward_weight"]
            expected_if_missing = (
                "a value, as the time of a stage follows from model, tokens_per_microbatch and hardware"
            )
            expected_if_set = "none with a model, from which it follows"
        for field in required:
            if getattr(self, field) is None:
                raise refusal(field, None, expected_if_missing)
        for field in excluded:
            value = getattr(self, field)
            if value is not None:
                raise refusal(field, getattr(value, "name", value), expected_if_set)
        return self

    @model_validator(mode="after")
    def _check_values_of_stages(self) -> PipelineSpec:
        """Refuse lists with neither one value nor one for each stage, and a ``backward_weight`` above ``backward``."""
        for field in ("forward", "backward", "backward_weight", "gradient_bytes", "max_in_flight", "update"):
            values = getattr(self, field)
            if values is not None and len(values) not in (1, self.stages):
                raise refusal(field, values, f"one value, or one for each of the {self.stages} stages")
        if self.backward_weight is not None and self.backward is not None:
            weights_s = self._per_stage(self.backward_weight)
            for backward_s, weight_s in zip(self._per_stage(self.backward), weights_s, strict=True):
                if weight_s > backward_s:
                    expected = f"at most the backward's {backward_s:g} s, of which it is a part"
                    raise refusal("backward_weight", weight_s, expected)
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> PipelineSpec:
        """Refuse schedules, placements and networks that do not fit the stages, and too many forward passes."""
        from syncline.sim.pipelines.schedules import limited_schedules, schedule_kind

        kinds = [schedule_kind(name) for name in self.schedules]
        check_distinct("schedules", list(self.schedules))
        check_distinct("networks", [network.name for network in self.networks])
        if self.chunks is not None and not any(kind.takes_chunks for kind in kinds):
            raise refusal("chunks", self.chunks, "none without the schedule 'interleaved', whose chunks it counts")
        if self.max_in_flight is not None and not any(kind.takes_limits for kind in kinds):
            expected = f"none without one of the schedules {', '.join(limited_schedules())}"
            raise refusal("max_in_flight", self.max_in_flight, expected)
        chunks = max(self.chunks_of(name) for name in self.schedules)
        if self.model is not None and self.stages * chunks > self.model.layers:
            expected = f"at most {self.model.layers // chunks}: {self.model.name} has {self.model.layers} blocks"
            expected += f", and a stage has {chunks} chunks" if chunks > 1 else ""
            raise refusal("stages", self.stages, expected)
        tasks_per_microbatch = self.stages * chunks * self.flushes * self.replicas
        if tasks_per_microbatch * self.microbatches > MOST_TASKS:
            limit = MOST_TASKS // tasks_per_microbatch
            expected = f"at most {limit:,}: {MOST_TASKS:,} forward passes in all are accepted"
            raise refusal("microbatches", self.microbatches, expected)
        if self.training is not None and self.flushes > 1:
            raise refusal("flushes", self.flushes, "1 with training, whose repeats update after each flush")
        for name in self.schedules:
            with refusals():
                self.build_schedule(name)  # refuses stages or micro-batches that the schedule cannot have
        check_network_sizes(self.networks, self.stages * self.replicas)
        if not isinstance(self.placement, str):
            for network in self.networks:
                self.positions(network)  # refuses a placement that does not fit
        return self

    def positions(self, network: Network) -> list[int]:
        """Return the position of each rank on a network, as ``placement`` lists it; refuse a list that does not fit."""
        place_names: list[str] | None = None  # by position
        if isinstance(network, Matrix):
            place_names = [network.places[place_index] for place_index in network.ranks]
        try:
            positions = positions_of(self.placement, self.stages * self.replicas, place_names)
            network.among(max(positions) + 1)  # raises if the network has fewer positions
        except SpecError as error:
            raise refusal("placement", error.value, f"{error.expected} (network {network.name!r})") from None
        return positions

    def chunks_of(self, schedule: str) -> int:
        """Return the model chunks per stage: ``chunks`` for a schedule that interleaves, by default 2; else 1."""
        from syncline.sim.pipelines.schedules import schedule_kind

        if not schedule_kind(schedule).takes_chunks:
            return 1
        return self.chunks or 2

    def build_schedule(self, name: str) -> Schedule:
        """Return the order of each stage's tasks in all flushes before an update."""
        from syncline.sim.pipelines.schedules import repeated, schedule, schedule_kind

        limits: int | tuple[int, ...] | None = None
        if self.max_in_flight is not None and schedule_kind(name).takes_limits:
            first_limit, *other_limits = self.max_in_flight
            limits = self.max_in_flight if other_limits else first_limit  # a single number holds for all stages
        flush = schedule(name, self.stages, self.microbatches, self.chunks_of(name), max_in_flight=limits)
        return repeated(flush, self.flushes)

    @property
    def links(self) -> tuple[Network, ...]:
        """Return the networks; if there are none, one network on which messages take no time."""
        return self.networks or (FREE,)

    def pipeline(self, name: str) -> Pipeline:
        """Return the pipeline that the event simulation runs for a schedule."""
        from syncline.sim.pipelines.pipeline import Pipeline

        has_networks = bool(self.networks)  # without networks nothing is sent
        return Pipeline(
            self.build_schedule(name), self.stages, self.durations(name),
            activation_bytes=self.message_bytes() if has_networks else 0.0,
            replicas=self.replicas, gradient_bytes=self.allreduce_bytes(self.chunks_of(name)) if has_networks else (),
            averaging=self.averaging, update_s=self._per_stage(self.update),
        )  # fmt: skip

    def message_bytes(self) -> float:
        """Return the bytes of a micro-batch's activations: the spec's, or those of ``tokens x width`` numbers."""
        if self.activation_bytes is not None:
            return self.activation_bytes
        if self.model is None or self.tokens_per_microbatch is None:
            return 0.0
        return float(MODEL_BYTES[self.precision] * self.tokens_per_microbatch * self.model.width)

    def allreduce_bytes(self, chunks: int = 1) -> list[float]:
        """Return the bytes that each stage's replicas average, ``(K,)``: ``gradient_bytes``, or 4 per parameter."""
        if self.gradient_bytes is not None:
            return self._per_stage(self.gradient_bytes)
        if self.model is None:
            return [0.0] * self.stages
        return [float(FP32_BYTES * count) for count in stage_parameters(self.model, self.stages, chunks)]

    def weights_bytes(self, chunks: int = 1) -> list[float] | None:
        """Return the bytes of one version of each stage's weights, ``(K,)``; None without a model."""
        if self.model is None:
            return None
        bytes_per_weight = MODEL_BYTES[self.precision]
        return [float(bytes_per_weight * count) for count in stage_parameters(self.model, self.stages, chunks)]

    def stored_activation_bytes(self, chunks: int = 1) -> list[float] | None:
        """Return the bytes of a micro-batch's activations in a chunk of each stage, ``(K,)``; None without a model."""
        if self.model is None or self.tokens_per_microbatch is None:
            return None
        bytes_of_all_chunks = stage_activation_bytes(
            self.model, self.stages, self.tokens_per_microbatch, chunks, bytes_per_number=MODEL_BYTES[self.precision]
        )
        return [stage_bytes / chunks for stage_bytes in bytes_of_all_chunks]

    def durations(self, name: str) -> Durations:
        """Return the seconds of all tasks of a schedule, by kind, stage and micro-batch.

        The seed's random stream ``pipeline time`` draws log-normal jitter of mean 1.
        """
        import numpy as np

        from syncline.sim.pipelines.pipeline import Durations
        from syncline.sim.program.disturbances import lognormal_factors

        rng = generator(self.seed, "pipeline time")
        shape = (self.stages, self.microbatches * self.flushes)  # (K, M)

        def with_jitter(stage_s: list[float]) -> np.ndarray:
            """Return the seconds of the tasks of one kind with jitter, ``(K, M)``, from the seconds of each stage."""
            factor = lognormal_factors(self.jitter, rng.standard_normal(shape)) if self.jitter else 1.0
            chunk_s = np.asarray(stage_s)[:, None] / self.chunks_of(name)  # (K, 1); a stage has equally long chunks
            return chunk_s * factor * np.ones(shape)

        forward_s, backward_s, weight_s = self.stage_seconds(name)
        return Durations(with_jitter(forward_s), with_jitter(backward_s), with_jitter(weight_s))

    def stage_seconds(self, name: str) -> tuple[list[float], list[float], list[float]]:
        """Return three lists of seconds for each of K stages, all chunks together: forward, backward, weight gradient.

        If the schedule splits the backward pass, the second list is the time of the input's gradient alone; otherwise
        the third list is 0.
        """
        if self.model is not None and self.tokens_per_microbatch is not None and self.hardware is not None:
            token_flops = stage_flops(self.model, self.stages, self.chunks_of(name))
            forward_s = [float(compute_s(flops * self.tokens_per_microbatch, self.hardware)) for flops in token_flops]
            # A backward pass has twice the FLOPs of a forward pass, half of them for the gradient of the weights.
            backward_s, weight_s = [2 * seconds for seconds in forward_s], list(forward_s)
        else:
            assert self.forward is not None and self.backward is not None
            forward_s, backward_s = self._per_stage(self.forward), self._per_stage(self.backward)
            weight_s = [seconds / 2 for seconds in backward_s]  # half of the backward pass by default
            if self.backward_weight is not None:
                weight_s = self._per_stage(self.backward_weight)
        if not self.build_schedule(name).splits_backward:
            return forward_s, backward_s, [0.0] * self.stages
        input_s = [backward - weight for backward, weight in zip(backward_s, weight_s, strict=True)]
        return forward_s, input_s, weight_s

    def _per_stage(self, values: tuple[float, ...]) -> list[float]:
        """Return a list with a value for each stage; a single value holds for all stages."""
        return list(values) * self.stages if len(values) == 1 else list(values)

    def warnings(self) -> list[str]:
        """Return warnings about settings that are allowed but have no effect, one line each."""
        lines = []
        if self.backward_weight is not None:
            splits_backward = [self.build_schedule(name).splits_backward for name in self.schedules]
            if not any(splits_backward):
                reason = "none of the schedules splits the backward pass, as zb-h1 does"
                lines.append(f"backward_weight has no effect: {reason}")
        if self.seed and not self.jitter:
            lines.append("seed has no effect without jitter")
        if self.model is None and self.precision != "mixed":
            lines.append("precision has no effect without a model")
        if self.activation_bytes and not self.networks:
            lines.append("activation_bytes has no effect without networks, on which they travel")
        if self.replicas == 1:
            for field in ("gradient_bytes", "averaging"):
                if getattr(self, field) != type(self).model_fields[field].default:
                    lines.append(f"{field} has no effect without replicas, which average them")
        if self.placement != "given" and all(isinstance(network, Link) for network in self.links):
            lines.append("placement has no effect without a network on which places differ, as on a matrix")
        if self.replicas > 1 and not (self.networks and any(self.allreduce_bytes())):
            lines.append("replicas have no effect without networks and gradient_bytes (or a model) to average")
        return lines
