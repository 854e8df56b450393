"""The same methods' step times at sizes that are worth a cluster: closed form, on the networks of the headline."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.headline.kept import Finals
from syncline.planner.projection.project import project_all
from syncline.specs import ProjectSpec, validate

MODELS = ("gpt-160m", "gpt-1.3b")
"""CurvaDion's Table 4, the smallest and the largest."""

TOKENS = 32_768
"""Per worker and step, as in the bundled projection of gpt-160m."""

AGAIN = ("ddp-adam-untuned",)
"""It differs from another in what no clock sees."""

PAPERS_RATE = 0.01
"""Of CurvaDion's averages, in its Table 3."""


class Size(NamedTuple):
    """A method's mean step of one model on one network; ``compute_s`` is what a worker alone takes for it."""

    model: str
    method: str
    network: str
    step_time_s: float
    compute_s: float


def trigger_rate(finals: Finals, method: str = "curvadion") -> float:
    """In which part of the steps anything but the flag was sent."""
    one = finals.trained[method]
    flag = min(call.payload_bytes for call in one.ledger)
    return len({call.step for call in one.ledger if call.payload_bytes > flag}) / one.history.steps


def sizes(finals: Finals) -> list[Size]:
    """The toy's steps as they were timed, and those of larger models; of CurvaDion also at the rate of its paper."""
    toy = f"this GPT ({round(finals.parameters / 1e6, 2):g}M)"
    rows = [
        Size(toy, row.method, row.network, row.step_time_s, row.compute_s)
        for row in finals.rows()
        if row.method not in AGAIN
    ]
    methods = [one.model_dump() for one in finals.spec.methods if one.name not in AGAIN]
    for one in methods:
        if one["kind"] == "curvadion":
            one["expected_sync_rate"] = trigger_rate(finals)
    papers = [
        one | {"label": AT_PAPERS_RATE, "expected_sync_rate": PAPERS_RATE}
        for one in methods
        if one["kind"] == "curvadion"
    ]
    for model in MODELS:
        fields = {
            "kind": "project", "name": "headline-sizes", "model": model, "tokens_per_worker": TOKENS,
            "workers": finals.spec.workers, "steps": 9984, "methods": [*methods, *papers],
            "networks": list(finals.spec.networks), "compute": {"hardware": "h100"},
            "overlap": finals.spec.overlap, "algorithm": finals.spec.algorithm, "precision": "bf16",
        }  # fmt: skip
        for row in project_all([validate(ProjectSpec, fields)], thresholds=False):
            rows.append(Size(model, row["method"], row["network"], row["step_time_s"], row["compute_s"]))
    return rows


AT_PAPERS_RATE = "curvadion at 1 %"
"""Averages in 1 % of the steps."""
