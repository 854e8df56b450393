"""Two folders of results, compared: by hand-made tables whose differences are known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.errors import SpecError
from syncline.runs.folders.same import NOT_COMPARED, compare_folders, comparison_record

METRICS = {"step": [1, 2, 3], "loss": [4.0, 2.0, 1.0], "method": ["a", "a", "b"], "accuracy": [None, 0.5, math.nan]}


def written(
    folder: Path, metrics: dict[str, Any] = METRICS, spec: str = "kind: run\n", beside: dict[str, Any] | None = None
) -> Path:
    folder.mkdir()
    pq.write_table(pa.table(metrics), folder / "metrics.parquet")
    (folder / "run.json").write_text(
        json.dumps({"rows": [{"loss": 1.0}], "seeds": [0, 1], "syncline": "1", **(beside or {})})
    )
    (folder / "spec.yaml").write_text(spec)
    (folder / "trace.json").write_text("no JSON, and made from the tables")
    return folder


def both(tmp_path: Path, metrics: dict[str, Any]) -> tuple[Path, Path]:
    return written(tmp_path / "a"), written(tmp_path / "b", METRICS | metrics)


def test_what_is_equal_is_bit_equal_whenever_and_wherever_it_ran(tmp_path: Path) -> None:
    other = dict.fromkeys(NOT_COMPARED, "other")
    a, b = (written(tmp_path / name, spec=f"name: {name}\n", beside=other if name == "b" else {}) for name in "ab")
    comparison = compare_folders(a, b)
    assert comparison.verdict(0.0) == "bit-equal"
    assert comparison.skipped == [f"run.json: {name}" for name in sorted(NOT_COMPARED)]
    assert comparison.specs == ["spec.yaml: name is a and b"]
    assert (comparison.files, comparison.cells) == (3, 4 * 3 + 3)


def test_differences_are_told_by_column_losses_first(tmp_path: Path) -> None:
    """The loss of 2 is 2.5: 0.5, of 2.5 a fifth. A number in the place of none is infinitely far away."""
    a, b = both(tmp_path, {"loss": [4.0, 2.5, 1.0], "accuracy": [0.0, 0.5, math.nan], "method": ["a", "b", "b"]})
    comparison = compare_folders(a, b)
    found = [(one.column, one.different, one.absolute, one.relative, one.step) for one in comparison.differences]
    assert found == [
        ("loss", 1, 0.5, 0.2, 2),
        ("accuracy", 1, math.inf, math.inf, 1),
        ("method", 1, None, None, 2),
    ]
    assert [one["within"] for one in comparison_record(comparison, a, b, 0.2)["rows"]] == [True, False, False]


@pytest.mark.parametrize(("tolerance", "verdict"), [(0.0, "different"), (0.19, "different"), (0.2, "within tolerance")])
def test_a_tolerance_is_relative_to_the_larger_number(tmp_path: Path, tolerance: float, verdict: str) -> None:
    assert compare_folders(*both(tmp_path, {"loss": [4.0, 2.5, 1.0]})).verdict(tolerance) == verdict


def test_signs_of_zero_and_large_integers_are_compared_to_the_bit(tmp_path: Path) -> None:
    a = written(tmp_path / "a", {"zero": [0.0, 1.0], "count": [2**60, 1]})
    b = written(tmp_path / "b", {"zero": [-0.0, 1.0], "count": [2**60 + 1, 1]})
    assert [(one.column, one.row) for one in compare_folders(a, b).differences] == [("count", 0), ("zero", 0)]


def test_what_one_folder_has_alone_is_a_difference(tmp_path: Path) -> None:
    a, b = both(tmp_path, {"step": [1, 2, 3]})
    (b / "figures").mkdir()
    pq.write_table(pa.table({"x": [1]}), b / "curves.parquet")
    pq.write_table(pa.table({"step": [1, 2], "loss": [4.0, 2.0], "more": [0.0, 0.0]}), b / "metrics.parquet")
    comparison = compare_folders(a, b)
    assert comparison.unmatched == [
        f"curves.parquet is only in {b}",
        f"metrics.parquet: method is only in {a}",
        f"metrics.parquet: accuracy is only in {a}",
        f"metrics.parquet: more is only in {b}",
        f"metrics.parquet: step has 3 rows in {a} and 2 in {b}",
        f"metrics.parquet: loss has 3 rows in {a} and 2 in {b}",
    ]
    assert not comparison.differences and comparison.verdict(1.0) == "different"


def test_the_type_of_numbers_is_compared(tmp_path: Path) -> None:
    a, b = both(tmp_path, {"loss": pa.array([4.0, 2.0, 1.0], pa.float32())})
    assert compare_folders(a, b).unmatched == [f"metrics.parquet: loss has the type double in {a} and float in {b}"]


@pytest.mark.parametrize("name", ["metrics.parquet", "run.json", "spec.yaml"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"[" * 100_000, b"\xff\xfe{"])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    a, b = both(tmp_path, {})
    (b / name).write_bytes(content)
    if (name, content) in (("spec.yaml", b""), ("spec.yaml", b"PAR1")):  # YAML, if no spec
        assert compare_folders(a, b).specs
        return
    with pytest.raises(SpecError, match=f"run: got '.*{name}'; expected a file that can be read") as caught:
        compare_folders(a, b)
    assert "\n" not in str(caught.value)


def test_a_table_with_damaged_pages_is_named_in_one_line(tmp_path: Path) -> None:
    """Its footer is whole, what it points to is not."""
    a, b = both(tmp_path, {})
    content = (b / "metrics.parquet").read_bytes()
    (b / "metrics.parquet").write_bytes(content[:4] + b"\xff" * 200 + content[204:])
    with pytest.raises(SpecError, match=r"metrics.parquet'; expected a file that can be read"):
        compare_folders(a, b)


def test_the_command(command: Callable, tmp_path: Path) -> None:
    a, b = both(tmp_path, {"loss": [4.0, 2.5, 1.0]})
    equal = written(tmp_path / "c")
    assert command("same", str(a), str(equal)).code == 0
    done = command("same", str(a), str(b))
    assert done.code == 1 and "row 1, step 2" in done.err + done.out
    done = command("same", str(a), str(b), "--tolerance", "0.3", "--json")
    assert done.code == 0 and json.loads(done.out)["verdict"] == "within tolerance"
    for arguments, line in [
        ((str(a), "nowhere"), "error: run: got 'nowhere'; expected a run folder"),
        ((str(a), str(b), "--tolerance", "nan"), "error: --tolerance: got nan; expected a number >= 0"),
    ]:
        done = command("same", *arguments)
        assert done.code == 2 and done.err.splitlines()[-1].startswith(line)
    (b / "spec.yaml").write_text("kind: compare\n")
    done = command("same", str(a), str(b))
    assert done.code == 2 and "expected a folder of kind" in done.err.splitlines()[-1]
