"""Where the first changes: both sides of it, and what bounds it."""

from __future__ import annotations

import pytest

from syncline.costmodel import NETWORKS
from syncline.costmodel.network.link_groups import outermost_links
from syncline.costmodel.network.network_links import scaled
from syncline.planner.advice.plan_costs import PlanRow, price_plans
from syncline.planner.advice.question import AdviceQuestion, advice_question
from syncline.planner.advice.ranking_changes import first_changes, prepare_plan
from syncline.planner.advice.search import search_plans
from syncline.questions.projections import Advise
from syncline.specs import named_cluster, network


@pytest.fixture(scope="module")
def two() -> AdviceQuestion:
    """On one link, over which data parallelism is the first where it is wide."""
    methods = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}]
    return advice_question(Advise(model="gpt-160m", network="1us,1Gbit/s", hardware="h100", workers=2, methods=methods))


@pytest.fixture(scope="module")
def rows(two: AdviceQuestion) -> list[PlanRow]:
    known = [row for row in price_plans(two, search_plans(two)[0]) if row["loss_unknown"] is None]
    return sorted(known, key=lambda row: row["time_s"])


def test_the_outermost_links() -> None:
    assert outermost_links(named_cluster("two-sites-a100").network).link.name == "wan-20ms"
    wan = NETWORKS["wan"].network
    assert outermost_links(wan).link == wan


def test_of_a_matrix_all_lines_between_places_change_and_no_card() -> None:
    lines = [{"from": "a", "to": "b", "bandwidth": "100 Mbit/s", "rtt": "90 ms"},
             {"from": "b", "to": "a", "bandwidth": "80 Mbit/s", "rtt": "90 ms"}]  # fmt: skip
    places = {"kind": "matrix", "places": ["a", "b"], "lines": lines, "host": "1 Gbit/s"}
    name, link, links = outermost_links(network(places))
    assert name == "lines between places" and link.bandwidth_bytes_per_s == 1e7 and len(links) == 2
    doubled = scaled(network(places), bandwidth=2.0, selected=links)
    assert [float(line.bandwidth_bytes_per_s) for row in doubled.lines for line in row if line] == [25e6, 20e6]
    assert doubled.card == network(places).card


def test_the_first_is_first_on_one_side_and_another_on_the_other(two: AdviceQuestion, rows: list[PlanRow]) -> None:
    assert rows[0]["method"] == "diloco"
    told = first_changes(two, rows)
    (crossed,) = [one for one in told if one["what"] == "bandwidth" and one["at"] and one["of"] == "any"]
    assert crossed["direction"] == "above" and crossed["low"] < crossed["at"] < crossed["high"]
    assert rows[crossed["becomes"]]["method"] == "ddp-adam"
    plans = [prepare_plan(two, row["plan"], row["tokens"]) for row in rows]
    links = outermost_links(two.network).links
    for beyond in (0.97, 1.03):
        network = scaled(two.network, bandwidth=beyond * crossed["at"] / crossed["now"], selected=links)
        times = [one.time_s(network) for one in plans]
        assert (times[0] == min(times)) is (beyond < 1)


def test_data_parallelism_s_own_threshold_is_told(two: AdviceQuestion, rows: list[PlanRow]) -> None:
    own = [one for one in first_changes(two, rows) if one["of"] == "data parallelism"]
    assert len(own) == 1 and own[0]["at"] is not None


def test_one_plan_has_no_threshold(two: AdviceQuestion, rows: list[PlanRow]) -> None:
    assert first_changes(two, rows[:1]) == []


def test_workers_are_looked_for_as_long_as_each_has_a_sequence(two: AdviceQuestion, rows: list[PlanRow]) -> None:
    (more,) = [one for one in first_changes(two, rows) if one["what"] == "workers" and one["direction"] == "above"]
    assert two.workers <= more["looked_to"] <= two.batch_tokens / two.model.sequence
