"""Step times of the same methods for models that are worth a cluster, in closed form, on the headline's networks."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from benchmarks.headline.finals import Finals
from syncline.planner.projection.project import project_all
from syncline.specs import ProjectSpec, validate

MODELS = ("gpt-160m", "gpt-1.3b")
"""The smallest and the largest of CurvaDion's Table 4."""

TOKENS = 32_768
"""Tokens of a worker and a step, as in the bundled projection of gpt-160m."""

PAPERS_RATE = 0.01
"""Share of the steps in which CurvaDion averages, in its Table 3."""

AT_PAPERS_RATE = "curvadion at 1 %"
"""CurvaDion with averages in as many steps."""


class Size(NamedTuple):
    """A method's mean step of a model on a network; ``compute_s`` is what a worker alone takes for it."""

    model: str
    method: str
    network: str
    step_time_s: float
    compute_s: float


def trigger_rate(finals: Finals) -> float:
    """The share of the steps in which CurvaDion averaged, a mean over the seeds."""
    return fmean(sum(averages) / len(averages) for averages in finals.averaged["curvadion"])


def sizes(finals: Finals) -> list[Size]:
    """The small model's steps as they were timed, and those of larger models, of CurvaDion also at its paper's rate."""
    small_model = f"this GPT ({round(finals.parameters / 1e6, 2):g}M)"
    rows = [
        Size(small_model, method, network, step_time_s, cell.compute_s)
        for method, cell in finals.cells.items()
        for network, step_time_s in cell.step_time_s.items()
    ]
    methods = []
    for run in finals.runs.values():
        fields = run.method.model_dump()
        methods.append(fields)
        if fields["kind"] == "curvadion":
            methods.append(fields | {"label": AT_PAPERS_RATE, "expected_sync_rate": PAPERS_RATE})
            fields["expected_sync_rate"] = trigger_rate(finals)
    for model in MODELS:
        spec = {
            "kind": "project", "name": "headline-sizes", "model": model, "tokens_per_worker": TOKENS,
            "workers": finals.setting.workers, "steps": 9984, "methods": methods,
            "networks": list(finals.networks.values()), "compute": {"hardware": "h100"}, "precision": "bf16",
            "overlap": "ddp", "algorithm": "auto",
        }  # fmt: skip
        for row in project_all([validate(ProjectSpec, spec)], thresholds=False):
            rows.append(Size(model, row["method"], row["network"], row["step_time_s"], row["compute_s"]))
    return rows
