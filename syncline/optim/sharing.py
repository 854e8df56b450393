"""One copy of parameters and states for all workers, as long as all of them do the same; see `syncline.comm.copies`.

Where gradients are exchanged in every step, workers that begin alike stay alike. Their parameters are one copy then,
and so are the states of the rule, which sees one gradient for all; both move once. What a reducer keeps of each worker,
such as an error, has rows of its own, and so has everything once something differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from syncline.comm import as_one_copy, as_own_copies, for_rows, is_one_copy, the_copy
from syncline.optim.base import Row, UpdateRule


class Shared:
    """Rows that share one copy of each tensor that is equal on all workers, as a method's rules see them.

    Attributes:
        kept: names of the states that a rule keeps per parameter, by number of the parameter.
    """

    def __init__(self) -> None:
        self.kept: dict[int, tuple[str, ...]] = {}
        self._views: dict[int, _Views] = {}

    def join(self, number: int, p: Tensor, state: dict[str, Tensor], rule: UpdateRule) -> None:
        """Store a parameter and the states that its rule keeps as one copy where they are equal."""
        p.data = as_one_copy(p.data)
        if state and number not in self.kept:
            self.kept[number] = tuple(rule.init(torch.empty_like(p[:1], device="meta"), number))
        for name in self.kept.get(number, ()):
            if name in state:
                state[name] = as_one_copy(state[name])

    def seen(self, row: Row) -> Row:
        """Return the row for its rule: ``(1, *s)`` if it is one copy for all workers, else a row per worker."""
        if row.g.size(0) == 1:
            return row
        views = self._views.get(row.number)
        if is_one_copy(row.g) and (views is None or not views.are_of(row)):
            views = self._views[row.number] = _Views(row, self.kept.get(row.number, ()))
        if is_one_copy(row.g) and views is not None and views.alike:
            return row._replace(x=views.x, g=the_copy(row.g), state=views.state.copy())
        for name in self.kept.get(row.number, ()):
            row.state[name] = as_own_copies(row.state[name])
        return row


class _Views:
    """The copies that a row's parameter and states show, as long as they are these tensors; looked up once."""

    def __init__(self, row: Row, names: Iterable[str]) -> None:
        self._kept = {name: row.state[name] for name in names if name in row.state}
        self._where, self._is_one = row.x.data_ptr(), is_one_copy(row.x)
        self.alike = self._is_one and all(map(is_one_copy, self._kept.values()))
        self.x = the_copy(row.x)
        self.state = {name: the_copy(value) for name, value in self._kept.items()}

    def are_of(self, row: Row) -> bool:
        """Return whether the row still has the tensors of these views."""
        if row.x.data_ptr() != self._where or is_one_copy(row.x) != self._is_one:
            return False
        return all(row.state.get(name) is value for name, value in self._kept.items())


def store_states(row: Row, seen: Row) -> None:
    """Store in ``row``, for all workers, the states that a rule replaced in ``seen``."""
    for name, value in seen.state.items():
        if name not in row.state or value.data_ptr() != row.state[name].data_ptr():
            row.state[name] = for_rows(value, row.x.size(0))


def with_equal(rows: Sequence[Row], knobs: Sequence[str]) -> list[list[int]]:
    """Return the indices of the rows whose groups have equal values of these knobs, in order."""
    groups: list[tuple[list[Any], list[int]]] = []
    for place, row in enumerate(rows):
        values = [row.group[name] for name in knobs]
        places = next((places for others, places in groups if others == values), None)
        if places is None:
            groups.append((values, places := []))
        places.append(place)
    return [places for _, places in groups]


def move(rows: Sequence[Row], directions: Sequence[Tensor | None]) -> None:
    """Move all parameters with one learning rate, ``x <- (1 - lr weight_decay) x - lr d``; shared copies move once."""
    moving = [(row, d) for row, d in zip(rows, directions, strict=True) if d is not None]
    for places in with_equal([row for row, _ in moving], ("lr", "weight_decay")):
        some = [_to_move(*moving[place]) for place in places]
        group = moving[places[0]][0].group
        decay([x for x, _ in some], group)
        torch._foreach_add_([x for x, _ in some], [d for _, d in some], alpha=-group["lr"])


def decay(xs: list[Tensor], group: Mapping[str, Any]) -> None:
    """Apply decoupled weight decay: ``x <- (1 - lr weight_decay) x``."""
    if group["weight_decay"]:
        torch._foreach_mul_(xs, 1 - group["lr"] * group["weight_decay"])


def _to_move(row: Row, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tensor to move and its direction: the one copy, or separate rows where directions differ."""
    x = row.x
    if x.size(0) > 1 and x.stride(0) == 0:
        if is_one_copy(d):
            return the_copy(x), the_copy(d)
        x.data = as_own_copies(x.data)
    return x, d
