"""What orthogonalising costs, against the products that are done."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from syncline.costmodel import TensorShape
from syncline.costmodel.compute.update_work import NEWTON_SCHULZ_STEPS, orthogonal_work
from syncline.optim.matrices import Orthogonalised, newton_schulz
from syncline.optim.muon import SpectralBall


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (7, 3)])
def test_it_is_what_torch_counts(rows, columns):
    with FlopCounterMode(display=False) as counted:
        newton_schulz(torch.ones(rows, columns))
    work = orthogonal_work([TensorShape("w", (rows, columns), is_matrix=True)])
    assert work.flops(None) == counted.get_total_flops()


@pytest.mark.parametrize("scaling", [Orthogonalised, SpectralBall])
def test_both_methods_do_as_many_iterations(scaling):
    assert scaling().steps == NEWTON_SCHULZ_STEPS
