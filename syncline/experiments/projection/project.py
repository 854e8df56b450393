"""``syncline project``: the clock alone, in closed form. NumPy and pydantic; no torch, no training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncline.costmodel import Exchange, Link, Network, StepTime, bytes_per_step, mean_step
from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.policies import algorithm_for
from syncline.costmodel.collectives.table import algorithm_name
from syncline.costmodel.traffic.exchanges import calls_by_step
from syncline.costmodel.traffic.overlap import gradient_buckets
from syncline.errors import SpecError, within
from syncline.experiments.projection.memory import memory_of, memory_record, with_activations
from syncline.experiments.projection.thresholds import ONE_BY_ONE, RATIOS, threshold
from syncline.specs import Experiment, ProjectSpec, study_of


def project(spec: Experiment) -> list[dict[str, Any]]:
    """The rows of a projection, one per method and network; of a study that answers at once, its own."""
    return project_methods(spec) if isinstance(spec, ProjectSpec) else study_of(spec).rows(spec, [])


def project_methods(spec: ProjectSpec) -> list[dict[str, Any]]:
    """Mean step of each method on each network; speedups are against the first method, on the same network."""
    plan = ProjectionPlan(spec)
    rows = []
    for place, network in enumerate(spec.networks):
        steps = [_step(plan, number, place) for number in range(len(spec.methods))]
        baseline_s = float(steps[0].step_time_s)
        for number, method in enumerate(spec.methods):
            step, step_time_s = steps[number], float(steps[number].step_time_s)
            rows.append({
                "model": spec.model.name,
                "hardware": plan.hardware,
                "method": method.name,
                "network": network.name,
                "workers": spec.workers,
                "overlap": spec.overlap,
                "algorithm": plan.algorithms(plan.sent[number], network),
                "step_time_s": step_time_s,
                "compute_s": float(step.compute_s),
                "encode_s": float(step.encode_s),
                "trigger_s": float(step.trigger_s),
                "communication_s": float(step.communication_s),
                "communication_share": float(step.communication_s) / step_time_s if step_time_s else 0.0,
                "exposed_communication_s": float(step.exposed_communication_s),
                "bytes_per_worker": bytes_per_step(plan.sent[number], spec.steps),
                "wall_clock_s": step_time_s * spec.steps,
                "speedup": baseline_s / step_time_s if step_time_s else 1.0,
                **_thresholds(plan, number, network),
                **plan.needed[number],
            })  # fmt: skip
    return rows


class ProjectionPlan:
    """What a projection needs to know of a spec, whatever the network: computing, traffic and memory of each method.

    Raises:
        SpecError: a method cannot serve so many workers.
    """

    def __init__(self, spec: ProjectSpec) -> None:
        shape, tokens = spec.model, spec.tokens_per_worker
        flops = shape.flops_per_token * tokens
        self.spec = spec
        self.compute_s = spec.compute.base_s(flops, shape.name, samples=tokens / shape.sequence, tokens=tokens)
        machine = spec.memory.hardware or spec.compute.hardware
        self.hardware = spec.compute.hardware.name if spec.compute.hardware else None
        self.buckets = gradient_buckets([tensor.elements for tensor in shape.tensors], spec.bucket)
        self.sent: list[list[Exchange]] = []
        self.needed: list[dict[str, Any]] = []
        self.readbacks = [method.readbacks(shape.tensors) for method in spec.methods]
        for number, method in enumerate(spec.methods):
            with within(f"methods.{number}"):
                self.sent.append(method.exchanges(shape.tensors, spec.workers) if spec.workers > 1 else [])
                memory = memory_of(method, shape.tensors, spec.workers, spec.steps, spec.memory)
                self.needed.append(memory_record(with_activations(memory, shape, tokens, spec.memory), machine))

    def algorithm(self, network: Network) -> str | None:
        """The spec's; if it has none, the fastest where the network is not the same to everybody."""
        return self.spec.algorithm or (None if isinstance(network, Link) else "auto")

    def algorithms(self, exchanges: Sequence[Exchange], network: Network) -> str:
        """The algorithms that carry the calls, each named once."""
        wanted, workers = self.algorithm(network), self.spec.workers
        calls = [call for pattern in calls_by_step(exchanges, self.spec.steps) for call in pattern.calls]
        named = [
            algorithm_name(
                call.collective, algorithm_for(wanted, call.collective, workers, call.payload_bytes, network)
            )
            for call in sorted(calls, key=lambda call: -call.payload_bytes)
        ]
        return ", ".join(dict.fromkeys(named))

    def step(self, number: int, network: Network) -> StepTime:
        """The mean step of a method on a network, whose bandwidth may be an array if the algorithm is no policy."""
        return mean_step(
            self.compute_s,
            self.sent[number],
            self.spec.steps,
            self.spec.workers,
            network,  # type: ignore[arg-type]
            overlap=self.spec.overlap,
            buckets=self.buckets,
            algorithm=self.algorithm(network),
            rule=self.spec.rule,
            encode_bytes_per_s=self.spec.compute.encode,
            trigger_s=self.spec.compute.readback * self.readbacks[number],
        )


def _step(plan: ProjectionPlan, number: int, place: int) -> StepTime:
    """The mean step of a method on the network in this place.

    Raises:
        SpecError: what the method sends has no closed form there.
    """
    network, method = plan.spec.networks[place], plan.spec.methods[number]
    try:
        return plan.step(number, network)
    except NoClosedForm as error:
        kind = error.path.removesuffix(".algorithm")
        expected = f"a network on which {method.name} has a closed form, as {kind} has none here; 'compare' times it"
        raise SpecError(f"networks.{place}", network.name, expected) from None


def _thresholds(plan: ProjectionPlan, number: int, network: Network) -> dict[str, Any]:
    """Below which bandwidth a method is faster than the first one, and faster by a twentieth.

    Unknown for the first one, on a network that is more than one link, and where it would take long.
    """
    known = number > 0 and isinstance(network, Link) and plan.algorithm(network) not in ONE_BY_ONE
    fields: dict[str, Any] = {}
    for name, ratio in RATIOS.items():
        told = threshold(plan, number, network, ratio) if known and isinstance(network, Link) else None
        fields |= {name: told and told.when, f"{name}_bandwidth_bytes_per_s": told and told.bytes_per_s}
    return fields
