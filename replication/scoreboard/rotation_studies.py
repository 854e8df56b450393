"""Basis Rotation's figures in small: values of the studies of a quadratic, a spiral, swings, and late gradients."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from replication.scoreboard.cells import records_of_study, rows_of_study, study_cell
from replication.studies.staleness.spec import StalenessSpec
from replication.studies.staleness.study import paths

# Figures 3 and 4 and Appendix C: starts on a quadratic and in a spiral valley.


def slowdown_by_angle(method: str) -> dict[str, float]:
    """Return the median slowdown by two steps of delay, by the angle of the quadratic."""
    rows = [row for row in rows_of_study("basis-rotation-fig3") if (row["part"], row["method"]) == ("angles", method)]
    return {f"deg {row['angle_deg']:g}": row["slowdown"] for row in rows}


def undone_by_delayed_adam() -> dict[str, float]:
    """Return the share of the way along the dominant direction that other steps undo, in percent."""
    return {
        name: study_cell("basis-rotation-fig3", "undone_delayed", 100, part="angles", method="adam", angle_deg=angle)
        for name, angle in (("aligned", 0), ("turned", 45))
    }


def share_of_random_quadratics(first_word: str) -> float:
    """Return the share of random quadratics for which a claim of the study holds, in percent.

    ``first_word`` is that of the claim: ``slower`` (at the last angle) or ``slowdown`` (falls at no larger angle).
    """
    rows = rows_of_study("basis-rotation-fig3")
    (share,) = [row["share"] for row in rows if (row["claim"] or "").startswith(f"{first_word} ")]
    return 100 * float(share)


def draws_as_aligned() -> int:
    """Return the draws, at the worst angle, in which rotated Adam takes as many steps as aligned Adam."""
    rows = [row for row in rows_of_study("basis-rotation-fig3") if row["method"] == "rotated"]
    return min(round(row["restored"] * row["draws"]) for row in rows)


def arrived_in_the_valley(lr: float) -> int:
    """Return the number of starts from which Adam with and without delay follows the spiral valley."""
    rows = rows_of_study("basis-rotation-fig4")
    return sum(row["arrived"] for row in rows if (row["part"], row["method"], row["lr"]) == ("angles", "adam", lr))


def rotated_slowdown(lr: float) -> float:
    """Return the median slowdown over the starts in the spiral valley, in the exact eigenbasis."""
    rows = rows_of_study("basis-rotation-fig4")
    return float(np.median([row["slowdown"] for row in rows if (row["method"], row["lr"]) == ("rotated", lr)]))


# Figure 12 and Section 4.3.

ROTATION = "basis rotation"


def swing_cell(method: str, column: str, stages: int) -> float:
    """Return a median over the seeds of the study of swings."""
    return float(study_cell("basis-rotation-fig12", column, method=method, stages=stages))


def swings(stages: int) -> dict[str, float]:
    """Return the root mean square of steps along the dominant eigenvector, by method."""
    return {name: swing_cell(method, "rms", stages) for name, method in (("rotation", ROTATION), ("adam", "adam"))}


def norm_over_rotated(stages: int) -> float:
    """Return the (1,1)-norm of rotation's Hessian over the same in its own basis."""
    return swing_cell(ROTATION, "norm_per_parameter", stages) / swing_cell(ROTATION, "own_norm_per_parameter", stages)


# Figures 5, 9, 10, 11, 17, 18 and 20: a small GPT in pipelines of up to 16 stages.

FIG5 = "basis-rotation-fig5"
METHODS = {
    "pipedream": "Adam", "pipedream-lr": "PipeDream-LR", "nesterov": "Nesterov", "compensation": "compensation",
    "1st-uni": "rotation 1st unilateral", "1st-bi": "rotation 1st bilateral", "2nd-uni": "rotation 2nd unilateral",
    "2nd-bi": "rotation 2nd bilateral", "scion": "Scion", "muon": "Muon", "soap": "SOAP",
}  # fmt: skip
"""Labels of the methods of Figure 5's study by their names in the rows."""

BASELINES = ("pipedream", "pipedream-lr", "nesterov", "compensation")


def _late_cell(name: str, column: str, stages: int, network: str = "nvlink4") -> float:
    return float(study_cell(FIG5, column, method=METHODS[name], stages=stages, network=network))


def late_losses(stages: int, *names: str) -> dict[str, float]:
    """Return the final losses of methods in a pipeline, by a name of `METHODS`."""
    return {name: _late_cell(name, "loss", stages) for name in names}


def late_loss_over(method: str, stages: int, reference: str, reference_stages: int) -> float:
    """Return the final loss of a method over that of a reference, which may have another number of stages."""
    return _late_cell(method, "loss", stages) / _late_cell(reference, "loss", reference_stages)


def late_gain(better: str, worse: str, stages: int = 16) -> float:
    """Return by how much the first method's final loss is lower, in nats."""
    return _late_cell(worse, "loss", stages) - _late_cell(better, "loss", stages)


def late_slowdown(name: str, stages: int = 16) -> float:
    """Return the steps to the target loss in a pipeline over those without delay.

    A method that does not arrive counts with all steps of its training, so that the result is a lower bound.
    """
    to_target = _late_cell(name, "steps_to_target", stages)
    steps = min(to_target, _late_cell(name, "steps", stages))
    return steps / _late_cell(name, "steps_to_target", 1)


def fewer_iterations(stages: int = 16) -> float:
    """Return by how many percent rotation has fewer steps at the final loss of the best of Adam and its remedies."""
    loaded, records = records_of_study(FIG5)
    best = paths(cast(StalenessSpec, loaded), records)
    target = min(_late_cell(name, "loss", stages) for name in BASELINES)
    return 100 * (1 - best[METHODS["2nd-bi"], stages].steps_to(target) / _late_cell("2nd-bi", "steps", stages))


def times_to_target(network: str, stages: int = 16) -> dict[str, float]:
    """Return the seconds to the target of late and of synchronous rotation, and of synchronous Adam."""
    where: dict[str, Any] = {"stages": stages, "network": network}
    return {
        "asynchronous": _late_cell("2nd-bi", "time_to_target_s", **where),
        "synchronous": _late_cell("2nd-bi", "sync_time_to_target_s", **where),
        "adam": _late_cell("pipedream", "sync_time_to_target_s", **where),
    }


def _renewed(label: str, column: str = "loss") -> float:
    return float(study_cell("basis-rotation-fig10", column, method=label, network="nvlink4"))


def rare_renewals_over_usual() -> float:
    """Return the final loss with bases renewed every 100 steps over that with every 10."""
    return _renewed("every 100") / _renewed("every 10")


def gain_by_stage_aware_renewals() -> float:
    """Return by how many percent fewer steps renewals by stage reach the target loss."""
    return 100 * (1 - _renewed("stage-aware", "steps_to_target") / _renewed("every 10", "steps_to_target"))


def losses_by_renewals() -> dict[str, float]:
    """Return the final losses with renewals alike at all stages, and most at the stages with the least delay."""
    return {"uniform": _renewed("every 10"), "reversed": _renewed("reversed")}


def loss_without_stash() -> float:
    """Return rotation's final loss without stashed weights over that with them."""
    losses = [study_cell("basis-rotation-fig11", "loss", method=name) for name in ("rotation, no stash", "rotation")]
    return float(losses[0] / losses[1])
