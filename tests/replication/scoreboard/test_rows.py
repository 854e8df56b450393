"""Every row of the scoreboard: its verdict computed again, its findings told, its paper's inventory answered."""

from __future__ import annotations

import csv
import inspect
import re
import shlex

import pytest

from replication.scoreboard import NOT_CHECKABLE, PAPERS, board_of, computed, counts, paper_rows, verdict_of
from replication.scoreboard.board import scored_row
from replication.scoreboard.rows import MEASURED, TARGETS, PaperRow, function_named, stored
from replication.scoreboard.verdicts import UNDECIDED, VERDICTS
from syncline.errors import SpecError
from syncline.questions import catalogue
from syncline.specs import load_spec
from tests.reference import REFERENCE, ROOT, needs_reference

INVENTORY = REFERENCE.parent / "papers" / "coverage.csv"
FIELDS = {"paper", "where", "quantity", "paper_value", "ours", "interval", "unit", "kind", "tolerance", "verdict",
          "finding", "command", "reason", "target", "follows"}  # fmt: skip


def test_fields_are_documented():
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## reproduce: .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == FIELDS


def slug(text: str) -> str:
    """As an anchor of a heading."""
    return re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")


def words(text: str) -> str:
    return re.sub(r"[^a-z0-9.<]+", " ", text.lower()).strip()


def test_papers_are_offered_by_the_shell():
    assert catalogue.PAPERS == PAPERS


@pytest.mark.parametrize("paper", PAPERS)
def test_every_verdict_is_that_of_its_values(paper):
    for row, made in zip(paper_rows(paper), board_of(paper), strict=True):
        assert made.keys() == FIELDS
        if not made["interval"]:
            assert made["verdict"] == verdict_of(row.printed, made["ours"], row.tolerance)
        assert (made["verdict"] == NOT_CHECKABLE) == bool(row.reason)
        assert made["target"] in TARGETS
        assert made["command"] and row.where and row.quantity


