"""Plans: a method between replicas, a layout inside them, and how a step is held and overlapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from syncline.costmodel import Activations, Network
from syncline.costmodel.collectives.hierarchical import level_sizes
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.possible import possible_layouts
from syncline.costmodel.network.link import Link
from syncline.errors import SpecError
from syncline.experiments.advice.question import AdviceQuestion
from syncline.methods import MethodBase, method_of
from syncline.specs import ComputeSpec, ProjectSpec
from syncline.specs.layout import LayoutSpec
from syncline.specs.memory import MemorySpec

ONE_WORKER = Layout()
"""A replica that is one worker."""


@dataclass(frozen=True)
class TrainingPlan:
    """How a model is trained.

    Args:
        method: between replicas.
        layout: inside a replica.
        activations: ``recomputed``: those of a layer are computed again in the backward pass.
        overlap: of gradients with computing: ``ddp``, or ``none``.
        algorithm: of collectives; none: the fastest of each size, level by level where the network has levels.
        sharding: of optimizer states, gradients and weights; ``auto``: as little as fits.
    """

    method: MethodBase
    layout: Layout = ONE_WORKER
    activations: Activations = "selective"
    overlap: Literal["ddp", "none"] = "ddp"
    algorithm: str | None = None
    sharding: Literal["auto", "none", "optimizer", "gradients", "full"] = "auto"

    def spec(self, question: AdviceQuestion) -> ProjectSpec:
        """The projection whose row has the plan's numbers."""
        return specs_of(question, [self], [self.method])

    @property
    def fields(self) -> dict[str, Any]:
        """It as a projection's spec has it."""
        return {
            "methods": [self.method.model_dump(mode="json")],
            "layout": {name: count for name, count in asdict(self.layout).items() if count > 1},
            "memory": {"activations": self.activations, "sharding": self.sharding},
            "overlap": self.overlap,
            "algorithm": self.algorithm,
        }

    @property
    def setting(self) -> tuple[Any, ...]:
        """What plans of one projection share."""
        return self.layout, self.activations, self.overlap, self.algorithm, self.sharding


@lru_cache(maxsize=64)
def _first_spec(question: AdviceQuestion) -> ProjectSpec:
    return ProjectSpec(
        kind="project",
        name="advise",
        model=question.model,
        tokens_per_worker=question.tokens_per_worker,
        workers=question.workers,
        steps=question.steps,
        methods=(method_of("ddp-adam"),),
        networks=(question.network,),
        compute=ComputeSpec(hardware=question.hardware),
    )


def specs_of(question: AdviceQuestion, plans: Sequence[TrainingPlan], methods: Sequence[MethodBase]) -> ProjectSpec:
    """One projection of several methods, of plans that share all but them."""
    plan = plans[0]
    changed: dict[str, Any] = {
        "methods": tuple(methods),
        "layout": LayoutSpec(**asdict(plan.layout)),
        "memory": MemorySpec(activations=plan.activations, sharding=plan.sharding),
        "overlap": plan.overlap,
        "algorithm": plan.algorithm,
    }
    return _first_spec(question).model_copy(update=changed)


PERIODS = (30, 100, 300, 1000)
"""Steps between two exchanges that are tried; no fit of losses has seen fewer."""


def _named(kind: str, label: str, **fields: Any) -> MethodBase:
    return method_of({"kind": kind, "label": label, "lr": 0.003, **fields})


@lru_cache(maxsize=1)
def methods_tried() -> tuple[MethodBase, ...]:
    """Methods between replicas: data parallelism, and by period, number format, compressor, outer step and delay."""
    tried = [method_of("ddp-adam")]
    for period in PERIODS:
        tried += [
            _named("diloco", f"diloco every {period}", period=period),
            _named("diloco", f"diloco every {period}, bf16", period=period, wire="bf16"),
            _named("diloco", f"diloco every {period}, 8 bits", period=period, compressor="lp"),
            _named("diloco", f"averaging every {period}", period=period, outer_lr=1.0, outer_momentum=0.0),
        ]
        for wire, told in ((None, ""), ("bf16", ", bf16")):
            for tau, late in ((1, ""), (5, ", 5 late")):
                label = f"streaming-diloco every {period}{told}{late}"
                stream = {"fragments": 4, "tau": tau}
                tried.append(_named("streaming-diloco", label, period=period, wire=wire, stream=stream))
    tried += [method_of(name) for name in OTHERS]
    return tuple(tried)


OTHERS = ("local-adam", "des-loc", "mt-dao", "demo", "powersgd", "one-bit-adam", "zero-one-adam", "top-k")
"""Beside them, as their presets have them."""


def unit_sizes(network: Network, workers: int) -> tuple[int, ...]:
    """Workers of a unit of each level, from the inside out; all of them are the last.

    >>> from syncline.specs import named_cluster
    >>> unit_sizes(named_cluster("two-sites-a100").network, 64)
    (8, 32, 64)
    """
    sizes = None if isinstance(network, Link) else level_sizes(network, workers)
    if sizes is None:
        return (workers,)
    out, capacity = [], 1
    for size in sizes:
        capacity *= size
        out.append(capacity)
    return tuple(out)


def layouts_tried(question: AdviceQuestion) -> Iterator[Layout]:
    """Layouts whose matrices are shared out inside innermost units alone, and whose workers have whole sequences."""
    inner = unit_sizes(question.network, question.workers)[0]
    for layout in possible_layouts(question.model, question.workers, most_tensor=inner):
        if sequences_short(question, layout) is None:
            yield layout


def sequences_short(question: AdviceQuestion, layout: Layout) -> str | None:
    """Why a batch cannot be shared out over a layout's workers in whole sequences; None where it can."""
    sequences = question.batch_tokens // question.sequence
    ways = layout.workers // layout.data
    among = question.workers // ways
    if sequences % among == 0:
        return None
    return f"{sequences:,} sequences of a batch are not shared out evenly over {among:,} that compute them"


def layouts_refused(question: AdviceQuestion) -> Iterator[tuple[Layout, str]]:
    """Layouts of one kind that do not divide the model, the workers or the batch, and what does not."""
    inner = unit_sizes(question.network, question.workers)[0]
    ways = {"tensor": inner, "pipeline": question.workers, "data": question.workers}
    for name, most in ways.items():
        for count in range(2, most + 1):
            if question.workers % count:
                continue
            layout = Layout(**{name: count})
            try:
                layout.check(question.model)
            except SpecError as error:
                yield layout, f"a divisor: {name} is {error.value}; expected {error.expected}"
                continue
            if (short := sequences_short(question, layout)) is not None:
                yield layout, f"a divisor: {short}"


def possible_plans(question: AdviceQuestion) -> list[TrainingPlan]:
    """Every composition of methods and layouts that divides: what the search looks at, most of it in passing."""
    methods = question.methods or methods_tried()
    return [
        TrainingPlan(method, layout)
        for layout in layouts_tried(question)
        for method in methods
        if method.sends_in_backward or layout.workers < question.workers
    ]
