"""The state of a returning worker on its link: as a message of one link, and as the event simulation carries it."""

from __future__ import annotations

import pytest

from syncline.costmodel import NETWORKS, Link
from syncline.costmodel.failures import rejoin_s
from syncline.costmodel.network.link import topology
from syncline.sim import Recv, Send, run_events

STATE_BYTES = 80.86e9
"""Parameters and both moments of Adam, in fp32, of 6.74e9 parameters."""


@pytest.mark.parametrize("name", [name for name, known in NETWORKS.items() if isinstance(known.network, Link)])
def test_on_one_link_it_is_a_message(name: str) -> None:
    link = NETWORKS[name].network
    assert rejoin_s(link, 8, 8, STATE_BYTES) == pytest.approx(float(link.transfer_s(STATE_BYTES)), rel=1e-12)


@pytest.mark.parametrize(("name", "workers", "copies"), [
    ("wan", 4, 4), ("two-sites", 8, 2), ("two-sites", 8, 4), ("dgx-a100", 32, 4), ("dgx-a100", 32, 2),
    ("dgx-a100", 16, 16),
])  # fmt: skip
def test_events_agree(name: str, workers: int, copies: int) -> None:
    """All workers of the first copy receive a part of the state from the second copy at the same time."""
    network = NETWORKS[name].network
    width = workers // copies
    programs: list[list[object]] = [[] for _ in range(workers)]
    for worker in range(width):
        programs[worker].append(Recv(width + worker))
        programs[width + worker].append(Send(worker, STATE_BYTES / width))
    finish_s = max(run_events(programs, topology(network, workers)).end_s)
    assert rejoin_s(network, workers, copies, STATE_BYTES) == pytest.approx(finish_s, rel=1e-6)


def test_the_line_between_two_sites_carries_one_state() -> None:
    """Each of four workers fetches a quarter of the state over a line of 1 Gbit/s that they share."""
    seconds = rejoin_s(NETWORKS["two-sites"].network, 8, 2, STATE_BYTES)
    assert seconds == pytest.approx(STATE_BYTES / 125e6, rel=0.01)
    # Sharded over all workers there is one copy: a worker fetches its eighth at its own site.
    assert rejoin_s(NETWORKS["two-sites"].network, 8, 1, STATE_BYTES) == pytest.approx(
        STATE_BYTES / 8 / 1.25e9, rel=0.01
    )


def test_one_worker_has_nobody_to_fetch_from() -> None:
    assert rejoin_s(NETWORKS["wan"].network, 1, 1, STATE_BYTES) == 0
