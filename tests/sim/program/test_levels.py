"""All-reduces of several levels: closed form, lockstep and events agree, on any levels."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    HIERARCHICAL,
    Level,
    Link,
    MultiLevel,
    NoClosedForm,
    collective_s,
    level_sizes,
    wire_bytes,
)
from syncline.sim import collective_finish_s
from syncline.sim.lockstep.routed import Contention
from syncline.sim.program.rounds import rounds, rounds_on, sent_bytes
from tests.sim.strategies import multi_levels, rules, sizes

ALGORITHM = st.sampled_from(HIERARCHICAL["all_reduce"])


@given(multi_levels(most=4), ALGORITHM, sizes, rules)
def test_closed_form_lockstep_and_events_agree(joined, algorithm, nbytes, rule) -> None:
    workers, on = joined
    events_s = collective_finish_s("all_reduce", workers, nbytes, on, algorithm, evaluator="events", rule=rule)
    with contextlib.suppress(Contention):
        lockstep_s = collective_finish_s("all_reduce", workers, nbytes, on, algorithm, evaluator="lockstep", rule=rule)
        np.testing.assert_allclose(lockstep_s, events_s, rtol=1e-9)
    with contextlib.suppress(NoClosedForm):
        closed_s = collective_s("all_reduce", workers, nbytes, on, algorithm, rule=rule)
        assert closed_s == pytest.approx(events_s.max(), rel=1e-9)


@given(multi_levels(most=4), ALGORITHM, st.floats(1, 1e8))
def test_everybody_ends_with_the_sum(joined, algorithm, nbytes) -> None:
    """Who has heard of whom: sets of workers that travel with the messages, block by block not told apart."""
    workers, on = joined
    heard = np.eye(workers, dtype=bool)
    for senders, receivers, _ in rounds_on("all_reduce", workers, nbytes, on, algorithm):
        heard[receivers] |= heard[senders]
    assert heard.all()


@given(multi_levels(most=4), ALGORITHM, st.floats(1, 1e8))
def test_bytes_sent_are_those_of_the_rounds(joined, algorithm, nbytes) -> None:
    workers, on = joined
    inner = level_sizes(on, workers)[:-1]
    sent = sent_bytes(rounds("all_reduce", workers, nbytes, algorithm, inner), workers)
    assert sent.mean() == pytest.approx(wire_bytes("all_reduce", workers, nbytes, algorithm, inner), rel=1e-9)
    if algorithm == "hierarchical":
        assert sent.max() == pytest.approx(2 * nbytes * (workers - 1) / workers, rel=1e-9)


def test_three_levels_by_hand() -> None:
    """2 x 3 x 2 workers, 72 bytes: 36 a block inside, 12 of 36 at the second level, 6 of 12 at the third."""
    inside, middle, across = Link(0.5, 8.0), Link(2.0, 4.0), Link(10.0, 2.0)
    on = MultiLevel(
        (
            Level(2, inside),
            Level(3, middle, shares_lower_links=False, rails=2),
            Level(2, across, 1, shares_lower_links=False),
        )
    )
    seconds = 2 * (0.5 + 36 / 8) + 2 * 2 * (2 + 12 / 4) + 2 * (10 + 6 / (2 / 6))  # six share the uplink
    assert collective_s("all_reduce", 12, 72, on, "hierarchical") == pytest.approx(seconds, rel=1e-14)
    leaders = 2 * (0.5 + 72 / 8) + 2 * 2 * (2 + 72 / 4) + (10 + 72 / 2)
    assert collective_s("all_reduce", 12, 72, on, "leader") == pytest.approx(leaders, rel=1e-14)


def test_rails_that_are_shared_unevenly_have_no_closed_form() -> None:
    link = Link(1e-6, 1e9)
    on = MultiLevel((Level(3, link), Level(2, link, 2, shares_lower_links=True)))
    with pytest.raises(NoClosedForm, match=r"network.levels.1.rails: got 2; .*divides the workers"):
        collective_s("all_reduce", 6, 1e6, on, "hierarchical")
