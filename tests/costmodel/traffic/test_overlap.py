from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import MODELS, Call, Exchange, Link, mean_step, model_fragments, ring_all_reduce_s
from syncline.costmodel.traffic.overlap import (
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    FORWARD_SHARE,
    WHOLE,
    Bucket,
    covered_buckets,
    gradient_buckets,
)
from syncline.costmodel.traffic.step_time import PricedCall, worker_after
from syncline.errors import SpecError

LINK = Link(1.0, 8.0)  # two workers: an all-reduce of n bytes takes 2 + n / 8 seconds
GRADIENT = Exchange(64.0, label="gradient", in_backward=True)

sizes = st.lists(st.integers(0, 3_000_000), min_size=1, max_size=12).filter(any)


def exposed_s(compute_s, exchanges, steps=100, workers=2, link=LINK, **options):
    return mean_step(compute_s, exchanges, steps, workers, link, **options).exposed_communication_s


# Buckets.


@given(sizes, st.sampled_from([BUCKET_BYTES, 4096.0, 5e6]))
def test_buckets_are_those_of_torch(elements, bucket_bytes):
    torch = pytest.importorskip("torch")
    limits = [FIRST_BUCKET_BYTES, BUCKET_BYTES] if bucket_bytes == BUCKET_BYTES else [int(bucket_bytes)]
    backwards = [torch.empty(count, device="meta") for count in reversed(elements)]
    order = list(range(len(backwards)))
    flags = [False] * len(backwards)
    theirs, _ = torch.distributed._compute_bucket_assignment_by_size(backwards, limits, flags, order)
    held = [sum(backwards[i].numel() for i in bucket) / sum(elements) for bucket in theirs]
    held = [share for share in held if share]  # tensors without elements at the end are a bucket of their own
    np.testing.assert_allclose([bucket.share for bucket in gradient_buckets(elements, bucket_bytes)], held)


def test_the_default_is_torchs_default_with_a_first_bucket_of_1_mib():
    torch = pytest.importorskip("torch")
    assert torch.distributed._DEFAULT_FIRST_BUCKET_BYTES == FIRST_BUCKET_BYTES
    million = gradient_buckets([2**18] * 30)  # 30 tensors of 1 MiB
    assert [round(bucket.share * 30) for bucket in million] == [1, 25, 4]
    assert [round(bucket.share * 30) for bucket in gradient_buckets([2**18] * 30, 10 * 2**20)] == [10, 10, 10]


@given(sizes, st.floats(1.0, 1e8))
def test_buckets_share_out_the_gradient_in_the_order_of_the_backward_pass(elements, bucket_bytes):
    buckets = gradient_buckets(elements, bucket_bytes)
    assert sum(bucket.share for bucket in buckets) == pytest.approx(1.0)
    done = np.cumsum([bucket.share for bucket in buckets])
    np.testing.assert_allclose([b.ready for b in buckets], FORWARD_SHARE + (1 - FORWARD_SHARE) * done)
    assert buckets[-1].ready == pytest.approx(1.0, rel=1e-12)


@given(sizes, st.sampled_from([4096.0, 5e6]), st.integers(1, 4), st.integers(1, 3))
def test_fragments_of_a_gradient_have_its_buckets_between_them(elements, bucket_bytes, fragments, strides):
    elements = [count for count in elements if count]
    buckets, total = gradient_buckets(elements, bucket_bytes), sum(elements)
    sent = dict.fromkeys((bucket.ready for bucket in buckets), 0.0)
    for fragment in model_fragments(elements, fragments, strides):
        if fragment.spans:
            share = sum(elements[index] for index in fragment.tensors) / total
            parts = covered_buckets(buckets, fragment.spans)
            assert sum(part.share for part in parts) == pytest.approx(1)
            for part in parts:
                sent[part.ready] += share * part.share
    for bucket in buckets:
        assert sent[bucket.ready] == pytest.approx(bucket.share, abs=1e-8)


def test_arguments_that_cannot_be():
    with pytest.raises(SpecError, match="bucket_size: got 0"):
        gradient_buckets([1], 0)
    with pytest.raises(SpecError, match=r"overlap: got 'dpp'.*did you mean 'ddp'"):
        exposed_s(1.0, [GRADIENT], overlap="dpp")
    with pytest.raises(SpecError, match="encode: got 0"):
        exposed_s(1.0, [GRADIENT], encode_bytes_per_s=0)
    with pytest.raises(SpecError, match=r"exchange.wait_steps: got -1"):
        Exchange(1.0, wait_steps=-1)


