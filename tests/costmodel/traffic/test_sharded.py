"""Data parallelism that is shared out: by hand, in closed form, by lockstep and by the events."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import Link, calls_of, mean_step
from syncline.costmodel.layouts.memory import model_memory, sharded_memory
from syncline.costmodel.traffic.overlap import Bucket, gradient_buckets
from syncline.costmodel.traffic.sharded import (
    SHARDINGS,
    after_micro_batches,
    sharded_exchanges,
    update_broadcasts,
    update_gathers,
)
from syncline.errors import SpecError
from syncline.sim import clock

LINK = Link(0.0, 1.0)  # two workers: an all-gather of b bytes each takes b seconds, a reduce-scatter of n bytes n / 2
HALVES = (Bucket(0.5, 2 / 3), Bucket(0.5, 1.0))


def step_s(sharding: str, compute_s: float, nbytes: float, **options) -> float:
    sent = sharded_exchanges(nbytes, nbytes, 2, sharding, HALVES, **options)
    return float(mean_step(compute_s, sent, 50, 2, LINK, overlap="ddp").step_time_s)


def test_fully_sharded_steps_by_hand() -> None:
    """Thirds of 3 s; gathers of a quarter of 8 bytes take 2 s, scatters of half of them too.

    Forward: gathered at 2, computed until 2.5, gathered at 4, until 4.5. Backward: gathered at 6.5 and 8.5, computed
    until 7.5 and 9.5; scattered from 8.5, when the network is free, to 10.5, and to 12.5.
    """
    assert step_s("full", 3.0, 8.0) == pytest.approx(12.5, rel=1e-12)


def test_shared_optimizers_by_hand() -> None:
    """Gathered at 2 and 4, forward until 4.5, backward until 6.5; scattered from 5.5 to 7.5 and to 9.5."""
    assert step_s("optimizer", 3.0, 8.0) == pytest.approx(9.5, rel=1e-12)
    assert step_s("gradients", 3.0, 8.0) == pytest.approx(9.5, rel=1e-12)


def test_shared_gradients_of_two_micro_batches_by_hand() -> None:
    """Sixths of 3 s. Forward: gathered at 2 and 4, until 4.25; backward until 4.75 and 5.25, the next one from there.

    Its forward ends at 5.75, its halves of the backward pass at 6.25 and 6.75. Scatters of 2 s from 4.75 on: four.
    """
    assert step_s("gradients", 3.0, 8.0, micro_batches=2) == pytest.approx(12.75, rel=1e-12)
    assert step_s("optimizer", 3.0, 8.0, micro_batches=2) == pytest.approx(10.25, rel=1e-12)  # two, from 6.25


def test_a_worker_gathers_one_unit_ahead_of_its_computing() -> None:
    """Thirds of 9 s, in thirds: the third gather starts when the second third is computed, at 1 s, not at 0."""
    thirds = [Bucket(1 / 3, 5 / 9), Bucket(1 / 3, 7 / 9), Bucket(1 / 3, 1.0)]
    gathers = [one for one in sharded_exchanges(9.0, 9.0, 2, "full", thirds) if one.collective == "all_gather"]
    starts = [(round(9 * one.ready, 9), round(9 * one.needed, 9)) for one in gathers]
    assert starts == [(0, 0), (0, 1), (1, 2), (3, 3), (3, 5), (5, 7)]


def test_weights_that_travel_after_the_update_follow_the_computing() -> None:
    """The scatters of `test_shared_optimizers_by_hand` from 2 s and 4 s on end at 6 s; two gathers of 2 s follow."""
    gathers = update_gathers(8.0, 2, HALVES)
    assert step_s("optimizer", 3.0, 8.0, update_exchanges=gathers) == pytest.approx(10.0, rel=1e-12)
    assert step_s("full", 3.0, 8.0, update_exchanges=gathers) == step_s("full", 3.0, 8.0)


def test_broadcasts_of_whole_tensors() -> None:
    sent = update_broadcasts(2.0, 512, [7, 7, 5])
    assert [one.payload_bytes for one in sent] == [14.0, 14.0, 10.0]  # no more than tensors
    assert {(one.collective, one.ready) for one in sent} == {("broadcast", 1.0)}
    assert [one.payload_bytes for one in update_broadcasts(2.0, 1, [7, 7, 5])] == [38.0]


@pytest.mark.parametrize("sharding", SHARDINGS[1:])
def test_without_overlap_all_communication_follows_the_computing(sharding: str) -> None:
    travels = {"optimizer": 2, "gradients": 2, "full": 3}[sharding]  # halves of 8 bytes
    assert step_s(sharding, 3.0, 8.0, overlapped=False) == pytest.approx(3.0 + 4 * travels, rel=1e-12)


@pytest.mark.parametrize("sharding", SHARDINGS[1:])
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("compute_s", [0.0, 2e-3, 0.2])
def test_lockstep_events_and_closed_form_agree(sharding: str, micro_batches: int, compute_s: float) -> None:
    units = gradient_buckets([300, 200, 900, 600], 2000.0)
    sent = sharded_exchanges(8e3, 4e3, 4, sharding, units, micro_batches)
    link = Link(20e-6, 5e6)
    told = mean_step(compute_s, sent, 3, 4, link, overlap="ddp")
    for evaluator in ("lockstep", "events"):
        timed = clock(calls_of(sent, 3), np.full((3, 4), compute_s), link, 4, 3, overlap="ddp", evaluator=evaluator)
        assert timed.step_time_s == pytest.approx(told.step_time_s, rel=1e-12)
        assert timed.exposed_communication_s == pytest.approx(told.exposed_communication_s, rel=1e-9, abs=1e-15)


def test_bytes_of_a_step() -> None:
    """ZeRO, section 7: stages 1 and 2 send what an all-reduce does, stage 3 half as much again."""
    units, workers, nbytes = gradient_buckets([7, 5, 30], 40.0), 4, 840.0

    def wire(sharding: str, micro_batches: int) -> float:
        sent = sharded_exchanges(nbytes, nbytes, workers, sharding, units, micro_batches)
        return sum(
            one.payload_bytes * (workers - 1) / (1 if one.collective == "all_gather" else workers) for one in sent
        )

    all_reduce = 2 * nbytes * (workers - 1) / workers
    assert wire("optimizer", 1) == wire("optimizer", 5) == pytest.approx(all_reduce)
    assert wire("gradients", 1) == pytest.approx(all_reduce)
    assert wire("gradients", 5) == pytest.approx((5 + 1) / 2 * all_reduce)
    assert wire("full", 1) == pytest.approx(1.5 * all_reduce)
    assert wire("full", 5) == pytest.approx(5 * 1.5 * all_reduce)


def test_gradients_of_silent_micro_batches_travel_in_the_last_backward_pass() -> None:
    ready = [bucket.ready for bucket in after_micro_batches(HALVES, 4)]
    assert ready == pytest.approx([1 - 1 / 12, 1.0])
    assert after_micro_batches(HALVES, 1) == HALVES


def test_memory_of_the_stages_of_zero() -> None:
    """ZeRO, Figure 1: 7.5e9 parameters with Adam on 64: 120, 31.4, 16.6 and 1.9 GB of model states.

    Its gradients have 16 bits; ours have 32, of which a shard of the 16-bit weights is as large as what is missing.
    """
    parameters = 7_500_000_000
    whole = model_memory(parameters, 2 * parameters, precision="mixed")
    told = [sharded_memory(whole, one, 64, 0.0, "mixed").total_bytes for one in SHARDINGS]
    wider = [2 * parameters, 2 * parameters, 2 * parameters / 64, 0]
    gigabytes = [(total - extra) / 1e9 for total, extra in zip(told, wider, strict=True)]
    assert [f"{total:.1f}" for total in gigabytes] == ["120.0", "31.4", "16.6", "1.9"]


@pytest.mark.parametrize("workers", [1, 4, 16, 64, 256, 1024])
@pytest.mark.parametrize("parameters", [7_500_000_000, 128_000_000_000, 10**12])
def test_memory_of_the_stages_is_zero_s_formulas(workers: int, parameters: int) -> None:
    """Megatron Core's guide: 18 bytes of a parameter, 6 + 12 / d with a distributed optimizer; FSDP: 16 / d."""
    whole = model_memory(parameters, 2 * parameters, precision="mixed")
    told = {one: sharded_memory(whole, one, workers, 0.0, "mixed").total_bytes / parameters for one in SHARDINGS}
    k, n = 12, workers
    assert told == pytest.approx(
        {"none": 6 + k, "optimizer": 6 + k / n, "gradients": 2 + (4 + k) / n, "full": (4 + k) / n}, rel=1e-12
    )


def test_what_is_whole_beside_a_share() -> None:
    whole = model_memory(1_000, 2_000, precision="mixed", wire_bytes=7.0)
    wire = {one: sharded_memory(whole, one, 4, 100.0, "mixed").wire_bytes for one in SHARDINGS}
    assert wire == {"none": 7.0, "optimizer": 7.0, "gradients": 100.0, "full": 300.0}


def test_refusals() -> None:
    with pytest.raises(SpecError, match="sharding: got 'half'"):
        sharded_exchanges(1.0, 1.0, 2, "half", HALVES)
    with pytest.raises(SpecError, match="micro_batches: got 0"):
        sharded_exchanges(1.0, 1.0, 2, "full", HALVES, 0)
