"""Parameter groups of torch optimizers whose parameters may follow two rules: one for matrices, one for all others.

A user's group with both kinds of parameters stays one group, because many of torch's schedulers take a list with one
value per group. The group has the hyperparameters of the rule for matrices; ``other`` has those of the other rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from syncline.errors import SpecError, error_text
from syncline.optim.base import UpdateRule

OTHER_OPTIONS, ORIGINAL_OPTIONS = "other", "given"
"""Keys of a group that two rules share: the hyperparameters of the rule for other parameters than matrices, and the
group's own hyperparameters when the group was added."""

UNUSED_TORCH_OPTIONS = ("momentum", "dampening", "nesterov", "amsgrad", "maximize")
"""Options of groups of torch's own optimizers, which the update rules of this package do not read."""


def checked_hyperparameters(rule: UpdateRule, group: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter group with the rule's defaults for the hyperparameters that it does not set.

    Raises:
        SpecError: the group has a wrong number of decay rates, or an option of torch's optimizers that no rule reads.
    """
    defaults = rule.hyperparameters()
    for name in UNUSED_TORCH_OPTIONS:
        if group.get(name) and name not in defaults:
            raise SpecError(name, group[name], "none in a group: decay rates are its betas, the rest is the rule's")
    if "betas" not in group:  # the defaults need no check, and may have any form
        return defaults | group
    betas, default_betas = group["betas"], defaults.get("betas", ())
    has_right_length = isinstance(betas, tuple | list) and len(betas) == len(default_betas)
    if has_right_length and all(isinstance(beta, float | int) and 0 <= beta < 1 for beta in betas):
        return defaults | group
    if not default_betas:
        raise SpecError("betas", betas, "none in a group of a rule without momentum")
    second = f", and beta2={defaults['beta2']} for the second moment" if "beta2" in defaults else ""
    rates = "one decay rate" if len(default_betas) == 1 else f"{len(default_betas)} decay rates"
    raise SpecError("betas", betas, f"{rates} in [0, 1), as betas={default_betas}{second}")


def join_groups(groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the parts of a user's parameter group, matrices and all other parameters, to one group again.

    The group has the options of the matrices, also under `ORIGINAL_OPTIONS`, and under `OTHER_OPTIONS` those of other
    parameters.
    """
    if len(groups) == 1:
        return groups[0]
    matrix_group, other_group = (dict(group) for group in groups)
    lists: dict[str, list[Any]] = {}
    for name in ("params", "param_names"):
        if name in matrix_group:
            lists[name] = [*matrix_group.pop(name), *other_group.pop(name)]
    return {**matrix_group, **lists, OTHER_OPTIONS: other_group, ORIGINAL_OPTIONS: matrix_group}


def hyperparameters_of_other_rule(group: dict[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of a group's parameters that are not matrices.

    Later changes of the group, by the user or a schedule, apply to them, too. Their learning rate changes in proportion
    to the group's, their first decay rate is the group's, and any other changed value is the same for both rules.
    """
    other_options, original_options = group[OTHER_OPTIONS], group[ORIGINAL_OPTIONS]
    changed_options = {}
    for name, original_value in original_options.items():
        if group[name] != original_value:
            changed_options[name] = group[name]
    original_lr, other_lr = original_options["lr"], other_options["lr"]
    if "lr" in changed_options and other_lr != original_lr:
        # There is no proportion to a learning rate of 0.
        changed_options["lr"] = other_lr * (group["lr"] / original_lr) if original_lr else other_lr
    new_betas = changed_options.pop("betas", None)
    if new_betas is not None and other_options.get("betas"):  # the other rule may have no momentum
        changed_options["betas"] = (new_betas[0], *other_options["betas"][1:])
    return {**group, **other_options, **changed_options}


def check_gradient(gradient: Tensor, param_index: int, names: Callable[[], list[str]]) -> None:
    """Raise a SpecError, which names the parameter, if its gradient is sparse or not real.

    Args:
        names: function that returns the names of all parameters; it is called only for the error.
    """
    if gradient.layout == torch.strided and gradient.is_floating_point():
        return
    field = f"gradient of {names()[param_index] or f'parameter {param_index}'}"
    if gradient.layout != torch.strided:
        raise SpecError(field, str(gradient.layout), "a dense one, as an embedding with sparse=False has")
    raise SpecError(field, str(gradient.dtype), "floating-point numbers")


def check_real(group: dict[str, Any], first_index: int) -> None:
    """Raise a SpecError if a parameter group has a complex parameter, because no rule supports it.

    Args:
        group: the parameter group, with its parameters as a list.
        first_index: index of the group's first parameter, for the error.
    """
    for i, p in enumerate(group["params"]):
        if isinstance(p, Tensor) and p.is_complex():
            name = group["param_names"][i] if "param_names" in group else first_index + i
            expected = "real numbers: train torch.view_as_real of it instead, which has its real and imaginary parts"
            raise SpecError(f"parameter {name}", str(p.dtype), expected)


def split_names(params: Any) -> dict[str, list]:
    """Return a group's parameters as ``params`` and, if they are pairs (name, parameter), the names as ``param_names``.

    Raises:
        SpecError: the group has neither parameters nor pairs of name and parameter.
    """
    items = as_list(params)
    if all(isinstance(item, Tensor) for item in items):
        return {"params": items}
    if not all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Tensor) for item in items):
        raise SpecError("params", params, EXPECTED_PARAMS)
    names, tensors = zip(*items, strict=True)
    return {"params": list(tensors), "param_names": list(names)}


EXPECTED_PARAMS = "parameters, or groups of them, as torch's optimizers take"


def as_list(params: Any) -> list[Any]:
    """Return parameters, or parameter groups, as a list.

    Raises:
        SpecError: the argument is empty or cannot be iterated, a group lacks ``params``, or only some are groups.
    """
    try:
        items = [params] if isinstance(params, Tensor) else list(params)
    except Exception as error:  # whatever a user's iterator raises
        raise SpecError("params", params, f"{EXPECTED_PARAMS} ({error_text(error)})") from None
    are_groups = [isinstance(item, dict) for item in items]
    has_groups_and_others = any(are_groups) and not all(are_groups)
    lacks_params = any("params" not in item for item in items if isinstance(item, dict))
    if not items or has_groups_and_others or lacks_params:
        raise SpecError("params", params, EXPECTED_PARAMS)
    return items


def iterate_params(
    groups: list[dict[str, Any]], rules: list[tuple[UpdateRule, bool]]
) -> Iterator[tuple[Any, UpdateRule, Any]]:
    """Yield (parameter, rule, hyperparameters) for each parameter of the groups, in order.

    Args:
        rules: for each parameter, its rule, and whether it is the rule of parameters that are not matrices.
    """
    param_index = 0
    for group in groups:
        other_group = hyperparameters_of_other_rule(group) if OTHER_OPTIONS in group else group
        for p in group["params"]:
            rule, is_other_rule = rules[param_index]
            yield p, rule, other_group if is_other_rule else group
            param_index += 1
