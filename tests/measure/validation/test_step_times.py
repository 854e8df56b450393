"""``syncline validate``: on made-up measurements everywhere, on vTrain's where they are."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from syncline.analysis.validation import predicted_against_measured
from syncline.costmodel import HARDWARE
from syncline.costmodel.layouts.transformer_time import STEP_FIELDS, STEP_TIMES, TENSOR_FIELDS, step_s
from syncline.errors import SpecError, SynclineError
from syncline.measure.validation import measured_steps
from syncline.measure.validation.measured_steps import (
    COLUMNS,
    TIME_COLUMN,
    Point,
    error_summary,
    fitted_to,
    layouts,
    measured_s,
    read_points,
    recomputes,
    validate_step_times,
)
from syncline.specs import StepTimesSpec, load_spec
from tests.reference import REFERENCE, needs_reference
from tests.test_docs import documented

VTRAIN = REFERENCE / "vtrain"
SINGLE, MULTI = "a100_single_half.csv", "a100_multi_half.csv"

TRUTH = replace(STEP_TIMES["a100-megatron-deepspeed"], matmul_flops=2e14, launch_s=2e-3)
"""A machine that is not the preset."""


def made_up() -> list[Point]:
    """Steps that take exactly what the model says of a machine."""
    points = []
    for width, micro_batch, layers in ((1024, 1, 12), (1024, 4, 24), (1024, 8, 12), (2048, 1, 24), (2048, 4, 12)):
        for data, stages, tensor in ((1, 2, 1), (2, 1, 1), (4, 1, 1), (2, 4, 1), (2, 1, 2), (1, 2, 4)):
            for count in (2, 4):
                numbers = data * stages * tensor, count * data * micro_batch, micro_batch, width, 16, layers, 1024
                points.append(Point(*numbers, tensor, data, stages, measured_s=0.0))
    times = step_s(layouts(points), TRUTH)
    return [point._replace(measured_s=float(seconds)) for point, seconds in zip(points, times, strict=True)]


def written(folder: Path, points: list[Point], name: str = SINGLE) -> Path:
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, [*COLUMNS.values(), TIME_COLUMN])
        rows.writeheader()
        for point in points:
            row = {column: getattr(point, field) for field, column in COLUMNS.items()}
            rows.writerow(row | {TIME_COLUMN: repr(1e3 * point.measured_s)})
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("data") / "measured", made_up())


@pytest.fixture(scope="module", autouse=True)
def _each_calibration_once():
    """The same points give the same constants; a fit takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        known = cache(measured_steps.fitted_to)
        patch.setattr(measured_steps, "fitted_to", lambda points, *machine: known(tuple(points), *machine))
        yield


QUICK = ("--set", "multi_node=null", "--set", "repeats=1")


def spec_of(folder, **fields) -> StepTimesSpec:
    given = {"kind": "step-times", "name": "v", "data": str(folder), "single_node": SINGLE, "hardware": "a100"}
    return StepTimesSpec.model_validate(given | {"repeats": 0} | fields)


