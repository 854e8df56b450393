"""All of the advice: ranked plans, those whose loss nobody knows, those that cannot be, and what decides."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from syncline.experiments.advice.failing import goodput_by_events
from syncline.experiments.advice.plans import TrainingPlan
from syncline.experiments.advice.priced import OBJECTS, PlanRow, priced
from syncline.experiments.advice.question import AdviceQuestion
from syncline.experiments.advice.replayed import REPLAYED, replayed
from syncline.experiments.advice.search import plans_searched
from syncline.experiments.advice.thresholds import first_changes
from syncline.experiments.advice.ties import different, told_apart
from syncline.experiments.advice.words import changes, decides, unknown

MOST_COMPARED = 12
"""Of those whose loss nobody knows, the first that are told apart from the first."""

FOR_THRESHOLDS = 12
"""Of a list, the plans between which thresholds are looked for, of those that are not slower in the same way."""


@dataclass(frozen=True)
class Advice:
    """What was found.

    Attributes:
        question: what was asked.
        ranked: rows by time to equal loss, the first least.
        loss_unknown: rows by time for the tokens.
        infeasible: rows with the reason, the fastest first.
        ties: of the ranked plans, the places of those that nobody can tell from the first.
        thresholds: where the first changes, see `first_changes`; of the ranked plans, or of the others if there are
            fewer than two.
        decides: what the times go to, a line each.
        changes: what would change the first, likewise.
        unknown: likewise.
    """

    question: AdviceQuestion
    ranked: list[PlanRow]
    loss_unknown: list[PlanRow]
    infeasible: list[PlanRow]
    ties: list[int] = field(default_factory=list)
    thresholds: list[dict[str, Any]] = field(default_factory=list)
    decides: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """All sentences."""
        return [*self.decides, *self.changes, *self.unknown]

    def record(self) -> dict[str, Any]:
        """As plain values: what ``--json`` prints."""
        lists = {"ranked": self.ranked, "loss unknown": self.loss_unknown, "infeasible": self.infeasible}
        rows = [{"list": name} | row for name, of in lists.items() for row in of]
        names = dict.fromkeys(name for row in rows for name in row if name not in OBJECTS)
        plain: list[dict[str, Any]] = [{name: row.get(name) for name in names} for row in rows]
        for told, row in zip(plain, rows, strict=True):
            told["fields"] = _fields(row)
        asked = self.question
        return {
            "question": {
                "model": asked.model.name,
                "parameters": asked.model.parameters,
                "network": asked.network.name,
                "hardware": asked.hardware.name,
                "workers": asked.workers,
                "batch_tokens": asked.batch_tokens,
                "sequence": asked.sequence,
                "tokens": asked.tokens,
                "target_loss": asked.target_loss,
                "budget": asked.budget,
                "deadline_s": asked.deadline_s,
                "prices": asked.prices and asdict(asked.prices),
                "extrapolate": asked.extrapolate,
                "failures": asked.failures and asked.failures.model_dump(mode="json"),
            },
            "defaults": list(asked.defaults),
            "rows": plain,
            "ties": self.ties,
            "thresholds": self.thresholds,
            "decides": self.decides,
            "changes": self.changes,
            "unknown": self.unknown,
        }


def advised(question: AdviceQuestion) -> Advice:
    """The advice on a question.

    Args:
        question: see `syncline.experiments.advice.question.advice_question`.
    """
    plans, undivided = plans_searched(question)
    rows = priced(question, plans)
    able = sorted((row for row in rows if row["infeasible"] is None), key=lambda row: row["time_s"])
    unable = sorted((row for row in rows if row["infeasible"] is not None), key=_time_or_last) + undivided
    ranked = told_apart(question, [row for row in able if row["loss_unknown"] is None])
    others = told_apart(question, [row for row in able if row["loss_unknown"] is not None], MOST_COMPARED)
    for of in (ranked, others) if not ranked else (ranked,):
        of[:REPLAYED] = [
            row | replayed(question, row) | {"events_goodput": goodput_by_events(question, row)}
            for row in of[:REPLAYED]
        ]
    main = ranked if len(ranked) > 1 else others
    near = different(main)[:FOR_THRESHOLDS]
    thresholds = first_changes(question, near)
    return Advice(
        question,
        ranked,
        others,
        unable,
        [place for place, row in enumerate(ranked) if row["tied"]],
        [one | {"becomes": None if one["becomes"] is None else _named(near[one["becomes"]])} for one in thresholds],
        decides(question, ranked, others, unable),
        changes(question, near, thresholds),
        unknown(question, ranked, others),
    )


def _fields(row: PlanRow) -> dict[str, Any] | None:
    """Of a projection's spec that has the plan's numbers."""
    plan: TrainingPlan | None = row["plan"]
    return None if plan is None else plan.fields


def _time_or_last(row: PlanRow) -> float:
    return float("inf") if row["time_s"] is None else float(row["time_s"])


def _named(row: PlanRow) -> dict[str, Any]:
    return {"method": row["method"], "layout": row["layout"], "overlap": row["overlap"]}
