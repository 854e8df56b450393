"""Tables fit the terminal: no line is too long, every column is there, words are whole."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group

from syncline.measure.calibration.tables import calibrate_tables
from syncline.measure.launching.tables import launch_tables
from syncline.measure.validation.measured_steps import validate_step_times
from syncline.measure.validation.tables import validate_tables, validation_tables
from syncline.planner.collective_tables import collectives_tables
from syncline.planner.collectives import CostQuestion, compute_costs
from syncline.planner.projection.project import project
from syncline.planner.projection.tables import project_tables
from syncline.planner.tables.display import catalogue_table, compare_tables, run_tables
from syncline.planner.tables.layout import Sheet
from syncline.runs.catalogue import CATALOGUES
from syncline.runs.pipeline import pipeline_tables
from syncline.specs import load_spec
from tests.measure.calibration.test_calibrate import FACTS, TINY, cluster_of, measured_with
from tests.measure.validation.test_step_times import made_up, spec_of, written
from tests.planner.tables.test_display import row
from tests.runs.examples import bowl

RECORDED = json.loads(Path(__file__).with_name("table_rows.json").read_text())
"""What small runs of commands that take long gave, as ``--json`` has it, with the spec and what was set in it."""

PROJECTED = ("project-gpt-160m", "curvadion-table2", "curvadion-table3", "demo-table1", "lion-cub-fig2",
             "lion-cub-table1", "mt-dao-fig9", "mt-dao-fig10")  # fmt: skip


def recorded(name):
    told = RECORDED[name]
    spec, result = load_spec(told["spec"], told["set"]), told["result"]
    if told["command"] == "launch":
        return launch_tables(result, spec)
    return (pipeline_tables if told["command"] == "pipeline" else run_tables)(result["rows"], spec)


def projected(name):
    spec = load_spec(name)
    from syncline.planner.projection.project import project_all

    return project_tables(project(spec) if name == "project-gpt-160m" else project_all([spec]), spec)


def asked(*networks, **options):
    question = CostQuestion.from_options(networks=networks, **options)
    return collectives_tables(compute_costs(question)["rows"], question)


def compared(_):
    spec = bowl(methods=["ddp-adam", "diloco"])
    lost = {"loss": float("inf"), "diverged_at": 17, "speedup": None}
    rows = [row(name, link.name, **of) for link in spec.networks for name, of in (("ddp-adam", {}), ("diloco", lost))]
    return compare_tables(rows, spec)


def trainings_validated(_):
    one = {"spec": "digits", "method": "ddp-adam", "network": "shaped", "workers": 2, "bound": "communication",
           "predicted_s": 1.23e-3, "measured_s": 1.5e-3, "error": -0.18, "noisy": True, "spread": 0.021,
           "predicted_communication_s": 1e-3, "measured_communication_s": 1.1e-3, "predicted_bytes": 19240.0,
           "measured_bytes": 19238.0, "device_error": 0.013, "loss_difference": 0.0}  # fmt: skip
    of = {
        "by": "method",
        "value": "ddp-adam",
        "points": 1,
        "median": 0.18,
        "worst": 0.18,
        "bias": -0.18,
        "spread": 0.02,
    }
    return validation_tables({"rows": [one, one | {"method": "mt-dao-adopt"}], "summary": [of]})


def steps_validated(folder):
    spec = spec_of(written(folder / "measured", made_up()), constants="a100-megatron-deepspeed")
    return validate_tables(validate_step_times(spec), spec)


TABLES = {
    "compare": compared,
    "calibrate": lambda _: calibrate_tables(cluster_of(TINY, [measured_with(2), measured_with(4)], FACTS)),
    "validate": steps_validated,
    "validate trainings": trainings_validated,
    "collectives": lambda _: asked("10gbe", "dgx-h100", nbytes="1kB", workers=16),
    "collectives with starts": lambda _: asked("wan", starts="0,0,50ms", collectives=["all_reduce"]),
    **{f"project {name}": lambda _, name=name: projected(name) for name in PROJECTED},
    **{f"list {what}": lambda _, what=what: [catalogue_table(what, CATALOGUES[what](print))] for what in CATALOGUES},
    **{name: lambda _, name=name: recorded(name) for name in RECORDED},
}


def drawn(renderable, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def sheet_of(group):
    return next((part for part in group.renderables if isinstance(part, Sheet)), None)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    made = {}

    def of(name):
        if name not in made:
            made[name] = TABLES[name](tmp_path_factory.mktemp("tables"))
        return made[name]

    return of


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", TABLES)
def test_every_command_s_tables_fit(name, width, tables):
    assert tables(name)
    for group in tables(name):
        assert isinstance(group, Group)
        assert max(map(len, drawn(group, width))) <= width
        if (sheet := sheet_of(group)) is not None:  # assumptions are lines of text
            fits(sheet, width)


def fits(sheet, width):
    """All words of all headings and cells are there, whole, as often as they should be at least."""
    lines = drawn(sheet, width)
    assert max(map(len, lines), default=0) <= width
    there = [word for line in lines for word in line.split()]
    cells = [cell for row in sheet.cells for cell in row]
    wanted = [word for text in (*sheet.headings, *cells) for word in text.split()]
    for word in {*wanted}:
        assert there.count(word) >= wanted.count(word), f"{word} is {there.count(word)} times in\n" + "\n".join(lines)
    text = "\n".join(lines)
    assert all(cell in text for cell in cells if re.fullmatch(r"[\d.]+ [a-zA-Z/]+", cell)), "a unit left its number"


def test_a_wide_terminal_has_one_table():
    sheet = Sheet(["method", "step\ntime", "bytes"], [["ddp", "1.5 ms", "4 kB"]], (0,), [False])
    assert drawn(sheet, 80)[1:5] == [
        "            step",
        " method     time   bytes",
        " ───────────────────────",
        " ddp      1.5 ms    4 kB",
    ]
    assert drawn(sheet, 80) == drawn(sheet, 200) == drawn(sheet, 25)


def test_a_narrow_terminal_folds_at_spaces_and_then_cuts_into_blocks():
    cells = [["ddp", "1.5 ms", "1.2 ms (80%)", "it waits for all"], ["diloco", "310 us", "250 us (81%)", "for few"]]
    sheet = Sheet(["method", "time of a step", "communication", "note"], cells, (0, 3), [False, False])
    assert drawn(sheet, 50)[1:6] == [
        "         time of",
        " method   a step  communication  note",
        " ────────────────────────────────────────────────",
        " ddp      1.5 ms   1.2 ms (80%)  it waits for all",
        " diloco   310 us   250 us (81%)  for few",
    ]
    assert drawn(sheet, 36) == [
        "",
        "         time of",
        " method   a step  communication",
        " ──────────────────────────────",
        " ddp      1.5 ms   1.2 ms (80%)",
        " diloco   310 us   250 us (81%)",
        "",
        "",
        " method  note",
        " ────────────────────────",
        " ddp     it waits for all",
        " diloco  for few",
        "",
    ]


words = st.text("abcdefgh0123[]()%.:", min_size=1, max_size=12)
texts = st.lists(words, min_size=1, max_size=6).map(" ".join)


@given(st.data(), st.integers(2, 8), st.integers(0, 4), st.integers(30, 120))
def test_any_table_fits_any_width(data, columns, rows, width):
    headings = data.draw(st.lists(texts, min_size=columns, max_size=columns))
    cells = data.draw(st.lists(st.lists(texts, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    left = data.draw(st.sets(st.integers(0, columns - 1)))
    sheet = Sheet(headings, cells, left | {0}, [False] * rows)
    fits(sheet, width)


def test_what_is_longer_than_the_terminal_is_continued_and_not_cut():
    name = "x" * 300
    sheet = Sheet(["method", "loss"], [[name, "0.25"], ["ddp", "1"]], (0,), [False, False])
    lines = drawn(sheet, 60)
    assert sum(line.count("x") for line in lines) == 300 and max(map(len, lines)) <= 60


def test_what_is_written_in_brackets_is_printed():
    sheet = Sheet(["[bold]method", ":smile:"], [["[red]ddp[/red]", "[/]"]], (0,), [False])
    text = "\n".join(drawn(sheet, 80))
    assert all(part in text for part in ("[bold]method", ":smile:", "[red]ddp[/red]", "[/]"))
