from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from rich.console import Console

from syncline.costmodel import NETWORKS, Link
from syncline.experiments.catalogue import model_rows, network_rows
from syncline.experiments.display import catalogue_table
from syncline.specs import network


def test_listed_networks_can_be_made_of_their_fields() -> None:
    rows = json.loads(json.dumps(network_rows()))
    assert [row["name"] for row in rows] == list(NETWORKS)
    for row in rows:
        made = network(row["fields"])
        assert made == NETWORKS[row["name"]].network
        assert row["links"] == made.describe()
        numbers = (made.latency_s, made.bandwidth_bytes_per_s) if isinstance(made, Link) else (None, None)
        assert (row["latency_s"], row["bandwidth_bytes_per_s"]) == numbers


def test_of_what_cannot_be_used_a_list_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {"syncline.networks": "syncline.costmodel:NOTHING", "syncline.models": "syncline.costmodel:MODELS"}
    monkeypatch.setattr(
        "syncline.registry.entry_points",
        lambda group: [EntryPoint("theirs", offered[group], group)] if group in offered else [],
    )
    for rows in (network_rows(), model_rows()):
        assert rows[-1]["name"] == "theirs" and rows[-1].keys() == rows[0].keys()
        assert len(rows) > 5 and all("cannot be used" not in str(row) for row in rows[:-1])
        assert "theirs" in str(rows[-1]) and "cannot be used" in str(rows[-1])


def test_the_list_of_networks_fits_a_terminal_with_its_sources() -> None:
    console = Console(width=100, record=True)
    console.print(catalogue_table("networks", network_rows()))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 100
    assert all(name in shown for name in NETWORKS)
    assert "…" not in shown
    words = shown.split()
    for preset in NETWORKS.values():
        assert set(preset.source.split()) <= set(words)
