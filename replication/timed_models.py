"""Specs of the models whose pipelines are timed, and the work of their stages."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from syncline.costmodel import Hardware, ModelShape, compute_s
from syncline.costmodel.layouts.partition import stage_flops
from syncline.fields import Spec, refusal
from syncline.methods import MethodBase
from syncline.runs.training.stage_updates import StageWork, TrainedStages, added_update_s
from syncline.specs import RunSpec
from syncline.specs.cluster.clusters import HardwareField, NetworkField
from syncline.specs.models import TransformerField
from syncline.specs.stages import Microbatches, gpt_shape


class TimedModelSpec(Spec):
    """The model whose pipeline is timed, and its hardware: by default the problem's own model.

    ``model`` with ``tokens_per_batch`` replaces the model in the times only; losses are still those of the problem.
    """

    hardware: HardwareField = Field(default="cpu-core", validate_default=True)
    model: TransformerField | None = None
    tokens_per_batch: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_tokens(self) -> TimedModelSpec:
        """Refuse a model without the tokens of a batch, and tokens without a model."""
        if self.model is None and self.tokens_per_batch is not None:
            raise refusal("tokens_per_batch", self.tokens_per_batch, "a model as well, whose batch they are")
        if self.model is not None and self.tokens_per_batch is None:
            raise refusal("tokens_per_batch", None, "the number in a batch, from which the model's work follows")
        return self

    def model_and_tokens(self, problem: Any) -> tuple[ModelShape, int]:
        """Return the model whose pipeline is timed, and the tokens in a batch; by default those of the problem."""
        if self.model is not None:
            assert self.tokens_per_batch is not None
            return self.model, self.tokens_per_batch
        return gpt_shape(problem), problem.batch_size * problem.context


class PipelineClockSpec(TimedModelSpec):
    """The model and the networks on which asynchronous and synchronous 1F1B are timed.

    In asynchronous 1F1B each micro-batch is a batch; synchronous 1F1B cuts a batch into ``microbatches``.
    """

    networks: tuple[NetworkField, ...] = Field(min_length=1)
    microbatches: Microbatches = 8

    @model_validator(mode="after")
    def _check_names(self) -> PipelineClockSpec:
        """Refuse two networks with the same name, which tables could not tell apart."""
        names = [network.name for network in self.networks]
        if len(set(names)) < len(names):
            raise refusal("networks", names, "different names")
        return self


def stage_work(method: MethodBase, model: ModelShape, tokens: int, machine: Hardware, stages: int) -> StageWork:
    """Return the work of a batch of ``tokens`` tokens in each of the stages, from the model's FLOPs on a machine.

    An activation has 4 bytes if the machine's precision is fp32, else 2.
    """
    forward_s = tuple(float(compute_s(flops * tokens, machine)) for flops in stage_flops(model, stages))
    width_bytes = 4 if machine.precision == "fp32" else 2
    return StageWork(
        forward_s, float(width_bytes * tokens * model.width), added_update_s(method, model, machine, stages)
    )


def timed_stages(spec: RunSpec, method: MethodBase, timed: TimedModelSpec | None) -> TrainedStages:
    """Return the work of a run's stages in all steps, for the model ``timed``, or for the trained model if None."""
    from syncline.runs.training.delayed_gradients import trained_stages  # late, because it imports torch

    assert spec.pipeline is not None
    if timed is None:
        timed = TimedModelSpec(hardware=spec.compute.machine)
    model, tokens = timed.model_and_tokens(spec.problem)
    work = stage_work(method, model, tokens, timed.hardware, spec.pipeline.stages)
    return trained_stages(spec, work, spec.steps)