# Limit cases.


def test_one_bucket_at_the_end_is_no_overlap():
    assert mean_step(3.0, [GRADIENT], 9, 2, LINK, overlap="ddp", buckets=WHOLE) == mean_step(
        3.0, [GRADIENT], 9, 2, LINK
    )


def test_a_network_that_takes_no_time_exposes_nothing():
    free, buckets = Link(0.0, math.nextafter(math.inf, 0)), gradient_buckets([3, 5, 2], 8.0)
    late = [GRADIENT, Exchange(9.0, period=3, wait_steps=2)]
    for overlap in ("none", "ddp", "async"):
        assert exposed_s(3.0, late, link=free, overlap=overlap, buckets=buckets) == pytest.approx(0.0, abs=1e-200)


def test_communication_shorter_than_the_backward_pass_exposes_its_last_bucket():
    # Buckets of 16, 32 and 16 bytes take 4, 6 and 4 s; they are ready after 150, 250 and 300 s.
    buckets = (Bucket(0.25, 0.5), Bucket(0.5, 5 / 6), Bucket(0.25, 1.0))
    step = mean_step(300.0, [GRADIENT], 10, 2, LINK, overlap="ddp", buckets=buckets)
    assert step.exposed_communication_s == pytest.approx(4.0)
    assert step.communication_s == pytest.approx(14.0)
    assert step.step_time_s == pytest.approx(304.0)


def test_communication_longer_than_the_backward_pass_exposes_all_but_what_the_first_bucket_had():
    # The same in 12 s: the first starts at 6, and the network is busy to 6 + 4 + 6 + 4 = 20.
    buckets = (Bucket(0.25, 0.5), Bucket(0.5, 5 / 6), Bucket(0.25, 1.0))
    assert exposed_s(12.0, [GRADIENT], overlap="ddp", buckets=buckets) == pytest.approx(20.0 - 12.0)


@pytest.mark.parametrize("compute_s", [1.0, 9.0, 11.0, 50.0])
def test_an_asynchronous_step_takes_as_long_as_the_longer_of_both(compute_s):
    # 10 s of network: the first of T steps waits for nothing, each of the others for its predecessor's exchange.
    step = mean_step(compute_s, [GRADIENT], 1000, 2, LINK, overlap="async")
    assert step.exposed_communication_s == pytest.approx(max(0.0, 10.0 - compute_s) * 999 / 1000)


@pytest.mark.parametrize(("tau", "compute_s"), list(itertools.product([1, 3], [1.0, 2.0, 20.0])))
def test_a_streamed_exchange_is_exposed_as_far_as_its_delay_is_too_short(tau, compute_s):
    # Due after steps 9, 19, ..., 999 and needed tau steps later: the last is not needed in these 1000 steps.
    streamed = Exchange(64.0, period=10, wait_steps=tau)
    assert exposed_s(compute_s, [streamed], 1000) == pytest.approx(99 * max(0.0, 10.0 - tau * compute_s) / 1000)


def test_steps_that_repeat_are_not_gone_through():
    """10^9 steps, whose first cycles fill the network's queue."""
    late = [Exchange(64.0, period=3, wait_steps=2), Exchange(8.0, period=2, offset=1, shares_call=False, wait_steps=1)]
    few, many = (exposed_s(1.5, late, steps) for steps in (6 * 10**4, 6 * 10**8))
    assert few == pytest.approx(many, rel=1e-4) and many > 0


def test_steps_that_nobody_can_time_are_not_gone_through_either():
    asked: list[Call] = []

    def timed(call: Call) -> list[PricedCall]:
        asked.append(call)
        return [PricedCall(call, np.array([math.nan, 1.0]))]

    worker = worker_after(1.5, [Exchange(64.0, period=3, wait_steps=2)], 6 * 10**8, timed)
    assert len(asked) <= 3
    unknown, known = np.broadcast_to(worker.exposed_s, 2)
    assert math.isnan(unknown) and known == 0


