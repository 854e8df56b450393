"""The algorithms of collectives side by side: what is asked, the rows, the crossovers, the tables and the figure."""

from __future__ import annotations

import io
import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from syncline.api.collectives import collectives_result
from syncline.costmodel import ALGORITHMS, COLLECTIVES, Link, best_algorithm, collective_s
from syncline.errors import SpecError
from syncline.planner.collective_tables import collectives_tables
from syncline.planner.collectives import (
    MOST_MESSAGES,
    MOST_REPEATED_MESSAGES,
    CostQuestion,
    algorithm_bandwidth,
    bus_factor,
    compute_costs,
    crossovers,
)
from syncline.specs import network

LINK = Link(1e-3, 1e6, "slow")
links = st.builds(Link, st.floats(1e-7, 1.0), st.floats(1e4, 1e11))


def asked(**fields):
    return CostQuestion.from_options(**{"nbytes": "1MB", "networks": ["1ms,8Mbit/s"], **fields})


def rows_of(**fields):
    return {(row["collective"], row["algorithm"]): row for row in compute_costs(asked(**fields))["rows"]}


def shown(**fields):
    question = asked(**fields)
    console = Console(file=io.StringIO(), width=100)
    for table in collectives_tables(compute_costs(question)["rows"], question):
        console.print(table)
    return console.file.getvalue()


def test_what_is_asked_unless_said_otherwise():
    question = CostQuestion.from_options()
    assert (question.workers, question.nbytes, question.collectives) == (8, 619 * 2**20, COLLECTIVES)
    assert (question.networks, question.starts_s) == ((network("10gbe"),), None)
    assert CostQuestion.from_options(starts="0, 50ms,1.5").starts_s == (0, 0.05, 1.5)
    assert CostQuestion.from_options(starts="0,50ms,1.5").workers == 3
    assert CostQuestion.from_options(nbytes="4096").nbytes == 4096
    assert CostQuestion.from_options(collectives=["gather", "gather"]).collectives == ("gather",)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"workers": 0}, "--workers: got 0; expected at least 1"),
        ({"workers": 3, "starts": "0,0"}, "--starts: got '0,0'; expected 3 times separated by commas"),
        ({"starts": "0,soon"}, "--starts.1: got 'soon'; expected a time with its unit"),
        ({"starts": "0,-1"}, "--starts.1: got -1.0; expected a time"),
        ({"starts": "0,inf"}, "--starts.1: got inf; expected a time"),
        ({"collectives": ["allreduce"]}, r"--collective: got 'allreduce'; .*\(did you mean 'all_reduce'\?\)"),
        ({"nbytes": "1Mbit"}, "--bytes: got '1Mbit'; expected a size"),
        ({"nbytes": "nan"}, "--bytes: got nan; expected a size"),
        ({"networks": ["10gb"]}, r"--network: got '10gb'; .*\(did you mean '10gbe'\?\)"),
    ],
)
def test_what_cannot_be_asked(fields, said):
    with pytest.raises(SpecError, match=f"^{said}"):
        CostQuestion.from_options(**fields)


def test_a_row_by_hand():
    # 4 workers, 1 MB at 1 MB/s: 6 rounds of 1 ms + 0.25 s; algbw is 1 MB in that time, busbw 6/4 of it.
    row = rows_of(workers=4)["all_reduce", "ring"]
    seconds = pytest.approx(1.506, rel=1e-12)
    assert (row["closed_form_s"], row["lockstep_s"], row["events_s"]) == (seconds, seconds, seconds)
    assert (row["workers"], row["nbytes"], row["network"]) == (4, 1e6, "1ms,8Mbit/s")
    assert row["bytes_per_worker"] == 1.5e6
    assert row["algbw_bytes_per_s"] == pytest.approx(1e6 / 1.506)
    assert row["busbw_bytes_per_s"] == pytest.approx(1.5e6 / 1.506)
    assert row["finish_s"] == row["events_finish_s"] == [seconds] * 4


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_every_algorithm_has_a_row_and_one_is_the_fastest(workers):
    rows = rows_of(workers=workers)
    assert list(rows) == [(kind, algorithm) for kind in COLLECTIVES for algorithm in ALGORITHMS[kind]]
    for kind in COLLECTIVES:
        of = {algorithm: row for (name, algorithm), row in rows.items() if name == kind}
        (fastest,) = (algorithm for algorithm, row in of.items() if row["fastest"])
        assert of[fastest]["closed_form_s"] == min(row["closed_form_s"] for row in of.values())
    for row in rows.values():
        assert row["events_s"] == pytest.approx(row["lockstep_s"], rel=1e-12)
        assert row["lockstep_s"] == pytest.approx(row["closed_form_s"], rel=1e-9) or row["collective"] == "gather"


