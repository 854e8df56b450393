"""PageSettings survive their link and their spec, and nothing that a link says ends in a traceback."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syncline as sl
from syncline.errors import SpecError
from syncline.files import parse_yaml
from syncline.methods import METHODS
from syncline.planner.explore import settings as settings_module
from syncline.planner.explore.answers import ranking_of
from syncline.planner.explore.settings import (
    BASELINE,
    BY_NAME,
    FIELDS,
    described_network,
    explored_spec,
    format_count,
    from_query,
    offer_network,
    spec_text,
    to_query,
    with_text,
)
from syncline.questions.explore import OFFERED, PageSettings
from syncline.specs import network
from syncline.units import parse_count

STOPS = {field.name: field.stops for field in FIELDS if field.stops and field.name != "methods"}
ANY = st.fixed_dictionaries({name: st.sampled_from(stops) for name, stops in STOPS.items()}).map(
    lambda fields: PageSettings(**fields)
)


@given(ANY, st.lists(st.sampled_from([one for one in METHODS if one != BASELINE]), unique=True, max_size=12))
def test_a_link_restores_all_settings(settings, methods):
    settings = replace(settings, methods=tuple(methods))
    assert from_query(to_query(settings)) == (settings, [])


@given(st.floats(1.25e5, 1.25e11), st.floats(1e-7, 1.0), st.floats(1e6, 1e15), st.integers(1, 64), st.integers(1, 1024))
def test_values_between_stops_keep_all_their_digits(bandwidth, latency, tokens, sites, workers):
    settings = PageSettings(bandwidth=bandwidth, latency=latency, tokens=tokens, sites=sites, workers=workers)
    assert from_query(to_query(settings)) == (settings, [])


@given(st.dictionaries(st.sampled_from([*BY_NAME, "other"]), st.text(max_size=20)))
def test_whatever_a_link_says_is_read_or_told_in_a_line(fields):
    settings, problems = from_query(fields)
    assert all("\n" not in line for line in problems)
    assert from_query(to_query(settings)) == (settings, [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model", "os:system"), ("model", "/etc/passwd"), ("methods", "os:system"), ("hardware", "~/cluster.yaml"),
        ("bandwidth", "-1"), ("bandwidth", "1 Pbit/s"), ("latency", "2 s"), ("workers", "0"), ("workers", "1e3"),
        ("sites", "65"), ("tokens", "nan"), ("period", "-1"), ("compression", "3 bit"), ("shown", "x"), ("theme", "x"),
    ],
)  # fmt: skip
def test_what_a_setting_cannot_have_is_refused(name, text):
    with pytest.raises(SpecError):
        with_text(PageSettings(), name, text)


def test_stops_are_read_as_themselves():
    for field in FIELDS:
        if field.stops and field.name != "methods":
            assert [field.read(field.write(stop)) for stop in field.stops] == list(field.stops)
            assert [field.stop_index(stop) for stop in field.stops] == list(range(len(field.stops)))
    assert set(OFFERED) < set(METHODS)


@given(st.floats(1e6, 9.9e14))
def test_counts_are_read_to_three_digits(count):
    assert parse_count(format_count(count)) == pytest.approx(count, rel=5.1e-3)


SPECS = [
    PageSettings(),
    PageSettings(replica="nodes in a site", period=64, compression="8 bit"),
    PageSettings(model="gpt-160m", workers=1, sites=4, inside="10gbe", replica="worker", compression="bf16"),
    PageSettings(model="gpt-1.3b", workers=4, sites=3, replica="node", hardware="h100", inside="dgx-h100", period=500),
    PageSettings(sites=1, workers=64, bandwidth=1.2345678e8, latency=0.0123456789),
]


@pytest.mark.parametrize("settings", SPECS, ids=range(len(SPECS)))
def test_the_spec_gives_the_pages_numbers(settings, tmp_path):
    file = tmp_path / "explored.yaml"
    file.write_text(spec_text(settings), encoding="utf-8")
    rows = {row["method"]: row for row in ranking_of(settings).rows}
    told = sl.project(str(file), tokens=settings.tokens).rows
    assert {row["method"]: row for row in told} == rows and len(rows) == len(settings.methods) + 1
    assert from_query(parse_yaml(file.read_text())["source"].removeprefix("?")) == (settings, [])


def test_the_default_is_the_bundled_cluster():
    settings = PageSettings()
    rows = sl.project(
        model="llama-7b", cluster="two-sites-a100", layout="data=32", tokens=settings.tokens,
        methods=[BASELINE, *settings.methods],
    ).rows  # fmt: skip
    told = {row["method"]: row["step_time_s"] for row in ranking_of(settings).rows}
    assert told == {row["method"]: row["step_time_s"] for row in rows}


def test_periods_and_compression_change_the_methods_that_have_them_alone():
    methods = ("diloco", "demo", "lion-cub")
    settings = PageSettings(replica="worker", model="gpt-160m", methods=methods, workers=4, sites=2)
    own, changed = explored_spec(settings).spec, explored_spec(replace(settings, period=7, compression="top 1 %"))
    assert [method.name for method in own.methods] == ["ddp-adam", "diloco", "demo", "lion-cub"]
    assert changed.spec.methods[0] == own.methods[0] and changed.spec.methods[2:] == own.methods[2:]
    assert (changed.spec.methods[1].period, changed.spec.methods[1].compressor.kind) == (7, "top-k")
    assert [line.split(" ", 1)[0] for line in changed.notes] == ["demo", "lion-cub"]


def test_a_method_that_cannot_serve_so_many_is_left_out_with_the_reason():
    found = explored_spec(
        PageSettings(methods=("lion-cub", "diloco"), replica="worker", model="gpt-160m", workers=256, sites=2)
    )
    assert [method.name for method in found.spec.methods] == ["ddp-adam", "diloco"]
    assert found.notes[0].startswith("lion-cub is left out: bits: got 8")


def test_settings_that_do_not_go_together_are_told_in_a_line():
    for settings in (PageSettings(workers=12), PageSettings(model="gpt-160m", replica="node", hardware="a100")):
        with pytest.raises(SpecError, match="expected"):
            explored_spec(settings)


def test_networks_are_those_of_the_settings():
    assert described_network(PageSettings(sites=1, workers=8)) == "nvlink3"
    assert described_network(PageSettings(sites=1)) == "dgx-a100"
    line = {"latency": "20 ms", "bandwidth": "1 Gbit/s", "name": "1 Gbit/s and 20 ms"}
    assert described_network(PageSettings(workers=1)) == line
    assert [level.get("units") for level in described_network(PageSettings(workers=4))["levels"]] == [4, 2]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A network of three places of different sizes, offered as the command does."""
    monkeypatch.setattr(settings_module, "OFFERED_NETWORKS", {})
    rates = {("us", "eu"): "210 Mbit/s", ("us", "asia"): "134 Mbit/s", ("eu", "asia"): "76 Mbit/s"}
    lines = [{"from": a, "to": b, "bandwidth": rate, "latency": "0.1 s"} for (a, b), rate in rates.items()]
    inside = {"bandwidth": "6.9 Gbit/s", "latency": "350 us"}
    fields = {"kind": "matrix", "places": {"us": 2, "eu": 2, "asia": 1}, "lines": lines, "inside": inside}
    file = tmp_path / "lab.yaml"
    file.write_text(json.dumps(fields))
    yield fields, offer_network(str(file))
    for cached in (explored_spec, ranking_of):
        cached.cache_clear()


