"""Chakra traces of records: read by hand, and back as records that take as long."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import Hardware, Link
from syncline.errors import SpecError, SynclineError
from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    CountedOperation,
    Event,
    HostWaited,
    Loss,
    Marked,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.replaying.chakra.folders import read_chakra, write_chakra
from syncline.measure.replaying.chakra.schema import (
    COLLECTIVE,
    COMPUTE,
    METADATA,
    RECV,
    SEND,
    add_attributes,
    attributes_of,
    chakra_messages,
    encode_varint,
    read_messages,
    write_messages,
)
from syncline.measure.replaying.replay import MeasuredComputing, Replayed, replay, segment_seconds

SLOW = Hardware("slow", 1e9, 1.0, "fp32", "made up", memory_bytes_per_s=1e9)
LINKS = [Link(1e-3, 1e6), Link(0.5, 1e7)]
SEGMENTS = [
    (CountedOperation(1e9, 0.0),),
    (CountedOperation(2e6, 3e6), CountedOperation(0.0, 5e6)),
    (CountedOperation(0.0, 1e3),),
]


def given_to(folder: Path, ranks: Sequence[RankRecord], ahead: bool = False) -> Path:
    out = folder / "chakra"
    write_chakra(ranks, [segment_seconds(one, SLOW) for one in ranks], ahead, {"hardware": "slow"}, out)
    return out


def rank(*events: Event) -> RankRecord:
    return RankRecord(list(events), list(SEGMENTS))


def started(call: int, number: int, nbytes: int, ranks: tuple[int, ...], kind: str = "all_reduce") -> Started:
    return Started(call, kind, kind, nbytes, ranks, (f"of {len(ranks)}", number), "train.py:7")


def clocks(of: Replayed) -> list[float]:
    spans = of.timeline
    waited_s = (spans.end_s - spans.start_s)[spans.what == "wait"].sum()
    return [*of.step_end_s.tolist(), float(spans.end_s.max()), float(waited_s)]


def alike(one: Sequence[RankRecord], other: Sequence[RankRecord], host: str = "waits") -> None:
    for link in LINKS:
        here, there = (clocks(replay(ranks, link, SLOW, "ring", host)) for ranks in (one, other))
        assert there == pytest.approx(here, rel=1e-12)
    assert [rank.losses for rank in other] == [rank.losses for rank in one]


def wall_s(ranks: Sequence[RankRecord], on: Hardware | MeasuredComputing) -> float:
    return float(replay(ranks, LINKS[0], on, "ring", "waits").timeline.end_s.max())


def test_nodes_are_what_astra_sim_reads(tmp_path: Path) -> None:
    tag = ("all", 0, 1, 0)
    ranks = [
        rank(Computed(1), started(1, 0, 4000, (0, 1, 2), "reduce_scatter"), Computed(0), Waited(1),
             MessageSent(2, 1, 77, tag, "p.py:1"), Computed(2), Loss(0.5), Stepped()),
        rank(Computed(1), started(1, 0, 4000, (0, 1, 2), "reduce_scatter"), MessageAwaited(2, 0, tag, "p.py:2"),
             started(3, 0, 9, (1, 2)), Waited(1), Waited(2), Waited(3), Computed(0)),
        rank(Computed(1), started(1, 0, 4000, (0, 1, 2), "reduce_scatter"), started(3, 0, 9, (1, 2)), Waited(3)),
    ]  # fmt: skip
    folder = given_to(tmp_path, ranks)
    assert json.loads((folder / "comm_groups.json").read_text()) == {"1": [1, 2]}
    assert sorted(path.name for path in folder.iterdir()) == [
        "comm_groups.json", "manifest.json", *(f"trace.{i}.et" for i in range(3)),
    ]  # fmt: skip
    head, *nodes = read_messages(folder / "trace.0.et")
    assert head.version == "1.0.0"
    assert [node.type for node in nodes] == [COMPUTE, COLLECTIVE, COMPUTE, SEND, COMPUTE, METADATA, METADATA]
    assert [list(node.data_deps) for node in nodes] == [[], [0], [0], [2, 1], [2, 1], [4], [5]]
    assert [node.duration_micros for node in nodes] == [8000, 0, 1_000_000, 0, 1, 0, 0]
    first, call, _, sent, *_ = (attributes_of(node) for node in nodes)
    assert (first["num_ops"], first["tensor_size"], first["is_cpu_op"]) == (2_000_000, 8_000_000, False)
    assert (call["comm_type"], call["comm_size"], call["pg_name"]) == (7, 4000, "0")
    assert (sent["comm_src"], sent["comm_dst"], sent["comm_tag"], sent["comm_size"]) == (0, 1, 0, 77)
    _, *nodes = read_messages(folder / "trace.1.et")
    assert [node.type for node in nodes] == [COMPUTE, COLLECTIVE, RECV, COLLECTIVE, COMPUTE]
    assert list(nodes[-1].data_deps) == [0, 1, 2, 3]
    asked = attributes_of(nodes[2])
    assert (asked["comm_src"], asked["comm_dst"], asked["comm_tag"], asked["comm_size"]) == (0, 1, 0, 77)
    assert attributes_of(nodes[3])["pg_name"] == "1"
    alike(ranks, read_chakra(folder))


def test_microseconds_do_not_add_up_to_an_error(tmp_path: Path) -> None:
    one = RankRecord([Computed(0)] * 1000, [(CountedOperation(400.0, 0.0),)])  # 0.4 us each
    _, *nodes = read_messages(given_to(tmp_path, [one]) / "trace.0.et")
    assert sum(node.duration_micros for node in nodes) == 400


@st.composite
def records(draw: st.DrawFn) -> list[RankRecord]:
    """Ranks that do the same collectives, whole and of some, with computing, messages and waits where they will."""
    seed, size = draw(st.integers(0, 2**32)), draw(st.integers(2, 4))
    chance = random.Random(seed)
    ranks = [rank() for _ in range(size)]
    calls = [0] * size
    waiting: list[list[int]] = [[] for _ in range(size)]
    numbers: dict[object, int] = {}
    for _ in range(draw(st.integers(1, 12))):
        what = chance.choice(["all_reduce", "all_gather", "broadcast", "send", "step"])
        among = tuple(range(size)) if chance.random() < 0.6 else tuple(sorted(chance.sample(range(size), 2)))
        for at in range(size):
            for _ in range(chance.randrange(3)):
                ranks[at].events.append(Computed(chance.randrange(3)))
        if what == "step":
            for one in ranks:
                one.events += [Loss(chance.random()), Stepped()]
        elif what == "send":
            source, to = among[0], among[-1]
            number = numbers[source, to] = numbers.get((source, to), -1) + 1
            tag = ("all", source, to, number)
            for at in (source, to):
                calls[at] += 1
                waiting[at].append(calls[at])
            ranks[source].events.append(MessageSent(calls[source], to, 1000, tag, "s"))
            ranks[to].events.append(MessageAwaited(calls[to], source, tag, "r"))
        else:
            number = numbers[among] = numbers.get(among, -1) + 1
            for at in among:
                calls[at] += 1
                waiting[at].append(calls[at])
                kind = what if len(among) == size else "all_reduce"
                ranks[at].events.append(
                    Started(calls[at], kind, kind, 5000, among, (f"group {among}", number), "t.py:1")
                )
        for at in range(size):
            while waiting[at] and chance.random() < 0.5:
                ranks[at].events.append(Waited(waiting[at].pop(0)))
    for at, one in enumerate(ranks):
        one.events += [*(Waited(call) for call in waiting[at]), Computed(0), Stepped()]
    return ranks


@settings(max_examples=25, deadline=None)
@given(ranks=records())
def test_a_record_comes_back_as_one_that_takes_as_long(
    ranks: list[RankRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    alike(ranks, read_chakra(given_to(tmp_path_factory.mktemp("given"), ranks)))


def test_what_was_measured_comes_back(tmp_path: Path) -> None:
    one = rank(Computed(2), Computed(0), Computed(1), Stepped())
    one.segment_cpu_s = [0.5, 0.25, 0.125]
    (back,) = read_chakra(given_to(tmp_path, [one]))
    assert wall_s([back], MeasuredComputing()) == 0.875


def foreign(folder: Path, *ranks: list[dict[str, object]], groups: dict[str, list[int]] | None = None) -> Path:
    """Traces as others write them: nodes with a type, dependencies, and attributes."""
    for number, nodes in enumerate(ranks):
        made = [chakra_messages().metadata(version="0.0.4")]
        for at, told in enumerate(nodes):
            of = dict(told)
            node = chakra_messages().node(
                id=of.pop("id", at), name="node", type=of.pop("type"), data_deps=of.pop("deps", []),
                ctrl_deps=of.pop("ctrl", []), duration_micros=of.pop("us", 0),
            )  # fmt: skip
            add_attributes(node, **of)
            made.append(node)
        write_messages(folder / f"theirs.{number}.et", made)
    if groups:
        (folder / "comm_groups.json").write_text(json.dumps(groups))
    return folder


SUM = {"type": COLLECTIVE, "comm_type": 0, "comm_size": 2_000_000}
"""Of two: 2.002 s on the first link by a ring."""


def test_calls_of_others_run_beside_computing_that_does_not_need_them(tmp_path: Path) -> None:
    nodes: list[dict[str, object]] = [
        {"type": COMPUTE, "us": 1_000_000},
        SUM | {"deps": [0]},
        {"type": COMPUTE, "us": 500_000, "deps": [0]},
        {"type": COMPUTE, "us": 250_000, "deps": [1, 2]},
    ]
    ranks = read_chakra(foreign(tmp_path, nodes, nodes))
    assert wall_s(ranks, MeasuredComputing()) == pytest.approx(1 + 2.002 + 0.25)
    with pytest.raises(SpecError, match="expected 'measured': the record has seconds and no operations"):
        replay(ranks, LINKS[0], SLOW)


def test_operations_of_others_are_a_roofline_s(tmp_path: Path) -> None:
    nodes: list[dict[str, object]] = [{"type": COMPUTE, "us": 7, "num_ops": 3_000_000_000, "tensor_size": 10}]
    assert wall_s(read_chakra(foreign(tmp_path, nodes)), SLOW) == 3.0


def test_order_is_by_dependencies_and_not_by_lines(tmp_path: Path) -> None:
    nodes: list[dict[str, object]] = [
        {"id": 9, "type": COMPUTE, "us": 1_000_000, "ctrl": [4]},
        {"id": 4, "type": METADATA, "deps": [7]},
        SUM | {"id": 7},
    ]
    ranks = read_chakra(foreign(tmp_path, nodes, nodes))
    assert wall_s(ranks, MeasuredComputing()) == pytest.approx(3.002)


def test_groups_of_others(tmp_path: Path) -> None:
    def nodes(group: str) -> list[dict[str, object]]:
        return [SUM | {"pg_name": group}, {"type": COMPUTE, "us": 1_000_000, "deps": [0]}]

    folder = foreign(tmp_path, *(nodes("5" if at < 2 else "6") for at in range(4)), groups={"5": [0, 1], "6": [2, 3]})
    ranks = read_chakra(folder)
    assert wall_s(ranks, MeasuredComputing()) == pytest.approx(3.002)
    (folder / "comm_groups.json").write_text('{"5": [0, 1], "6": [2, 4]}')
    with pytest.raises(SpecError, match="got 4; expected a rank from 0 to 3"):
        read_chakra(folder)
    (folder / "comm_groups.json").unlink()
    with pytest.raises(SpecError, match=r"theirs\.0\.et\.node 0: got '5'; expected a pg_name that comm_groups"):
        read_chakra(folder)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([{"type": COMPUTE, "deps": [3]}], r"dependencies that are there \(node 0 waits for 3\)"),
        ([{"type": COMPUTE, "deps": [1]}, {"type": COMPUTE, "deps": [0]}], "in a circle"),
        ([{"type": COMPUTE}, {"type": COMPUTE, "id": 0}], "two have 0"),
        ([{"type": 2}], r"METADATA, COMP, .* \(node 0 is MEM_LOAD\)"),
        ([{"type": COLLECTIVE, "comm_type": 0}], "node 0: got None; expected comm_size"),
        ([{"type": COLLECTIVE, "comm_type": "x", "comm_size": 1}], "node 0: got 'x'; expected comm_type"),
        ([{"type": COLLECTIVE, "comm_type": 12, "comm_size": 1}], "node 0: got 12; expected a comm_type below 10"),
        ([{"type": SEND, "comm_dst": 5, "comm_size": 1}], "node 0: got 5; expected another one of 1 ranks"),
        ([{"type": COMPUTE, "num_ops": -1}], "node 0: got -1; expected num_ops"),
    ],
)
def test_refusals_name_the_node(nodes: list[dict[str, object]], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said):
        read_chakra(foreign(tmp_path, nodes))


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 10**6), flip=st.integers(0, 10**6), at=st.booleans())
def test_a_file_that_is_none_is_refused_in_one_line(
    cut: int, flip: int, at: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = given_to(tmp_path_factory.mktemp("given"), [rank(Computed(0), Loss(1.0), Stepped())])
    file = folder / "trace.0.et"
    data = bytearray(file.read_bytes())
    if at:
        data[flip % len(data)] ^= 1 << flip % 8
    else:
        del data[cut % len(data) :]
    file.write_bytes(data)
    try:
        read_chakra(folder)
    except SynclineError as error:
        assert "\n" not in str(error)


def test_folders_that_have_no_traces(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a folder of Chakra execution traces"):
        read_chakra(tmp_path / "nowhere")
    folder = foreign(tmp_path, [{"type": COMPUTE}], [{"type": COMPUTE}], [{"type": COMPUTE}])
    (folder / "theirs.1.et").unlink()
    with pytest.raises(SpecError, match=r"theirs\.1\.et is missing"):
        read_chakra(folder)
    (folder / "mine.0.et").write_bytes(b"")
    with pytest.raises(SpecError, match="of one NAME"):
        read_chakra(folder)


def test_lengths() -> None:
    assert [encode_varint(one) for one in (0, 1, 127, 128, 300)] == [b"\0", b"\1", b"\x7f", b"\x80\x01", b"\xac\x02"]


def test_streams_come_back(tmp_path: Path) -> None:
    """What the host goes ahead of: a side stream with a call of its own, marks, and a value that is read."""
    events: list[Event] = [
        Computed(0),
        Marked(1, 0),
        StreamWaited(1, 3),
        Computed(1, 3),
        started(1, 0, 2_000_000, (0, 1))._replace(stream=3),
        Computed(0),
        Waited(1, 3),
        Marked(2, 3),
        Computed(2, 3),
        StreamWaited(2, 0),
        Computed(1),
        Marked(3, 0),
        HostWaited(3),
        started(2, 1, 1_000_000, (0, 1))._replace(stream=3),
        Loss(0.5),
        Stepped(),
        Computed(0, 3),
        HostWaited(EVERYTHING),
        Computed(0),
        Stepped(),
    ]
    ranks = [rank(*events), rank(*events)]
    alike(ranks, read_chakra(given_to(tmp_path, ranks, ahead=True)), "ahead")
