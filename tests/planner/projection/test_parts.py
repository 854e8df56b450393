"""Projections of methods whose collectives are among parts of the workers."""

from __future__ import annotations

import math

import pytest

import syncline as sl
from syncline.costmodel import MODELS, calls_of, collective_s
from syncline.methods import method_of
from syncline.planner.projection.pricing import simulated_s
from syncline.sim import clock
from syncline.specs import network

HYBRID = {"kind": "demo", "per_node": 4, "lr": 1.0}
LINK = network("10gbe")


def test_on_links_parts_are_priced_as_groups_of_their_own() -> None:
    """All parts go at once on links that no two workers share: the seconds of one of each kind."""
    (row,) = sl.project(
        model="gpt-160m",
        workers=[8],
        networks=["10gbe"],
        methods=[HYBRID],
        overlap="none",
        algorithm="ring",
        precision="fp32",
    ).rows
    gradient, between, inside = method_of(HYBRID).exchanges(MODELS["gpt-160m"].tensors, 8)
    expected = collective_s("all_reduce", 4, gradient.payload_bytes, LINK, "ring")
    expected += collective_s("all_gather", 2, between.payload_bytes, LINK, "ring")
    expected += collective_s("all_gather", 4, inside.payload_bytes, LINK, "ring")
    assert row["communication_s"] == pytest.approx(expected, rel=1e-12) and row["timed_by"] == "closed form"
    sent = gradient.payload_bytes + between.payload_bytes + inside.payload_bytes
    assert row["bytes_per_worker"] == sent


def test_the_clock_of_a_training_agrees() -> None:
    exchanges = method_of(HYBRID).exchanges(100_000, 8)
    told = clock(calls_of(exchanges, 3, range(8)), 1e-3, LINK, 8, 3, algorithm="ring")
    grouped = [exchange for exchange in exchanges if exchange.first_group]
    seconds = sum(collective_s(e.collective, len(e.first_group), e.payload_bytes, LINK, "ring") for e in grouped)
    assert told.step_time_s == pytest.approx(1e-3 + seconds, rel=1e-9)
    assert told.bytes_per_worker == sum(e.payload_bytes for e in exchanges)


def test_parts_on_levels_have_a_closed_form() -> None:
    """Two sites: inside them data parallelism at the inner speed, and between them everything once."""
    methods = ["ddp-adam", {"kind": "demo", "lr": 1.0}, {**HYBRID, "per_node": 8}]
    ddp, demo, hybrid = sl.project(model="gpt-160m", workers=[16], networks=["two-sites"], methods=methods).rows
    assert hybrid["timed_by"] == "closed form" and not hybrid["not_timed"]
    assert hybrid["step_time_s"] < demo["step_time_s"] < ddp["step_time_s"]


def test_too_many_messages_are_told_and_not_played() -> None:
    seconds, why = simulated_s("all_gather", 2**14, 1e6, network("two-sites"), "ring", group=range(0, 2**14, 2))
    assert math.isnan(seconds) and "too many for lockstep" in why
