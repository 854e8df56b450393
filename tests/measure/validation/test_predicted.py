"""Predictions from a training's traffic, what the software takes, and the cost model: against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syncline.costmodel import Call, Link
from syncline.costmodel.collectives.gloo import gloo_s, gloo_wire_bytes
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.measure.validation.predicted import Software, predict, sent_by_step, typical_step_s
from syncline.runs.training.trained import Trained
from syncline.sim import clock
from syncline.training import History

LINE = Link(5e-3, 12.5e6)
COSTS = GlooCosts(1e-4, ((2, 2e-4),), (("all_reduce", 1e-10),))
SYNC = Call(0, "all_reduce", 4000)
VOTE = Call(0, "all_reduce", 1000, encoded_bytes=4000)


def trained(*sent: tuple[Call, ...]) -> Trained:
    """A training that sent this in its steps."""
    ledger = [
        call._replace(step=step, group=range(2), label="for people")
        for step, of_step in enumerate(sent)
        for call in of_step
    ]
    loss = np.zeros((len(sent), 1))
    history = History((0,), len(sent), loss, {}, np.array([]), {}, (None,))
    return Trained("of a test", history, ledger, {}, None, 0.0)


def software(step_s: list[float], *sent: tuple[Call, ...], **carried) -> Software:
    """Two repetitions of two equal workers that take this; an eighth of it in collectives."""
    times = np.broadcast_to(np.array(step_s)[:, None], (2, len(step_s), 2))
    of = {SYNC: (("all_reduce", 4000),), VOTE: (("all_to_all", 1000), ("all_gather", 500))}
    return Software(times, times / 8, sent, of)


def test_a_step_is_what_the_software_takes_and_then_the_collectives() -> None:
    sent = ((SYNC,), (), (VOTE,))
    got = predict(trained(*sent), software([0.01, 0.02, 0.04], *sent), replace(LINE, gloo=COSTS), 2)
    carried = [
        gloo_s("all_reduce", 2, 4000, LINE, COSTS),
        0.0,
        gloo_s("all_to_all", 2, 1000, LINE, COSTS) + gloo_s("all_gather", 2, 500, LINE, COSTS),
    ]
    assert got.step_time_s == pytest.approx((0.07 + sum(carried)) / 3, rel=1e-9)
    assert got.communication_s == pytest.approx((0.07 / 8 + sum(carried)) / 3, rel=1e-9)


def test_what_devices_send() -> None:
    sent = ((SYNC,), (), (VOTE,))
    got = predict(trained(*sent), software([0.01] * 3, *sent), LINE, 2, segment_bytes=8948)
    wire = [gloo_wire_bytes("all_reduce", 2, 4000, 8948), None, gloo_wire_bytes("all_to_all", 2, 1000, 8948)]
    vote = wire[2].total_bytes + gloo_wire_bytes("all_gather", 2, 500, 8948).total_bytes
    assert got.device_bytes.tolist() == [wire[0].total_bytes, 0.0, vote]


def test_a_step_that_sent_something_else_without_a_network_takes_the_median_of_those_that_sent_the_same() -> None:
    alone = software([0.01, 0.03, 0.02, 0.5], (SYNC,), (SYNC,), (SYNC,), ())
    step_s, _ = alone.step_times([(SYNC,), (), (SYNC,), (SYNC,)])
    assert step_s[0, :, 0].tolist() == [0.01, 0.5, 0.02, 0.02]


def test_a_call_that_was_never_seen_is_its_own_collective() -> None:
    other = Call(0, "broadcast", 800)
    got = predict(trained((other,)), software([0.01], (SYNC,)), LINE, 2)
    assert got.step_time_s == pytest.approx(0.01 + gloo_s("broadcast", 2, 800, LINE))


def test_a_hiccup_in_one_of_three_repetitions_does_not_count() -> None:
    def of(*step_s: float):
        return clock([], np.array(step_s)[:, None], LINE, 1, len(step_s))

    assert typical_step_s([of(1.0, 2.0), of(1.0, 9.0), of(5.0, 2.0)]) == pytest.approx(1.5)


def test_what_was_sent_by_step() -> None:
    assert sent_by_step(trained((SYNC, VOTE), (), (SYNC,))) == [(SYNC, VOTE), (), (SYNC,)]
