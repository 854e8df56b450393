"""A user's own networks and hardware, without a line of the package changed."""

from __future__ import annotations

import json
import sys
import zlib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from syncline.cli.application import app
from syncline.costmodel import Hardware, Link, TwoLevel
from syncline.errors import SpecError
from syncline.planner.projection.project import project
from syncline.sim import collective_finish_s
from syncline.specs import ProjectSpec, hardware, load_spec, network, network_fields

MINE = '''
import numpy as np
from syncline.costmodel import Hardware, Link, TwoLevel
from syncline.costmodel.network.paths import Paths

LAB = Link(5e-5, 1.125e9, "lab")
NODES = TwoLevel(2, Link(1e-6, 5e10), Link(5e-5, 1.25e9), name="nodes")
TEXT = "50us,25Gbit/s"
CARD = Hardware("card", 1e14, 0.4, "bf16", "measured")
FIELDS = {"peak_flops": 1e14, "mfu": 0.4, "name": "card"}


class Ring:
    """One channel from each worker to the next; a message passes all between its ends."""

    def __init__(self, hop_s, bytes_per_s):
        self.hop_s, self.bytes_per_s, self.name, self.gloo = hop_s, bytes_per_s, "", None

    def among(self, workers):
        return Placed(self, workers)

    def describe(self):
        return f"a ring of hops of {self.hop_s} s"


class Placed:
    def __init__(self, network, workers):
        self.network, self.workers, self.name, self.gloo = network, workers, network.name, None
        self.bandwidth_bytes_per_s = np.full(workers, network.bytes_per_s)

    def paths(self, senders, receivers):
        hops = (receivers - senders) % self.workers
        steps = np.arange(self.workers - 1)
        channels = (senders[:, None] + steps) % self.workers
        return Paths(np.where(steps < hops[:, None], channels, -1), hops * self.network.hop_s, np.zeros(len(hops)))


class Closed(Ring):
    def among(self, workers):
        raise RuntimeError("closed")


RING = Ring(1e-3, 1e6)


def make_link(latency_s, gigabits):
    return Link(latency_s, gigabits * 1.25e8, "made")


def make_text(gigabits):
    return f"50us,{gigabits}Gbit/s"


def make_card(tera):
    return dict(FIELDS, peak_flops=tera * 1e12)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module of the user's in the current folder."""
    name = f"mine_{zlib.crc32(request.node.name.encode())}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return name


def test_a_projection_is_of_a_users_network_and_hardware(module: str) -> None:
    def projected(*options: str) -> list[dict[str, object]]:
        ran = CliRunner().invoke(app, ["project", "--workers", "4", "--json", *options])
        assert ran.exit_code == 0, ran.output
        rows: list[dict[str, object]] = json.loads(ran.stdout)
        return rows

    own = projected("--network", f"{module}:LAB", "--hardware", f"{module}:CARD")
    told = "{latency: 50 us, bandwidth: 9 Gbit/s, name: lab}"
    Path("card.yaml").write_text("{name: card, peak_flops: 1e14, mfu: 0.4, precision: bf16, source: measured}")
    assert own == projected("--network", told, "--hardware", "card.yaml")


def test_what_a_name_stands_for_may_be_a_description(module: str) -> None:
    assert network(f"{module}:TEXT") == network("50us,25Gbit/s")
    assert network({"per_node": 2, "inside": "nvlink4", "between": "wan"}).name == ""
    assert hardware(f"{module}:FIELDS") == Hardware("card", 1e14, 0.4, "fp32", "")


def test_a_network_of_a_users_own_class_is_timed_and_found_again(module: str) -> None:
    made = network(f"{module}:RING")
    assert network_fields(made) == f"{module}:RING" == made.name
    spec = load_spec("project-gpt-160m", [f"networks=['{module}:RING']", "workers=4"], ProjectSpec)
    assert ProjectSpec.model_validate(spec.model_dump(mode="json")) == spec
    # in each of 2 (P - 1) rounds a part of n / P to the neighbour: nobody shares a channel
    ends = collective_finish_s("all_reduce", 4, 4e6, made, "ring")
    np.testing.assert_allclose(ends, 6 * (1e-3 + 1.0))
    ran = CliRunner().invoke(app, ["collectives", "--network", f"{module}:RING", "--workers", "4", "--json"])
    assert ran.exit_code == 0, ran.output


def python(target: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "python", "target": target, **arguments}


def test_a_function_makes_networks_and_hardware(module: str) -> None:
    made = Link(1e-3, 1.25e9, "made")
    link = python(f"{module}:make_link", latency_s=1e-3, gigabits=10)
    assert network(link) == made == network(json.dumps(link))
    assert network(python(f"{module}:make_text", gigabits=25)) == network("50us,25Gbit/s")
    assert (
        network({"per_node": 2, "inside": link, "between": "wan"}).describe() == "2 per node, made inside, wan between"
    )
    assert hardware(python(f"{module}:make_card", tera=50)).peak_flops == 5e13
    Path("card.yaml").write_text(json.dumps(python(f"{module}.py:make_card", tera=50)))
    assert hardware("card.yaml") == hardware(python(f"{module}:make_card", tera=50))


def test_a_network_of_a_users_own_class_is_made_and_made_again(module: str) -> None:
    given = python(f"{module}:Ring", hop_s=1e-3, bytes_per_s=1e6)
    made = network(given)
    assert network_fields(made) == given and made.name == f"{module}:Ring(hop_s=0.001, bytes_per_s=1000000.0)"
    spec = load_spec("project-gpt-160m", {"networks": [given, "wan"], "workers": 4}, ProjectSpec)
    again = ProjectSpec.model_validate(spec.model_dump(mode="json"))
    assert again.model_dump() == spec.model_dump() and again.networks[0].name == made.name
    assert hash(made) == hash(network(given))
    ends = collective_finish_s("all_reduce", 4, 4e6, made, "ring")
    np.testing.assert_allclose(ends, 6 * (1e-3 + 1.0))


@pytest.mark.parametrize(
    ("target", "arguments", "complaint"),
    [
        ("make_link", {"latency": 1}, "network.latency: got 1; expected no such argument of {}:make_link, but one of"),
        ("make_link", {"latency_s": 1}, "network.gigabits: got None; expected a value"),
        (
            "make_link",
            {"latency_s": -1, "gigabits": 1},
            "network.target: got '{}:make_link'; expected a call that retu",
        ),
        ("make_card", {"tera": 1}, "network.latency: got None"),
        ("FIELDS", {}, "network.target: got '{}:FIELDS'; expected a function or a class"),
    ],
)
def test_a_call_that_makes_no_network_is_told_in_one_line(
    target: str, arguments: dict[str, Any], complaint: str, module: str
) -> None:
    with pytest.raises(SpecError) as error:
        network(python(f"{module}:{target}", **arguments))
    line = str(error.value)
    assert line.startswith(complaint.format(module)) or "no such field here" in line
    assert "\n" not in line


def test_what_a_network_of_a_users_own_raises_is_one_line(module: str) -> None:
    made = network(python(f"{module}:Closed", hop_s=1, bytes_per_s=1))
    with pytest.raises(SpecError, match=r"can join; it says: RuntimeError: closed$"):
        made.among(3)


def test_a_network_of_a_users_own_class_has_no_closed_form(module: str) -> None:
    """And in a projection its collectives are played."""
    rows = project(
        load_spec("project-gpt-160m", [f"networks=['{module}:RING']", "workers=4", "overlap=none"], ProjectSpec)
    )
    assert {row["timed_by"] for row in rows} <= {"lockstep", "events"}
    nbytes = 2 * 162_201_600.0
    alone = collective_finish_s("all_reduce", 4, nbytes, network(f"{module}:RING"), rows[0]["algorithm"])
    assert rows[0]["communication_s"] == pytest.approx(alone.max(), rel=1e-12)


def test_installed_packages_offer_networks_by_name(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {"syncline.networks": "NODES", "syncline.hardware": "CARD"}
    monkeypatch.setattr(
        "syncline.registry._read_entry_points",
        lambda group, path: {"ours": EntryPoint("ours", f"{module}:{offers[group]}", group)},
    )
    assert network("ours") == TwoLevel(2, Link(1e-6, 5e10), Link(5e-5, 1.25e9), name="nodes")
    assert hardware("ours").name == "card"
    with pytest.raises(SpecError, match="did you mean 'ours'"):
        network("our")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no_such_module:NET", "--network.0: got 'no_such_module:NET'; expected a module that imports"),
        ("{}:LAP", "expected a name of {}"),
        ("{}:Ring", "expected a network: name, gloo, among, describe (this type lacks"),
        ("{}:CARD", "this Hardware lacks gloo, among, describe"),
        ("100gb", "did you mean '100gbe'"),
    ],
)
def test_what_is_no_network_is_refused_in_one_line(
    name: str, complaint: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = CliRunner().invoke(app, ["project", "--network", name.format(module)])
    assert isinstance(ran.exception, SpecError)
    assert complaint.format(module) in str(ran.exception) and "\n" not in str(ran.exception)
