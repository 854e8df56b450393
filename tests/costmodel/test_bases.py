"""What projections rest on: every network and machine has a basis that somebody measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.costmodel import HARDWARE, NETWORKS, GlooCosts, Link, bases
from syncline.costmodel.bases import communication_uncertainty, computing_uncertainty
from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.costmodel.numerics.uncertainty import uncertainties

LINE = Link(1e-3, 1.25e8, "mine")


@pytest.mark.parametrize(
    ("network", "algorithm", "basis"),
    [
        (NETWORKS["10gbe"].network, None, bases.DATA_SHEET_LINKS),
        (NETWORKS["dgx-h100"].network, "auto", bases.nccl_nvlink_basis(1e9)),
        (NETWORKS["dgx-h100"].network, "ring", bases.DATA_SHEET_LINKS),
        (LINE, "ring", bases.SET_LINKS),
        (LINE, "gloo", bases.GLOO_FORMS),
        (replace(LINE, gloo=GlooCosts(message_s=1e-4)), None, bases.GLOO_MEASURED),
        (replace(LINE, gloo=GlooCosts()), None, bases.GLOO_FORMS),
        (replace(LINE, nccl=NcclCosts()), None, bases.NCCL_PIECES),
        (replace(LINE, nccl=NcclCosts()), "ring", bases.SET_LINKS),
        (replace(LINE, gloo=GlooCosts()), "ring", bases.SET_LINKS),
        (LINE, "gloo-tree", bases.GLOO_FORMS),
        (LINE, "nccl-chain", bases.NCCL_PIECES),
        (LINE, "nccl", bases.SET_LINKS),
    ],
)
def test_networks(network, algorithm, basis) -> None:  # type: ignore[no-untyped-def]
    assert communication_uncertainty(network, algorithm) is uncertainties()[basis]


def test_machines() -> None:
    a100 = HARDWARE["a100"]
    assert computing_uncertainty(a100, 4096) is uncertainties()[bases.LARGE_PRESETS]
    assert computing_uncertainty(a100, 768) is computing_uncertainty(a100, None) is uncertainties()[bases.SMALL_PRESETS]
    assert computing_uncertainty(a100, 4096, mfu=0.3) is uncertainties()[bases.MEASURED_STEPS]
    assert computing_uncertainty(replace(a100, mfu=0.3), 4096) is computing_uncertainty(replace(a100, name="mine"), 64)
    assert computing_uncertainty(None, 4096).half_width == 0


def test_what_is_known_better_is_told_more_narrowly() -> None:
    widths = [uncertainties()[name].half_width for name in (
        bases.GLOO_MEASURED, bases.MEASURED_STEPS, bases.SET_LINKS, bases.DATA_SHEET_LINKS, bases.LARGE_PRESETS,
        bases.SMALL_PRESETS,
    )]  # fmt: skip
    assert widths == sorted(widths)
