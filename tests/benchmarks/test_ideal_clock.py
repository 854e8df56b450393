"""The idealised clock of Charles et al., by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.ideal_clock import IdealClock
from syncline.errors import SpecError

CLOCK = IdealClock(
    parameters=1e9,
    tokens=20e9,
    batch_tokens=1e6,
    replicas=2,
    chips=100,
    flops=300e12,
    inner_bandwidth_bytes_per_s=50e9,
    inner_latency_s=1e-4,
    outer_bandwidth_bytes_per_s=1.25e9,
    outer_latency_s=1e-2,
)


def test_computing_is_six_operations_per_parameter_and_token() -> None:
    assert CLOCK.compute_s == pytest.approx(6 * 1e9 * 20e9 / (100 * 300e12))
    assert CLOCK.steps == 20_000


def test_collectives_by_hand() -> None:
    assert CLOCK.inner_s == pytest.approx(2 * 2e9 / 50e9 * (1 - 2 / 100) + 1e-4)
    assert CLOCK.outer_s == pytest.approx(2 * 2e9 / 1.25e9 * (1 - 1 / 100) + 1e-2)


def test_methods_by_hand() -> None:
    assert CLOCK.ddp_s() == pytest.approx(CLOCK.compute_s + CLOCK.outer_s * 20_000)
    assert CLOCK.diloco_s(30) == pytest.approx(CLOCK.compute_s + (CLOCK.inner_s + CLOCK.outer_s / 30) * 20_000)
    alone = replace(CLOCK, replicas=1)
    assert alone.diloco_s(30) == pytest.approx(CLOCK.compute_s + CLOCK.outer_s * 20_000 * (1 + 1 / 30))


@pytest.mark.parametrize(
    ("field", "value"), [("chips", 0), ("flops", -1), ("outer_latency_s", -1e-3), ("replicas", 101), ("tokens", 0)]
)
def test_what_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"{field}: got {value}"):
        replace(CLOCK, **{field: value})
    with pytest.raises(SpecError, match="period: got 0"):
        CLOCK.diloco_s(0)
