"""Every parameter of a link, a network and a machine moves what it should, in the direction that physics says.

Fields are read off the classes: a new one without an entry here fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import ALGORITHMS, HARDWARE, Hardware, Link, collective_s, compute_s
from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.layouts.memory import USABLE, Memory, update_s
from syncline.costmodel.network.graph import Edge, Graph
from syncline.costmodel.network.link import topology
from syncline.costmodel.network.multi_level import Level, MultiLevel
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.software_costs import GLOO, GlooCosts, NcclCosts, NodeTimes, nvlink_costs
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.costmodel.numerics.measured_times import MeasuredTimes, Point
from syncline.sim import Call, clock
from syncline.sim.lockstep.routed import Contention

WORKERS, NBYTES = 4, 1e6


@dataclass(frozen=True)
class Turned:
    """A parameter turned up: ``turn(part, factor)``, for a factor of at least 1, costs ``more`` time, or less."""

    turn: Callable[[Any, float], Any]
    more: bool


@dataclass(frozen=True)
class Inert:
    """A parameter that no time depends on, with the reason."""

    reason: str


@dataclass(frozen=True)
class Checked:
    """A parameter with a test of its own below."""

    by: str


MEASURED = MeasuredTimes(
    "all_reduce", (Point(2, 1e3, 1e-5), Point(2, 1e6, 1e-4), Point(8, 1e3, 2e-5), Point(8, 1e6, 2e-4))
)

FOR_PEOPLE = Inert("a name, for people")


def times(field: str) -> Callable[[Any, float], Any]:
    return lambda part, factor: replace(part, **{field: factor * getattr(part, field)})


LINK: dict[str, Turned | Inert] = {
    "latency_s": Turned(times("latency_s"), more=True),
    "overhead_s": Turned(times("overhead_s"), more=True),
    "bandwidth_bytes_per_s": Turned(times("bandwidth_bytes_per_s"), more=False),
    "efficiency": Turned(lambda link, factor: replace(link, efficiency=link.efficiency ** (1 / factor)), more=False),
    "upload_bytes_per_s": Turned(
        lambda link, factor: replace(link, upload_bytes_per_s=factor * (link.upload_bytes_per_s or 1e5)), more=False
    ),
    "duplex": Turned(lambda link, factor: replace(link, upload_bytes_per_s=None, duplex="half"), more=True),
    "fabric": Inert("NCCL's choice alone goes by it; tests/costmodel/collectives/test_policies.py"),
    "name": FOR_PEOPLE,
}

HARDWARE_FIELDS: dict[str, Turned | Inert | Checked] = {
    "peak_flops": Turned(times("peak_flops"), more=False),
    "mfu": Turned(lambda one, factor: replace(one, mfu=one.mfu ** (1 / factor)), more=False),
    "memory_bytes": Checked("test_more_memory_never_holds_less"),
    "memory_bytes_per_s": Checked("test_faster_memory_updates_sooner"),
    "collectives": Checked("test_dearer_measurements_take_longer"),
    "name": FOR_PEOPLE,
    "precision": Checked("test_gradients_are_as_wide_as_what_hardware_computes_in"),
    "source": Inert("where the numbers come from"),
    "bounds": Inert("errors of predictions"),
    "kernels": Inert("prices of operations, not of FLOPs: tests/costmodel/compute/test_operations.py"),
    "power_w": Inert("a limit of kernels, likewise"),
    "host_bytes_per_s": Inert("a limit of offloaded activations: tests/planner/projection/test_memory.py"),
}

OF_LINKS = Checked("test_links_inside_networks")
ONE_HOP = Checked("test_graphs")

FIELDS: dict[type, dict[str, Turned | Inert | Checked]] = {
    Link: {
        **LINK,
        "gloo": Checked("test_dearer_software_takes_longer"),
        "nccl": Checked("test_smaller_pieces_take_longer_on_long_links"),
        "tcp": Checked("test_windows_that_open_take_longer_after_idling"),
        "measured": Checked("test_measured_times_of_a_node_are_taken"),
        "nvlink": Checked("test_nccl_on_nvlink_is_taken"),
        "sharp": Checked("test_sums_by_switches_take_another_time"),
        "data_centre": Inert("bytes that cost money: tests/costmodel/test_prices.py"),
        "bounds": FOR_PEOPLE,
    },
    NcclCosts: {
        **dict.fromkeys(
            ("buffer_bytes", "channels", "slices", "call_s"), Checked("test_smaller_pieces_take_longer_on_long_links")
        ),
        **dict.fromkeys(
            ("ring_latencies", "chain_latencies", "stored_part"), Checked("test_constants_of_a_library_change_the_time")
        ),
    },
    Tcp: {
        **dict.fromkeys(
            ("window_bytes", "connections", "loss", "segment_bytes", "flow_bytes_per_s"),
            Checked("test_narrower_windows_carry_less"),
        ),
        "slow_start": Checked("test_windows_that_open_take_longer_after_idling"),
        "queue_bytes": Checked("test_shorter_queues_lose_more"),
    },
    GlooCosts: {
        **dict.fromkeys(("message_s", "call_s", "byte_s", "call_of_s"), Checked("test_dearer_software_takes_longer")),
        **dict.fromkeys(("latency_part", "connection"), Checked("test_constants_of_a_library_change_the_time")),
    },
    Hardware: HARDWARE_FIELDS,
    TwoLevel: {
        "per_node": Checked("test_more_workers_in_a_node_are_nearer"),
        "inner": OF_LINKS,
        "outer": OF_LINKS,
        "nics_per_node": Checked("test_more_cards_are_never_slower"),
        "name": FOR_PEOPLE,
    },
    Sites: {
        "sites": Checked("test_more_sites_are_farther"),
        "lan": OF_LINKS,
        "uplink": OF_LINKS,
        "name": FOR_PEOPLE,
    },
    MultiLevel: {"levels": Checked("test_levels"), "name": FOR_PEOPLE},
    Level: {
        **dict.fromkeys(
            ("units", "rails", "oversubscription", "shares_lower_links", "cross_rail"), Checked("test_levels")
        ),
        "link": OF_LINKS,
        "name": FOR_PEOPLE,
    },
    Graph: {"hosts": ONE_HOP, "forwards": ONE_HOP, "edges": ONE_HOP, "routes": ONE_HOP, "name": FOR_PEOPLE},
    Edge: {"source": ONE_HOP, "target": ONE_HOP, "link": OF_LINKS, "directed": ONE_HOP},
}

ALGORITHMS_OF = [(kind, algorithm) for kind, names in ALGORITHMS.items() for algorithm in names]


def test_every_parameter_is_accounted_for() -> None:
    for part, known in FIELDS.items():
        assert {field.name for field in dataclasses.fields(part)} == set(known), part
    tests = {entry.by for known in FIELDS.values() for entry in known.values() if isinstance(entry, Checked)}
    assert tests <= set(globals())


@pytest.mark.parametrize("kind", GLOO)
@pytest.mark.parametrize(
    ("field", "dearer"),
    [
        ("message_s", 2e-4),
        ("call_s", ((WORKERS, 2e-3),)),
        ("byte_s", tuple((kind, 2e-10) for kind in GLOO)),
        ("call_of_s", tuple((kind, ((WORKERS, 2e-3),)) for kind in GLOO)),
    ],
)
def test_dearer_software_takes_longer(kind: str, field: str, dearer: Any) -> None:
    costs = GlooCosts(1e-4, ((WORKERS, 1e-3),), tuple((kind, 1e-10) for kind in GLOO))

    def of(link: Link) -> list[float]:
        call = Call(0, kind, NBYTES)
        by_events = [clock([call], 0.0, link, WORKERS, 1, evaluator=name).wall_s for name in ("events", "auto")]
        return [float(collective_s(kind, WORKERS, NBYTES, link)), *by_events]

    cheap, dear = Link(1e-3, 1e8, gloo=costs), Link(1e-3, 1e8, gloo=replace(costs, **{field: dearer}))
    assert all(less < more for less, more in zip(of(cheap), of(dear), strict=True))


@pytest.mark.parametrize(
    ("field", "dearer"), [("buffer_bytes", 2**20), ("channels", 1), ("slices", 1), ("call_s", 1.0)]
)
def test_smaller_pieces_take_longer_on_long_links(field: str, dearer: Any) -> None:
    costs = NcclCosts()

    def of(nccl: NcclCosts) -> list[float]:
        link = Link(50e-3, 1e8, nccl=nccl)
        (played_s,) = [clock([Call(0, "all_reduce", 1e9)], 0.0, link, WORKERS, 1, evaluator="events").wall_s]
        return [float(collective_s("all_reduce", WORKERS, 1e9, link)), played_s]

    known, more = of(costs), of(replace(costs, **{field: dearer}))
    assert all(less < more for less, more in zip(known, more, strict=True))


@pytest.mark.parametrize(
    ("field", "narrower"),
    [("window_bytes", 1e3), ("connections", 1), ("loss", 0.02), ("segment_bytes", 500), ("flow_bytes_per_s", 1e6)],
)
def test_narrower_windows_carry_less(field: str, narrower: Any) -> None:
    tcp = Tcp(window_bytes=1e6, connections=4, loss=0.01)
    other = replace(tcp, **{field: narrower})
    assert other.rate_bytes_per_s(1e12, 1e-3) <= tcp.rate_bytes_per_s(1e12, 1e-3)
    assert any(
        other.rate_bytes_per_s(1e12, round_trip_s) < tcp.rate_bytes_per_s(1e12, round_trip_s)
        for round_trip_s in (1e-6, 1e-3, 1.0)
    )


@pytest.mark.parametrize("by", ["auto", "events"])
def test_windows_that_open_take_longer_after_idling(by: str) -> None:
    calls = [Call(step, "all_reduce", 1e8) for step in range(3)]
    links = [Link(50e-3, 1e8, tcp=tcp) for tcp in (None, Tcp(slow_start=False), Tcp())]
    plain_s, open_s, opening_s = (clock(calls, 30.0, link, WORKERS, 3, evaluator=by).wall_s for link in links)
    assert plain_s == open_s < opening_s


@cache
def outputs(network: Network, workers: int, nbytes: float) -> dict[tuple[str, ...], float]:
    """Seconds that depend on a network: messages over idle channels, collectives in closed form and in lockstep."""
    over = topology(network, workers)
    pairs = np.array(list(permutations(range(workers), 2))).T
    channels, latency_s, overhead_s = over.paths(*pairs)
    narrowest = np.append(over.bandwidth_bytes_per_s, np.inf)[channels].min(axis=1)
    messages_s = latency_s + overhead_s + nbytes / narrowest
    out = {("message", f"{i} to {j}"): float(s) for i, j, s in zip(*pairs, messages_s, strict=True)}
    for kind, algorithm in ALGORITHMS_OF:
        if isinstance(network, Link):
            with contextlib.suppress(NoClosedForm):
                out["closed form", kind, algorithm] = float(collective_s(kind, workers, nbytes, network, algorithm))
        with contextlib.suppress(Contention):
            call = Call(0, kind, nbytes, algorithm=algorithm)
            out["lockstep", kind, algorithm] = clock([call], 0.0, network, workers, 1, evaluator="lockstep").wall_s
    return out


def compare(
    before: Network, after: Network, workers: int, nbytes: float, *, more: bool, strictly: bool = False
) -> None:
    """After costs more time than before, or less; each output that both have, and strictly some of them."""
    old, new = outputs(before, workers, nbytes), outputs(after, workers, nbytes)
    both = sorted(set(old) & set(new))
    assert both
    if not more:
        old, new = new, old
    for name in both:
        assert old[name] <= new[name] * (1 + 1e-9), name
    if strictly:
        assert any(old[name] < new[name] * (1 - 1e-6) for name in both)


links = st.builds(
    Link,
    latency_s=st.floats(0, 0.1),
    bandwidth_bytes_per_s=st.floats(1e4, 1e11),
    overhead_s=st.floats(0, 1e-3),
    efficiency=st.floats(0.1, 1.0),
    upload_bytes_per_s=st.one_of(st.none(), st.floats(1e4, 1e11)),
)
each_link_field = pytest.mark.parametrize("field", [name for name, entry in LINK.items() if isinstance(entry, Turned)])


def turned(field: str) -> Turned:
    entry = LINK[field]
    assert isinstance(entry, Turned)
    return entry


@each_link_field
@settings(max_examples=15, deadline=None)
@given(link=links, factor=st.floats(1, 100), workers=st.integers(2, 9), nbytes=st.floats(0, 1e9))
def test_links(field: str, link: Link, factor: float, workers: int, nbytes: float) -> None:
    entry = turned(field)
    if field == "upload_bytes_per_s" and link.upload_bytes_per_s is None:
        link = replace(link, upload_bytes_per_s=1e5)
    if field == "duplex":
        link = replace(link, upload_bytes_per_s=None)
    compare(link, entry.turn(link, factor), workers, nbytes, more=entry.more)


OFFICE = Link(1e-3, 1e6, overhead_s=1e-4, efficiency=0.5, upload_bytes_per_s=5e5)
BACKBONE = Link(1e-2, 2e5, overhead_s=2e-4, efficiency=0.5, upload_bytes_per_s=1e5)


@each_link_field
def test_each_parameter_of_a_link_moves_something(field: str) -> None:
    entry = turned(field)
    link = replace(OFFICE, upload_bytes_per_s=None) if field in ("duplex", "bandwidth_bytes_per_s") else OFFICE
    compare(link, entry.turn(link, 2.0), WORKERS, NBYTES, more=entry.more, strictly=True)


def graph(link: Link) -> Graph:
    return Graph(("a", "b", "c", "d"), tuple(Edge(host, "switch", link) for host in "abcd"))


NETWORKS: dict[str, Callable[[Link], Network]] = {
    "TwoLevel.inner": lambda link: TwoLevel(2, link, BACKBONE),
    "TwoLevel.outer": lambda link: TwoLevel(2, OFFICE, link),
    "Sites.lan": lambda link: Sites(2, link, BACKBONE),
    "Sites.uplink": lambda link: Sites(2, OFFICE, link),
    "Level.link, the inner": lambda link: MultiLevel((Level(2, link), Level(2, BACKBONE, 1))),
    "Level.link, the outer": lambda link: MultiLevel((Level(2, OFFICE), Level(2, link, 1, shares_lower_links=False))),
    "Edge.link": graph,
}


@each_link_field
@pytest.mark.parametrize("where", NETWORKS)
def test_links_inside_networks(where: str, field: str) -> None:
    entry, build = turned(field), NETWORKS[where]
    plain = field in ("duplex", "bandwidth_bytes_per_s")
    before = replace(BACKBONE, upload_bytes_per_s=None) if plain else BACKBONE
    for factor in (1.5, 1000.0):
        compare(build(before), build(entry.turn(before, factor)), WORKERS, NBYTES, more=entry.more, strictly=True)


def test_more_workers_in_a_node_are_nearer() -> None:
    nodes = [TwoLevel(per_node, OFFICE, BACKBONE) for per_node in (1, 2, 4)]
    for near, nearer in pairwise(nodes):
        pair_s = [outputs(network, WORKERS, NBYTES) for network in (near, nearer)]
        messages = [name for name in pair_s[0] if name[0] == "message"]
        assert all(pair_s[1][name] <= pair_s[0][name] for name in messages)
        assert any(pair_s[1][name] < pair_s[0][name] for name in messages)


def test_more_cards_are_never_slower() -> None:
    """Of the inter-node messages of an all-to-all, two share a card."""
    call = Call(0, "all_to_all", NBYTES)

    def takes_s(cards: int) -> float:
        return clock([call], 0.0, TwoLevel(4, OFFICE, BACKBONE, cards), 8, 1, evaluator="events").wall_s

    one, two, four = takes_s(1), takes_s(2), takes_s(4)
    assert four < two < one


def test_more_sites_are_farther() -> None:
    one, two = (outputs(Sites(sites, OFFICE, BACKBONE), WORKERS, NBYTES) for sites in (1, 2))
    messages = [name for name in one if name[0] == "message"]
    assert all(one[name] <= two[name] for name in messages)
    assert one["message", "0 to 3"] < two["message", "0 to 3"]


def test_levels() -> None:
    """Nodes of four in a rack, two racks: an all-to-all, which crosses everything, and single messages."""
    call = Call(0, "all_to_all", NBYTES)
    node, rack, pair = Level(4, OFFICE), Level(2, BACKBONE, 4, shares_lower_links=False), Level(2, BACKBONE, 4)

    def takes_s(*levels: Level) -> float:
        return clock([call], 0.0, MultiLevel(levels), 16, 1, evaluator="events").wall_s

    plain_s = takes_s(node, rack, pair)
    assert takes_s(node, rack, replace(pair, rails=1)) > takes_s(node, rack, replace(pair, rails=2)) > plain_s
    assert takes_s(node, replace(rack, rails=1), pair) > plain_s
    by_ratio_s = [takes_s(node, rack, replace(pair, rails=None, oversubscription=k)) for k in (1, 2, 4)]
    assert by_ratio_s == sorted(set(by_ratio_s))
    assert takes_s(node, rack, replace(pair, shares_lower_links=False)) < plain_s
    assert takes_s(node, replace(rack, cross_rail="inside"), pair) != plain_s
    assert takes_s(node, replace(rack, cross_rail="spine"), replace(pair, rails=1)) != plain_s
    assert takes_s(replace(node, units=2), replace(rack, units=4, rails=2), pair) > plain_s


def test_graphs() -> None:
    """A ring of a, b, c, d: ways go round the shorter side, as far as edges, hosts and routes allow."""
    alike = Link(1e-3, 1e6)
    plain = Graph(("a", "b"), tuple(Edge(one, other, alike) for one, other in ("ab", "bc", "cd", "da")))

    def message_s(network: Graph, which: str = "0 to 1") -> float:
        return outputs(network, 2, NBYTES)["message", which]

    first, *others = plain.edges
    assert message_s(replace(plain, hosts=("a", "c"))) > message_s(plain)
    assert message_s(replace(plain, routes=(("a", "d", "c", "b"),))) > message_s(plain)
    assert message_s(replace(plain, edges=tuple(others))) > message_s(plain)
    one_way = replace(plain, edges=(replace(first, directed=True), *others))
    assert message_s(one_way) == message_s(plain)
    assert message_s(one_way, "1 to 0") > message_s(plain, "1 to 0")
    # The end that is the source sends at the upload bandwidth, the other at the download bandwidth.
    uneven, swapped = (Graph(("a", "b"), (Edge(*ends, OFFICE),)) for ends in ("ab", "ba"))
    assert message_s(uneven) == message_s(swapped, "1 to 0") > message_s(uneven, "1 to 0") == message_s(swapped)


@pytest.mark.parametrize("part", [Link, TwoLevel, Sites, MultiLevel, Graph])
def test_names_move_nothing(part: type) -> None:
    network = {
        Link: OFFICE,
        TwoLevel: TwoLevel(2, OFFICE, BACKBONE),
        Sites: Sites(2, OFFICE, BACKBONE),
        MultiLevel: MultiLevel((Level(2, OFFICE), Level(None, BACKBONE, 1))),
        Graph: graph(OFFICE),
    }[part]
    assert outputs(network, WORKERS, NBYTES) == outputs(replace(network, name="other"), WORKERS, NBYTES)


@settings(max_examples=40, deadline=None)
@given(link=links, workers=st.integers(2, 40), nbytes=st.floats(1, 1e9), factor=st.floats(1, 10))
def test_more_workers_and_more_bytes_are_never_faster(link: Link, workers: int, nbytes: float, factor: float) -> None:
    """Of each collective's first algorithm; others pay for a number of workers that is no power of two."""
    for kind, (first, *_) in ALGORITHMS.items():
        now_s = collective_s(kind, workers, nbytes, link, first)
        assert now_s <= collective_s(kind, workers + 1, nbytes, link, first) * (1 + 1e-12)
    for kind, algorithm in ALGORITHMS_OF:
        now_s = collective_s(kind, workers, nbytes, link, algorithm)
        assert now_s <= collective_s(kind, workers, factor * nbytes, link, algorithm) * (1 + 1e-12)


