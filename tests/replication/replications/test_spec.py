"""What a replication must say before anything of it is trained."""

from __future__ import annotations

import pytest

from replication.replications.spec import Cell, cells_of, load_replication
from syncline.errors import SpecError
from tests.replication.replications.small import tiny, tiny_file

TEXT = {"training.problem": {"kind": "text-gpt"}}
REFUSED = [
    ({"again": None}, "again: got None; expected no such field here, but it was renamed to rerun"),
    ({"methods.1.tune": {"lr": "0.1..1.0", "period": "1..4"}}, "as many knobs searched for each method"),
    ({"methods.1.method.label": "together"}, "labels that differ"),
    ({"methods.0.method": {"kind": "ddp"}}, "methods.0.method.label: got None; expected what the method is called"),
    ({"rerun.top_trials": 4}, "rerun.top_trials: got 4; expected at most 3"),
    ({"rerun.seeds": [101]}, "rerun.seeds: got [101]; expected seeds that the search has not seen"),
    ({"finals.seeds": [0, 102]}, "finals.seeds: got [102]; expected seeds that rerun has not seen"),
    ({"extras.0.seeds": [101]}, "extras.0.seeds: got [101]; expected seeds that search has not seen"),
    ({"extras.0.methods": ["apert"]}, "did you mean 'apart'"),
    (
        {"claims.0.comparisons": [{"lower": "apart @ K8", "higher": "together"}]},
        "got 'apart @ K8'; expected one of 'apart', ",
    ),
    (TEXT, "one half of the held-out text for the search, the other one for the finals"),
    (TEXT | {"search.set": {"problem.held_out": "whole"}}, "one half of the held-out text"),
    ({"serch": 1}, "did you mean 'search'"),
]


@pytest.mark.parametrize(("changes", "line"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_not_fair_is_refused_in_a_line(changes, line, tmp_path):
    with pytest.raises(SpecError) as error:
        tiny(tmp_path, changes)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_scales_and_seeds_of_the_finals(tmp_path):
    path = tiny_file(tmp_path)
    assert load_replication(path, "cpu").training["steps"] == 8
    assert load_replication(path, "gpu", (3, 4)).model_dump(include={"training", "finals"}) == {
        "training": {**load_replication(path).training, "steps": 12},
        "finals": {"seeds": (3, 4), "set": {}, "methods": (), "rounding": ""},
    }
    with pytest.raises(SpecError, match=r"^--scale: got 'gpv'; expected one of 'cpu', 'gpu' \(did you mean 'gpu'\?\)$"):
        load_replication(path, "gpv")
    with pytest.raises(SpecError, match=r"^NAME: got 'mt-dap'; expected a YAML file, or one of 'basis-rotation'"):
        load_replication("mt-dap")


def test_a_side_is_a_cell_or_a_difference():
    assert cells_of("mt-dao") == [Cell("mt-dao")]
    assert cells_of("mt-dao @ K-8 - mt-dao") == [Cell("mt-dao", "K-8"), Cell("mt-dao")]