def test_what_follows_the_model_is_predicted_from_a_part(command, folder, tmp_path):
    done = command("validate", "vtrain-a100", "--data", str(folder), *QUICK, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    points = made_up()
    chosen = [point for point in points if point.part_index(5) == 0]
    assert len(result["rows"]) == len(points) - len(chosen) and chosen
    assert max(abs(row["error"]) for row in result["rows"]) < 1e-3
    found = {row["name"]: row["value"] for row in result["constants"]}
    assert list(found) == [*STEP_FIELDS, *TENSOR_FIELDS]
    for name in ("serial_s", "launch_s", "matmul_flops", "memory_bytes_per_s", "tensor_bytes_per_s"):
        assert found[name] == pytest.approx(getattr(TRUTH, name), rel=0.02)
    files = sorted(str(path.relative_to(tmp_path / "runs")) for path in (tmp_path / "runs").rglob("*.*"))
    names = ("figures/validation.png", "manifest.json", "points.parquet", "run.json", "spec.yaml")
    assert files == [f"vtrain-a100/{name}" for name in names]
    stored = pq.read_table(tmp_path / "runs/vtrain-a100/points.parquet").to_pylist()
    assert stored == result["rows"]
    # The folder's own spec gives the same again.
    again = command("validate", "runs/vtrain-a100/spec.yaml", "--json")
    assert json.loads(again.out)["rows"] == result["rows"]


def test_no_point_is_calibrated_on_and_predicted(folder, monkeypatch):
    points, known = {point[:-1] for point in made_up()}, STEP_TIMES["a100-megatron-deepspeed"]
    for fold in range(3):
        taken = []
        monkeypatch.setattr(
            measured_steps, "fitted_to", lambda of, *machine, taken=taken: (taken.extend(of), (known, {}))[1]
        )
        result = validate_step_times(spec_of(folder, folds=3, fold=fold))
        predicted = {tuple(row[name] for name in Point._fields[:-1]) for row in result["rows"]}
        assert predicted == {point for point in points if Point(*point, 1.0).part_index(3) != fold}
        assert {point[:-1] for point in taken} == points - predicted
        count = {
            row["role"]: row["points"] for row in result["summary"] if (row["by"], row["value"]) == ("tensor", "1")
        }
        assert count["calibration"] + count["validation"] == sum(point[7] == 1 for point in points)


def test_the_order_of_a_table_and_what_else_is_in_it_choose_nothing(folder, tmp_path):
    points = made_up()
    random.Random(0).shuffle(points)
    known = {"constants": "a100-megatron-deepspeed"}
    shuffled = validate_step_times(spec_of(written(tmp_path / "s", points), **known))
    plain = validate_step_times(spec_of(folder, **known))
    key = lambda row: [row[name] for name in Point._fields]  # noqa: E731
    assert sorted(map(key, shuffled["rows"])) == sorted(map(key, plain["rows"]))
    fewer = validate_step_times(spec_of(written(tmp_path / "f", points[10:]), **known))
    assert {tuple(key(row)) for row in fewer["rows"]} <= {tuple(key(row)) for row in plain["rows"]}


def test_a_table_may_begin_with_a_byte_order_mark(tmp_path):
    marked = written(tmp_path / "marked", made_up()) / SINGLE  # as those that were published do
    marked.write_bytes(b"\xef\xbb\xbf" + marked.read_bytes())
    plain = written(tmp_path / "plain", made_up())
    assert read_points(str(marked.parent), SINGLE, "single_node") == read_points(str(plain), SINGLE, "single_node")


def test_known_constants_need_no_calibration(folder):
    result = validate_step_times(spec_of(folder, constants="a100-megatron-deepspeed"))
    assert {row["name"]: row["value"] for row in result["constants"]} == {
        name: getattr(STEP_TIMES["a100-megatron-deepspeed"], name) for name in (*STEP_FIELDS, *TENSOR_FIELDS)
    }
    assert all(row["spread"] is None for row in result["constants"])
    assert max(abs(row["error"]) for row in result["rows"]) > 0.02  # it is not that machine


def test_points_that_known_constants_were_fitted_to_are_no_test_of_them(folder):
    known = STEP_TIMES["a100-megatron-deepspeed"]
    assert known.calibrated_on == (5, 0)
    first = [point for point in made_up() if point.part_index(5) == 0]
    # Whatever fold is asked for: it is not this spec's calibration that chose them.
    for fold in (0, 3):
        result = validate_step_times(spec_of(folder, constants=known, fold=fold))
        count = {row["role"]: row["points"] for row in result["summary"] if row["by"] == "tensor"}
        assert len(result["rows"]) == len(made_up()) - len(first) and count["calibration"] > 0
    own = replace(known, calibrated_on=None)
    result = validate_step_times(spec_of(folder, constants=own))
    assert len(result["rows"]) == len(made_up())
    assert {row["role"] for row in result["summary"]} == {"validation"}


def test_a_cell_is_predicted_from_points_outside_of_it(folder, monkeypatch):
    points, taken = made_up(), []
    known = STEP_TIMES["a100-megatron-deepspeed"]
    monkeypatch.setattr(measured_steps, "fitted_to", lambda of, *machine: (taken.append(of), (known, {}))[1])
    rows = [row for row in validate_step_times(spec_of(folder))["summary"] if row["role"] == measured_steps.LEFT_OUT]
    of = {row["value"]: row["points"] for row in rows if row["by"] == "width, micro_batch"}
    cells = sorted({(point.width, point.micro_batch) for point in points if point.tensor == 1})
    assert list(of) == [f"{width}, {batch}" for width, batch in cells]
    assert rows[0]["points"] == sum(of.values()) == sum(point.tensor == 1 for point in points)
    for cell, calibrated in zip(cells, taken[1:], strict=True):
        assert calibrated and cell not in {(point.width, point.micro_batch) for point in calibrated}


def test_errors_of_groups_by_hand():
    row = {"role": "validation", "tensor": 1, "width": 1, "stages": 1, "data": 1, "layers": 1, "microbatches": 1}
    rows = [row | {"micro_batch": b, "error": e} for b, e in ((1, 0.1), (1, -0.2), (2, 0.03))]
    told = {(one["by"], one["value"]): one for one in error_summary(rows)}
    first = told["micro_batch", "1"]
    assert [first[name] for name in ("points", "mape", "median", "worst", "bias")] == pytest.approx(
        [2, 0.15, 0.15, 0.2, -0.05]
    )
    assert told["tensor", "1"]["mape"] == pytest.approx(0.11) and told["tensor", "1"]["median"] == pytest.approx(0.1)
    assert told["width, micro_batch", "1, 2"]["bias"] == pytest.approx(0.03)


def test_trainings_of_one_table_all_compute_activations_again_if_one_has_to():
    point = Point(8, 64, 8, 2048, 16, 24, 1024, 1, 8, 1, 1.0)
    assert not recomputes([point], HARDWARE["a100"].memory_bytes)
    large = point._replace(width=4096, layers=48)
    assert recomputes([point, large], HARDWARE["a100"].memory_bytes)
    assert not recomputes([], 1.0)


def test_two_specs_have_two_folders(command, folder, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(
        f"{{kind: step-times, name: other, data: {folder}, single_node: {SINGLE}, hardware: a100, repeats: 1}}"
    )
    done = command("validate", "vtrain-a100", "other.yaml", "--data", str(folder), *QUICK, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert [one["folder"] for one in result["validations"]] == ["runs/vtrain-a100", "runs/other"]
    assert {row["spec"] for row in result["rows"]} == {"vtrain-a100", "other"}
    refused = command("validate", "vtrain-a100", "other.yaml", "--out", "x")
    assert refused.code == 2 and "--out" in refused.err


# What is refused.


def test_missing_measurements_say_where_to_get_them(command, folder):
    for arguments, named in (
        (["--data", "nowhere"], "data: got 'nowhere'"),
        (["--data", str(folder), "--set", "single_node=none.csv"], "single_node: got 'none.csv'"),
        (["--data", str(folder)], "multi_node: got 'a100_multi_half.csv'"),
    ):
        done = command("validate", "vtrain-a100", *arguments)
        assert done.code == 2 and len(done.err.splitlines()) == 1
        assert named in done.err and "github.com/VIA-Research/vTrain" in done.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({TIME_COLUMN: "0"}, "line 2 is no measured step: it took 0.0 s"),
        ({TIME_COLUMN: "nan"}, "line 2 is no measured step"),
        ({TIME_COLUMN: "fast"}, "line 2 is no measured step"),
        ({"pipeline parallelism": "5"}, "a layer at least for each stage"),
        ({"data parallelism": "0"}, "line 2 is no measured step"),
        ({"global batch": "1", "micro batch": "8"}, "microbatches: got 0"),
    ],
)
def test_a_line_that_is_no_measurement_is_refused(tmp_path, change, message):
    good = {column: "2" for column in COLUMNS.values()} | {"global batch": "8", TIME_COLUMN: "3.5"}
    with (tmp_path / "m.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, list(good))
        rows.writeheader()
        rows.writerow(good | change)
    with pytest.raises(SynclineError, match=message):
        read_points(str(tmp_path), "m.csv", "single_node")


def test_an_empty_table_is_refused(tmp_path):
    (tmp_path / "m.csv").write_text(",".join([*COLUMNS.values(), TIME_COLUMN]) + "\n")
    with pytest.raises(SynclineError, match="has no measured step"):
        read_points(str(tmp_path), "m.csv", "single_node")


def test_too_few_points_are_refused(tmp_path):
    few = written(tmp_path / "few", made_up()[:8])
    with pytest.raises(SpecError, match="at least as many measurements as there are constants"):
        validate_step_times(spec_of(few))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fold=5", "fold: got 5"),
        ("hardware=cpu-core", "hardware with known memory"),
        ("constants=h100", "constants: got 'h100'"),
        ("folds=1", "folds: got 1"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(override, message):
    with pytest.raises(SpecError, match=message):
        load_spec("vtrain-a100", [override])


def test_a_figure_without_points_is_refused():
    with pytest.raises(SpecError, match="at least one point"):
        predicted_against_measured({}, {})
    alone = predicted_against_measured({"a": ([1.0], [1.1])}, {})
    assert len(alone.axes) == 2  # times, and errors of all kinds


def test_the_records_page_names_every_field(command, folder):
    done = command("validate", "vtrain-a100", "--data", str(folder), *QUICK, "--json")
    result = json.loads(done.out)
    parts = [result["rows"], result["summary"], result["constants"]]
    assert {name for part in parts for row in part for name in row} == documented("validate")


# vTrain's measurements, whose fits take a dozen CPU seconds.


@pytest.fixture(scope="module")
def result():
    spec = load_spec("vtrain-a100", [f"data={json.dumps(str(VTRAIN))}", "repeats=3"])
    return validate_step_times(spec)


@pytest.mark.slow
@needs_reference
def test_steps_on_one_node_are_predicted_from_a_fifth(result):
    told = {(row["role"], row["value"]): row for row in result["summary"] if row["by"] == "tensor"}
    assert told["validation", "1"]["points"] + told["calibration", "1"]["points"] == 316
    assert 0.15 < told["calibration", "1"]["points"] / 316 < 0.25
    assert told["validation", "1"]["mape"] < 0.02 and told["validation", "1"]["worst"] < 0.08
    assert told["repeats", "1"]["mape_worst"] < 0.025
    assert told["validation", "above 1"]["mape"] < 0.085 and told["validation", "all"]["mape"] < 0.055


@pytest.mark.slow
@needs_reference
def test_steps_on_several_nodes_are_extrapolated(result):
    told = {row["value"]: row for row in result["summary"] if row["role"] == "extrapolation"}
    assert told["1"]["points"] == 4 and told["1"]["mape"] < 0.06
    assert told["all"]["points"] == 54 and told["all"]["mape"] < 0.14


@pytest.mark.slow
@needs_reference
def test_the_constants_that_come_with_the_package_are_those(result):
    known = STEP_TIMES["a100-megatron-deepspeed"]
    for row in result["constants"]:
        assert row["value"] == pytest.approx(getattr(known, row["name"]), rel=2e-3), row["name"]


@pytest.mark.slow
@needs_reference
def test_every_fifth_serves_as_well_as_another():
    points = [point for point in read_points(str(VTRAIN), SINGLE, "single_node") if point.tensor == 1]
    for fold in range(1, 5):
        fitted, _ = fitted_to([point for point in points if point.part_index(5) == fold], HARDWARE["a100"])
        others = [point for point in points if point.part_index(5) != fold]
        assert np.abs(step_s(layouts(others), fitted) / measured_s(others) - 1).mean() < 0.025


def test_axes_of_errors_say_where_their_ticks_are() -> None:
    figure = predicted_against_measured({"one": ([1.0], [1.08])}, {"size": {"1": [0.08, -0.09]}})
    figure.canvas.draw()
    axis = figure.axes[1].yaxis
    labels = [label.get_text().replace("\N{MINUS SIGN}", "-") for label in axis.get_ticklabels()]
    assert [float(text.rstrip("%")) / 100 for text in labels] == pytest.approx(list(axis.get_ticklocs()))
