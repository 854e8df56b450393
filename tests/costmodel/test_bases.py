"""The measurements that bound each projection, and what is outside of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.costmodel import HARDWARE, NETWORKS, GlooCosts, Link, bases
from syncline.costmodel.bases import communication_uncertainty, computing_uncertainty
from syncline.costmodel.network.software_costs import NcclCosts
from syncline.costmodel.numerics.uncertainty import Scope, Uncertainty, uncertainties

LINE = Link(1e-3, 1.25e8, "mine")
CALIBRATED = Uncertainty(0.97, 1.04, 24, "calibrated", 0, Scope(workers=(2, 4), nbytes=(4, 2**24)))
ANY = bases.any_library_basis(None)


@pytest.mark.parametrize(
    ("network", "algorithm", "basis"),
    [
        (NETWORKS["10gbe"].network, None, ANY),
        (NETWORKS["dgx-h100"].network, "auto", bases.nccl_nvlink_basis(1e9)),
        (NETWORKS["dgx-h100"].network, "ring", ANY),
        (LINE, "ring", ANY),
        (LINE, "gloo", bases.GLOO_LINKS),
        (replace(LINE, gloo=GlooCosts(message_s=1e-4)), None, bases.GLOO_LINKS),
        (replace(LINE, gloo=GlooCosts()), None, bases.GLOO_LINKS),
        (replace(LINE, nccl=NcclCosts()), None, bases.NCCL_LINKS),
        (replace(LINE, nccl=NcclCosts()), "ring", ANY),
        (LINE, "gloo-tree", bases.GLOO_LINKS),
        (LINE, "nccl-chain", bases.NCCL_LINKS),
        (LINE, "nccl", ANY),
        (NETWORKS["p3.2xlarge"].network, None, "nccl, all links"),
        (NETWORKS["p3.2xlarge-gloo"].network, None, "gloo, all links"),
        (NETWORKS["p3.2xlarge"].network, "ring", ANY),
    ],
)
def test_networks(network, algorithm, basis) -> None:  # type: ignore[no-untyped-def]
    assert communication_uncertainty(network, algorithm).basis == basis


def test_a_described_link_has_the_bounds_of_the_preset_with_its_numbers() -> None:
    """No name makes a link measured: the bounds are the same, and both say that nobody measured them."""
    preset = NETWORKS["10gbe"].network
    described = [replace(preset, name="mine"), replace(preset, latency_s=1e-3)]
    for network in (preset, *described):
        bounds = communication_uncertainty(network, "ring")
        assert (bounds.low, bounds.high) == (uncertainties()[ANY].low, uncertainties()[ANY].high)
    assert "is from data sheets" in communication_uncertainty(preset, "ring").reasons[0]
    assert all("is described" in communication_uncertainty(link, "ring").reasons[0] for link in described)


def test_a_described_machine_has_the_bounds_of_the_preset_with_its_numbers() -> None:
    b200, a100 = HARDWARE["b200"], HARDWARE["a100"]
    described = computing_uncertainty(replace(b200, name="mine"), 4096)
    preset = computing_uncertainty(b200, 4096)
    assert (described.low, described.high, described.basis) == (preset.low, preset.high, bases.WIDE_MODELS)
    assert described.reasons == ("hardware 'mine' is described, not measured",) and not preset.reasons
    assert computing_uncertainty(replace(a100, mfu=0.3), 4096).reasons
    assert "hardware 'v100' was not measured" in computing_uncertainty(HARDWARE["v100"], 4096).reasons[0]


def test_software_without_costs_is_not_measured() -> None:
    for costs in (GlooCosts(), GlooCosts(message_s=1e-4)):
        assert communication_uncertainty(replace(LINE, gloo=costs), None).reasons


def test_machines() -> None:
    a100 = HARDWARE["a100"]
    assert computing_uncertainty(a100, 4096) is uncertainties()[bases.WIDE_MODELS]
    assert computing_uncertainty(a100, 768) is uncertainties()[bases.NARROW_MODELS]
    assert computing_uncertainty(a100, None).basis == bases.NARROW_MODELS
    assert computing_uncertainty(a100, 4096, mfu=0.3).basis == bases.WIDE_MODELS + bases.SET_UTILISATION
    assert computing_uncertainty(None, 4096).half_width == 0


def test_size_and_scale_beyond_what_was_measured() -> None:
    a100 = HARDWARE["a100"]
    assert computing_uncertainty(a100, 2**15).reasons == ("a width of 32,768 where 2,048 to 25,600 were measured",)
    assert not computing_uncertainty(a100, 4096, workers=1024).reasons
    assert "16,384 workers where" in computing_uncertainty(a100, 4096, workers=16_384).reasons[0]
    node = NETWORKS["dgx-h100"].network
    assert not communication_uncertainty(node, "auto", 64, 2**30).reasons
    assert "4,096 workers" in communication_uncertainty(node, "auto", 4096, 2**30).reasons[0]
    assert "1,024 bytes where" in communication_uncertainty(node, "auto", 8, 2**10).reasons[0]


def test_a_calibration_bounds_what_it_measured_and_no_more() -> None:
    line = replace(LINE, bounds=CALIBRATED)
    assert communication_uncertainty(line, "gloo", 4, 2**20) is communication_uncertainty(line, None) is CALIBRATED
    beyond = communication_uncertainty(line, "gloo", 64)
    assert beyond.basis == bases.GLOO_LINKS and beyond.reasons == ("64 workers where 2 to 4 were measured",)
    machine = replace(HARDWARE["a100"], name="mine", bounds=replace(CALIBRATED, scope=Scope(width=(96, 96))))
    assert computing_uncertainty(machine, 96) is computing_uncertainty(machine, None) is machine.bounds
    assert computing_uncertainty(machine, 4096).basis == bases.WIDE_MODELS


def test_a_changed_link_is_not_the_one_that_was_calibrated() -> None:
    line = replace(LINE, bounds=CALIBRATED)
    assert line.with_numbers({"latency_s": 1.0}).bounds is None
    assert line.with_numbers({"latency_s": 1e-3}, same_links=True).bounds is CALIBRATED


def test_what_is_known_better_has_narrower_bounds() -> None:
    names = (
        bases.TIMED_STEPS, bases.WIDE_MODELS + bases.SET_UTILISATION, bases.WIDE_MODELS, bases.NARROW_MODELS
    )  # fmt: skip
    widths = [uncertainties()[name].half_width for name in names]
    assert widths == sorted(widths)
    widths = [uncertainties()[name].half_width for name in (*bases.FITTED_PRESETS.values(), bases.GLOO_LINKS, ANY)]
    assert widths[2:] == sorted(widths)[2:]
