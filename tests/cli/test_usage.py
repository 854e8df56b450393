"""Mistakes on the command line: one line each, in the style of mistakes in a spec."""

from __future__ import annotations

import io
import json
import os
import shlex

import pytest
from typer.testing import CliRunner

from syncline.cli.application import PLUGINS, app
from syncline.cli.commands import COMMANDS, command_of
from syncline.specs import bundled

REFUSED = [
    (("compare", "--jobs", "x"), "--jobs: got 'x'; expected a whole number"),
    (("compare", "--jobs", "0"), "--jobs: got '0'; expected at least 1"),
    (("pipeline", "--jitter", "much"), "--jitter: got 'much'; expected a number"),
    (("compare", "--job", "3"), "option: got '--job'; expected one of '--columns', '--help', '--jobs', '--json', "
     "'--network', '--no-code', '--out', '--set', '--text' (did you mean '--jobs'?); see 'syncline compare --help'"),
    (("--quiet",), "option: got '--quiet'; expected one of '--help', '--install-completion', '--no-code', "
     "'--show-completion', '--version'; see 'syncline --help'"),
    (("collectives", "--workers"), "--workers: got nothing; expected a value"),
    (("goodput", "--for", "soon"), "--for: got 'soon'; expected a time with its unit ('50 ms', '2 us', '1 h'), or a "
     "number of seconds"),
    (("run",), "spec: got nothing; expected a bundled spec (see 'syncline list specs'), a YAML file, or - for standard "
     "input"),
    (("list",), "what: got nothing; expected catalogue: networks, clusters, hardware, models, methods, problems, "
     "schedules, studies, specs, fits, prices or failures; see 'syncline list --help'"),
    (("list", "specs", "again"), "arguments: got 'again'; expected no more arguments; see 'syncline list --help'"),
    (("run", "-"), "spec: got 'standard input'; expected a file with fields: 'kind: ...', 'name: ...' and so on"),
    (("run", "rosenbrok"), None),
    (("comprae",), None),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_a_mistake_is_one_line_of_what_it_got_and_what_it_expected(arguments, said, command, standard_input):
    standard_input("")
    done = command(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said is None or done.err == f"error: {said}\n"


def test_what_is_meant_and_what_helps_is_said(command):
    assert "(did you mean 'compare'?); see 'syncline --help'" in command("comprae").err
    assert "(did you mean 'rosenbrock-mt-dao'?); see 'syncline list specs'" in command("run", "rosenbrok-mt-dao").err


def test_without_a_command_there_is_the_help(command):
    done = command()
    assert done.code == 2 and "Usage: syncline" in done.out and done.err == ""


def test_a_spec_from_standard_input_is_that_of_a_file(command, standard_input):
    standard_input(bundled()["project-gpt-160m"].read_text())
    piped, read = command("project", "-", "--json"), command("project", "project-gpt-160m", "--json")
    assert piped == read and piped.code == 0 and piped.out


def test_a_command_that_looks_twice_reads_standard_input_once(command, standard_input):
    standard_input(bundled()["pipeline-text"].read_text())
    told = command("launch", "-", "--timeout", "soon").err
    assert told.startswith("error: --timeout: got 'soon'")


def test_names_of_networks_may_stand_in_one_option(command):
    options = ("--network", "10gbe,wan", "--network", "1 ms,1Gbit/s", "--set", "methods=[ddp-adam]", "--json")
    rows = json.loads(command("project", *options).out)["rows"]
    assert [row["network"] for row in rows] == ["10gbe", "wan", "1 ms,1Gbit/s"]
    assert "got ['wan', '10gbe']; expected one network" in command("run", "spiral", "--network", "wan,10gbe").err


TYPER_COMMANDS = {name: command_of(name) for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_examples_that_it_takes(name):
    assert TYPER_COMMANDS[name].epilog.startswith("Examples:")
    for line in TYPER_COMMANDS[name].epilog.splitlines():
        if line.startswith("syncline "):
            words = shlex.split(line.partition(" > ")[0])
            assert len(line) <= 78
            with TYPER_COMMANDS[words[1]].make_context(words[1], words[2:]) as context:
                specs = context.params.get("specs") or [context.params.get("spec")]
                for spec in specs:
                    assert spec is None or spec in bundled() or spec.startswith("my-")


def test_every_option_says_what_it_is():
    options = [option for command in TYPER_COMMANDS.values() for option in command.params]
    assert [option.name for option in options if not (option.help or "").endswith(".")] == []


@pytest.fixture
def standard_input(monkeypatch):
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_short_command_leaves_the_process_as_it_was(monkeypatch):
    monkeypatch.delenv(PLUGINS, raising=False)
    for words in (["project", "--method", "ddp-adam", "--json"], ["project", "--grid", "workers=x"]):
        CliRunner().invoke(app, words)
        assert PLUGINS not in os.environ
    monkeypatch.setenv(PLUGINS, "some")
    CliRunner().invoke(app, ["project", "--method", "ddp-adam", "--json"])
    assert os.environ[PLUGINS] == "some"
