"""What the commands print on a terminal: names as they are, and no escape sequences where none are wanted."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from rich.console import Console

from syncline.cli import shell
from syncline.runs.processes.progress import progress

PACKAGE = str(Path(__file__).parents[2])


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """All that a command writes to a terminal of 80 columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        environment |= {"TERM": "xterm-256color", "COLUMNS": "80", "PYTHONPATH": PACKAGE} | variables
        os.execve(sys.executable, [sys.executable, "-m", "syncline.cli.application", *arguments], environment)
    parts = []
    try:
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    except OSError:  # how a terminal ends on Linux
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    return b"".join(parts).decode()


@pytest.mark.parametrize("arguments", [("list", "hardware"), ("--help",)])
@pytest.mark.parametrize(("variables", "plain"), [({}, False), ({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, True)])
def test_escape_sequences_only_where_they_are_wanted(arguments, variables, plain):
    text = on_a_terminal(*arguments, **variables)
    assert len(text) > 100 and "Traceback" not in text
    assert ("\x1b" in text) is not plain


@pytest.mark.parametrize("wanted", [True, False])
def test_progress_has_no_escape_sequences_without_colours(wanted, capsys):
    console = Console(force_terminal=True, color_system="standard" if wanted else None, stderr=True)
    with progress(console, ["[red]ddp[/red]"], 2) as update:
        update([1])
    written = capsys.readouterr().err
    assert ("\x1b" in written) is wanted and ("[red]ddp[/red]" in written) is wanted


def test_paths_are_printed_as_they_are(tmp_path, capsys):
    folder = tmp_path / "[red]x[/red]" / "[bold]:smile:"
    folder.mkdir(parents=True)
    (folder / "[red]run.json").touch()
    shell.show_files(shell.new_console(), str(folder))
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [f"results in {folder}/", f"  {folder}/[red]run.json"]
