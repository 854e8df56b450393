"""Plans: a method between replicas, a layout inside them, and a step's memory plan and overlap; their assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from syncline.costmodel import Network
from syncline.costmodel.layouts.groups import workers_of_units
from syncline.costmodel.layouts.layout import GIVEN, Layout, placed_network, possible_layouts
from syncline.errors import SpecError
from syncline.methods import MethodBase, method_of, preset_of
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.assumptions import (
    DEFAULT,
    Assumption,
    period_assumption,
    projection_assumptions,
    repair_assumption,
)
from syncline.planner.periods import PRESET, period_of
from syncline.specs import ComputeSpec, ProjectSpec
from syncline.specs.layout import LayoutSpec, MemorySpec

ONE_WORKER = Layout()
"""A replica that is one worker."""


@dataclass(frozen=True)
class TrainingPlan:
    """A plan for training a model: a method between replicas, and a layout of workers inside a replica.

    Args:
        overlap: overlap of gradients with computing: ``ddp``, or ``none``.
        algorithm: algorithm of collectives; None: the fastest for each size, level by level if the network has levels.
        sharding: sharding of optimizer states, gradients and weights; ``auto``: the least that makes the step fit.
        placement: rule that assigns ranks to the places of a network of kind ``matrix``, see
            `syncline.costmodel.layouts.layout`.
        recomputed_layers: how many layers the backward pass recomputes if a step does not fit otherwise: ``fewest``, as
            few as let it fit; or None, all of them.
    """

    method: MethodBase
    layout: Layout = ONE_WORKER
    overlap: Literal["ddp", "none"] = "ddp"
    algorithm: str | None = None
    sharding: Literal["auto", "none", "optimizer", "gradients", "full"] = "auto"
    placement: str = GIVEN
    recomputed_layers: Literal["fewest"] | None = None

    def on(self, network: Network, workers: int) -> Network:
        """Return a network whose ranks are placed as the plan's placement rule says."""
        return placed_network(network, self.placement, self.layout, workers)

    def spec(self, question: AdviceQuestion) -> ProjectSpec:
        """Return the spec of the projection whose row has the plan's numbers."""
        return spec_of_setting(question, self, [self.method])

    @property
    def fields(self) -> dict[str, Any]:
        """Return the plan as fields of a projection's spec."""
        return {
            "methods": [self.method.model_dump(mode="json")],
            "layout": self.layout.changed_fields,
            "memory": self.memory_fields,
            "overlap": self.overlap,
            "algorithm": self.algorithm,
            "placement": self.placement,
        }

    @property
    def memory_fields(self) -> dict[str, Any]:
        """Return the plan's memory options as fields of a projection's spec."""
        fewest = {} if self.recomputed_layers is None else {"recomputed_layers": self.recomputed_layers}
        return {"sharding": self.sharding} | fewest

    @property
    def setting(self) -> tuple[Any, ...]:
        """Return layout, overlap, algorithm, memory and placement; plans that share them are priced together."""
        return self.layout, self.overlap, self.algorithm, self.sharding, self.placement, self.recomputed_layers


@lru_cache(maxsize=64)
def base_spec(question: AdviceQuestion) -> ProjectSpec:
    """Return the projection spec of plain data parallelism, which `spec_of_setting` changes into the spec of a plan."""
    return ProjectSpec(
        kind="project", name="advise", model=question.model, tokens_per_worker=question.tokens_per_worker,
        workers=question.workers, steps=question.steps, methods=(method_of("ddp-adam"),),
        networks=(question.network,), compute=ComputeSpec(hardware=question.hardware),
    )  # fmt: skip


def spec_of_setting(question: AdviceQuestion, plan: TrainingPlan, methods: Sequence[MethodBase]) -> ProjectSpec:
    """Return the spec of one projection of several methods, with the layout and the options of a plan."""
    changed_fields: dict[str, Any] = {
        "methods": tuple(methods),
        "layout": LayoutSpec(**asdict(plan.layout)),
        "memory": MemorySpec(**plan.memory_fields),
        "overlap": plan.overlap,
        "algorithm": plan.algorithm,
        "placement": plan.placement,
    }
    return base_spec(question).model_copy(update=changed_fields)


def _labelled_method(kind: str, label: str, **fields: Any) -> MethodBase:
    """Return a method with a label for tables and fields of its spec; its learning rate has no effect on costs."""
    return method_of({"kind": kind, "label": label, "lr": 0.003, **fields})


