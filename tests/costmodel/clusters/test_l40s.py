from __future__ import annotations

import pytest

from syncline.costmodel.measured_clusters import L40S, l40s_step
from syncline.costmodel.network.presets import g6e_nccl_link, shaped_tcp
from syncline.errors import SpecError

PARAMS = 30_846_720


def step(algorithm: str = "diloco", rate: float | None = 125e6, steps: int = 80, syncs: int = 10):
    return l40s_step(algorithm, PARAMS, 4, 512, steps, syncs, g6e_nccl_link(rate))


def test_a_synchronisation_is_a_ring_of_all_parameters() -> None:
    ring_s = 1.5 * 4 * PARAMS / (125e6 * 8949 / 9015)
    assert step().sync_s == pytest.approx(ring_s + L40S.compute_s + L40S.call_s, rel=2e-3)
    assert step("localsgd") == step()


def test_the_mean_is_over_steps_with_and_without_one() -> None:
    of = step(steps=80, syncs=10)
    assert of.mean_s == pytest.approx((70 * of.inner_s + 10 * of.sync_s) / 80)
    assert step(steps=80, syncs=80).mean_s == pytest.approx(of.sync_s)


def test_short_queues_lose_and_long_ones_do_not() -> None:
    again = [shaped_tcp(rate / 8).resent_part for rate in (1e6, 50e6, 200e6, 1e9, 5e9)]
    assert again == sorted(again, reverse=True) and again[0] == 1.0 and again[-1] < 1e-4


def test_ddp_broadcasts_the_caches_of_its_layers_before_each_step() -> None:
    # 50.3 MB down a chain of four, beside 1.5 x 123.4 MB around a ring: the rest is computing and what overlaps.
    more_s = step("ddp").sync_s - step().sync_s
    assert L40S.buffers_bytes == 50_331_648
    assert more_s == pytest.approx(L40S.buffers_bytes / 123e6, abs=0.05)
    assert 1.23 < step("ddp").sync_s / step().sync_s < 1.41


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SpecError, match="algorithm: got 'fsdp'"):
        step("fsdp")
    with pytest.raises(SpecError, match="n_sync: got 90"):
        step(syncs=90)