@pytest.mark.parametrize("workers", [2, 8, 64])
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_no_busbw_exceeds_the_link_and_the_best_algorithm_reaches_it_without_latency(kind, workers):
    """What nccl-tests' factors are for: comparable with the link, whatever the number of workers."""
    link, nbytes = Link(0.0, 1e6), 1e9
    best = best_algorithm(kind, workers, nbytes, link)
    algbw = algorithm_bandwidth(kind, workers, nbytes, float(collective_s(kind, workers, nbytes, link, best)))
    # A broadcast by scatter and all-gather, or a reduce backwards, sends each byte twice, but for 1/P of them.
    reached = 1.0 if kind not in ("broadcast", "reduce") else workers / (2 * (workers - 1))
    assert algbw * bus_factor(kind, workers) == pytest.approx(reached * 1e6)


def test_what_takes_no_time_has_no_bandwidth():
    row = rows_of(workers=1)["all_reduce", "ring"]
    assert (row["closed_form_s"], row["algbw_bytes_per_s"], row["busbw_bytes_per_s"]) == (0, None, None)


def test_finish_times_of_workers_that_start_at_different_times():
    rows = rows_of(starts="0,0,0,10", collectives=["all_to_all", "broadcast"])
    # A block takes 250 ms on the link and 1 ms more to arrive. Worker 3 sends to 0 at 10 s; only then has worker 0 what
    # it needs to send its second block, at 10.251 to 2, which sends its third at 10.502 to 1, where it is at 10.753.
    row = rows["all_to_all", "pairwise"]
    assert (row["workers"], row["closed_form_s"]) == (4, pytest.approx(0.753))
    assert (row["lockstep_s"], row["events_s"]) == (pytest.approx(10.753), pytest.approx(10.753))
    for by in ("finish_s", "events_finish_s"):
        assert row[by] == pytest.approx([10.752, 10.753, 10.752, 10.752], abs=1e-12)
    # Down a binomial tree 0 sends 1 s to 1 and then to 2; 1 sends to 3, which has it before it starts.
    assert rows["broadcast", "binomial"]["finish_s"] == pytest.approx([2.0, 2.001, 2.001, 10.0])


def test_crossovers_by_hand():
    # 8 workers: doubling takes 3 rounds of n, Rabenseifner 6 rounds and 7/4 n: 3 alpha = (3 - 7/4) n / B.
    (crossing,) = crossovers("all_reduce", 8, LINK)
    assert crossing == (pytest.approx(3e-3 * 1e6 / 1.25), "recursive-doubling", "rabenseifner")
    assert crossovers("all_to_all", 8, LINK) == []
    assert crossovers("all_reduce", 1, LINK) == []
    assert crossovers("all_reduce", 8, Link(0.0, 1e6)) == []  # Rabenseifner from the first byte on