def test_overheads_are_terms_of_their_own_and_hide_no_communication():
    sent = [Exchange(64.0, encoded_bytes=40.0, in_backward=True)]
    step = mean_step(12.0, sent, 5, 2, LINK, encode_bytes_per_s=20.0, trigger_s=0.5, optimizer_s=3.0)
    assert (step.encode_s, step.trigger_s, step.optimizer_s) == (2.0, 0.5, 3.0)
    assert step.exposed_communication_s == step.communication_s == 10.0
    assert step.step_time_s == 12.0 + 2.0 + 0.5 + 10.0 + 3.0
    # Half is ready and encoded at 6 + 1, and done at 13; the rest is ready and encoded at 12 + 2, and done at 20.
    buckets = (Bucket(0.5, 0.5), Bucket(0.5, 1.0))
    both = mean_step(12.0, sent, 5, 2, LINK, overlap="ddp", buckets=buckets, encode_bytes_per_s=20.0)
    assert both.step_time_s == pytest.approx(20.0)
    assert both.encode_s == pytest.approx(2.0)


def test_an_update_hides_what_is_needed_a_step_later_and_nothing_that_it_waits_for_itself():
    late, now = [Exchange(64.0, wait_steps=1)], [Exchange(64.0, in_backward=True)]
    steps = 10**6  # so many that the first and the last do not count
    # A collective takes 10 s, which computing alone does not hide, and computing with updates does.
    assert mean_step(6.0, late, steps, 2, LINK).step_time_s == pytest.approx(10.0, rel=1e-5)
    assert mean_step(6.0, late, steps, 2, LINK, optimizer_s=3.0).step_time_s == pytest.approx(10.0, rel=1e-5)
    assert mean_step(6.0, late, steps, 2, LINK, optimizer_s=5.0).step_time_s == pytest.approx(11.0, rel=1e-5)
    buckets = (Bucket(0.5, 0.5), Bucket(0.5, 1.0))
    without, beside = (
        mean_step(6.0, now, steps, 2, LINK, overlap="ddp", buckets=buckets, optimizer_s=one) for one in (0.0, 5.0)
    )
    assert beside.step_time_s == pytest.approx(without.step_time_s + 5.0)
    assert beside.exposed_communication_s == pytest.approx(without.exposed_communication_s)


@given(st.floats(0.0, 10.0), st.sampled_from(["none", "ddp", "async"]), st.floats(0.1, 1e3), st.floats(1.0, 10.0))
@settings(deadline=None)
def test_more_bandwidth_is_never_slower(compute_s, overlap, bandwidth, factor):
    buckets = gradient_buckets([3, 5, 2], 8.0)
    sent = [GRADIENT, Exchange(300.0, period=4, wait_steps=2), Exchange(50.0, period=3)]
    slow, fast = (
        mean_step(compute_s, sent, 50, 4, Link(0.01, each), overlap=overlap, buckets=buckets).step_time_s
        for each in (bandwidth, bandwidth * factor)
    )
    assert fast <= slow * (1 + 1e-12)


def test_networks_may_be_an_array():
    bandwidths = np.array([1.0, 8.0, 1e9])
    sent = [GRADIENT, Exchange(300.0, period=4, wait_steps=2)]
    for overlap in ("none", "ddp", "async"):
        options = {"overlap": overlap, "buckets": gradient_buckets([3, 5, 2], 8.0)}
        together = exposed_s(2.0, sent, link=Link(0.1, bandwidths), **options)
        np.testing.assert_allclose(
            together, [exposed_s(2.0, sent, link=Link(0.1, float(each)), **options) for each in bandwidths], rtol=1e-9
        )


def test_a_gpt_with_default_buckets_hides_what_its_backward_pass_allows():
    """160M parameters on 8 workers: at 100 Gbit/s only the last bucket's all-reduce is left, at 1 Gbit/s nearly all."""
    tensors = MODELS["gpt-160m"].tensors
    elements = [tensor.elements for tensor in tensors]
    buckets = gradient_buckets(elements)
    gradient = [Exchange(4.0 * sum(elements), in_backward=True)]
    fast, slow = Link(50e-6, 12.5e9), Link(50e-6, 125e6)
    last_s = ring_all_reduce_s(8, buckets[-1].share * 4 * sum(elements), fast)
    assert exposed_s(0.5, gradient, 10, 8, fast, overlap="ddp", buckets=buckets) == pytest.approx(last_s)
    step = mean_step(0.5, gradient, 10, 8, slow, overlap="ddp", buckets=buckets)
    ready_s = 0.5 * buckets[0].ready
    assert step.exposed_communication_s == pytest.approx(step.communication_s - (0.5 - ready_s))
