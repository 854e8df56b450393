"""Published steps of torchtitan: the table that `benchmarks.titan` makes, and one of its rows anew."""

from __future__ import annotations

import pytest

from benchmarks import titan
from syncline.measure.recording.record import Computed, CountedOperation, RankRecord, Stepped


def test_published_numbers_are_read() -> None:
    rows = titan.published()
    assert len(rows) == 8
    assert titan.setting_of(rows[0]) == titan.Setting("8b", 8, 1, 2, 8192, "some")
    assert float(rows[0]["tokens_per_s_per_gpu"]) == 5762


def test_what_bounds_an_operation() -> None:
    """After the first step: a product at the rate of a limit of 500 W, and 2 s of moving bytes."""
    kernels, memory = titan.H100.kernels, titan.H100.memory_bytes_per_s
    assert memory is not None and kernels is not None
    side = 2.0**16
    rate = titan.H100.peak_flops * kernels.product_rate("bf16").sustained * 500 / 700
    product = CountedOperation(2 * side**3, 0.0, "product", "bf16", (side, side, side))
    copy = CountedOperation(0.0, 2 * kernels.memory * memory)
    record = RankRecord([Computed(0), Stepped(), Computed(0), Stepped()], [(product, copy)])
    assert titan.computing_s(record) == pytest.approx((product.flops / rate, 2.0), rel=1e-3)


def test_errors_are_of_ours_over_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titan, "step_of", lambda *_: titan.Step(4.0, 3.0, 0.5))
    row = titan.row_of(titan.published()[0])
    assert row.tokens_per_s == 2 * 8192 / 4
    assert row.error == pytest.approx(4096 / 5762 - 1) and row.waits_s == 0.5
    assert "| 8b | 8 (1) | no | no | 5,762 | 4,096 | -28.9% | 3.00 s | 0.50 s | 0.50 s |" in titan.table([row])


@pytest.mark.slow
def test_the_first_row_is_as_committed() -> None:
    row = titan.row_of(titan.published()[0])
    assert row.error == pytest.approx(0.012, abs=0.003)