@given(st.sampled_from(COLLECTIVES), st.integers(1, 130), links)
def test_between_crossovers_the_fastest_is_the_one_that_is_told(kind, workers, link):
    changes = crossovers(kind, workers, link)
    assert all(one.above == other.below for one, other in itertools.pairwise(changes))
    edges = [0.0, *(at.nbytes for at in changes), math.inf]
    assert edges == sorted(edges)
    for at in changes:
        costs = {name: float(collective_s(kind, workers, at.nbytes, link, name)) for name in ALGORITHMS[kind]}
        assert costs[at.above] == pytest.approx(costs[at.below], rel=1e-9)
        for nbytes, algorithm in ((0.999 * at.nbytes, at.below), (1.001 * at.nbytes, at.above)):
            costs = {name: float(collective_s(kind, workers, nbytes, link, name)) for name in ALGORITHMS[kind]}
            # Three lines may meet in nearly one point, so that the next crossover comes within the thousandth.
            assert costs[algorithm] <= min(costs.values()) * (1 + 1e-3)
    if not changes:
        first, last = (best_algorithm(kind, workers, nbytes, link) for nbytes in (1.0, 1e15))
        assert collective_s(kind, workers, 1e15, link, first) == pytest.approx(
            collective_s(kind, workers, 1e15, link, last), rel=1e-9
        )


def test_what_would_take_long_is_left_out(monkeypatch):
    monkeypatch.setitem(MOST_REPEATED_MESSAGES, "events", 30)
    rows = rows_of(workers=4, collectives=["all_reduce"])
    assert rows["all_reduce", "ring"]["events_s"] is not None  # 24 messages
    rows = rows_of(workers=8, collectives=["all_reduce"])
    ring = rows["all_reduce", "ring"]  # 112 messages
    assert (ring["events_s"], ring["events_finish_s"]) == (None, None) and ring["lockstep_s"] is not None
    note = "- of events: too many messages to simulate (ring: 112, and at most 30 are accepted)."
    assert note in shown(workers=8, collectives=["all_reduce"])
    monkeypatch.setitem(MOST_MESSAGES, "lockstep", 30)
    doubling = rows_of(workers=8, collectives=["all_gather"])["all_gather", "recursive-doubling"]
    assert doubling["lockstep_s"] is not None  # 24 messages
    doubling = rows_of(workers=16, collectives=["all_gather"])["all_gather", "recursive-doubling"]
    assert doubling["lockstep_s"] is None and doubling["closed_form_s"] > 0
    monkeypatch.undo()


def test_a_hundred_thousand_workers_are_played():
    rows = rows_of(workers=100_000, collectives=["all_reduce"])
    for algorithm in ("ring", "server-naive"):
        row = rows["all_reduce", algorithm]
        assert row["lockstep_s"] == pytest.approx(row["closed_form_s"], rel=1e-9)


def test_tables_for_people():
    text = shown(workers=8, networks=["wan", "1ms,8Mbit/s"], collectives=["all_reduce", "all_to_all"])
    assert "all_reduce, 1 MB; 8 workers, wan: 25 ms one way, 1 Gbit/s" in text
    assert "all_to_all, 1 MB in each worker, for all; 8 workers, 1 ms one way, 8 Mbit/s" in text
    assert "Fastest: rabenseifner. By size 'auto' takes recursive-doubling, then rabenseifner from 2.4 kB on." in text
    assert text.count("by three methods") == 1 and text.count("Fastest: ") == 2


@pytest.mark.parametrize(
    ("network", "chosen"), [("dgx-a100", "measured"), ("dgx-h100", "nccl-nvlink (here NCCL's ring LL)")]
)
def test_the_note_names_the_choice_of_auto_where_times_are_of_whole_calls(network, chosen):
    (row,) = (
        row
        for row in rows_of(workers=6, networks=[network], collectives=["all_reduce"]).values()
        if "auto" in row["chosen_by"]
    )
    text = shown(workers=6, networks=[network], collectives=["all_reduce"])
    assert row["algorithm"] == chosen.split()[0]
    assert f"'auto' takes {chosen}, which" in text and "Fastest" not in text


