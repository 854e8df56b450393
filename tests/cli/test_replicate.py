"""``syncline replicate`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from replication.claims import claims_of
from replication.replications import bundled_replications
from replication.replications.spec import load_replication
from tests.replication.replications.small import TRAININGS, tiny_file
from tests.test_docs import documented


def test_a_piece_says_what_is_left_and_the_same_goes_on(command, tmp_path, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: Path(path).touch())  # most of the time
    tiny_file(tmp_path)
    piece = command("replicate", "tiny.yaml", "--jobs", "1", "--most", "7")
    assert piece.code == 0 and piece.out == ""
    first, second = piece.err.splitlines()[:2]
    told = f"3 trials of each of 2 methods, 1 knobs each; {TRAININGS} trainings, {8 * TRAININGS} steps in all: about "
    assert first.startswith(f"equal effort: {told}") and first.endswith(" of one core, by 4 steps of together")
    assert second == "search: 6 trainings"
    assert piece.err.splitlines()[-1] == f"left: {TRAININGS - 7} trainings; run the same command to continue"
    kept = Path("results/replication/tiny")
    assert "1 of 4 | not whole" in (kept / "README.md").read_text() and not (kept / "losses.png").exists()
    rest = command("replicate", "tiny.yaml", "--jobs", "1", "--json", "--for", "10min")
    told = json.loads(rest.out)
    left = TRAININGS - 6
    assert f"; {left} trainings, {8 * left} steps in all: " in rest.err and "by the 48 steps that are done" in rest.err
    assert rest.code == 0 and told["left"] == 0 and "search:" not in rest.err and "left:" not in rest.err
    assert told.keys() == {"rows", "stages", "effort", "chosen", "left", "folder", "interrupted", "networks"}
    assert {name for row in told["rows"] for name in row} == documented("Rows", "replication.md")
    other = command("replicate", "tiny.yaml", "--jobs", "1", "--scale", "gpu", "--most", "1")
    assert other.code == 0 and "results in results/replication/tiny-gpu/" in other.err


def test_the_list_has_all_that_are_bundled(command):
    shown, told = command("replicate", "--list"), command("replicate", "--list", "--json")
    rows = json.loads(told.out)["rows"]
    assert [row["name"] for row in rows] == list(bundled_replications()) and "mt-dao" in shown.err
    assert all(row["trainings"] == sum(row["stages"].values()) for row in rows)


@pytest.mark.parametrize("name", bundled_replications())
def test_claims_of_papers_are_in_the_register(name):
    spec = load_replication(name)
    assert {one.claim for one in spec.claims} <= {claim.id for claim in claims_of(spec.paper)} or not spec.paper


def test_ids_of_claims_differ():
    for paper in ("curvadion", "demo", "mt-dao", "basis-rotation", "lion-cub"):
        ids = [claim.id for claim in claims_of(paper) if claim.id]
        assert len(ids) == len(set(ids))


REFUSED = [
    (("replicate",), "error: NAME: got None; expected a replication of 'syncline replicate --list', or a YAML file\n"),
    (
        ("replicate", "mt-doa"),
        "error: NAME: got 'mt-doa'; expected a YAML file, or one of 'basis-rotation'",
    ),
    (("replicate", "nowhere.yaml"), "error: spec: got 'nowhere.yaml'; expected a YAML file that exists\n"),
    (("replicate", "mt-dao", "--seeds", "0"), "error: --seeds: got 0; expected their number, as in 5, or a list"),
    (("replicate", "mt-dao", "--seeds", "[101]"), "error: finals.seeds: got [101]; expected seeds that search"),
    (("replicate", "mt-dao", "--for", "soon"), "error: --for: got 'soon'; expected a time with its unit"),
    (("replicate", "mt-dao", "--most", "0"), "error: --most: got 0; expected at least 1 training\n"),
    (
        ("replicate", "mt-dao", "--scale", "tpu"),
        "error: --scale: got 'tpu'; expected one of 'cpu', 'gpu', 'larger', 'longer' (did you mean 'gpu'?)\n",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), REFUSED, ids=lambda value: " ".join(value)[-30:])
def test_mistakes_are_one_line_and_leave_nothing(arguments, line, command, tmp_path):
    done = command(*arguments)
    assert (done.code, done.out) == (2, "") and done.err.startswith(line) and done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
