from __future__ import annotations

import pytest
import torch
from beartype import beartype
from jaxtyping import Shaped, TypeCheckError
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from tests import annotations

Rows = Shaped[Tensor, "R n"]
PerRow = Shaped[Tensor, " R"]


class Sums:
    """Of rows; it returns as many as it was told, right or wrong."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    @annotations.checked(typechecker=beartype)
    def of(self, x: Rows, y: Rows) -> PerRow:
        return torch.zeros(self.rows)


def test_calls_like_one_that_was_right_are_right_and_all_others_are_checked():
    right, wrong, x = Sums(2), Sums(3), torch.zeros(2, 5)
    for _ in range(2):
        right.of(x, y=x)
        for args in ((x, x[:1]), (x, x.numpy()), (x[0], x[0]), (torch.zeros(3, 5), torch.zeros(3, 5))):
            with pytest.raises(TypeCheckError):
                right.of(*args)
        with pytest.raises(TypeCheckError):
            wrong.of(x, y=x)


def test_the_rooms_are_checked():
    comm = SimulatedCommunicator(2)
    comm.all_reduce(torch.zeros(2, 3))
    with pytest.raises(TypeCheckError):
        comm.all_reduce([0.0, 0.0])
