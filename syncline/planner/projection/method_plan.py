"""The traffic, the memory and the computing of one method in many settings at once; none depends on the network.

A *setting* is a number of workers on some hardware, see `syncline.planner.projection.plan`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, ModelShape, TensorShape, largest_call_bytes, model_memory
from syncline.costmodel.compute.kernel_rates import bytes_per_number
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import (
    FP32_BYTES,
    MODEL_BYTES,
    ActivationPolicy,
    usable_bytes,
    worker_activation_bytes,
)
from syncline.costmodel.layouts.partition import WorkerTensors
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import Indices, IntOrArray
from syncline.costmodel.traffic.overlap import BUCKET_BYTES, Bucket, gradient_buckets
from syncline.costmodel.traffic.sharded import SHARDINGS, after_micro_batches
from syncline.errors import within
from syncline.methods import MethodBase, tensors_of
from syncline.methods.parts.method_spec import BYTES_PER_ELEMENT
from syncline.planner.projection.intra_replica import computing_s, flops_s, sharers_of
from syncline.planner.projection.memory_plan import MemoryBudget, MemoryPlan, plan_memory, sends_together
from syncline.planner.projection.pricing import size_key, value_per_spec
from syncline.planner.projection.traffic import (
    StepOptions,
    Traffic,
    exchanges_between,
    exchanges_inside,
    parameter_shards,
    traffic_of,
    traffic_of_replicas,
    value_per_setting,
)
from syncline.specs import ProjectSpec


class PlannedSettings:
    """Settings with one layout, and what the plans of all methods in them have in common.

    Attributes:
        replicas: ``(S,)``: number of replicas.
        tensors: tensors of a worker that have elements.
        tensor_sizes: number of elements of each of ``tensors``.
        shards: the worker's parameters, divided by the groups of workers that have copies of them.
        units: parts of the parameters, such as layers; a worker gathers the shards of one part at a time.
        budget: memory limit and batch of a worker, with the policies for activations.
        computed_s: cache of the seconds that `computing_s` returns.
        exchanges_inside: cache of the exchanges inside a replica, by their options.

    Args:
        specs: specs of the settings, which share model and layout.
        layout: layout of a replica.
        workers: ``(S,)``: P, all workers.
        worker_tensors: a worker's part of the model.
    """

    def __init__(
        self, specs: Sequence[ProjectSpec], layout: Layout, workers: Indices, worker_tensors: WorkerTensors
    ) -> None:
        self.specs, self.layout, self.workers, self.worker_tensors = specs, layout, workers, worker_tensors
        self.replicas = workers // layout.workers
        self.tensors = tensors_of(worker_tensors.tensors)
        self.tensor_sizes = [tensor.elements for tensor in self.tensors]
        self.shards = parameter_shards(worker_tensors, layout)
        self.units = _gathered_units(specs[0], layout, self.tensor_sizes)
        model = specs[0].model
        layers = layout.layers_of_chunks(model.layers) if isinstance(model, ModelShape) else (1,)
        # The policies fit the chunk with most layers.
        self.budget = _memory_budget(specs, layout, specs[0].memory.policies(max(layers)))
        self.computed_s: dict[Any, float] = {}
        self.exchanges_inside: dict[StepOptions, list[Exchange]] = {}
        self._memory_plans: dict[Any, MemoryPlan] = {}

    def plan_memory(self, states: IntOrArray, errors: IntOrArray, buffer_bytes: Floats, can_shard: bool) -> MemoryPlan:
        """Return the memory plan of a method, from a cache, because several methods have the same arguments.

        Args:
            states: number of elements that a worker stores besides parameters.
            errors: number of these elements that hold errors of compression for error feedback.
            buffer_bytes: ``(S,)``, bytes of the message buffer.
            can_shard: whether the states can be sharded.
        """
        key = size_key(states), size_key(errors), buffer_bytes.tobytes(), can_shard
        if key in self._memory_plans:
            return self._memory_plans[key]
        spec, layout, elements, options = self.specs[0], self.layout, self.worker_tensors.elements, self.specs[0].memory
        precision = options.memory_precision(spec.number_format)
        memory = model_memory(
            elements, states - errors, errors, precision, buffer_bytes,
            gradient_bytes=2 if options.gradients == "bf16" else FP32_BYTES,
        )  # fmt: skip
        frozen_bytes = MODEL_BYTES[precision] * self.worker_tensors.frozen
        memory = replace(memory, weights_bytes=memory.weights_bytes + frozen_bytes)
        sharers = self.replicas  # the number of workers over which states can be sharded
        if layout.gradient_workers > 1:  # the mean over the shards: a worker stores 1 / sharers of the states
            stored_share = sum(shard.elements / shard.sharers for shard in self.shards) / elements
            sharers = np.full(len(self.specs), 1 / stored_share)
        if layout.pipeline > 1 and options.micro_batches is None:
            # Micro-batches of one sequence keep the stages of a pipeline idle for the least time.
            options = options.model_copy(update={"micro_batches": max(1, int(self.budget.sequences[0]))})
        # A pipeline would scatter gradients, or gather weights, for each of its many micro-batches, which practitioners
        # avoid; with LoRA the weights are frozen and not sharded. Then only the optimizer is sharded, or nothing.
        choices = SHARDINGS[:2] if layout.pipeline > 1 or spec.lora is not None else SHARDINGS
        self._memory_plans[key] = plan_memory(
            options, self.budget, unsharded=memory, workers=sharers, can_shard=can_shard,
            unit_bytes=max(unit.share for unit in self.units) * MODEL_BYTES[precision] * elements,
            precision=precision, auto=choices,
        )  # fmt: skip
        return self._memory_plans[key]


class MethodPlan:
    """The plan of one method in S settings: traffic, memory, computing and updates, each computed when first used.

    Args:
        method: the method, in the settings' precision.
        mask: ``(S,)``: whether the setting includes the method.
        index: index of the method in the spec's ``methods``, which errors name.
    """

    def __init__(self, settings: PlannedSettings, method: MethodBase, mask: NDArray[np.bool_], index: int) -> None:
        self.settings, self.method, self.mask, self.index = settings, method, mask, index
        self._exchanges: dict[int, list[Exchange]] = {}

    def check(self) -> None:
        """Raise the errors of the method's traffic, memory and computing."""
        _ = self.compute_s

    @cached_property
    def readbacks(self) -> int:
        """Return the number of times per step that the method reads a number back from the device."""
        return self.method.readbacks(self.settings.tensors)

    @cached_property
    def compute_s(self) -> Floats:
        """Return the computing seconds of a worker's step, ``(S,)``."""
        settings = self.settings
        return computing_s(
            settings.specs, settings.layout, settings.worker_tensors.elements, self.memory_plan, settings.replicas,
            cache=settings.computed_s,
        )  # fmt: skip

    @cached_property
    def optimizer_s(self) -> Floats:
        """Return the seconds of the method's update, ``(S,)``."""
        settings = self.settings
        optimizer_s = np.array(value_per_spec(settings.specs, partial(_optimizer_s, self.method, settings.tensors)))
        # A computed time is of an update of all parameters; with sharded states a worker updates only its share.
        sharers = sharers_of(settings.layout, self.memory_plan, settings.replicas)
        prices_updates = np.array([spec.compute.prices_updates for spec in settings.specs])
        return np.asarray(optimizer_s / np.where(prices_updates, sharers, 1))

    def _exchanges_between_replicas(self, count: int) -> list[Exchange]:
        """Return a worker's exchanges with other replicas, among ``count`` workers."""
        settings, replicas = self.settings, count // self.settings.layout.workers
        if count in self._exchanges:
            return self._exchanges[count]
        exchanges: Iterable[Exchange] = ()
        if settings.layout.workers == 1:  # every worker is a replica
            exchanges = self.method.exchanges(settings.tensors, replicas)
        elif replicas > 1:
            # The workers that have copies of the same parameters each send a share of them to the other replicas.
            sent_elements = sum(shard.elements / len(shard.group) for shard in settings.shards)
            share = sent_elements / settings.worker_tensors.elements
            exchanges = exchanges_between(self.method, settings.tensors, replicas, settings.layout, share)
        self._exchanges[count] = list(exchanges)
        return self._exchanges[count]

    def _exchanges_of_worker(self, count: int, options: StepOptions) -> list[Exchange]:
        """Return a worker's exchanges inside its replica and with other replicas, among ``count`` workers."""
        inside, shards = self.settings.exchanges_inside, self.settings.shards
        if options not in inside:
            inside[options] = [exchange for shard in shards for exchange in exchanges_inside(shard, options)]
        return inside[options] + self._exchanges_between_replicas(count)

    @cached_property
    def _traffic_between(self) -> list[Traffic]:
        settings = self.settings
        same_for_any_group = settings.layout.workers == 1 and self.method.same_for_any_group
        with within(f"methods.{self.index}"):
            exchanges_among, steps = self._exchanges_between_replicas, settings.specs[0].steps
            return traffic_of(settings.workers, self.mask, steps, exchanges_among, same_for_any_group)

    @property
    def _element_bytes(self) -> float:
        """Return the bytes of a gradient on the wire: in the method's format if it sends in the backward pass."""
        if self.method.sends_in_backward:
            return BYTES_PER_ELEMENT[self.method.wire_format]
        return bytes_per_number(self.settings.specs[0].number_format)

    @cached_property
    def memory_plan(self) -> MemoryPlan:
        """Return micro-batches, sharding, recomputation and memory with which a worker's step fits, in each setting."""
        settings, method = self.settings, self.method
        has_sharers = settings.layout.gradient_workers > 1
        gradient_bytes = max(self._element_bytes * shard.elements for shard in settings.shards) if has_sharers else 0.0
        buffer_bytes = np.full(len(settings.specs), gradient_bytes)
        for traffic in self._traffic_between:
            selected, replicas = traffic.settings, settings.replicas[traffic.settings]
            call_bytes = largest_call_bytes(traffic.patterns, replicas, concurrent=sends_together(method))
            buffer_bytes[selected] = np.maximum(buffer_bytes[selected], call_bytes)
        per_setting = partial(
            value_per_setting, workers=settings.replicas, mask=self.mask,
            same_for_any_group=method.same_for_any_group,
        )  # fmt: skip
        errors = per_setting(partial(method.error_feedback_elements, settings.tensors))
        states = per_setting(partial(method.kept_elements, settings.tensors))
        return settings.plan_memory(states, errors, buffer_bytes, has_sharers or method.can_shard_states)

    @cached_property
    def traffic(self) -> list[Traffic]:
        """Return the traffic inside replicas and between them, one `Traffic` for settings that exchange alike."""
        settings, traffic_between = self.settings, self._traffic_between
        has_sharers = settings.layout.gradient_workers > 1  # other workers of the replica have the same parameters
        sends_in_backward = any(exchange.in_backward for traffic in traffic_between for exchange in traffic.exchanges)
        if not has_sharers and not sends_in_backward:
            return traffic_between

        # Gradients travel in buckets during the backward pass of the last micro-batch.
        spec, mask, memory_plan = settings.specs[0], self.mask, self.memory_plan
        element_bytes = bytes_per_number(spec.number_format)
        buckets = gradient_buckets(settings.tensor_sizes, spec.bucket_size, element_bytes=element_bytes)
        split_traffic: list[Traffic] = []
        plans = set(zip(memory_plan.sharding[mask].tolist(), memory_plan.micro_batches[mask].tolist(), strict=True))
        for sharding, micro_batches in sorted(plans):
            selected = mask & (memory_plan.sharding == sharding) & (memory_plan.micro_batches == micro_batches)
            kind, buckets_of_step = SHARDINGS[sharding], after_micro_batches(buckets, micro_batches)
            if not has_sharers and kind == "none":  # only replicas exchange, and their gradients travel in buckets
                for traffic in traffic_between:
                    row_of_setting = np.where(selected, traffic.row_of_setting, -1)
                    if (row_of_setting >= 0).any():
                        split_traffic.append(replace(traffic, row_of_setting=row_of_setting, buckets=buckets_of_step))
                continue
            # If the spec sets a bucket size, the units are buckets, unless the weights of whole layers are gathered.
            options = StepOptions(
                kind, spec.memory.weights, overlapped=spec.overlap != "none", micro_batches=micro_batches,
                bytes_per_gradient=self._element_bytes,
                bytes_per_parameter=MODEL_BYTES[spec.memory.memory_precision(spec.number_format)],
                units=settings.units if kind == "full" or spec.bucket_size == BUCKET_BYTES else buckets,
            )  # fmt: skip
            if has_sharers:
                exchanges_among = partial(self._exchanges_of_worker, options=options)
                traffics = traffic_of(settings.workers, selected, spec.steps, exchanges_among)
            else:
                traffics = traffic_of_replicas(settings.tensor_sizes, settings.replicas, selected, spec.steps, options)
            split_traffic += [replace(traffic, buckets=buckets_of_step) for traffic in traffics]
        return split_traffic


