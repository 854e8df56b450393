"""Spec of a projection in closed form."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from syncline.costmodel import Hardware, Matrix, ModelShape
from syncline.costmodel.compute.kernel_rates import gradient_format
from syncline.costmodel.compute.tensors import Adapters
from syncline.costmodel.compute.transformer_operations import EIGHT_BITS
from syncline.costmodel.layouts.memory import MODEL_BYTES, Storage
from syncline.costmodel.scaling.published import default_batch
from syncline.fields import Spec, Steps, Workers, refusal
from syncline.methods import MethodSpec
from syncline.methods.parts.asynchronous import asynchronous_of, remedy_of
from syncline.specs.clock import ClockSpec, ProductFormat
from syncline.specs.cluster.clusters import NetworkField
from syncline.specs.compute import ComputeSpec
from syncline.specs.experiment import Experiment, check_distinct
from syncline.specs.faults import FaultsSpec
from syncline.specs.layout import LayoutSpec, MemorySpec, PlacementRule
from syncline.specs.models import ModelField

MOST_TOKENS = 10**15
"""Limit on the tokens of a worker in a step."""


class LoraSpec(Spec):
    """Low-rank adapters (LoRA) of a ``rank`` beside frozen weights; ``lora: 16`` is short for ``{rank: 16}``.

    ``parts``: parts of each layer that have adapters: ``qkv``, ``out`` (attention's output) and ``mlp``.
    """

    rank: int = Field(ge=1, strict=True)
    parts: tuple[Literal["qkv", "out", "mlp"], ...] = Field(default=("qkv", "out", "mlp"), min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _expand_rank(cls, value: Any) -> Any:
        """Return the fields of adapters that are written as their rank; other values unchanged."""
        return {"rank": value} if isinstance(value, int) else value


class ProjectSpec(ClockSpec, Experiment):
    """A projection: step times of methods on networks in closed form, from a model's shape and without training.

    ``precision``: the number format of matrix products; gradients are bf16 with fp8 and less, fp32 with tf32.
    ``tokens_per_worker``: tokens of a worker in a step. By default the workers share the batch that published fits find
    best for the model's size, see `default_batch`; workers that compute a sequence together have at least a whole one.
    ``placement``: rule that places the ranks on a matrix: as the matrix says, with a replica's workers or a stage's
    replicas side by side, or the fastest of these. ``lora``: adapters that train in place of the weights.
    """

    kind: Literal["project"]
    model: ModelField
    precision: ProductFormat | None = None  # type: ignore[assignment]  # the formats of trainings, and more
    tokens_per_worker: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    workers: Workers
    steps: Steps = 10_000
    methods: tuple[MethodSpec, ...] = Field(min_length=1)
    networks: tuple[NetworkField, ...] = Field(min_length=1)
    compute: ComputeSpec = ComputeSpec()
    faults: FaultsSpec = FaultsSpec()
    memory: MemorySpec = MemorySpec()
    layout: LayoutSpec = LayoutSpec()
    placement: PlacementRule = "given"
    lora: LoraSpec | None = None

    @property
    def worker_tokens(self) -> int:
        """Return the tokens of a worker in a step: those of the spec, else its share of the default batch."""
        if self.tokens_per_worker is not None:
            return self.tokens_per_worker
        batch_tokens = default_batch(self.model.parameters, self.workers, self.model.sequence)
        # The workers that compute a sequence together have at least a whole one.
        least_tokens = math.ceil(self.sequences_at_once * self.model.sequence / self.workers)
        return max(batch_tokens // self.workers, least_tokens)

    @property
    def sequences_at_once(self) -> int:
        """Return the number of groups of workers that compute a sequence together; of a group of one, the workers."""
        return self.workers // (self.layout.tensor * self.layout.context * self.layout.pipeline)

    @property
    def width(self) -> int | None:
        """Return the width of the model; None if it is a module."""
        return self.model.width if isinstance(self.model, ModelShape) else None

    @property
    def batch_tokens(self) -> int:
        """Return the tokens of all workers in a step."""
        return self.worker_tokens * self.workers

    @property
    def memory_machine(self) -> Hardware | None:
        """Return the hardware whose memory a worker has to fit into; None if the spec names no hardware."""
        return self.memory.hardware or self.compute.hardware

    @property
    def number_format(self) -> str:
        """Return the number format of gradients, given the format of products."""
        return gradient_format(self.product_format)

    @property
    def product_format(self) -> str:
        """Return the format of products: ``precision``, else the format of the hardware's peak, else fp32."""
        if self.precision is not None:
            return self.precision
        machine = self.compute.hardware or self.memory.hardware
        return "fp32" if machine is None else machine.precision

    @property
    def adapters(self) -> Adapters | None:
        """Return the adapters that train in place of the weights; None if all weights train."""
        return None if self.lora is None else Adapters(self.lora.rank, self.lora.parts)

    @property
    def flops_per_token(self) -> float:
        """Return the FLOPs per token, forward and backward.

        A product takes 2 FLOPs per parameter and token. A parameter has a forward product, one for the gradient of its
        inputs, and one for its own gradient. Frozen weights lack the third one; adapters have all three.
        """
        model = self.model
        if self.adapters is None or not isinstance(model, ModelShape):
            return model.flops_per_token
        adapter_tensors = self.adapters.trained_tensors(model.tensors)
        parameters = sum(tensor.elements for tensor in adapter_tensors)
        expert_parameters = sum(tensor.elements for tensor in adapter_tensors if ".expert_" in tensor.name)
        idle_share = 1 - model.experts_per_token / model.experts  # of experts that a token does not use
        parameters_per_token = parameters - expert_parameters * idle_share
        return model.flops_per_token - 2.0 * model.matmul_parameters + 6.0 * parameters_per_token

    @property
    def activation_storage(self) -> Storage:
        """Return how the training's software stores activations."""
        memory_precision = self.memory.memory_precision(self.number_format)
        is_fused = self.compute.kernels.compiled
        # Transformer Engine, whose kernels are fused, keeps the inputs of products in 8 bits.
        operand_bytes = 1 if self.product_format in EIGHT_BITS and is_fused else None
        return Storage(MODEL_BYTES[memory_precision], operand_bytes, fused=is_fused)

    @property
    def kernel_experts(self) -> int | None:
        """Return the number of experts of a model whose step is a sum of kernels; None for other models."""
        return self.model.experts if isinstance(self.model, ModelShape) and self.priced_by_kernels else None

    @property
    def priced_by_kernels(self) -> bool:
        """Return whether a step is the sum of its kernels, as for a transformer on a GPU with known kernels."""
        return isinstance(self.model, ModelShape) and self.compute.has_kernels

    @model_validator(mode="after")
    def _check_methods_and_layout(self) -> ProjectSpec:
        """Refuse methods without a closed form, equal names, and a layout that does not divide model or workers."""
        check_distinct("methods", [method.name for method in self.methods])
        check_distinct("networks", [network.name for network in self.networks])
        for i, method in enumerate(self.methods):
            if asynchronous_of(method) is not None:
                expected = "a method without it: only 'run' and 'compare' simulate when workers arrive"
                raise refusal(f"methods.{i}.asynchronous", method.name, expected)
            remedy = remedy_of(method)
            if remedy is not None:
                raise refusal(f"methods.{i}.remedy", remedy.kind, "none, as no gradient of a projection is late")
        self.compute.check_optimizer(self.methods)
        if self.memory.activations not in (None, "auto", "selective") and not isinstance(self.model, ModelShape):
            expected = f"none, as {self.model.name} is a module: they are estimated for transformers by name or config"
            raise refusal("memory.activations", self.memory.activations, expected)
        self.layout.check(self.model, self.workers)
        if self.lora is not None and not isinstance(self.model, ModelShape):
            raise refusal("lora", self.lora.rank, f"none, as {self.model.name} is a module")
        if self.lora is not None and self.memory.sharding not in ("auto", "none", "optimizer"):
            expected = "auto, none or optimizer, as lora does not shard frozen weights"
            raise refusal("memory.sharding", self.memory.sharding, expected)
        return self

    def warnings(self) -> list[str]:
        """Return warnings about disturbances, which a closed form ignores, and about updates that take no time."""
        lines = self.compute.warnings() + self.clock_warnings(self.methods, self.networks, trains=False)
        disturbances = {"slow_workers", "pauses", "start_offsets"}
        set_disturbances = self.compute.model_dump(include=disturbances, exclude_defaults=True)
        ignored_fields = [f"compute.{field}" for field in set_disturbances]
        ignored_fields += [f"faults.{field}" for field in self.faults.model_dump(exclude_defaults=True)]
        lines += [f"{field} has no effect on a closed form; use 'run' or 'compare'" for field in ignored_fields]
        if self.placement != "given" and not any(isinstance(network, Matrix) for network in self.networks):
            lines.append("placement has no effect without a matrix, whose places differ")
        return lines + self._uncounted_update_warnings()

    def _uncounted_update_warnings(self) -> list[str]:
        """Return a warning if updates take no time although their products are a large share of a step."""
        # The seconds of a step that the spec states include the update.
        has_step_s = self.compute.seconds is not None or self.compute.batch_times is not None
        has_update_s = self.compute.optimizer_time or self.compute.prices_updates
        if has_step_s or has_update_s or self.layout.build().workers > 1:
            return []
        flops = self.model.flops_per_token * self.worker_tokens
        large_shares = []
        for method in self.methods:
            # If the step takes 1 s, an update's seconds are its share.
            share = COUNTED_UPDATES.optimizer_s(method, self.model.tensors, step_s=1.0, flops=flops, workload_name="")
            if share >= SMALLEST_SHARE:
                large_shares.append(f"{share:.0%} ({method.name})")
        if not large_shares:
            return []
        message = f"updates take no time here; their products are {', '.join(large_shares)} of a step's operations"
        return [f"{message}, which compute.optimizer_time=counted adds"]


COUNTED_UPDATES = ComputeSpec(optimizer_time="counted")
"""The compute times with which `ProjectSpec.warnings` counts the operations of updates."""
SMALLEST_SHARE = 0.05
"""Share of a step's operations from which a warning says that the update takes no time."""
