from __future__ import annotations

import math

import torch

from syncline.problems.base import Rows
from syncline.problems.random_draws import BLOCK_NUMBERS, StepStream, gaussian, integers

ROWS = Rows(seeds=(0, 1), workers=(0, 2), world_size=4)


def test_shape_and_dtype():
    stream = StepStream(ROWS, "noise", (3,), gaussian(1.0), dtype=torch.float32)
    assert stream[0].shape == (4, 3)
    assert stream[0].dtype == torch.float32


def test_gaussian_noise_has_its_moments_and_no_correlation_between_rows():
    stream = StepStream(ROWS, "noise", (5,), gaussian(0.3), dtype=torch.float64)
    draws = torch.stack([stream[step] for step in range(4000)])  # (steps, R, 5)
    by_row = draws.transpose(0, 1).flatten(1)
    standard_error = 0.3 / math.sqrt(by_row.shape[1])
    assert by_row.mean(1).abs().max() < 4.5 * standard_error
    assert (by_row.std(1) - 0.3).abs().max() < 4.5 * standard_error / math.sqrt(2)
    assert (by_row.corrcoef() - torch.eye(4)).abs().max() < 4.5 / math.sqrt(by_row.shape[1])


def test_steps_are_not_repeated_across_blocks():
    stream = StepStream(ROWS, "noise", (2,), gaussian(1.0), dtype=torch.float64)
    draws = torch.stack([stream[step] for step in range(600)]).flatten()
    assert len(draws.unique()) == len(draws)


def test_streams_of_different_names_differ():
    one, other = (StepStream(ROWS, name, (2,), gaussian(1.0), dtype=torch.float64) for name in ("a", "b"))
    assert not torch.equal(one[0], other[0])


def test_integers_are_uniform():
    stream = StepStream(ROWS, "batches", (8,), integers(5), dtype=torch.int64)
    counts = torch.stack([stream[step] for step in range(1000)]).flatten().bincount(minlength=5)
    expected = counts.sum() / 5
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert len(counts) == 5
    assert chi_squared < 23.5  # the 0.9999 quantile with 4 degrees of freedom


def test_a_wide_draw_is_made_step_by_step():
    rows = Rows(seeds=(0,), workers=(0,), world_size=2)
    stream = StepStream(rows, "noise", (BLOCK_NUMBERS,), gaussian(1.0), dtype=torch.float32)
    assert stream[1].shape == (1, BLOCK_NUMBERS)
    assert not torch.equal(stream[0], stream[1])
