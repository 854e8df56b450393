"""One copy of parameters and states for all workers, as long as all of them do the same; see `syncline.comm.copies`.

Where gradients, or directions, are exchanged in every step, workers that begin alike stay alike. Their parameters are
one copy then, which moves once. So are the states of a rule that sees one gradient for all; where every worker has a
gradient of its own, as before a vote on directions, states have rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from syncline.comm import as_own_copies, for_rows, is_one_copy, the_copy
from syncline.optim.base import Row


def in_common(row: Row, names: Iterable[str]) -> Row:
    """The row as its rule shall see it: ``(1, *s)`` where it is one copy for all workers, else with rows of its own.

    Args:
        row: ``(R, *s)``.
        names: of the states that the rule keeps.
    """
    if len(row.g) == 1:
        return row
    kept = {name: row.state[name] for name in names if name in row.state}
    if is_one_copy(row.g) and is_one_copy(row.x) and all(map(is_one_copy, kept.values())):
        state = {name: the_copy(value) for name, value in kept.items()}
        return row._replace(x=the_copy(row.x), g=the_copy(row.g), state=state)
    row.state.update({name: as_own_copies(value) for name, value in kept.items()})
    return row


def take_back(row: Row, seen: Row) -> None:
    """What a rule has put into the states of what it saw in the place of what was there, for all workers."""
    for name, value in seen.state.items():
        if name not in row.state or value.data_ptr() != row.state[name].data_ptr():
            row.state[name] = for_rows(value, len(row.x))


def move(rows: Sequence[Row], directions: Sequence[Tensor | None]) -> None:
    """``x <- (1 - lr weight_decay) x - lr d``, all parameters of a group at once; what is one copy moves once."""
    groups: dict[int, tuple[dict[str, Any], list[Tensor], list[Tensor]]] = {}
    for row, d in zip(rows, directions, strict=True):
        if d is None:
            continue
        x = row.x
        if len(x) > 1 and is_one_copy(x):
            if is_one_copy(d):
                x, d = the_copy(x), the_copy(d)
            else:
                x.data = as_own_copies(x.data)
        _, xs, ds = groups.setdefault(id(row.group), (row.group, [], []))
        xs.append(x)
        ds.append(d)
    for group, xs, ds in groups.values():
        lr, weight_decay = group["lr"], group["weight_decay"]
        if weight_decay:
            torch._foreach_mul_(xs, 1 - lr * weight_decay)
        torch._foreach_add_(xs, ds, alpha=-lr)