@pytest.mark.parametrize("field", HARDWARE_FIELDS)
@given(hardware=st.sampled_from(list(HARDWARE.values())), flops=st.floats(1, 1e18), factor=st.floats(1.01, 100))
def test_hardware(field: str, hardware: Hardware, flops: float, factor: float) -> None:
    entry = HARDWARE_FIELDS[field]
    before_s = compute_s(flops, hardware)
    if isinstance(entry, Turned):
        assert compute_s(flops, entry.turn(hardware, factor)) < before_s
    else:
        texts = {name: f"not {getattr(hardware, name)}" for name in ("name", "source")}
        other = {**texts, "collectives": (MEASURED,), "precision": "tf32"}.get(field, factor)
        assert compute_s(flops, replace(hardware, **{field: other})) == before_s


def test_gradients_are_as_wide_as_what_hardware_computes_in() -> None:
    formats = {one: replace(HARDWARE["h100"], precision=one).number_format for one in ("bf16", "fp16", "fp32", "tf32")}
    assert formats == {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "tf32": "fp32"}


@given(ranks=st.integers(2, 8), nbytes=st.floats(1, 1e9), factor=st.floats(1.01, 100))
def test_dearer_measurements_take_longer(ranks: int, nbytes: float, factor: float) -> None:
    dearer = replace(
        MEASURED, points=tuple(point._replace(seconds=factor * point.seconds) for point in MEASURED.points)
    )
    one, other = (replace(HARDWARE["h100"], collectives=(times,)) for times in (MEASURED, dearer))
    known, more = one.measured("all_reduce"), other.measured("all_reduce")
    assert known is not None
    assert more is not None
    assert known.time_s(nbytes, ranks) < more.time_s(nbytes, ranks)


