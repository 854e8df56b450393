"""Answers begin with what they assume: every value once, with its origin, the same in the table and the JSON."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import syncline as sl
from syncline.costmodel.scaling.published import default_batch
from syncline.planner.assumptions import ASSUMPTION_COLUMNS, projection_assumptions
from syncline.planner.projection.project import project_all
from syncline.specs import ProjectSpec, load_spec, model


def assumptions_of(result: sl.Result) -> dict[str, dict[str, Any]]:
    """By name."""
    found = result.json()["assumptions"]
    assert len({assumption["name"] for assumption in found}) == len(found)
    return {assumption["name"]: assumption for assumption in found}


@cache
def answers(**more: int) -> tuple[dict[str, dict[str, Any]], ...]:
    """Return the assumptions of three commands on one question: ``project``, ``advise`` and ``solve``."""
    asked: dict[str, Any] = {"model": "gpt-160m", "cluster": "two-sites-a100", "methods": ["ddp-adam"]} | more
    results = (
        sl.project(**asked, thresholds=False),
        sl.advise(**asked),
        sl.solve("bandwidth", **asked, step_time="2s"),
    )
    return tuple(map(assumptions_of, results))


def test_every_command_has_the_same_default_batch() -> None:
    batches = [assumptions["batch"] for assumptions in answers()]
    wanted = default_batch(model("gpt-160m").parameters, 64, model("gpt-160m").sequence)
    assert [(batch["value"], batch["origin"]) for batch in batches] == [(wanted, "published fits")] * 3
    assert "Tables 9 and 10" in batches[0]["source"]


def test_what_the_user_gives_is_given() -> None:
    given = assumptions_of(sl.project(tokens_per_worker=4096, compute={"seconds": 1.0}, overlap="none", networks="wan"))
    assert {name: given[name]["origin"] for name in ("batch", "computing", "overlap")} == dict.fromkeys(
        ("batch", "computing", "overlap"), "given"
    )
    assert given["batch"]["value"] == 4 * 4096 and given["computing"]["value"] == 1.0


@pytest.mark.parametrize(
    ("options", "origin"),
    [
        ({}, "the spec's"),
        ({"methods": ["ddp-adam", "diloco"]}, "default"),
        ({"methods": ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 50}]}, "given"),
        ({"methods": ["ddp-adam", "diloco"], "period": 50}, "given"),
        ({"methods": ["ddp-adam", "diloco"], "period": "preset"}, "preset"),
        ({"methods": ["ddp-adam"]}, "the methods'"),
    ],
)
def test_the_origin_of_a_period_is_that_of_its_option(options: dict[str, Any], origin: str) -> None:
    projected = assumptions_of(sl.project(networks="wan", thresholds=False, **options))
    assert projected["period"]["origin"] == origin
    if "methods" in options:
        advised = assumptions_of(sl.advise("gpt-160m", cluster="two-sites-a100", **options))
        assert advised["period"] == projected["period"]
    if "period" not in options:
        solved = sl.solve("bandwidth", networks="wan", step_time="1s", **options)
        assert assumptions_of(solved)["period"]["origin"] == origin.replace("the spec's", "default")


def test_the_origin_of_a_sequence_is_that_of_its_option() -> None:
    for more, origin in (({}, "as gpt-160m has it"), ({"sequence": 1024}, "given")):
        assert {assumptions["sequence"]["origin"] for assumptions in answers(**more)} == {origin}


def test_tokens_set_the_steps_unless_they_are_set() -> None:
    """The steps of a training decide how often an exchange of a period occurs, in every question alike."""
    asked: dict[str, Any] = {"networks": "wan", "methods": ["diloco"], "tokens": "1B", "batch_tokens": 2**20}
    for steps, more in ((round(1e9 / 2**20), {}), (40, {"steps": 40})):
        projected = sl.project(**asked, **more, thresholds=False)
        solved = sl.solve("bandwidth", **asked, **more, step_time="10s")
        assert [result.spec.steps for result in (projected, solved)] == [steps, steps]


def test_values_of_several_settings_are_one_assumption() -> None:
    several = assumptions_of(sl.project(workers=[4, 8], methods=["ddp-adam"], networks="wan", thresholds=False))
    assert "the kernels of h100" in several["computing"]["value"]
    assert several["batch"]["value"] == [131072, 131072]
    layouts = assumptions_of(sl.project(workers=[4, 1024], methods=["ddp-adam"], networks="wan", thresholds=False))
    assert layouts["batch"]["origin"] == "published fits, a sequence for each replica"


@pytest.mark.parametrize("failures", [None, "llama-3"])
def test_the_table_and_the_json_have_the_same(failures: str | None) -> None:
    result = sl.project(methods=["ddp-adam", "diloco"], networks="wan", tokens="1B", failures=failures)
    names = list(assumptions_of(result))
    block = str(result).partition("Assumptions\n")[2].partition("\n\n")[0].splitlines()
    printed = [line.split("  ")[0].strip() for line in block if line.startswith(" ") and line[1] != " "]
    assert printed == names and ("repair" in names) is (failures is not None)


def test_combinations_of_columns_are_those_of_the_rows() -> None:
    specs = [
        load_spec("project-gpt-160m", [f"workers={count}", "compute.hardware=rtx-4090"], ProjectSpec)
        for count in (4, 8)
    ]
    rows: Any = project_all(specs, False)
    names = [name for name in (*ASSUMPTION_COLUMNS, "fits", "network") if name in rows[0]]
    wanted = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
    assert [tuple(found.values()) for found in rows.distinct(names)] == list(wanted)
    assert len(wanted) < len(rows) and rows.distinct(("absent",)) == []


def test_updates_have_a_line_where_they_take_time_by_their_kernels() -> None:
    def lines(**compute: object) -> list[tuple[str, str]]:
        fields = {"name": "p", "kind": "project", "model": "gpt-160m", "workers": 8, "networks": ["10gbe"]}
        spec = load_spec(fields | {"methods": compute.pop("methods", ["dion"]), "compute": compute})
        return [(one.value, one.origin) for one in projection_assumptions([spec]) if one.name == "updates"]

    ((text, origin),) = lines(hardware="h100")
    assert "eager" in text and origin == "default"
    ((text, origin),) = lines(hardware="h100", kernels={"updates": "optimised"})
    assert "Cholesky" in text and origin == "given"
    assert lines(hardware="h100", methods=["ddp-adam"]) == lines(hardware="a100") == []
    assert lines(hardware="h100", optimizer_time=1e-3) == []
