"""Rotation's memory table, its work, and how stages share out renewals."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import Hardware, TensorShape
from syncline.costmodel.compute.update_work import (
    UpdateWork,
    fp32_product,
    qr,
    rotated_sides,
    rotation_elements,
    rotation_work,
    stage_renewal_intervals,
)
from syncline.errors import SpecError
from syncline.methods import method_of

MACHINE = Hardware("test", 1e9, 0.5, "fp32", "here")

TABLE = {
    ("2nd", "bilateral"): ("0.25", "1.66"),
    ("2nd", "unilateral"): ("0.13", "0.13"),
    ("1st", "bilateral"): ("0.13", "0.83"),
    ("1st", "unilateral"): ("0.06", "0.06"),
}
"""Basis Rotation, Table 1: an attention and an MLP matrix of Llama-3-8B, fp32, in what it calls GB and is GiB."""


@pytest.mark.parametrize(("source", "geometry"), TABLE)
def test_memory_table_of_the_paper(source: str, geometry: str) -> None:
    """All 8 cells, halves rounded up."""
    for columns, cell in zip((4096, 14336), TABLE[source, geometry], strict=True):
        gib = Fraction(4 * rotation_elements(4096, columns, source, geometry), 2**30)
        assert f"{math.floor(gib * 100 + Fraction(1, 2)) / 100:.2f}" == cell


def test_the_smallest_rotation_of_an_mlp_matrix_is_an_eighth_of_adams_states() -> None:
    """The paper prints 7.5%."""
    n = 1024
    assert Fraction(rotation_elements(4 * n, n, "1st", "unilateral"), 2 * 4 * n * n) == Fraction(1, 8)


def test_work_of_a_small_matrix_by_hand() -> None:
    """2 x 3, bilateral: a product with U has 2 * 2 * 3 * 2 = 24 FLOPs, one with V 36; cubes are 8 and 27."""

    def flops(work: UpdateWork) -> tuple[float, ...]:
        """Return the FLOPs of a step, and of the products and decompositions of a renewal."""
        products, all_four = (work.flops(1, rate) - work.flops(None) for rate in (math.inf, 1))
        return work.flops(None), products, all_four - products

    assert flops(rotation_work(2, 3, "2nd", "bilateral")) == pytest.approx((4 * (24 + 36), 4 * (8 + 27), 8 / 3 * 35))
    assert flops(rotation_work(2, 3, "1st", "unilateral")) == pytest.approx((3 * 24, 24 + 4 * 8, 8 / 3 * 8))
    exact = rotation_work(2, 3, "gradient", "unilateral", estimate="exact", momentum="rotated")
    assert flops(exact) == pytest.approx((2 * 24, 24 + 2 * 24 + 2 * 8, 9 * 8))


def test_seconds_share_out_renewals() -> None:
    """A step of 1 s; a renewal of 2 s, and of 2 s more if decompositions were as fast as products."""
    decomposition = qr(3 / 8 * 1e3, 1e3)
    work = UpdateWork((fp32_product(500, 500, 1e3),), (fp32_product(1e3, 500, 1e3), decomposition._replace(kernels=1)))
    assert work.seconds(MACHINE, None) == 1.0
    assert work.flops(10, 0.5) / 5e8 == pytest.approx(1 + (2 + 4 * decomposition.flops / 1e9) / 10)
    assert (work + work).seconds(MACHINE, 7) == pytest.approx(2 * work.seconds(MACHINE, 7))
    with pytest.raises(SpecError, match="decomposition_rate: got 0; expected a number above 0"):
        work.flops(10, 0)


def test_a_methods_added_seconds() -> None:
    model = [TensorShape("0.up", (64, 32), is_matrix=True), TensorShape("head", (32, 256))]
    of_matrix = rotation_work(64, 32, "2nd", "bilateral")

    def seconds(delay: int = 0, stages: int = 1, **fields: object) -> float:
        method = method_of({"kind": "basis-rotation", "lr": 0.1, "frequency": 10, **fields})
        return method.added_update_s(model, MACHINE, delay, stages)

    assert seconds() == of_matrix.seconds(MACHINE, 10)
    assert seconds(frequency=None) == of_matrix.seconds(MACHINE, None)
    assert seconds(layers=["*.down"]) == 0.0
    by_delay = {3: 5, 2: 6, 1: 20, 0: None}
    for delay, frequency in by_delay.items():
        assert seconds(delay, 4) == seconds()
        assert seconds(delay, 4, allocation="stage-aware") == of_matrix.seconds(MACHINE, frequency)
        assert seconds(delay, 4, allocation="reversed") == of_matrix.seconds(MACHINE, by_delay[3 - delay])


def test_what_else_multiplies_matrices() -> None:
    """By hand, of one matrix 64 by 32 and of a head that no rule takes as one."""
    model = [TensorShape("0.up", (64, 32), is_matrix=True), TensorShape("head", (32, 256))]
    speed = MACHINE.peak_flops * MACHINE.mfu
    iterations = 5 * (4 * 32 * 32 * 64 + 2 * 32**3)
    qr = 8 / 3 / 0.25  # FLOPs per m r^2, at a quarter of a product's speed
    dion = 4 * 2 * 64 * 32 * 8 + qr * 64 * 8 * 8
    transforms = 3 * 2 * 64 * 32 * (64 + 32)  # of a block of DeMo, along both sides; the head has four blocks
    demo = (1 + 4) * transforms
    of_matrix, of_head = (3 * 2 * m * n * 2 + qr * m * 2 * 2 for m, n in ((64, 32), (32, 256)))
    flops = {
        "ddp-adam": 0.0, "local-adam": 0.0, "mt-dao": 0.0, "demo": demo, "lion-cub": 0.0, "top-k": 0.0,
        "ddp-muon": iterations, "ddp-scion": iterations, "demo-muon": iterations + demo,
        "dion": dion, "dion-compressed": dion, "dion-scheduled": dion, "curvadion": dion,
        "powersgd": of_matrix + of_head,
    }  # fmt: skip
    for name, told in flops.items():
        assert method_of(name).added_update_s(model, MACHINE) == pytest.approx(told / speed), name
    muon = {"rule": "muon", "lr": 0.1, "other_lr": 0.1, "period": 8}
    for kind in ("local", "diloco", "streaming-diloco"):
        assert method_of({"kind": kind} | muon).added_update_s(model, MACHINE) == pytest.approx(iterations / speed)
    held = method_of({"kind": "dion", "lr": 0.1, "period": 8, "local_step": "hold"})
    assert held.added_update_s(model, MACHINE) == pytest.approx(dion / 8 / speed)


# Stage-aware frequencies


def test_frequencies_of_eight_stages() -> None:
    delays = range(7, -1, -1)
    assert stage_renewal_intervals(delays, 10) == [5, 5, 6, 8, 13, 20, 40, None]
    assert stage_renewal_intervals(delays, 10, reversed_order=True) == [None, 40, 20, 13, 8, 6, 5, 5]


@given(st.integers(1, 64), st.integers(2, 10**6))
def test_renewals_together_are_those_of_the_base(half: int, base: int) -> None:
    """Exactly where nothing is rounded, as with a base that every weight divides; rounding down can only add some."""
    stages = 2 * half
    divisible = base * math.lcm(*range(1, stages + 1))
    assert sum(Fraction(divisible, f) for f in stage_renewal_intervals(range(stages), divisible) if f) == stages
    rounded = stage_renewal_intervals(range(stages), base)
    assert sum(Fraction(1, f) for f in rounded if f) * base >= stages
    assert all(f is None or f >= 1 for f in rounded)


@given(st.integers(2, 40), st.integers(1, 1000))
def test_later_stages_renew_at_least_as_often(stages: int, base: int) -> None:
    by_delay = [math.inf if f is None else f for f in stage_renewal_intervals(range(stages), base)]
    assert by_delay == sorted(by_delay, reverse=True)
    assert stage_renewal_intervals(range(stages), base, reversed_order=True) == stage_renewal_intervals(
        range(stages - 1, -1, -1), base
    )


def test_the_rule_as_printed_divides_by_zero() -> None:
    """With ``mid`` in place of ``mid + 1``, at 8 stages: nothing left of 1 - n / mid at a delay of 1, less at 0."""
    mid = 8 // 2 - 1
    shares = [1 - Fraction(mid - tau if tau > mid else mid + 1 - tau, mid) for tau in range(8)]
    assert shares[1] == 0 and shares[0] < 0 and min(shares[2:]) > 0


def test_where_there_is_nothing_to_share_out() -> None:
    assert stage_renewal_intervals([0], 10) == [10]
    assert stage_renewal_intervals([3, 3, 3], 10) == [10, 10, 10]
    assert stage_renewal_intervals([1, 0], 10) == [5, None]


def test_misuse_is_one_helpful_line() -> None:
    cases = [
        (lambda: stage_renewal_intervals([1, 0], 0), "frequency: got 0; expected steps, at least 1"),
        (lambda: stage_renewal_intervals([1, -1], 5), r"delays: got \[1, -1\]; expected updates, at least 0"),
        (lambda: rotated_sides(2, 2, "odd"), "geometry: got 'odd'; expected one of 'bilateral', 'unilateral'"),
        (lambda: rotation_elements(2, 2, "odd", "bilateral"), "source: got 'odd'; expected one of '1st', '2nd'"),
        (lambda: rotation_work(2, 2, "1st", "bilateral", estimate="svd"), "estimate: got 'svd'; expected one of"),
    ]
    for call, message in cases:
        with pytest.raises(SpecError, match=message):
            call()
