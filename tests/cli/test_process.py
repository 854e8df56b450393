"""What a command meets before it begins: closed streams, a folder that is gone, widths that nobody can print in."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from syncline.cli.shell import MOST_COLUMNS, check_width, new_console
from syncline.errors import SpecError, SynclineError
from tests.robustness.damage import folder_files, write_files

LIST = "import os, sys; {before}; sys.argv = ['', 'list', 'prices']; from syncline.cli.application import main; main()"


@pytest.mark.parametrize(
    ("before", "code", "line"),
    [
        ("pass", 0, "aws-p5"),
        (
            "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
            2,
            "error: working directory: got a folder that no longer exists",
        ),
    ],
)
def test_a_working_directory_that_is_gone_is_refused(before, code, line, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIST.format(before=before)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, line in done.stderr) == (code, True), done.stderr


def test_a_closed_standard_error_is_no_mistake(tmp_path):
    """Without a place for them, lines for people go nowhere: not into standard output, not into a file of a result."""
    call = f"{sys.executable} -m syncline"
    script = f"exec 2>&-; {call} list prices --json; {call} show nowhere"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and '"rows"' in done.stdout and "error" not in done.stdout


@pytest.mark.parametrize("text", ["0", "-1", "x", "", " ", "1e3", "1000000000", "9" * 400])
def test_a_width_that_is_none_does_not_count(text, monkeypatch):
    monkeypatch.setenv("COLUMNS", text)
    check_width()
    assert "COLUMNS" not in os.environ and 0 < new_console().width <= MOST_COLUMNS


def test_a_width_counts(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    check_width()
    assert new_console().width == 72


LONG = "x" * 5000


@pytest.mark.parametrize(
    "error",
    [
        SpecError("--out", LONG, "a folder"),
        SpecError(LONG, 1, "a folder"),
        SpecError("out", 1, f"no {LONG}, but a folder"),
        SynclineError(f"folder: {LONG}: expected a folder"),
        SpecError("out", ["a b c"] * 2000, "a folder"),
    ],
)
def test_what_is_expected_shows_however_long_a_value_is(error):
    assert len(str(error)) < 600 and str(error).endswith("a folder")


@pytest.mark.parametrize("arguments", [("reproduce", "demo", "--plot"), ("replicate", "mt-dao", "--out")])
def test_names_that_no_file_can_have_are_refused(arguments, command):
    told = command(*arguments, "x" * 3000)
    assert told.code == 2 and told.err.startswith("error: path: got 'xxx") and told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("--replicas=10ms", "finite"),
        ("--replicas=true", "finite"),
        ("--period=-inf", "finite"),
        ("--period=é", "finite"),
        ("--replicas={a: 1}", "finite"),
        ("--period=-1", "positive"),
    ],
)
def test_replicas_and_periods_that_are_no_numbers_are_refused(option, number, command):
    refusal = command("loss", "1.3B", option)
    assert refusal.code == 2 and refusal.err.strip().endswith(f"expected a {number} number")


@pytest.mark.parametrize(("name", "spec"), [("run", "rosenbrock-mt-dao"), ("compare", "lion-cub-zeros")])
def test_columns_that_there_will_not_be_are_refused_before_the_training(name, spec, command, tmp_path, monkeypatch):
    told = command(name, spec, "--columns", "loss,nosuch", "--set", "steps=50000")
    assert told.code == 2 and "--columns: got 'nosuch'; expected one of 'all', 'basis'" in told.err
    assert not (tmp_path / "runs").exists()


def test_an_argument_that_is_no_text_is_refused(command, tmp_path):
    folder = tmp_path / "result"
    write_files(folder_files("collectives"), folder)
    told = command("report", str(folder), "--title", "\ud800")
    assert told.code == 2 and told.err.startswith("error: --title: got '\\ud800'; expected ")
    assert told.err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
