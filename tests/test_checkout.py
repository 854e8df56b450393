"""The papers' evidence is found beside the package, and missed in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from syncline import checkout
from syncline.errors import SynclineError


def test_the_checkout_has_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != checkout.ROOT])
    monkeypatch.delitem(sys.modules, "replication", raising=False)
    monkeypatch.delitem(sys.modules, "replication.studies", raising=False)
    assert "alignment" in checkout.import_replication("studies").STUDIES
    assert str(checkout.ROOT) in sys.path and checkout.replication_hint() == ""


def test_a_package_of_that_name_beside_an_installed_one_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replication").mkdir()
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert not checkout.has_replication() and checkout.NOT_HERE in checkout.replication_hint()
    with pytest.raises(SynclineError, match="checkout of the repository"):
        checkout.import_replication("scoreboard")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without what stands beside it."""
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copytree(checkout.ROOT / "syncline", folder / "syncline", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(
    ("arguments", "begin"),
    [
        (("reproduce", "demo"), "error: replication: not installed; "),
        (("replicate", "mt-dao"), "error: replication: not installed; "),
        (("replicate", "--list"), "error: replication: not installed; "),
        (("run", "staleness-text"), "error: spec: got 'staleness-text'; expected a YAML file, or one of "),
    ],
)
def test_without_it_commands_say_where_it_is(installed: Path, arguments: tuple[str, ...], begin: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syncline", *arguments],
        cwd=installed, env=os.environ | {"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(begin) and done.stderr.endswith(f"{checkout.NOT_HERE}\n")
    assert done.stderr.count("\n") == 1
