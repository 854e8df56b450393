"""Records as other software would run them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.costmodel import HARDWARE
from syncline.measure.recording.record import Computed, CountedOperation, RankRecord, Started, Waited
from syncline.measure.replaying.replay import operations_s
from syncline.measure.replaying.scenario import Changes, fuse_elementwise, overlap_tensor_parallelism

H100 = HARDWARE["h100"]
PRODUCT = CountedOperation(2.0 * 4096**3, 3 * 2.0 * 4096**2, "product", "bf16", (4096.0, 4096.0, 4096.0))


def test_a_compiler_joins_elementwise_operations_between_products() -> None:
    moved = [CountedOperation(0.0, nbytes) for nbytes in (3.0, 9.0, 1.0, 5.0)]
    (rank,) = fuse_elementwise([RankRecord([Computed(0)], [(*moved, PRODUCT, moved[0], PRODUCT)])])
    assert rank.segments == [(moved[1], moved[3], PRODUCT, moved[0], PRODUCT)]
    assert fuse_elementwise([rank]) == [rank]


def test_async_tp_runs_collectives_beside_computing() -> None:
    gather, scatter = (
        Started(call, kind, kind, 8, (0, 1), ("tp", call), "a.py:1")
        for call, kind in ((1, "all_gather"), (2, "reduce_scatter"))
    )
    first, second = Computed(0), Computed(1)
    events = [gather, Waited(1), first, second, scatter, Waited(2), first]
    ranks = [RankRecord([first, *events], [(PRODUCT,), (PRODUCT,)]) for _ in range(4)]
    (rank, *_) = overlap_tensor_parallelism(ranks)
    assert rank.events == [first, gather, first, Waited(1), scatter, second, Waited(2), first]
    everyone = replace(ranks[0], events=[first, gather._replace(ranks=(0, 1, 2, 3)), Waited(1), second])
    assert overlap_tensor_parallelism([everyone] * 4)[0].events == everyone.events  # data parallelism is not concerned


def test_changes_of_records_are_described() -> None:
    changes = Changes(compiled=True, async_tp=True)
    assert changes.describe() == "compiled, async TP"
    assert changes.columns()["compiled"] and changes.columns()["async_tp"]


def test_a_recorded_product_takes_its_kernel_and_small_ones_their_dispatch() -> None:
    assert operations_s((PRODUCT,), H100) == pytest.approx(PRODUCT.flops / 0.71e15, rel=0.05)
    tiny = CountedOperation(2.0 * 8**3, 384.0, "product", "fp32", (8.0, 8.0, 8.0))
    assert operations_s((tiny,) * 10, H100) == pytest.approx(10 * H100.kernels.dispatch_s)
    of_others = CountedOperation(1e12, 0.0)  # a trace without shapes
    assert operations_s((of_others,), H100) == pytest.approx(1e12 / (H100.peak_flops * H100.mfu))


def test_a_number_format_decides_the_rate() -> None:
    shape = (8192.0, 8192.0, 8192.0)
    seconds = {
        precision: operations_s((CountedOperation(2.0 * 8192**3, 0.0, "product", precision, shape),), HARDWARE["a100"])
        for precision in ("bf16", "tf32", "fp32")
    }
    assert seconds["tf32"] == pytest.approx(2 * seconds["bf16"], rel=0.01)
    assert 14 < seconds["fp32"] / seconds["bf16"] < 17