@pytest.mark.parametrize(
    ("kind", "costs", "field", "dearer"),
    [
        ("all_reduce", NcclCosts(), "ring_latencies", 5.0),
        ("broadcast", NcclCosts(), "chain_latencies", 5.0),
        ("all_reduce", NcclCosts(), "stored_part", 1.0),
        ("all_reduce", GlooCosts(), "latency_part", 1.0),
        ("all_reduce", GlooCosts(), "connection", Tcp(flow_bytes_per_s=1e7)),
    ],
)
def test_constants_of_a_library_change_the_time(kind: str, costs: Any, field: str, dearer: Any) -> None:
    library = "nccl" if isinstance(costs, NcclCosts) else "gloo"
    links = [Link(1e-3, 1e8, **{library: one}) for one in (costs, replace(costs, **{field: dearer}))]
    less, more = (float(collective_s(kind, WORKERS, 1e8, link)) for link in links)
    assert less < more


def test_measured_times_of_a_node_are_taken() -> None:
    link = Link(1e-6, 3e11)
    slow, fast = (replace(link, measured=NodeTimes("a100", factor)) for factor in (2.0, 1.0))
    times = [collective_s("all_reduce", 8, 1e9, one, "measured") for one in (slow, fast)]
    assert times[0] == pytest.approx(2 * times[1])


