"""Bytes on links by hand: rings, levels, messages, groups, and what is changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.costmodel import HARDWARE, Link, Network, Sites, TwoLevel
from syncline.measure.recording.record import Computed, CountedOperation, MessageSent, RankRecord, Started, Stepped
from syncline.measure.replaying.bottlenecks import link_rows
from syncline.measure.replaying.clocks import TraceRecord
from syncline.measure.replaying.scenario import Changes, ReplayedOn
from syncline.specs import network

LAN, WAN = Link(1e-5, 1e9, "lan"), Link(1e-2, 1e8, "up")
N = 8e6
GBE = {"preset": "10gbe"}


def record(ranks: int, *groups: tuple[int, ...], kind: str = "all_reduce", steps: int = 3) -> TraceRecord:
    """In each step one collective of each group."""
    told = []
    for rank in range(ranks):
        events: list[object] = []
        for step in range(steps):
            for number, group in enumerate(groups):
                if rank in group:
                    events.append(Started(step, kind, kind, int(N), group, (f"g{number}", step), "a.py:1"))
            events += [Computed(0), Stepped()]
        told.append(RankRecord(events, [(CountedOperation(1e9, 0.0),)]))  # type: ignore[arg-type]
    return TraceRecord("a", told)


def links(
    of: TraceRecord, on: Network, algorithm: str | None = "ring", **changes: float
) -> dict[str, dict[str, float]]:
    question = replace(ReplayedOn.from_options([on], HARDWARE["a100"], algorithm), changes=Changes(**changes))
    return {row["link"]: row for row in link_rows(of, on, 0.5, question)}


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_a_ring_sends_what_its_closed_form_says(ranks: int) -> None:
    (row,) = links(record(ranks, tuple(range(ranks))), LAN).values()
    assert row["channels"] == 2 * ranks  # each worker's way up, and down
    assert [row["bytes"], row["most_bytes"]] == pytest.approx([2 * (ranks - 1) / ranks * N] * 2)
    assert row["busy"] == pytest.approx(row["bytes"] / 1e9 / 0.5)


@pytest.mark.parametrize("groups", [[range(8)], [range(8), range(8, 16)], [range(0, 16, 8)]])
def test_groups_on_nodes_send_what_their_fastest_algorithm_sends(groups: list[range]) -> None:
    """All-reduces in a node, whose times are measured, send what a ring does; of two cards each sends one message."""
    nodes = network("dgx-a100")
    workers = 8 if groups == [range(8)] else 16
    (row,) = links(record(workers, *map(tuple, groups)), nodes, "auto").values()
    size = len(groups[0])
    assert row["link"] == ("nvlink3" if size == 8 else "ib-hdr")
    assert row["bytes"] == pytest.approx(2 * (size - 1) / size * N)


def test_what_crosses_sites_by_levels_is_less_than_by_a_ring_over_all_of_several_cards() -> None:
    sites = Sites(2, LAN, WAN)
    everybody = record(8, tuple(range(8)))
    ring, levels = (links(everybody, sites, by)["up"] for by in ("ring", "hierarchical"))
    assert ring["bytes"] == pytest.approx(2 * 7 / 8 * N)  # one edge of the ring leaves each site
    assert levels["bytes"] == pytest.approx(4 * 2 * (1 / 2) * N / 4)  # four rings of two, of a quarter each
    lan = links(everybody, sites, "hierarchical")["lan"]
    assert lan["bytes"] == pytest.approx(2 * (3 / 4) * N + 2 * (1 / 2) * N / 4)


def test_a_group_passes_the_links_between_its_own_members_alone() -> None:
    nodes = TwoLevel(4, Link(1e-6, 1e11, "nvlink"), Link(1e-5, 1e10, "ib"))
    inside = links(record(8, (0, 1), (4, 5)), nodes)
    assert set(inside) == {"nvlink"} and inside["nvlink"]["channels"] == 8
    across = links(record(8, (0, 4), kind="all_gather"), nodes)
    assert set(across) == {"ib"} and across["ib"]["bytes"] == pytest.approx(N)


def test_messages_and_levels_have_their_links() -> None:
    told = [
        RankRecord(
            [MessageSent(0, 2, 1000, ("g", 0, 2, 0), "a.py:1"), Computed(0), Stepped()], [(CountedOperation(1e9, 0.0),)]
        ),
        *(RankRecord([Computed(0), Stepped()], [(CountedOperation(1e9, 0.0),)]) for _ in range(3)),
    ]
    three = network(
        {
            "levels": [
                {"units": 2, "link": "nvlink3"},
                {"units": 2, "link": "ib-hdr", "shares_lower_links": True, "rails": 1},
            ]
        }
    )
    rows = links(TraceRecord("a", told), three)
    assert {name: (row["channels"], row["bytes"]) for name, row in rows.items()} == {
        "nvlink3": (2, 1000.0), "ib-hdr": (2, 1000.0)
    }  # fmt: skip


def test_a_slower_link_is_busier() -> None:
    of = record(4, tuple(range(4)))
    before, after = (links(of, LAN, bandwidth=factor)["lan"] for factor in (1.0, 0.5))
    assert after["bytes"] == before["bytes"] and after["busy"] == pytest.approx(2 * before["busy"])


def test_a_graph_has_its_edges() -> None:
    graph = network({"hosts": ["a", "b"], "edges": [GBE | {"from": one, "to": to} for one, to in ("as", "sb")]})
    rows = links(record(2, (0, 1)), graph)
    assert set(rows) == {"a-s", "s-a", "s-b", "b-s"} and {row["bytes"] for row in rows.values()} == {N}