def test_a_network_of_the_command_brings_its_workers_and_its_narrowest_line(lab):
    fields, name = lab
    settings, problems = from_query({"model": "gpt-160m", "network": name, "period": "64"})
    assert (name, problems, settings.replica) == ("lab", [], "worker")
    assert (settings.bandwidth, settings.latency) == (76e6 / 8, 0.1)
    assert from_query(to_query(settings)) == (settings, [])
    rows = {row["method"]: row["step_time_s"] for row in ranking_of(settings).rows}
    assert explored_spec(settings).spec.workers == 5
    projected = sl.project(parse_yaml(spec_text(settings)) | {"networks": [fields]})
    for row in projected.rows:
        assert rows[row["method"]] == pytest.approx(row["step_time_s"], rel=1e-12)


def test_its_lines_between_places_change_together(lab):
    fields, name = lab
    settings = with_text(PageSettings(), "network", name)
    wider = network(described_network(with_text(settings, "bandwidth", "152 Mbit/s")))
    given = network(fields)
    for i, j in itertools.product(range(3), range(2)):
        ratio = 1 if i == j else 2
        assert wider.lines[i][j].bandwidth_bytes_per_s == ratio * given.lines[i][j].bandwidth_bytes_per_s
        assert wider.lines[i][j].latency_s == given.lines[i][j].latency_s


def test_sites_of_different_sizes_are_no_replicas(lab):
    settings = replace(with_text(PageSettings(), "network", lab[1]), replica="site")
    with pytest.raises(SpecError, match="replica: got 'site'; expected worker or node, as lab has sites of 2, 2, 1"):
        explored_spec(settings)


@pytest.mark.parametrize("text", ["10gbe", "/etc/passwd", "lab.yaml", "os:system"])
def test_a_link_names_no_other_network(lab, text):
    with pytest.raises(SpecError, match=r"network: got .*; expected one of .*'sites'"):
        with_text(PageSettings(), "network", text)


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("10gbe", "--network: got '10gbe'; expected a network with a fixed number of workers"),
        ("nowhere", "--network: got 'nowhere'"),
    ],
)
def test_networks_that_no_page_can_have_are_refused(description, line):
    with pytest.raises(SpecError, match=line):
        offer_network(description)
