"""The learning rates of a training with late gradients."""

from __future__ import annotations

from typing import Any

from syncline.studies.staleness.spec import LateMethod, StalenessSpec


def late_schedule(spec: StalenessSpec, late: LateMethod, optimizer: Any) -> Any:
    """The learning rate over the steps, discounted by delay if that is the remedy."""
    from syncline.optim import discounted, wsd_factor

    warmup, cooldown = spec.schedule.warmup_steps, spec.schedule.cooldown_steps
    anneal = late.remedy.anneal_steps if late.remedy and late.remedy.kind == "discount" else 0
    delays = [group["delay"] for group in optimizer.param_groups]
    return discounted(optimizer, delays, anneal or 0, lambda t: wsd_factor(t, spec.steps, warmup, cooldown))
