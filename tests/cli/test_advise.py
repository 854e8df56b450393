"""``syncline advise``: lists and sentences for people, rows for machines, mistakes in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syncline.cli.application import app
from syncline.errors import SpecError

SMALL = ["advise", "--model", "gpt-160m", "--network", "two-sites", "--hardware", "h100", "--workers", "4", "--method",
         "ddp-adam,demo"]  # fmt: skip


def test_people_get_lists_and_sentences() -> None:
    done = CliRunner().invoke(app, [*SMALL, "--all"], catch_exceptions=False)
    assert done.exit_code == 0
    for words in ("Ranked by time to the same loss", "Loss unknown", "What decides", "What is unknown"):
        assert words in done.output


def test_machines_get_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    done = CliRunner().invoke(app, [*SMALL, "--json", "--csv", str(file)], catch_exceptions=False)
    rows = json.loads(done.stdout)["rows"]
    assert {row["list"] for row in rows} >= {"ranked", "loss unknown"}
    with file.open(encoding="utf-8", newline="") as written:
        assert [row["method"] for row in csv.DictReader(written)] == [row["method"] for row in rows]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (["--cluster", "nowhere"], "--cluster: got 'nowhere'"),
        (["--cluster", "two-sites-a100"], "--network: got 'two-sites'"),
        (["--batch-tokens", "many"], "--batch-tokens: got 'many'"),
        (["--deadline", "soon"], "--deadline: got 'soon'"),
        (["--budget", "50k"], "--budget: got 50000.0; expected prices"),
        (["--target-loss", "-2"], "--target-loss: got -2.0"),
        (["--prices", "nobody's"], '--prices: got "nobody\'s"'),
        (["--workers", "0"], "--workers: got 0"),
    ],
)
def test_mistakes_name_the_option(changed: list[str], told: str) -> None:
    with pytest.raises(SpecError) as error:
        CliRunner().invoke(app, [*SMALL, *changed], catch_exceptions=False)
    assert str(error.value).startswith(told)
