"""``sl.replicate``: the command's object."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import pytest

import syncline as sl
from syncline.runs.processes.progress import Listener
from tests.replication.replications.small import TRAININGS, tiny_file


def test_a_piece_from_python_and_after_ctrl_c_it_goes_on(tmp_path):
    class Stopper(Listener):
        def finished(self, label, row):
            os.kill(os.getpid(), signal.SIGINT)

    path, out = tiny_file(tmp_path), tmp_path / "out"
    piece = sl.replicate(path, most=2, jobs=1, out=out)
    assert not piece.interrupted and piece.record["left"] == TRAININGS - 2 and piece.rows == []
    stopped = sl.replicate(path, jobs=1, out=out, on_stage=lambda stage: nullcontext(Stopper()))
    assert stopped.interrupted and TRAININGS - 6 <= stopped.record["left"] < TRAININGS - 2
    whole = sl.replicate(path, jobs=1, out=out)
    assert whole.record["left"] == 0 and "verdicts" in str(whole)
    assert sorted(whole.summary["claim"]) == ["apart is better", "rare is worse"]


def test_claims_of_a_paper_are_those_of_its_register(tmp_path):
    with pytest.raises(sl.SpecError, match=r"^claims.0.claim: got 'apart is better'; expected .*, of the register"):
        sl.replicate(tiny_file(tmp_path, {"paper": "mt-dao"}), out=tmp_path / "out")
    with pytest.raises(sl.SpecError, match=r"^paper: got 'mt-doa'; expected .* \(did you mean 'mt-dao'\?\)"):
        sl.replicate(tiny_file(tmp_path, {"paper": "mt-doa"}), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