@pytest.mark.parametrize(
    ("fields", "fastest"),
    [
        ({"nbytes": "1kB", "networks": ["10gbe"], "collectives": ["all_reduce"]}, "server-naive"),
        ({"nbytes": "1MB", "networks": ["10gbe"], "collectives": ["all_reduce"]}, "rabenseifner"),
        ({"starts": "0,0,0,50", "collectives": ["broadcast"]}, "binomial"),  # the late one has it when it comes
    ],
)
def test_the_fastest_has_the_smallest_number_in_the_table(fields, fastest):
    def seconds(row):
        numbers = re.findall(r"([\d.]+) (us|ms|s)\b", row)[:3]
        return min(float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit] for value, unit in numbers)

    text = shown(**fields)
    known = {name for of in ALGORITHMS.values() for name in of}
    lines = [line.split() for line in text.partition("Fastest")[0].splitlines()]
    told = {line[0]: seconds(" ".join(line)) for line in lines if line and line[0] in known}
    assert min(told, key=told.__getitem__) == fastest
    assert f"Fastest: {fastest}." in text
    (marked,) = (row["algorithm"] for row in compute_costs(asked(**fields))["rows"] if row["fastest"])
    assert marked == fastest


def test_tables_with_starts_count_from_the_last_one():
    # 2 workers exchange 1 MB in one round: 1.001 s after the second is there.
    lines = [line.strip() for line in shown(starts="0,50", collectives=["all_reduce"]).splitlines()]
    (doubling, listed) = (line for line in lines if line.startswith("recursive-doubling "))
    assert doubling.split()[1:7] == ["1", "s"] * 3
    assert "Workers start at 0 s, 50 s. From the last start until all have finished (lockstep, else events):" in lines
    assert listed.split(maxsplit=1)[1] == "1 s, 1 s"
    many = shown(starts=",".join(["0"] * 9), collectives=["broadcast"])
    assert many.count(", ...") == 1 + len(ALGORITHMS["broadcast"])  # the starts and every algorithm


@pytest.mark.parametrize("fields", [{}, {"workers": 1, "networks": ["wan", "10gbe"]}, {"nbytes": "0"}])
def test_the_figure_is_written(fields, tmp_path):
    file = tmp_path / "new" / "figure.svg"
    assert collectives_result(asked(collectives=["all_reduce", "gather"], **fields)).save_plot(file) == file
    text = file.read_text()
    assert "rabenseifner" in text and "gather" in text


def test_a_figure_s_file_is_a_picture_in_a_place_that_exists(tmp_path):
    (tmp_path / "file").touch()
    for name, said in (("x.bmp", "a name that ends in"), ("file/x.png", "a place that can be written to")):
        with pytest.raises(SpecError, match=f"^--plot: .*; expected {said}"):
            collectives_result(asked()).save_plot(tmp_path / name)


def test_a_network_of_nodes_has_rows_for_hierarchical_algorithms():
    rows = rows_of(workers=16, networks=["dgx-h100"], collectives=["all_reduce"])
    leader = rows["all_reduce", "leader"]
    assert leader["lockstep_s"] == pytest.approx(leader["closed_form_s"], rel=1e-9)
    ring = rows["all_reduce", "ring"]
    assert ring["closed_form_s"] is None and ring["events_s"] == pytest.approx(ring["lockstep_s"], rel=1e-9)
    assert ring["algbw_bytes_per_s"] == pytest.approx(1e6 / ring["lockstep_s"])
    gathers = rows_of(workers=16, networks=["dgx-h100"], collectives=["all_gather"])
    for name, policies in (("hierarchical", []), ("nccl-nvlink", ["auto", "nccl"])):
        gather = gathers["all_gather", name]
        assert gather["events_s"] == pytest.approx(gather["closed_form_s"], rel=1e-9)
        assert gather["chosen_by"] == policies
    assert "none is known for this algorithm on this network" in shown(workers=16, networks=["dgx-h100"])
    uneven = {"sites": [3, 2], "lan": "10gbe", "uplink": "wan"}
    assert "'auto' takes the first" in shown(workers=5, networks=[uneven], collectives=["all_gather"])


def test_contention_is_said():
    fields = {"workers": 8, "networks": ["two-sites"], "collectives": ["all_reduce"], "protocol": "rendezvous"}
    fields["starts"] = "0,0,0,0,0,0,0,1"
    row = rows_of(**fields)["all_reduce", "double-binary-tree"]
    assert row["contention"] and row["lockstep_s"] is None
    assert row["finish_s"] == row["events_finish_s"] and max(row["finish_s"]) == row["events_s"]
    assert "messages meet on a shared link (contention)" in shown(**fields)