@pytest.mark.parametrize("paper", PAPERS)
def test_whatever_differs_is_told_where_it_says(paper):
    anchors: dict[str, set[str]] = {}
    for made in board_of(paper):
        if made["verdict"] == "differ":
            assert made["finding"], made
        if made["finding"]:
            page, anchor = made["finding"].split("#")
            if page not in anchors:
                text = (ROOT / "docs" / page).read_text(encoding="utf-8")
                anchors[page] = {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
            assert anchor in anchors[page], made["finding"]


@pytest.mark.parametrize("paper", PAPERS)
def test_no_row_is_there_twice(paper):
    seen = [(row.where, row.quantity, row.printed) for row in paper_rows(paper)]
    assert not {one for one in seen if seen.count(one) > 1}


@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_stored_has_its_origin_and_is_asked_for(paper):
    asked = {row.ours.split()[1]: row for row in paper_rows(paper) if row.ours.startswith(f"{MEASURED} ")}
    assert asked.keys() == stored(paper).keys()
    for name, line in stored(paper).items():
        assert re.match(r"2026-\d\d-\d\d, ", line["measured"]), name
        assert bool(line["command"]) != bool(line["by"]), name
        if line["command"] or is_long(line):
            assert re.fullmatch("[0-9a-f]{8}", line["commit"]), name
        assert bool(line["interval"]) == bool(line["basis"]), name


def is_long(line: dict[str, str]) -> bool:
    """Whether the computation takes more than two CPU minutes, so that the slow tests leave it out."""
    return float(line["cpu_s"] or 0) > 120


STORED = [(paper, name) for paper in PAPERS for name in stored(paper)]


@pytest.mark.parametrize(("paper", "name"), STORED)
def test_what_computes_a_stored_value_exists(paper, name):
    """The call fits its function and the spec that it names loads; a command's file exists."""
    line = stored(paper)[name]
    if line["command"]:
        program, *_, argument = line["command"].removesuffix(" --benchmark-only").split()
        assert (ROOT / argument).is_file() if program == "pytest" else load_spec(argument)
        return
    assert '"' not in line["by"] and "'" not in line["by"]  # the printed command quotes it
    function, *arguments = shlex.split(line["by"])
    options = dict(word.split("=", 1) for word in arguments if "=" in word)
    positional = [word for word in arguments if "=" not in word]
    inspect.signature(function_named(paper, function)).bind(*positional, **options)
    if function.startswith(("cells:", "bundled:final_losses")):
        load_spec(positional[0])


@pytest.mark.parametrize(("paper", "name"), [one for one in STORED if stored(one[0])[one[1]]["interval"]])
def test_a_verdict_that_changes_within_an_interval_is_undecided(paper, name):
    (row,) = [row for row in paper_rows(paper) if row.ours == f"{MEASURED} {name}"]
    low, high = interval_of(stored(paper)[name])
    assert low <= row.value() <= high
    ends = {verdict_of(row.printed, end, row.tolerance) for end in (low, high)}
    assert scored_row(row)["verdict"] == (ends.pop() if len(ends) == 1 else UNDECIDED)
    assert name != "norm-ratio" or paper != "basis-rotation" or scored_row(row)["verdict"] == UNDECIDED


def interval_of(line: dict[str, str]) -> tuple[float, float]:
    low, high = (float(end) for end in line["interval"].split(" to "))
    return low, high


COMPUTED = [(paper, name) for paper, name in STORED if (line := stored(paper)[name])["by"] and not is_long(line)]


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name"), COMPUTED)
def test_what_is_stored_comes_out_again(paper, name):
    """Within a tenth of the value, or of its interval's ends."""
    line = stored(paper)[name]
    now = computed(paper, line["by"])
    if line["interval"]:
        low, high = interval_of(line)
        assert low - 0.1 * abs(low) <= now <= high + 0.1 * abs(high)
        return
    before = PaperRow(paper, "", name, "", ours=f"{MEASURED} {name}").value()
    if isinstance(before, dict):
        assert now.keys() == before.keys()
        before, now = ([of[key] for key in before] for of in (before, now))
    assert now == pytest.approx(before, rel=0.1)


@needs_reference
@pytest.mark.parametrize("paper", PAPERS)
def test_every_item_of_the_inventory_has_a_row(paper):
    covered = {words(one) for row in paper_rows(paper) for one in row.covers}
    with INVENTORY.open(encoding="utf-8") as lines:
        items = [line for line in csv.DictReader(lines) if slug(line["paper"]) == paper]
    named = [words(f"{line['item']} | {line['quantity']}") for line in items]
    assert [name for name in named if not any(name.startswith(one) for one in covered)] == []
    assert [one for one in covered if not any(name.startswith(one) for name in named)] == []


def test_a_row_says_what_it_lacks():
    with pytest.raises(SpecError, match="a function, or a reason"):
        PaperRow("demo", "Table 1", "bytes", "1")
    with pytest.raises(SpecError, match="kind: got 'number'; expected one of"):
        PaperRow("demo", "Table 1", "bytes", "1", reason="none", kind="number")
    with pytest.raises(SpecError, match=r"paper: got 'dmeo'; expected one of .*did you mean 'demo'"):
        paper_rows("dmeo")


def test_functions_are_found_here_and_anywhere():
    assert function_named("curvadion", "speedup_from")("wan", 0.01) == pytest.approx(4.361, abs=5e-4)
    assert function_named("demo", "replication.theory:top_k_error_bound")(48, 64) == 0.5


LEAST = 350
"""Rows with a verdict on numbers, without those that follow from another row."""


def test_there_are_enough_rows_that_say_something():
    told = [row for paper in PAPERS for row in board_of(paper) if row["verdict"] != NOT_CHECKABLE]
    assert len([row for row in told if not row["follows"] and not row["target"]]) >= LEAST


def test_rows_whose_target_is_not_the_papers_count_apart():
    rows = board_of("demo")
    (counted,) = counts(rows)
    own = [row for row in rows if row["target"]]
    assert sum(counted[target] for target in TARGETS[1:]) == len(own) > 0
    assert sum(counted[verdict] for verdict in VERDICTS) == len(rows) - len(own)
    with pytest.raises(SpecError, match="target: got 'mine'; expected one of"):
        PaperRow("demo", "Table 1", "bytes", "1", reason="none", target="mine")
