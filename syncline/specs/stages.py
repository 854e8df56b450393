"""Specs of trainings in pipeline stages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from syncline.costmodel import ModelShape
from syncline.fields import Spec, refusal
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import BackwardWeights, asynchronous_of, remedy_of

StageCount = Annotated[int, Field(ge=1, le=4096)]

Microbatches = Annotated[int, Field(ge=1, le=10_000)]


class StagesSpec(Spec):
    """The stages into which the model of a training is cut.

    ``stages``: number of stages, K. ``schedule``: with ``async-1f1b`` every batch is a micro-batch, each stage updates
    after each batch, and the gradients of stage k, from 0, are ``K - 1 - k`` updates late. With ``1f1b`` a batch is cut
    into ``microbatches``, all stages update after the last one, and no gradient is late. ``backward_weights``: weights
    of the backward passes: those of the forward pass, the current ones, or PipeMare's estimate.
    """

    stages: StageCount
    schedule: Literal["async-1f1b", "1f1b"] = "async-1f1b"
    backward_weights: BackwardWeights = "stashed"
    microbatches: Microbatches = 8

    @model_validator(mode="after")
    def _check_backward_weights(self) -> StagesSpec:
        """Refuse other weights of backward passes than the stashed ones in a synchronous pipeline."""
        if not self.has_delayed_gradients and self.backward_weights != "stashed":
            expected = "stashed: in a synchronous pipeline they do not change on the way"
            raise refusal("backward_weights", self.backward_weights, expected)
        return self

    @property
    def has_delayed_gradients(self) -> bool:
        """Return whether gradients are late, because stages update asynchronously."""
        return self.schedule == "async-1f1b"

    def check(self, training: Any) -> None:
        """Refuse a `Training` whose problem cannot be cut into stages, or with settings that a pipeline rules out."""
        check_stages_of(training.problem, self.stages, "pipeline.stages")
        if training.workers != 1:
            raise refusal("workers", training.workers, "1 with pipeline, whose stages the network connects")
        for path in ("faults", "speeds"):
            setting = getattr(training, path)
            if setting != type(training).model_fields[path].default:
                shown_value = setting.model_dump(exclude_defaults=True) if isinstance(setting, Spec) else setting
                raise refusal(path, shown_value, "none with pipeline, whose stages do not wait for each other")
        disturbances = {"jitter", "slow_workers", "pauses", "start_offsets", "encode_bandwidth", "readback_latency"}
        set_disturbances = training.compute.model_dump(include=disturbances, exclude_defaults=True)
        if set_disturbances:
            name, *_ = set_disturbances
            expected = "none with pipeline, whose stages always take the same time"
            raise refusal(f"compute.{name}", set_disturbances[name], expected)
        if training.compute.optimizer_time:
            expected = "none with pipeline, which counts the products of updates itself"
            raise refusal("compute.optimizer_time", training.compute.optimizer_time, expected)
        if self.backward_weights != "stashed":  # stages then train in the order of simulated events, eagerly in fp32
            for path, required in (("dtype", "float32"), ("execution", "eager"), ("autocast", "none")):
                if getattr(training, path) != required:
                    expected = f"{required} where backward_weights are {self.backward_weights}"
                    raise refusal(path, getattr(training, path), expected)

    def check_method(self, method: MethodBase, path: str) -> None:
        """Refuse an asynchronous method, and a remedy that does not support the weights of the backward passes."""
        if asynchronous_of(method) is not None:
            raise refusal(f"{path}.asynchronous", method.name, "none with pipeline, which has no server")
        remedy = remedy_of(method)
        if remedy is not None:
            remedy.check_weights(self.backward_weights, f"{path}.remedy")


def check_stages_of(problem: Any, stages: int, path: str) -> None:
    """Refuse a number of stages into which a problem cannot be cut."""
    blocks = getattr(problem, "layers", None)
    if blocks is None:
        raise refusal(path, stages, f"a problem of blocks (text-gpt), as {problem.name} has no blocks for stages")
    if stages > blocks:
        raise refusal(path, stages, f"at most {blocks}, as many as the problem has blocks (layers)")
    if stages > 1 and getattr(problem, "tied", False):
        raise refusal("problem.tied", True, "false in a pipeline, as its first and its last stage each have a table")


def gpt_shape(problem: Any) -> ModelShape:
    """Return the shape of the small GPT that a problem trains."""
    from syncline.problems.text_gpt import BYTES

    return ModelShape(
        problem.name, problem.layers, problem.width, problem.heads, vocabulary=BYTES, sequence=problem.context,
        experts=problem.experts, experts_per_token=problem.experts_per_token,
    )  # fmt: skip
