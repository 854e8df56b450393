"""The command that serves the page: what it refuses, before anything listens."""

from __future__ import annotations

import importlib.util

from syncline.cli import catalogues


def test_without_the_extra_it_says_what_to_install(command, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(catalogues, "find_spec", lambda name: None if name == "nicegui" else found(name))
    done = command("explore")
    assert done.code == 2 and done.err.count("\n") == 1 and "pip install 'syncline[explore]'" in done.err


def test_a_link_and_a_port_that_cannot_be_are_refused_in_a_line(command, monkeypatch):
    monkeypatch.setattr(catalogues, "find_spec", lambda name: object())
    for arguments, line in (
        (["--port", "70000"], "error: --port: got 70000; expected 0 for a free one"),
        (["bandwidth=fast"], "error: bandwidth: got 'fast'; expected a positive rate"),
        (["http://127.0.0.1:1/?workers=x"], "error: workers: got 'x'; expected a whole number"),
    ):
        done = command("explore", *arguments)
        assert done.code == 2 and done.err.startswith(line) and done.err.count("\n") == 1
