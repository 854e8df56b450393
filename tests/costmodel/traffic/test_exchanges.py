from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    COLLECTIVES,
    Call,
    Exchange,
    Link,
    bytes_per_step,
    calls_at,
    calls_by_step,
    calls_of,
    collective_s,
    communication_factor,
    communication_s,
    mean_bytes_per_step,
    ring_all_reduce_s,
)
from syncline.errors import SpecError

LINK = Link(0.5, 8.0)
phases = st.tuples(st.integers(0, 60), st.none() | st.integers(0, 90)).map(
    lambda bounds: {"start": bounds[0], "stop": None if bounds[1] is None else bounds[0] + bounds[1]}
)


@st.composite
def an_exchange(draw: st.DrawFn) -> Exchange:
    return Exchange(
        payload_bytes=float(draw(st.integers(0, 1000))),
        period=draw(st.integers(1, 12)),
        collective=draw(st.sampled_from(COLLECTIVES)),
        offset=draw(st.integers(-15, 15)),
        shares_call=draw(st.booleans()),
        **draw(phases),
    )


exchanges_of_a_method = st.lists(an_exchange(), max_size=5)


@given(exchanges=exchanges_of_a_method, steps=st.integers(0, 200))
def test_patterns_bytes_and_seconds_equal_walking_the_steps(exchanges: list[Exchange], steps: int) -> None:
    walked = [calls_at(exchanges, step) for step in range(steps)]
    patterns = calls_by_step(exchanges, steps)
    counted: Counter[tuple[Call, ...]] = Counter()
    for pattern in patterns:  # two exchanges of the same size may make equal calls of different patterns
        assert not pattern.calls or pattern.calls == walked[pattern.calls[0].step]
        counted[tuple(call._replace(step=0) for call in pattern.calls)] += pattern.steps
    assert counted == Counter(tuple(call._replace(step=0) for call in calls) for calls in walked)
    assert calls_of(exchanges, steps) == [call for calls in walked for call in calls]
    sent = sum(call.payload_bytes for calls in walked for call in calls)
    assert bytes_per_step(exchanges, steps) == pytest.approx(sent / max(steps, 1))
    spent_s = sum(collective_s(call.collective, 4, call.payload_bytes, LINK) for calls in walked for call in calls)
    assert communication_s(exchanges, steps, 4, LINK) == pytest.approx(spent_s)


@given(st.integers(1, 50), st.integers(-60, 60), st.integers(0, 300), phases)
def test_an_exchange_happens_when_its_rule_says(period: int, offset: int, steps: int, phase: dict[str, int]) -> None:
    exchange = Exchange(1.0, period=period, offset=offset, **phase)
    stop = steps if exchange.stop is None else exchange.stop
    due = [t for t in range(steps) if (t + 1 - offset) % period == 0 and exchange.start <= t < stop]
    assert [step for step in range(steps) if exchange.is_due(step)] == due
    assert np.flatnonzero(exchange.is_due(np.arange(steps))).tolist() == due
    assert exchange.num_runs(steps) == len(due)


@given(
    exchange=an_exchange(),
    steps=st.integers(0, 200),
    cuts=st.lists(st.integers(0, 200), max_size=4),
)
def test_an_exchange_cut_into_phases_is_the_same_exchange(exchange: Exchange, steps: int, cuts: list[int]) -> None:
    """Phases laid end to end: the same calls in the same steps, and the same time."""
    last = exchange.stop
    inner = sorted(cut for cut in cuts if cut > exchange.start and (last is None or cut < last))
    edges = [exchange.start, *inner, last]
    parts = [dataclasses.replace(exchange, start=a, stop=b) for a, b in itertools.pairwise(edges)]
    assert sum(part.num_runs(steps) for part in parts) == exchange.num_runs(steps)
    for step in range(steps):
        assert sum(bool(part.is_due(step)) for part in parts) == bool(exchange.is_due(step))
    assert bytes_per_step(parts, steps) == pytest.approx(bytes_per_step([exchange], steps))
    assert communication_s(parts, steps, 4, LINK) == pytest.approx(communication_s([exchange], steps, 4, LINK))


def test_what_stops_does_not_count_in_the_long_run() -> None:
    """Bytes of a long training approach the mean of what goes on: a warm-up, then something seldom."""
    exchanges = [Exchange(100.0, stop=50), Exchange(6.0, 3, start=50)]
    assert mean_bytes_per_step(exchanges) == 2.0
    assert bytes_per_step(exchanges, 50) == 100.0
    assert bytes_per_step(exchanges, 10**9) == pytest.approx(2.0, rel=1e-5)