def test_shorter_queues_lose_more() -> None:
    parts = [Tcp(connections=16, queue_bytes=queue).resent_part for queue in (3e5, 3e6, float("inf"))]
    assert parts[0] > parts[1] > parts[2] == 0.0


def test_nccl_on_nvlink_is_taken() -> None:
    link = Link(1e-6, 450e9, nvlink=nvlink_costs(4))
    times = [
        collective_s("all_reduce", 8, 1e9, one, "nccl-nvlink") for one in (link, replace(link, nvlink=nvlink_costs(3)))
    ]
    assert times[0] < times[1]  # switches that reduce are faster than rings


def test_sums_by_switches_take_another_time() -> None:
    inside, between = Link(1e-6, 450e9, nvlink=nvlink_costs(4)), Link(2e-6, 50e9)
    networks = [TwoLevel(8, inside, replace(between, sharp=sharp)) for sharp in (False, True)]
    by_gpus_s, by_switches_s = (collective_s("all_reduce", 64, 1e8, network, "nccl-nvlink") for network in networks)
    assert by_switches_s < by_gpus_s


@given(st.floats(1, 1e12), st.floats(1, 1e12), st.floats(1, 100))
def test_more_memory_never_holds_less(needed: float, held: float, factor: float) -> None:
    small = replace(HARDWARE["h100"], memory_bytes=held)
    memory = Memory(needed, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert memory.fits(small) == (needed <= USABLE * held)
    assert memory.fits(small) <= memory.fits(replace(small, memory_bytes=factor * held))


@given(held=st.floats(1, 1e12), factor=st.floats(1.01, 100))
def test_faster_memory_updates_sooner(held: float, factor: float) -> None:
    memory, one = Memory(held, held, 0.0, 0.0, 0.0, 0.0), HARDWARE["h100"]
    assert one.memory_bytes_per_s is not None
    faster = replace(one, memory_bytes_per_s=factor * one.memory_bytes_per_s)
    assert update_s(memory, faster) < update_s(memory, one)
