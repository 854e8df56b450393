"""The layout of a replica on workers, and the parallel groups of its workers.

A replica has ``t c d k`` workers. In the order of ranks, the innermost ``t`` workers share each matrix (tensor), then
``c`` share each sequence (context), ``d`` see different sequences (data), and ``k`` are stages (pipeline). Replicas are
consecutive blocks of ranks. So workers that communicate most are neighbours, and replicas are furthest from each other.
Neighbours among the ``c d`` workers share experts, whichever sequence they see.

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
    """The number of workers of a replica in each dimension of parallelism.

    Args:
        tensor: t, workers that share each matrix and the activations around it; a divisor of the heads.
        context: c, workers that share each sequence.
        data: d, workers that see different sequences and average their gradients in every step, under any method;
            optimizer states, or the whole state of a model, can be sharded over them.
        pipeline: k, stages.
        expert: e, workers that share the experts of each layer, among the ``c d`` workers that hold equal copies of the
            rest of the layer; a divisor of c d and of the experts.
        chunks: v, chunks of each stage, visited in turn (interleaved 1F1B); each has at least one layer.
        copies: copies of sharded states among the c d workers, each on neighbours; a divisor of c d. torchtitan calls
            them ``data_parallel_replicate_degree`` (HSDP), Megatron-LM ``num_distributed_optimizer_instances``.

    Raises:
        SpecError: a number below 1, experts or copies over no divisor of c d, or chunks without a pipeline.

    >>> Layout(tensor=8, pipeline=4).workers
    32
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1
    chunks: int = 1
    copies: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            count = getattr(self, field.name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise SpecError(f"layout.{field.name}", count, "a whole number, at least 1")
        for name in ("expert", "copies"):
            if self.sharers % getattr(self, name):
                total = f"context times data, {self.sharers}"
                total = f"layout.data, which is {self.data}" if self.context == 1 else total
                raise SpecError(f"layout.{name}", getattr(self, name), f"a divisor of {total}")
        if self.chunks > 1 and self.pipeline == 1:
            raise SpecError("layout.chunks", self.chunks, "1 without a pipeline")

    @property
    def workers(self) -> int:
        """Return the number of workers of a replica: ``t c d k``."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def sharers(self) -> int:
        """Return the number of workers of a replica with the same parameters, which average gradients: ``c d``."""
        return self.context * self.data

    @property
    def tensor_group(self) -> range:
        """Return the ranks of the first group that shares each matrix."""
        return range(self.tensor)

    @property
    def context_group(self) -> range:
        """Return the ranks of the first group that shares a sequence."""
        return range(0, self.tensor * self.context, self.tensor)

    @property
    def expert_group(self) -> range:
        """Return the ranks of the first group that shares a layer's experts."""
        return range(0, self.tensor * self.expert, self.tensor)

    @property
    def gradient_group(self) -> range:
        """Return the ranks of the first group with the same parameters."""
        return range(0, self.tensor * self.sharers, self.tensor)

    @property
    def pipeline_group(self) -> range:
        """Return the ranks of the first pipeline."""
        stride = self.tensor * self.sharers
        return range(0, stride * self.pipeline, stride)

    def replica_group(self, workers: int) -> range:
        """Return the ranks of the first worker of each replica among P workers."""
        return range(0, workers, self.workers)

    def replicas(self, workers: int) -> int:
        """Return the number of replicas that P workers form.

        Raises:
            SpecError: P is not a multiple of a replica's workers.
        """
        if workers % self.workers:
            expected = f"a multiple of {self.workers}, the workers of a replica by layout ({self.describe()})"
            raise SpecError("workers", workers, expected)
        return workers // self.workers

    def check(self, model: Model) -> ModelShape:
        """Return the model if this layout can cut it.

        Raises:
            SpecError: a size of the model that the layout does not divide, or a module, which no layout can cut.
        """
        if not isinstance(model, ModelShape):
            name = next(field.name for field in fields(self) if getattr(self, field.name) > 1)
            expected = f"1, as {model.name} is a module: a transformer by name, config or fields can be laid out"
            raise SpecError(f"layout.{name}", getattr(self, name), expected)
        sizes = {"heads": model.heads, "heads of keys": model.kv_heads or model.heads}
        for label, size in (sizes | {"hidden width": model.expert_width}).items():
            if size % self.tensor:
                raise SpecError("layout.tensor", self.tensor, f"a divisor of the {label} of {model.name}, {size:,}")
        if model.sequence % self.context:
            expected = f"a divisor of the sequence of {model.sequence:,} tokens"
            raise SpecError("layout.context", self.context, expected)
        if self.pipeline > model.layers:
            raise SpecError("layout.pipeline", self.pipeline, f"at most the {model.layers} layers of {model.name}")
        if self.pipeline * self.chunks > model.layers:
            limit = model.layers // self.pipeline
            raise SpecError("layout.chunks", self.chunks, f"at most {limit}: there are {model.layers} layers")
        if model.experts % self.expert:
            label = f"a divisor of the {model.experts} experts" if model.experts > 1 else "1, as there are no experts"
            raise SpecError("layout.expert", self.expert, f"{label} of {model.name}")
        return model

    def describe(self) -> str:
        """Return the sizes other than 1 as text: ``tensor 8, pipeline 4``."""
        parts = [f"{field.name} {getattr(self, field.name)}" for field in fields(self) if getattr(self, field.name) > 1]
        return ", ".join(parts) or "one worker"
