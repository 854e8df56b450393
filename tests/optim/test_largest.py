"""A bound lets through what is looked for, and the choice is that of ``topk``."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.acceleration import Kernels
from syncline.optim import largest
from syncline.optim.largest import largest_indices
from syncline.problems.random_draws import torch_generator


@pytest.fixture(autouse=True, scope="module")
def _compiled_loops() -> Iterator[None]:
    """The compiled loop searches small vectors, too."""
    with patch.object(largest, "KERNELS", Kernels("syncline.optim.compiled", break_even_units=0)):
        yield


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    n=st.integers(1, 5000),
    share=st.sampled_from([0.001, 0.008, 0.05, 0.5, 1.0]),
    lead=st.sampled_from([(1,), (3,), (2, 3)]),
)
def test_they_are_those_of_topk(seed: int, n: int, share: float, lead: tuple[int, ...]) -> None:
    """Of a permutation, in which no two entries are equally large."""
    k = max(1, int(share * n))
    rows = [torch.randperm(n, generator=torch_generator(seed, row)) for row in range(torch.Size(lead).numel())]
    x = (torch.stack(rows).view(*lead, n) - n / 2 + 0.25).float()
    expected = x.abs().topk(k, dim=-1).indices.sort(-1).values
    assert torch.equal(largest_indices(x, k), expected)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1024, 5000), k=st.integers(1, 60), kinds=st.integers(1, 400))
def test_of_equal_entries_it_takes_those_of_topk(seed: int, n: int, k: int, kinds: int) -> None:
    x = torch.randint(-kinds, kinds + 1, (3, n), generator=torch_generator(seed, "equal")).float()
    expected = x.abs().topk(k, dim=-1, sorted=False).indices.sort(-1).values
    assert torch.equal(largest_indices(x, k), expected)


@pytest.mark.parametrize("value", [0.0, 1.0, -2.0])
def test_equal_entries_are_taken_once(value: float) -> None:
    found = largest_indices(torch.full((2, 4099), value), 33)
    assert bool((found.diff(dim=-1) > 0).all()) and int(found.max()) < 4099


def test_what_is_not_a_number_is_larger_than_all() -> None:
    x = torch.arange(4099.0).repeat(3, 1)
    x[0, 7], x[1, 4098] = torch.nan, torch.nan
    assert largest_indices(x, 2).tolist() == [[7, 4098], [4097, 4098], [4097, 4098]]
    assert largest_indices(x, 4).tolist() == [[7, 4096, 4097, 4098], [4095, 4096, 4097, 4098], [4095, 4096, 4097, 4098]]


def test_rows_of_zeros_do_not_slow_or_spoil_others() -> None:
    x = torch.zeros(4, 5000)
    x[1] = torch.randperm(5000, generator=torch_generator(0, "row")) + 1.0
    x[3, 17] = -1.0
    expected = x.abs().topk(20, dim=-1, sorted=False).indices.sort(-1).values
    assert torch.equal(largest_indices(x, 20), expected) and 17 in largest_indices(x, 20)[3]
