"""The spec of a pipeline's clock: a schedule, its stages' times, what they send over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.costmodel import compute_s
from syncline.errors import SpecError
from syncline.specs.base import Seconds, refusal
from syncline.specs.experiment import Experiment, HardwareField, ModelField, NetworkField

if TYPE_CHECKING:
    from syncline.sim.pipeline import Durations
    from syncline.sim.schedules import Schedule

ScheduleName = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "async-1f1b", "greedy"]


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


PerStage = Annotated[tuple[Seconds, ...], BeforeValidator(_listed)]
"""Seconds, one for all stages or one for each."""


class PipelineSpec(Experiment):
    """A pipeline: the clock of one batch of micro-batches, and the delays that its schedule brings.

    Times are given (``forward``, ``backward``, ``weight``: seconds of a micro-batch, one for all stages or one for
    each), or follow from ``model`` on ``hardware`` with ``tokens`` per micro-batch. ``weight`` is the part of the
    backward pass that is the weights' gradient, which only a schedule that splits it can move; ``backward`` holds it.
    """

    kind: Literal["pipeline"]
    schedule: ScheduleName
    stages: int = Field(ge=1, le=4096)
    microbatches: int = Field(ge=1, le=100_000)
    chunks: int = Field(default=1, ge=1)
    forward: PerStage | None = None
    backward: PerStage | None = None
    weight: PerStage | None = None
    model: ModelField | None = None
    tokens: int | None = Field(default=None, ge=1)
    hardware: HardwareField | None = None
    activation_bytes: float | None = Field(default=None, ge=0)
    network: NetworkField = Field(default="infiniband", validate_default=True)
    replicas: int = Field(default=1, ge=1)
    jitter: float = Field(default=0.0, ge=0)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> PipelineSpec:
        if self.model is None:
            for field in ("forward", "backward"):
                if getattr(self, field) is None:
                    raise refusal(field, None, "seconds of a micro-batch, or a model, tokens and hardware instead")
            for field in ("tokens", "hardware"):
                if getattr(self, field) is not None:
                    raise refusal(field, _plain(getattr(self, field)), "a model beside it, whose work it tells")
        else:
            for field in ("tokens", "hardware"):
                if getattr(self, field) is None:
                    raise refusal(field, None, "a value, as the model's work follows from it")
            for field in ("forward", "backward", "weight"):
                if getattr(self, field) is not None:
                    raise refusal(field, getattr(self, field), "nothing beside a model, from which it follows")
            if self.stages * self.chunks > self.model.layers:
                expected = (
                    f"at most {self.model.layers // self.chunks}: {self.model.name} has {self.model.layers} blocks"
                )
                raise refusal("stages", self.stages, expected)
        for field in ("forward", "backward", "weight"):
            given = getattr(self, field)
            if given is not None and len(given) not in (1, self.stages):
                raise refusal(field, given, f"one time, or one for each of the {self.stages} stages")
        try:
            self.build_schedule()
        except SpecError as error:
            raise refusal(error.path, error.value, error.expected) from None
        self._stage_seconds()
        return self

    def build_schedule(self) -> Schedule:
        """Who runs what when."""
        from syncline.sim.schedules import schedule

        return schedule(self.schedule, self.stages, self.microbatches, self.chunks)

    def sent_bytes(self) -> float:
        """What a micro-batch's activations are: given, or two bytes for each of the model's ``tokens x width``."""
        if self.activation_bytes is not None:
            return self.activation_bytes
        return 0.0 if self.model is None or self.tokens is None else 2.0 * self.tokens * self.model.width

    def gradient_bytes(self) -> list[float]:
        """What each stage's replicas average: four bytes per parameter; nothing is known of it without a model."""
        if self.model is None:
            return [0.0] * self.stages
        of_stage = [0.0] * self.stages
        blocks = _even(self.model.layers, self.stages)
        block_of = {layer: stage for stage, part in enumerate(blocks) for layer in part}
        for tensor in self.model.tensors:
            head, dot, _ = tensor.name.partition(".")
            stage = block_of[int(head)] if dot else (0 if head in ("embedding", "positions") else self.stages - 1)
            of_stage[stage] += 4.0 * tensor.elements
        return of_stage

    def durations(self) -> Durations:
        """How long tasks take, jitter and all: log-normal, from the stream ``pipeline time`` of the seed."""
        import numpy as np

        from syncline.seeds import generator
        from syncline.sim.pipeline import Durations

        rng, shape = generator(self.seed, "pipeline time"), (self.stages, self.microbatches)
        times = []
        for seconds in self._stage_seconds():
            factor = np.exp(self.jitter * rng.standard_normal(shape) - self.jitter**2 / 2) if self.jitter else 1.0
            times.append(np.asarray(seconds)[:, None] / self.chunks * factor * np.ones(shape))
        return Durations(*times)

    def _stage_seconds(self) -> tuple[list[float], list[float], list[float]]:
        """Forward, backward and weight gradient of each stage; of a split backward the input's gradient alone."""
        if self.model is not None and self.tokens is not None and self.hardware is not None:
            forward = [
                float(compute_s(flops * self.tokens, self.hardware)) for flops in _stage_flops(self.model, self.stages)
            ]
            backward, weight = [2 * seconds for seconds in forward], list(forward)
        else:
            assert self.forward is not None and self.backward is not None
            forward, backward = self._each(self.forward), self._each(self.backward)
            weight = [seconds / 2 for seconds in backward] if self.weight is None else self._each(self.weight)
        if self.schedule != "zb-h1":
            return forward, backward, [0.0] * self.stages
        for seconds, part in zip(backward, weight, strict=True):
            if part > seconds:
                raise refusal("weight", part, f"at most the backward's {seconds} s, of which it is a part")
        return forward, [b - w for b, w in zip(backward, weight, strict=True)], weight

    def _each(self, seconds: tuple[float, ...]) -> list[float]:
        return list(seconds) * (self.stages if len(seconds) == 1 else 1)

    def warnings(self) -> list[str]:
        """What is allowed but surely not meant, a line each."""
        lines = []
        if self.weight is not None and self.schedule != "zb-h1":
            lines.append(f"weight has no effect with {self.schedule}, which does not split the backward pass")
        if self.seed and not self.jitter:
            lines.append("seed has no effect without jitter")
        if self.replicas > 1 and self.model is None:
            lines.append("replicas have nothing to average without a model")
        return lines


def _plain(value: Any) -> Any:
    return getattr(value, "name", value)


def _even(count: int, parts: int) -> list[range]:
    size, longer = divmod(count, parts)
    firsts = [part * size + min(part, longer) for part in range(parts + 1)]
    return [range(firsts[part], firsts[part + 1]) for part in range(parts)]


def _stage_flops(model: Any, stages: int) -> list[float]:
    """Forward FLOPs per token of each stage: a third of ``6 N + 12 d T`` per block, the last with the output head."""
    head = 6 * model.vocabulary * model.width
    block = (model.flops_per_token - head) / model.layers
    out = [len(part) * block / 3 for part in _even(model.layers, stages)]
    out[-1] += head / 3
    return out