def test_only_the_algorithms_asked_for():
    assert list(rows_of(algorithms=["ring", "auto"], collectives=["all_reduce"])) == [
        ("all_reduce", "ring"),
        ("all_reduce", "rabenseifner"),
    ]
    assert list(rows_of(algorithms=["tree"])) == [("all_reduce", "tree")]
    text = shown(algorithms=["tree"])
    assert "Chosen: rabenseifner by auto, gloo-ring by gloo, ring by nccl." in text
    assert "by three methods" in text  # once, below the last table that there is


def test_what_gloo_runs_is_shown_if_asked_for():
    rows = rows_of(workers=4, algorithms=["gloo"])
    assert list(rows) == [
        ("all_reduce", "gloo-ring"), ("all_gather", "gloo-ring"), ("reduce_scatter", "gloo-all-reduce"),
        ("all_to_all", "gloo-posted"), ("broadcast", "gloo-tree"), ("gather", "gloo-posted"),
        ("reduce", "gloo-reduce"), ("send", "message"),
    ]  # fmt: skip
    for row in rows.values():
        assert row["events_s"] == pytest.approx(row["closed_form_s"], rel=1e-9) and "gloo" in row["chosen_by"]
    assert rows["all_reduce", "gloo-ring"]["lockstep_s"] == pytest.approx(
        rows["all_reduce", "gloo-ring"]["events_s"], rel=1e-12
    )
    assert rows["all_to_all", "gloo-posted"]["contention"]  # connections share links


def test_choices_are_named():
    result = compute_costs(asked(collectives=["all_reduce"]))
    assert result["choices"] == [
        {
            "network": "1ms,8Mbit/s",
            "collective": "all_reduce",
            "workers": 8,
            "nbytes": 1e6,
            "auto": "rabenseifner",
            "gloo": "gloo-ring",
            "nccl": "ring",
        }
    ]
    rows = {row["algorithm"]: row["chosen_by"] for row in result["rows"]}
    assert rows["rabenseifner"] == ["auto"] and rows["ring"] == ["nccl"] and rows["tree"] == []


def test_the_rule_reaches_every_column():
    row = rows_of(workers=5, protocol="rendezvous", collectives=["all_reduce"])["all_reduce", "server-naive"]
    seconds = pytest.approx(8 * (1e-3 + 1.0), rel=1e-9)
    assert (row["protocol"], row["closed_form_s"], row["lockstep_s"], row["events_s"]) == ("rendezvous", *[seconds] * 3)
    assert "5 workers, rendezvous" in shown(workers=5, protocol="rendezvous", collectives=["all_reduce"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"protocol": "lazy"}, "--protocol: got 'lazy'; expected one of 'eager', 'rendezvous'"),
        ({"algorithms": ["rng"]}, r"--algorithm: got 'rng'; .*\(did you mean 'ring'\?\)"),
        ({"algorithms": ["leader"]}, "--algorithm: got 'leader'; expected a network of several nodes"),
        ({"algorithms": ["tree"], "collectives": ["broadcast"]}, "--algorithm: got 'tree'; expected one of"),
        ({"networks": ["dgx-h100"], "workers": 9}, "workers: got 9; expected a multiple of 8"),
    ],
)
def test_algorithms_and_networks_that_do_not_fit(fields, said):
    with pytest.raises(SpecError, match=f"^{said}"):
        CostQuestion.from_options(**fields)


def test_a_network_says_how_many_workers_it_has(tmp_path):
    file = tmp_path / "sites.yaml"
    file.write_text("sites: [3, 2]\nlan: 10gbe\nuplink: wan\n")
    assert CostQuestion.from_options(networks=[str(file)]).workers == 5


def test_a_figure_needs_a_closed_form(tmp_path):
    uneven = {"sites": [3, 2], "lan": "10gbe", "uplink": "wan"}
    question = asked(workers=5, networks=[uneven], collectives=["all_gather"])
    with pytest.raises(SpecError, match="an algorithm with a closed form"):
        collectives_result(question).save_plot(tmp_path / "x.png")
