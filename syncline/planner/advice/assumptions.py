"""The assumptions of advice: those of its projections, and the tokens of data parallelism."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.planner.advice.plans import candidate_methods, first_spec
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.assumptions import DEFAULT, Assumption, projection_assumptions, repair_assumption


def advice_assumptions(question: AdviceQuestion, origins: Mapping[str, str] | None = None) -> list[Assumption]:
    """Return the assumptions of advice; rows have what differs between plans.

    Args:
        question: the question, whose own assumptions replace others of their names.
        origins: origins of the assumptions that options decide, see `option_origins`.
    """
    spec = first_spec(question).model_copy(
        update={"methods": question.methods or candidate_methods(question.periods[:1])}
    )
    by_name = {assumption.name: assumption for assumption in projection_assumptions([spec], (), origins)}
    if not question.methods:
        periods = ", ".join(f"{period:,}" for period in question.periods)
        text = f"{periods} steps, for methods that exchange now and then"
        by_name["period"] = Assumption("period", list(question.periods), "steps", text, "all are tried")
    by_name |= {assumption.name: assumption for assumption in question.assumptions}
    for name in ("overlap", "algorithm"):
        by_name[name] = Assumption(name, None, "", "each plan has its own", "all are tried")
    by_name["sharding"] = Assumption("sharding", "auto", "", "the least that fits into memory, for each plan", DEFAULT)
    if question.failures is not None and question.failures.rates:
        by_name["repair"] = repair_assumption(question.failures.repair_s(), question.failures.spares)
    return list(by_name.values())
