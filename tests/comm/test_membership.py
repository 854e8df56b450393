"""Who takes part when, and what a mean over those present is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.comm import BF16, Absence, Membership, ProcessGroupCommunicator, SimulatedCommunicator
from syncline.errors import SpecError


def test_who_is_there():
    membership = Membership(4, [Absence(2, 1, 3), Absence(0, 2), Absence(2, 2, 4)])
    assert [membership.present(step) for step in range(5)] == [(0, 1, 2, 3), (0, 1, 3), (1, 3), (1, 3), (1, 2, 3)]
    assert [membership.joining(step) for step in range(5)] == [(), (), (), (), (2,)]
    assert membership.away(2) == (0, 2)


@given(
    st.lists(
        st.builds(
            lambda worker, start, length: Absence(worker, start, length and start + length),
            st.integers(1, 3),
            st.integers(0, 8),
            st.one_of(st.none(), st.integers(1, 8)),
        )
    )
)
def test_the_table_is_the_steps_one_by_one(absences):
    membership = Membership(4, absences)  # worker 0 always there
    assert [tuple(np.flatnonzero(row)) for row in membership.table(10)] == [
        membership.present(step) for step in range(10)
    ]


def test_means_and_maxima_are_of_those_present_and_every_row_gets_them():
    comm = SimulatedCommunicator(3, replicas=2, membership=Membership(3, [Absence(1, 4, 6)]))
    x = torch.tensor([[1.0], [10.0], [3.0], [5.0], [100.0], [9.0]])
    comm.ledger.step = 4
    assert comm.all_reduce(x).flatten().tolist() == [2.0] * 3 + [7.0] * 3
    assert comm.all_reduce_max(x.flatten()).tolist() == [3.0] * 3 + [9.0] * 3
    assert [y.flatten().tolist() for y in comm.start_all_reduce([x, 2 * x], wire=BF16).wait()] == [
        [2.0] * 3 + [7.0] * 3,
        [4.0] * 3 + [14.0] * 3,
    ]
    comm.ledger.step = 6
    torch.testing.assert_close(comm.all_reduce(x)[0, 0], x[:3].mean())
    assert [record.group_size for record in comm.ledger.records] == [2, 2, 2, 3]


@pytest.mark.parametrize(
    "call",
    [
        lambda comm, x: comm.all_reduce(x, op="sum"),
        lambda comm, x: comm.all_gather(x),
        lambda comm, x: comm.gather(x),
        lambda comm, x: comm.broadcast(x),
        lambda comm, x: comm.all_to_all(x),
        lambda comm, x: comm.reduce_scatter(x),
    ],
)
def test_other_collectives_are_refused_and_allowed_without_absences(call):
    x = torch.zeros(2, 2, 1)
    call(SimulatedCommunicator(2, membership=Membership(2)), x)
    with pytest.raises(SpecError, match=r"membership: .*only means and maxima"):
        call(SimulatedCommunicator(2, membership=Membership(2, [Absence(1, 5)])), x)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Absence(-1), "absence.worker: got -1"),
        (lambda: Absence(0, -1), "absence.start: got -1"),
        (lambda: Absence(0, 3, 3), "absence.stop: got 3"),
        (lambda: Membership(2, [Absence(2)]), "a worker from 0 to 1"),
        (lambda: Membership(2, [Absence(0, 0, 5), Absence(1, 4)]), "at least one worker present in step 4"),
        (lambda: SimulatedCommunicator(3, membership=Membership(2)), "a membership of 3 workers"),
        (lambda: ProcessGroupCommunicator(membership=Membership(2)), "only simulated workers"),
    ],
)
def test_what_cannot_be(make, line):
    with pytest.raises(SpecError, match=line):
        make()