def test_a_phase_that_begins_late_is_counted_by_its_cycle() -> None:
    steps = 10**15
    patterns = calls_by_step([Exchange(1.0, 32, start=10**14), Exchange(2.0, 48, stop=10**14)], steps)
    assert sum(pattern.steps for pattern in patterns) == steps
    times = {pattern.calls[0].payload_bytes: pattern.steps for pattern in patterns if pattern.calls}
    assert times == {1.0: steps // 32 - 10**14 // 32, 2.0: 10**14 // 48}


def test_states_that_travel_together_pay_the_latency_once() -> None:
    states = [Exchange(8.0, period=32, label=label) for label in ("x", "u", "v")]
    assert calls_at(states, 30) == ()
    assert calls_at(states, 31) == (Call(31, "all_reduce", 24.0, label="x+u+v"),)
    assert communication_s(states, 64, 4, LINK) == 2 * ring_all_reduce_s(4, 24.0, LINK)
    apart = [Exchange(8.0, period=32, shares_call=False) for _ in range(3)]
    assert communication_s(apart, 64, 4, LINK) == 6 * ring_all_reduce_s(4, 8.0, LINK)


def test_other_collectives_and_other_steps_do_not_join() -> None:
    exchanges = [Exchange(1.0, 2), Exchange(2.0, 2, collective="all_gather"), Exchange(4.0, 2, offset=1)]
    assert calls_at(exchanges, 1) == (Call(1, "all_reduce", 1.0), Call(1, "all_gather", 2.0))
    assert calls_at(exchanges, 2) == (Call(2, "all_reduce", 4.0),)


def test_a_long_training_is_counted_by_its_cycle() -> None:
    steps = 10**15
    patterns = calls_by_step([Exchange(1.0, 32), Exchange(2.0, 48)], steps)
    assert sum(pattern.steps for pattern in patterns) == steps
    both = next(pattern for pattern in patterns if pattern.calls == (Call(95, "all_reduce", 3.0),))
    assert both.steps == steps // 96


def test_bytes_approach_the_communication_factor() -> None:
    periods = [32, 693, 6931]  # MT-DAO, Table 3: MT-DAO-ADOPT (Half-Life)
    every_step = bytes_per_step([Exchange(1.0)], 10**9)
    seldom = bytes_per_step([Exchange(1.0, period) for period in periods], 10**9)
    assert every_step / seldom == pytest.approx(communication_factor(periods), rel=1e-5)


@pytest.mark.parametrize(
    ("periods", "factor"),
    [
        ([32] * 3, 10.67),
        ([32, 32, 69], 12.99),
        ([32, 32, 6931], 15.96),
        ([32, 693, 693], 29.3),
        ([32, 693, 6931], 30.5),
    ],
)
def test_factors_of_mt_dao_table_3(periods: list[int], factor: float) -> None:
    assert communication_factor(periods) == pytest.approx(factor, rel=2e-3)
    assert communication_factor([*periods, math.inf]) == communication_factor(periods)


def test_links_and_workers_broadcast() -> None:
    workers = np.array([[2], [8]])
    link = Link(0.5, np.array([1.0, 8.0, 64.0]))
    total_s = np.asarray(communication_s([Exchange(8.0, 3), Exchange(2.0, 5)], 15, workers, link))
    expected = 4 * ring_all_reduce_s(workers, 8.0, link) + 2 * ring_all_reduce_s(workers, 2.0, link)
    np.testing.assert_allclose(total_s, expected + ring_all_reduce_s(workers, 10.0, link))


def test_nothing_sent_costs_nothing() -> None:
    assert communication_s([], 100, 8, LINK) == 0
    assert bytes_per_step([], 100) == bytes_per_step([Exchange(1.0)], 0) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"payload_bytes": -1.0},
        {"payload_bytes": math.nan},
        {"period": 0},
        {"offset": 0.5},
        {"collective": "sum"},
        {"start": -1},
        {"start": 0.5},
        {"stop": -1},
        {"stop": 1.5},
    ],
)
def test_impossible_exchanges_name_their_field(fields: dict[str, object]) -> None:
    (field,) = fields
    with pytest.raises(SpecError, match=rf"exchange\.{field}"):
        Exchange(**({"payload_bytes": 1.0} | fields))  # type: ignore[arg-type]


def test_a_training_has_no_negative_length() -> None:
    for count in (lambda: calls_by_step([], -1), lambda: bytes_per_step([Exchange(1.0)], -1)):
        with pytest.raises(SpecError, match="steps: got -1"):
            count()
