"""Parameter groups: one of the user's is one of torch's, also where two rules share its parameters.

A group that holds matrices and others has the knobs of the rule for matrices, as schedulers and users see and set
them, and under ``other`` those of the other rule. Lists with a value per group, as many of torch's schedulers take, so
stay as long as the list of groups that a user gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from syncline.errors import SpecError, error_text
from syncline.optim.base import UpdateRule

OTHER, GIVEN = "other", "given"
"""Of a shared group: the other rule's knobs, and the group's own as they were when it was added."""

TORCHS_KNOBS = ("momentum", "dampening", "nesterov", "amsgrad", "maximize")
"""What torch's optimizers read from a group and no rule here does."""


def checked_knobs(rule: UpdateRule, knobs: dict[str, Any]) -> dict[str, Any]:
    """Return a group's knobs: the rule's, where it gives no others.

    Raises:
        SpecError: the group has rates of momenta, or options of torch's optimizers, that would be misread.
    """
    defaults = rule.hyperparameters()
    for name in TORCHS_KNOBS:
        if knobs.get(name) and name not in defaults:
            raise SpecError(name, knobs[name], "none in a group: decay rates are its betas, the rest is the rule's")
    expected = defaults.get("betas", ())
    if "betas" in knobs and not _are_rates(knobs["betas"], len(expected)):
        raise SpecError("betas", knobs["betas"], _rates_expected(expected, defaults))
    return defaults | knobs


def _are_rates(betas: Any, count: int) -> bool:
    is_row = isinstance(betas, tuple | list) and len(betas) == count
    return is_row and all(isinstance(beta, float | int) and 0 <= beta < 1 for beta in betas)


def _rates_expected(betas: tuple[float, ...], knobs: dict[str, Any]) -> str:
    if not betas:
        return "none in a group of a rule without momentum"
    second = f", and beta2={knobs['beta2']} for the second moment" if "beta2" in knobs else ""
    rates = "one decay rate" if len(betas) == 1 else f"{len(betas)} decay rates"
    return f"{rates} in [0, 1), as betas={betas}{second}"


def joined_groups(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one group of what a rule's parts are, of which the first two differ in rule and knobs."""
    if len(groups) == 1:
        return groups[0]
    matrix_group, other = groups
    rows = ("params", "param_names")
    lists = {name: [*matrix_group[name], *other[name]] for name in rows if name in matrix_group}
    knobs, others = ({k: v for k, v in group.items() if k not in rows} for group in groups)
    return {**knobs, **lists, OTHER: others, GIVEN: knobs}


def of_other_rules(group: dict[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a shared group's parameters that follow the other rule, with all later changes.

    A learning rate keeps its proportion to the group's; of the decay rates the first follows, the others stay; every
    other knob of the group that was set anew holds for both.
    """
    other, original = group[OTHER], group[GIVEN]
    moved = {name: group[name] for name, before in original.items() if group[name] != before}
    if "lr" in moved and other["lr"] != original["lr"]:
        moved["lr"] = other["lr"] * (group["lr"] / original["lr"]) if original["lr"] else other["lr"]
    if "betas" in moved:
        first = {"betas": (group["betas"][0], *other["betas"][1:])} if other.get("betas") else {}
        moved = {name: value for name, value in moved.items() if name != "betas"} | first
    return {**group, **other, **moved}


def check_gradient(gradient: Tensor, number: int, names: Callable[[], list[str]]) -> None:
    """Refuse a gradient that is sparse or not of real numbers: what is exchanged is dense, or a method's compression.

    Raises:
        SpecError: a gradient is sparse or not real; the error names its parameter.
    """
    if gradient.layout == torch.strided and gradient.is_floating_point():
        return
    field = f"gradient of {names()[number] or f'parameter {number}'}"
    if gradient.layout != torch.strided:
        raise SpecError(field, str(gradient.layout), "a dense one, as of an embedding with sparse=False")
    raise SpecError(field, str(gradient.dtype), "floating-point numbers")


def check_real(group: dict[str, Any], first: int) -> None:
    """Refuse a group with a complex parameter: no method here takes the modulus where it squares.

    Args:
        group: the parameter group, with its parameters as a list.
        first: the number of its first parameter.

    Raises:
        SpecError: a parameter is complex; the error names it.
    """
    for i, p in enumerate(group["params"]):
        if isinstance(p, Tensor) and p.is_complex():
            name = group["param_names"][i] if "param_names" in group else first + i
            expected = "real numbers: train torch.view_as_real of it instead, which has its real and imaginary parts"
            raise SpecError(f"parameter {name}", str(p.dtype), expected)


def unzipped(params: Any) -> dict[str, list]:
    """Return a group's parameters, and their names where it has torch's (name, parameter) pairs.

    Raises:
        SpecError: the group has neither parameters nor pairs of name and parameter.
    """
    items = as_list(params)
    if all(isinstance(item, Tensor) for item in items):
        return {"params": items}
    if not all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Tensor) for item in items):
        raise SpecError("params", params, PARAMETERS)
    names, tensors = zip(*items, strict=True)
    return {"params": list(tensors), "param_names": list(names)}


PARAMETERS = "parameters, or groups of them, as torch's optimizers take"


def as_list(params: Any) -> list[Any]:
    """Return parameters, or groups of them, as a list.

    Raises:
        SpecError: the argument has no parameters, or mixes groups with other values.
    """
    try:
        items = [params] if isinstance(params, Tensor) else list(params)
    except Exception as error:  # whatever a user's iterator raises
        raise SpecError("params", params, f"{PARAMETERS} ({error_text(error)})") from None
    groups = [isinstance(item, dict) for item in items]
    if not items or any(groups) != all(groups) or any("params" not in item for item in items if isinstance(item, dict)):
        raise SpecError("params", params, PARAMETERS)
    return items


def rules_by_number(
    groups: list[dict[str, Any]], rules: list[tuple[UpdateRule, bool]]
) -> Iterator[tuple[Any, UpdateRule, Any]]:
    """Return every parameter with its rule and the knobs that it reads, by number.

    Args:
        groups: parameter groups of torch.
        rules: for each parameter by number, its rule, and whether this is the second rule of a shared group.
    """
    numbered = iter(rules)
    for group in groups:
        others = of_other_rules(group) if OTHER in group else group
        for p in group["params"]:
            rule, is_other = next(numbered)
            yield p, rule, others if is_other else group
