"""A script that says cuda finds what it asks for."""

from __future__ import annotations

import pytest

from syncline.errors import SynclineError
from syncline.measure.recording.ranks import ForeignScript, trace_program
from tests.trace.launched import SCRIPTS, told


def said(capfd: pytest.CaptureFixture[str]) -> str:
    """By the ranks, whatever their standard output is in a test."""
    return "".join(capfd.readouterr())


def test_what_a_script_sees_that_believes_in_its_gpus(capfd: pytest.CaptureFixture[str]) -> None:
    ranks = trace_program(ForeignScript(str(SCRIPTS / "pretends.py")), 2)
    assert said(capfd).count("took ") == 2
    for rank in ranks:
        compiled, seeds = rank.notes
        assert (
            compiled.startswith("torch.compile: ") and "torch.cuda.manual_seed(2) after torch.manual_seed(1)" in seeds
        )


def test_a_script_that_spawns_its_ranks_is_them(capfd: pytest.CaptureFixture[str]) -> None:
    trace_program(ForeignScript(str(SCRIPTS / "spawns.py"), ("2",)), 2)
    seed = 67280421310721  # of a process that has seeded nothing
    expected = [f"told: {rank} [3.0, 3.0] {seed}" for rank in range(2)]
    assert told(said(capfd)) == [*expected, "told: all"]


def test_other_numbers_of_ranks_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SynclineError, match="spawns 3 processes, of 2 ranks: use --workers 3"):
        trace_program(ForeignScript(str(SCRIPTS / "spawns.py"), ("3",)), 2)
