from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from rich.console import Console

from syncline.costmodel import NETWORKS, Link
from syncline.errors import SpecError
from syncline.methods import method_of
from syncline.planner.tables.display import catalogue_table
from syncline.runs.catalogue import CATALOGUES
from syncline.specs import network


def test_listed_networks_can_be_made_of_their_fields() -> None:
    rows = json.loads(json.dumps(CATALOGUES["networks"](print)))
    assert [row["name"] for row in rows] == list(NETWORKS)
    for row in rows:
        made = network(row["fields"])
        assert made == NETWORKS[row["name"]].network
        assert row["links"] == made.describe()
        numbers = (made.latency_s, made.bandwidth_bytes_per_s) if isinstance(made, Link) else (None, None)
        assert (row["latency_s"], row["bandwidth_bytes_per_s"]) == numbers


OFFERS = {
    "problems": "nowhere.problem:Bowl",
    "methods": "nowhere:Seldom",
    "networks": "syncline.costmodel:NOTHING",
    "hardware": "syncline.costmodel:MODELS",
    "models": "syncline.costmodel:MODELS",
    "schedules": "syncline.costmodel:MODELS",
    "studies": "nowhere:STUDY",
}


@pytest.mark.parametrize("what", OFFERS)
def test_of_what_cannot_be_used_a_list_says_why_and_has_all_others(
    what: str, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    """And to name it is a mistake in one line."""
    known = CATALOGUES[what](print)
    monkeypatch.setattr(
        "syncline.registry._read_entry_points",
        lambda group, path: (
            {"theirs": EntryPoint("theirs", OFFERS[what], group)} if group == f"syncline.{what}" else {}
        ),
    )
    told: list[str] = []
    assert CATALOGUES[what](told.append) == known
    assert len(told) == 1 and told[0].startswith("theirs cannot be used") and "\n" not in told[0]
    done = command("list", what)
    assert done.code == 0 and done.err.splitlines()[0] == f"warning: {told[0]}"


def test_a_method_that_cannot_be_imported_hinders_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "syncline.registry._read_entry_points",
        lambda group, path: (
            {"theirs": EntryPoint("theirs", "nowhere:Seldom", group)} if group == "syncline.methods" else {}
        ),
    )
    with pytest.raises(SpecError, match="got 'theirs'; expected a module that imports; it says: ModuleNotFound"):
        method_of("theirs")
    with pytest.raises(SpecError, match=r"got 'local-adm'; expected one of .*did you mean 'local-adam'"):
        method_of("local-adm")


def test_the_list_of_networks_fits_a_terminal_with_its_sources() -> None:
    console = Console(width=100, record=True)
    console.print(catalogue_table("networks", CATALOGUES["networks"](print)))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 100
    assert all(name in shown for name in NETWORKS)
    assert "…" not in shown
    words = shown.split()
    for preset in NETWORKS.values():
        assert set(preset.source.split()) <= set(words)
