"""``syncline loss`` and ``sl.loss``: rows, tables, refusals in one line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import syncline as sl
from syncline.cli.application import app
from syncline.costmodel.scaling.predict import TrainingAtScale, predicted_loss


def test_rows_are_what_the_function_says() -> None:
    rows = sl.loss(["ddp-adam", "diloco"], ["550M", "1.3B"], replicas=[2, 4]).rows
    assert [(row["method"], row["parameters"], row["replicas"]) for row in rows] == [
        ("ddp-adam", 550e6, None), ("diloco", 550e6, 2), ("diloco", 550e6, 4),
        ("ddp-adam", 1.3e9, None), ("diloco", 1.3e9, 2), ("diloco", 1.3e9, 4),
    ]  # fmt: skip
    assert rows[2]["loss"] == predicted_loss(TrainingAtScale("diloco", 550e6, replicas=4)).loss


def test_every_fit_answers_or_says_why_not() -> None:
    rows = sl.loss("ddp-adam", "1.3B", every_fit=True).rows
    assert [row["fit"] for row in rows] == ["ddp", "streaming-ddp", "chinchilla", "chinchilla-epoch"]
    assert [row["unknown"] is None for row in rows] == [True, False, True, True]


def test_a_target_takes_tokens_or_a_model() -> None:
    (row,) = sl.loss("ddp-adam", "1B", target_loss=2.6, fit="chinchilla").rows
    assert row["loss"] == pytest.approx(2.6) and row["tokens_low"] < row["tokens"] < row["tokens_high"]
    (row,) = sl.loss("diloco", target_loss=2.4).rows
    assert row["parameters_low"] < row["parameters"] < row["parameters_high"]


def test_the_command_prints_a_table_or_json() -> None:
    run = CliRunner().invoke(app, ["loss", "7B", "--method", "diloco", "--extrapolate"])
    assert run.exit_code == 0 and "~ diloco: extrapolation: parameters 7e+09, seen 3.5e+07 to 2.4e+09." in run.output
    run = CliRunner().invoke(app, ["loss", "1.3B", "--replicas", "2,8", "--json"])
    rows = json.loads(run.output)["rows"]
    assert [row["extrapolation"] for row in rows] == [False] * 3


def test_refusals_name_field_value_and_range() -> None:
    with pytest.raises(sl.SpecError, match=r"parameters: got 7000000000\.0; expected 35,000,000 to 2,400,000,000"):
        sl.loss("diloco", "7B")
    with pytest.raises(sl.SpecError, match="parameters: got None; expected a number of parameters, or a target loss"):
        sl.loss("diloco")
    with pytest.raises(sl.SpecError, match=r"parameters: got '7X'; expected a positive number, as 26e9, 1\.3B"):
        sl.loss("diloco", "7X")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["--prices", "nowhere.yaml"], "--prices: got 'nowhere.yaml'; expected a file that can be read"),
        (
            ["--batch-tokens", "1e30"],
            "--batch-tokens: got 1e+30; expected at most 1,000,000,000,000,000 tokens for each",
        ),
        (["--tokens", "1e30"], "--tokens: got 1e+30; expected at most 1,000,000,000 steps of"),
        (["--workers", ""], "--workers: got ''; expected whole numbers, at least 1"),
        (["--failures", "50000"], "--failures.rates.0.mtbf: got '50000'; expected a time with its unit"),
        (
            ["--failures", "{mtbf:1h}"],
            "--failures: got '{mtbf:1h}'; expected fields in YAML (a space is missing behind the",
        ),
        (["--prices", "aws"], "--prices: got 'aws'; expected one of"),
        (["--tokens", "lots"], "--tokens: got 'lots'; expected a positive number, as 26e9, 1.3B"),
        (["--target-loss", "-1"], "--target-loss: got -1.0; expected a positive number"),
        (["--tokens", "1B", "--target-loss", "2"], "--tokens: got 1000000000.0; expected none with a target"),
        (["--tokens", "1B", "--grid", "workers=2,4"], "--tokens: got '1B'; expected none with --grid"),
    ],
)
def test_project_refuses_in_one_line(asked: list[str], line: str) -> None:
    run = CliRunner().invoke(app, ["project", *asked])
    assert isinstance(run.exception, sl.SpecError)
    assert str(run.exception).startswith(line) and "\n" not in str(run.exception)
