"""How a replica is laid out on workers, and which workers are together in what.

Of ``t c d k`` workers of a replica, consecutive ranks are the ``t`` that share each matrix (tensor), then the ``c``
that share each sequence (context), the ``d`` that see other sequences (data), the ``k`` stages (pipeline). Replicas
follow one another. So what talks most is next to each other, and replicas are furthest apart. Experts are shared by
neighbours among the ``c d``, whichever sequence they see.

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), section 3; the
order is Megatron-LM's (``tp-cp-ep-dp-pp``). D. Liu et al., "MoE Parallel Folding" (2025): experts over ``c d``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.module_shape import Model
from syncline.errors import SpecError


@dataclass(frozen=True)
class Layout:
    """How many workers of a replica share what.

    Args:
        tensor: t, that share each matrix and the activations around it; a divisor of the heads.
        context: c, that share each sequence.
        data: d, that see other sequences and average their gradients in every step, whatever the method; over them
            optimizer states, or all that a model keeps, can be shared out.
        pipeline: k, stages.
        expert: e, that share the experts of each layer, of the ``c d`` workers that have all else of it alike; a
            divisor of c d and of the experts.
        chunks: v of each stage, which are passed in turn (interleaved 1F1B); at most a layer's worth each.

    Raises:
        SpecError: a number below 1, experts over no divisor of c d, or chunks without a pipeline.

    >>> Layout(tensor=8, pipeline=4).workers
    32
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    chunks: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            count = getattr(self, field.name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SpecError(f"layout.{field.name}", count, "a whole number, at least 1")
        if self.sharers % self.expert:
            of = f"layout.data, which is {self.data}" if self.context == 1 else f"context times data, {self.sharers}"
            raise SpecError("layout.expert", self.expert, f"a divisor of {of}")
        if self.chunks > 1 and self.pipeline == 1:
            raise SpecError("layout.chunks", self.chunks, "1 without a pipeline")

    @property
    def workers(self) -> int:
        """Of a replica: ``t c d k``."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def sharers(self) -> int:
        """Who have the same parameters in a replica and average their gradients: ``c d``."""
        return self.context * self.data

    @property
    def tensor_group(self) -> range:
        """The first group that shares each matrix."""
        return range(self.tensor)

    @property
    def context_group(self) -> range:
        """The first group that shares a sequence."""
        return range(0, self.tensor * self.context, self.tensor)

    @property
    def expert_group(self) -> range:
        """The first group that shares a layer's experts."""
        return range(0, self.tensor * self.expert, self.tensor)

    @property
    def gradient_group(self) -> range:
        """The first group of those who have the same parameters."""
        return range(0, self.tensor * self.sharers, self.tensor)

    @property
    def pipeline_group(self) -> range:
        """The first pipeline."""
        stride = self.tensor * self.sharers
        return range(0, stride * self.pipeline, stride)

    def replica_group(self, workers: int) -> range:
        """Who is in the place of the first worker, in each of the replicas of P workers."""
        return range(0, workers, self.workers)

    def replicas(self, workers: int) -> int:
        """How many replicas P workers are.

        Raises:
            SpecError: P is no multiple of a replica's workers.
        """
        if workers % self.workers:
            expected = f"a multiple of {self.workers}, the workers of a replica by layout ({self.describe()})"
            raise SpecError("workers", workers, expected)
        return workers // self.workers

    def check(self, model: Model) -> ModelShape:
        """The model, if it can be cut so.

        Raises:
            SpecError: names what does not divide; or it is a module, which nobody knows how to cut.
        """
        if not isinstance(model, ModelShape):
            name = next(one.name for one in fields(self) if getattr(self, one.name) > 1)
            expected = f"1, as {model.name} is a module: a transformer by name, config or fields can be laid out"
            raise SpecError(f"layout.{name}", getattr(self, name), expected)
        sizes = {"heads": model.heads, "heads of keys": model.kv_heads or model.heads}
        for what, size in (sizes | {"hidden width": model.expert_width}).items():
            if size % self.tensor:
                raise SpecError("layout.tensor", self.tensor, f"a divisor of the {what} of {model.name}, {size:,}")
        if model.sequence % self.context:
            expected = f"a divisor of the sequence of {model.sequence:,} tokens"
            raise SpecError("layout.context", self.context, expected)
        if self.pipeline > model.layers:
            raise SpecError("layout.pipeline", self.pipeline, f"at most the {model.layers} layers of {model.name}")
        if self.pipeline * self.chunks > model.layers:
            most = model.layers // self.pipeline
            raise SpecError("layout.chunks", self.chunks, f"at most {most}: there are {model.layers} layers")
        if model.experts % self.expert:
            what = f"a divisor of the {model.experts} experts" if model.experts > 1 else "1, as there are no experts"
            raise SpecError("layout.expert", self.expert, f"{what} of {model.name}")
        return model

    def describe(self) -> str:
        """What is not 1, for people: ``tensor 8, pipeline 4``."""
        told = [f"{field.name} {getattr(self, field.name)}" for field in fields(self) if getattr(self, field.name) > 1]
        return ", ".join(told) or "one worker"
