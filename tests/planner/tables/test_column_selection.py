"""Tables of the columns that somebody asks for: names, units, and what is refused."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import syncline as sl
from syncline.columns import column_of
from syncline.errors import SpecError
from syncline.planner.tables.table import cell_text, chosen_names, chosen_tables, table


def drawn(result, columns, width=80):
    console = Console(file=io.StringIO(), width=width)
    for one in chosen_tables(result.tables, result.rows, columns):
        console.print(one)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture(scope="module")
def projected():
    asked = {"methods": ["ddp-adam", "diloco"], "workers": [8, 64], "networks": ["10gbe", "wan"]}
    return sl.project(**asked, thresholds=False)


def test_what_is_asked_for_stands_behind_what_tells_rows_apart(projected):
    shown = drawn(projected, "bytes_per_worker, utilisation")
    (heading, *_) = (line for line in shown if "bytes_per_worker" in line)
    assert heading.split() == ["method", "workers", "bytes_per_worker", "utilisation"]
    cells = [line.split() for line in shown if line.startswith((" ddp-adam", " diloco"))]
    assert [(one[0], one[1]) for one in cells] == 2 * [(m, w) for w in ("8", "64") for m in ("ddp-adam", "diloco")]
    row = next(one for one in projected.rows if one["method"] == "diloco" and one["workers"] == 64)
    assert cells[3] == ["diloco", "64", "21.6", "MB", f"{row['utilisation']:.1%}"]
    assert not any(re.search("Waiting|More", line) for line in shown)


def test_all_are_those_of_json_and_none_is_cut(projected):
    names = [word for line in drawn(projected, "all", 100) for word in line.split()]
    assert set(projected.rows[0]) <= set(names)
    assert max(map(len, drawn(projected, "all"))) <= 80


def test_a_name_that_there_is_not_is_one_line(projected):
    with pytest.raises(SpecError, match=r"^--columns: got 'utilization'; expected one of .*did you mean 'utilisation'"):
        chosen_names(projected.rows, "method,utilization")


def test_rows_that_were_shown_are_not_shown_again():
    rows = [{"seed": 0, "loss": 1.5}, {"seed": 1, "loss": 2.5}]
    tables = [table("first", [], rows, keys=("seed",)), table("again", [], rows[:1])]
    assert [one.title for one in chosen_tables(tables, rows, "loss")] == ["first"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("step_time_s", 0.0951, "95.1 ms"),
        ("memory_bytes", 21.5e9, "21.5 GB"),
        ("faster_bandwidth_bytes_per_s", 1.25e9, "1.25 GB/s"),
        ("bytes_per_worker", 20e6, "20 MB"),
        ("workers", 4096, "4,096"),
        ("speedup", 1.5, "1.50x"),
        ("fits", True, "yes"),
        ("loss", None, "-"),
        ("loss", float("inf"), "-"),
        ("chosen_by", ["auto", "nccl"], "auto, nccl"),
        ("finish_s", [1.0] * 9, ", ".join(["1 s"] * 8) + ", ..."),
    ],
)
def test_cells(name, value, shown):
    assert cell_text({name: value}, column_of(name)) == shown