def _optimizer_s(method: MethodBase, tensors: Sequence[TensorShape], spec: ProjectSpec) -> float:
    """Return the seconds of the optimizer's update in a step; 0 if the spec does not count them."""
    if not (spec.compute.optimizer_time or spec.compute.prices_updates):
        return 0.0
    step_flops = spec.model.flops_per_token * spec.worker_tokens
    return spec.compute.optimizer_s(method, tensors, flops_s(spec), step_flops, spec.model.name)


def _gathered_units(spec: ProjectSpec, layout: Layout, tensor_sizes: Sequence[int]) -> tuple[Bucket, ...]:
    """Return the units of parameters that are gathered at once: about a layer of a transformer, else a bucket."""
    if not isinstance(spec.model, ModelShape):
        return gradient_buckets(tensor_sizes, spec.bucket_size)
    stage_layers = math.ceil(spec.model.layers / layout.pipeline)
    # With one "byte" per element, the size of a bucket is a number of elements.
    return gradient_buckets(tensor_sizes, bucket_bytes=max(1.0, sum(tensor_sizes) / stage_layers), element_bytes=1)


def _memory_budget(
    specs: Sequence[ProjectSpec], layout: Layout, policies: Sequence[ActivationPolicy | None]
) -> MemoryBudget:
    """Return the usable memory of a worker in each setting, with the size of its batch and of its activations.

    Activations are those of a whole batch; `plan_memory` divides them by the number of micro-batches. With a policy
    of None they are not counted.
    """

    def budget_fields(spec: ProjectSpec) -> tuple[float, ...]:
        """Return the usable bytes, the sequences of a batch, and the bytes of activations under each policy."""
        model, options, limit_bytes = spec.model, spec.memory, usable_bytes(spec.memory_machine)
        if not isinstance(model, ModelShape):  # the activations of a module are unknown
            return limit_bytes, 1.0, *[0.0 for _ in policies]
        sequences = layout.model_parallel_workers * spec.worker_tokens / model.sequence
        micro_batches = options.micro_batches or 1
        if layout.pipeline > 1 and options.micro_batches is None:  # by default a pipeline's micro-batch is one sequence
            micro_batches = max(1, int(sequences))
        batch_bytes = []
        for policy in policies:
            micro_bytes = 0.0
            if policy is not None:
                storage = spec.activation_storage
                micro_bytes = worker_activation_bytes(model, layout, sequences, micro_batches, policy, storage)
            batch_bytes.append(micro_batches * micro_bytes)
        return limit_bytes, sequences, *batch_bytes

    limit, sequences, *activations = np.array(value_per_spec(specs, budget_fields), dtype=np.float64).T
    return MemoryBudget(policies, limit, sequences, np.array(activations))
