"""Published steps of torchtitan: the table that `benchmarks.titan` makes, and one of its rows anew."""

from __future__ import annotations

import pytest

from benchmarks import titan
from syncline.measure.recording.record import Computed, RankRecord, Stepped


def test_published_numbers_are_read() -> None:
    rows = titan.published()
    assert len(rows) == 8
    assert titan.setting_of(rows[0]) == titan.Setting("8b", 8, 1, 2, 8192, "some")
    assert float(rows[0]["tokens_per_s_per_gpu"]) == 5762


def test_what_bounds_an_operation() -> None:
    """After the first step: 1 s of a product, and 2 s of moving bytes."""
    rate, memory = titan.H100.peak_flops * titan.H100.mfu, titan.H100.memory_bytes_per_s
    assert memory is not None
    record = RankRecord([Computed(0), Stepped(), Computed(0), Stepped()], [((rate, 0.0), (0.0, 2 * memory))])
    assert titan.computing_s(record) == pytest.approx((1.0, 2.0))


def test_errors_are_of_ours_over_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titan, "step_of", lambda _: titan.Step(4.0, 3.0, 0.5))
    row = titan.row_of(titan.published()[0])
    assert row.tokens_per_s == 2 * 8192 / 4
    assert row.error == pytest.approx(4096 / 5762 - 1) and row.waits_s == 0.5
    assert "| 8b | 8 (1) | no | no | 5,762 | 4,096 | -28.9% | 3.00 s | 0.50 s | 0.50 s |" in titan.table([row])


@pytest.mark.slow
def test_the_first_row_is_as_committed() -> None:
    row = titan.row_of(titan.published()[0])
    assert row.error == pytest.approx(-0.164, abs=0.003)
