"""The complete advice: ranked plans, plans of unknown loss, infeasible plans, and the causes of the ranking."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from syncline.planner.advice.plan_costs import OBJECTS, PlanRow, goodput_by_events, price_plans, with_computing_alone
from syncline.planner.advice.plans import advice_assumptions
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.advice.ranking_changes import compare_with_first, fastest_by_loss, first_changes
from syncline.planner.advice.search import search_plans
from syncline.planner.advice.sentences import cause_sentences, change_sentences, unknown_sentences, verdict
from syncline.planner.advice.simulated import PLANS_SIMULATED, simulate_by_events
from syncline.planner.assumptions import Assumption

MOST_COMPARED = 12
"""Number of plans of unknown loss that are compared with the first of them."""

MOST_FOR_THRESHOLDS = 12
"""Number of plans of a list among which thresholds are found; of other plans with one loss only the fastest counts."""


@dataclass(frozen=True)
class Advice:
    """The answer of ``syncline advise``: plans ranked by time, with the causes of the ranking in sentences.

    Attributes:
        ranked: rows by time to equal loss, the fastest first.
        loss_unknown: rows by time for the tokens.
        infeasible: rows of plans that cannot run, the fastest first; ``infeasible`` is the reason.
        ties: indices of the ranked plans that cannot be distinguished from the first.
        thresholds: values at which the first plan changes, see `first_changes`: the first of ``ranked``, or of
            ``loss_unknown`` if fewer than two plans are ranked.
        decides: the parts of the times, a line each.
        changes: the changes that would alter the first plan, a line each.
        unknown: the facts that the advice does not know, a line each.
        verdict: the plan to take, its saving and the change that would alter it, a line each.
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
    verdict: list[str] = field(default_factory=list)

    @property
    def assumptions(self) -> list[Assumption]:
        """Return the values that change the advice, with the origin of each."""
        return advice_assumptions(self.question)

    def record(self) -> dict[str, Any]:
        """Return the advice as plain values, which ``--json`` prints."""
        question = self.question
        lists = {"ranked": self.ranked, "loss unknown": self.loss_unknown, "infeasible": self.infeasible}
        rows: list[PlanRow] = [{"list": list_name} | row for list_name, list_rows in lists.items() for row in list_rows]
        names = dict.fromkeys(name for row in rows for name in row if name not in OBJECTS)
        plain_rows: list[dict[str, Any]] = []
        for row in rows:  # a refused layout has no plan, and lacks most fields
            plan_fields = None if row["plan"] is None else row["plan"].fields | {"steps": question.steps}
            plain_rows.append({name: row.get(name) for name in names} | {"fields": plan_fields})
        return {
            "question": {
                "model": question.model.name,
                "parameters": question.model.parameters,
                "network": question.network.name,
                "hardware": question.hardware.name,
                "workers": question.workers,
                "batch_tokens": question.batch_tokens,
                "sequence": question.model.sequence,
                "tokens": question.tokens,
                "target_loss": question.target_loss,
                "budget": question.budget,
                "deadline_s": question.deadline_s,
                "prices": question.prices and asdict(question.prices),
                "extrapolate": question.extrapolate,
                "failures": question.failures and question.failures.model_dump(mode="json"),
            },
            "assumptions": [assumption.record() for assumption in self.assumptions],
            "verdict": self.verdict,
            "defaults": list(question.unset_costs),
            "rows": plain_rows,
            "ties": self.ties,
            "thresholds": self.thresholds,
            "decides": self.decides,
            "changes": self.changes,
            "unknown": self.unknown,
        }


def compute_advice(question: AdviceQuestion) -> Advice:
    """Return the advice on a question: the search over plans, their ranking, and the sentences about it."""
    plans, refused_rows = search_plans(question)
    rows = with_computing_alone(question, price_plans(question, plans))
    feasible = sorted((row for row in rows if row["infeasible"] is None), key=lambda row: row["time_s"])
    infeasible = [row for row in rows if row["infeasible"] is not None]
    infeasible.sort(key=lambda row: math.inf if row["time_s"] is None else row["time_s"])
    infeasible += refused_rows
    ranked = compare_with_first(question, [row for row in feasible if row["loss_unknown"] is None])
    unranked = compare_with_first(question, [row for row in feasible if row["loss_unknown"] is not None], MOST_COMPARED)
    for row in (ranked or unranked)[:PLANS_SIMULATED]:
        row.update(simulate_by_events(question, row) | {"events_goodput": goodput_by_events(question, row)})
    main_list = ranked if len(ranked) > 1 else unranked  # another plan can become the first only among several
    compared_rows = fastest_by_loss(main_list)[:MOST_FOR_THRESHOLDS]
    thresholds = first_changes(question, compared_rows)
    change_lines = change_sentences(question, compared_rows, thresholds)
    named_thresholds = []
    for threshold in thresholds:
        plan = None
        if threshold["becomes"] is not None:
            row = compared_rows[threshold["becomes"]]
            plan = {name: row[name] for name in ("method", "layout", "overlap")}
        named_thresholds.append(threshold | {"becomes": plan})
    return Advice(
        question, ranked, loss_unknown=unranked, infeasible=infeasible,
        ties=[index for index, row in enumerate(ranked) if row["tied"]], thresholds=named_thresholds,
        decides=cause_sentences(question, ranked, unranked, infeasible), changes=change_lines,
        unknown=unknown_sentences(question, ranked, unranked),
        verdict=verdict(question, ranked, unranked, change_lines),
    )  # fmt: skip