@lru_cache(maxsize=8)
def candidate_methods(periods: Sequence[int]) -> tuple[MethodBase, ...]:
    """Return the methods that advice tries: data parallelism, and others by period, number format and delay.

    Args:
        periods: steps between exchanges to try; empty: those of each method's preset.
    """
    methods = [method_of("ddp-adam")]
    for common_period in periods or (None,):  # None: each preset has its own period
        period = common_period or period_of(method_of("diloco"))
        methods += [
            _labelled_method("diloco", f"diloco every {period}", period=period),
            _labelled_method("diloco", f"diloco every {period}, bf16", period=period, wire="bf16"),
            _labelled_method("diloco", f"diloco every {period}, 8 bits", period=period, compressor="lp"),
            _labelled_method("diloco", f"averaging every {period}", period=period, outer_lr=1.0, outer_momentum=0.0),
        ]
        period = common_period or period_of(method_of("streaming-diloco"))
        for wire, format_text in ((None, ""), ("bf16", ", bf16"), ("e3m0", ", 4 bits")):
            for tau, delay_text in ((1, ""), (5, ", 5 late")):  # steps late; 1 is the preset's
                label = f"streaming-diloco every {period}{format_text}{delay_text}"
                stream = {"fragments": 4, "tau": tau}
                methods.append(_labelled_method("streaming-diloco", label, period=period, wire=wire, stream=stream))
        for name in PERIODIC:
            period = common_period or period_of(method_of(name))
            methods.append(method_of({**preset_of(name), "period": period, "label": f"{name} every {period}"}))
    methods += [method_of(name) for name in OTHERS]
    return tuple(methods)


PERIODIC = ("local-adam", "des-loc", "mt-dao")
"""Further methods to try at each period, with the other settings of their presets."""

OTHERS = ("demo", "powersgd", "one-bit-adam", "zero-one-adam", "top-k")
"""Further methods to try, with the settings of their presets."""


def candidate_layouts(question: AdviceQuestion) -> Iterator[Layout]:
    """Yield the layouts of a replica that shard matrices only inside nodes, and give each worker whole sequences."""
    node_workers, *_ = workers_of_units(question.network, question.workers) or (question.workers,)
    for layout in possible_layouts(question.model, question.workers, max_tensor=node_workers):
        if batch_misfit(question, layout) is None:
            yield layout


def batch_misfit(question: AdviceQuestion, layout: Layout) -> str | None:
    """Return the reason why a batch does not divide into whole sequences for a layout's workers, or None if it does."""
    sequences = question.batch_tokens // question.model.sequence
    groups = question.workers // layout.model_parallel_workers
    if sequences % groups == 0:
        return None
    return f"{sequences:,} sequences of a batch do not divide evenly over {groups:,} groups that compute them"


def refused_layouts(question: AdviceQuestion) -> Iterator[tuple[Layout, str]]:
    """Yield layouts with one kind of parallelism that the model or the batch does not allow, each with the reason."""
    node_workers, *_ = workers_of_units(question.network, question.workers) or (question.workers,)
    largest = {"tensor": node_workers, "pipeline": question.workers, "data": question.workers}
    for parallelism, limit in largest.items():
        for degree in range(2, limit + 1):
            if question.workers % degree:
                continue
            fields: dict[str, Any] = {parallelism: degree}
            layout = Layout(**fields)
            try:
                layout.check(question.model)
                reason = batch_misfit(question, layout)
            except SpecError as error:
                reason = f"{parallelism} is {error.value}; expected {error.expected}"
            if reason is not None:
                yield layout, f"a divisor: {reason}"


def advice_assumptions(question: AdviceQuestion, origins: Mapping[str, str] | None = None) -> list[Assumption]:
    """Return the assumptions that all plans of an advice have in common.

    Args:
        question: the question; its own assumptions replace others of the same name.
        origins: origins of the assumptions that options decide, see `option_origins`.
    """
    methods = question.methods or candidate_methods(question.periods[:1])  # other periods have the same assumptions
    spec = base_spec(question).model_copy(update={"methods": methods})
    by_name = {assumption.name: assumption for assumption in projection_assumptions([spec], rows=(), origins=origins)}
    if not question.methods and question.periods:
        periods = ", ".join(f"{period:,}" for period in question.periods)
        text = f"{periods} steps, for methods that exchange now and then"
        by_name["period"] = Assumption("period", list(question.periods), "steps", text, "all are tried")
    elif not question.methods:
        presets = (method_of(name) for name in ("diloco", "streaming-diloco", *PERIODIC))
        by_name["period"] = period_assumption(presets, PRESET)
    by_name |= {assumption.name: assumption for assumption in question.assumptions}
    for name in ("overlap", "algorithm"):
        by_name[name] = Assumption(name, None, unit="", text="each plan has its own", origin="all are tried")
    by_name["sharding"] = Assumption("sharding", "auto", "", "the least that fits into memory, for each plan", DEFAULT)
    if question.failures is not None and question.failures.rates:
        by_name["repair"] = repair_assumption(question.failures.repair_s(), question.failures.spares)
    return list(by_name.values())
