"""A traced script prints what torchrun makes it print, to the last digit, and its record is what it did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from syncline.measure.recording.record import MessageSent, RankRecord, Started, Waited
from syncline.measure.recording.record_files import read_record
from tests.trace.launched import SCRIPTS, told_by_both

pytestmark = pytest.mark.slow  # a dozen scripts, twice, in processes: half a minute of a CPU

SCRIPTS_OF_TWO = (
    "ddp.py", "fsdp2.py", "zero1.py", "pipeline.py", "largest.py", "trigger.py", "by_hand.py", "environment.py",
    "workers.py", "power_sgd.py", "post_local_sgd.py",
)  # fmt: skip

STEPS = 5
"""Of each that trains."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace")


@pytest.fixture(scope="module")
def said(folder: Path) -> tuple[list[str], list[str]]:
    here, there = (["says_cuda.py " + kind, *SCRIPTS_OF_TWO] for kind in ("cuda", "cpu"))
    return told_by_both(2, here, there, folder)


@pytest.fixture(scope="module")
def ranks(said: object, folder: Path) -> list[RankRecord]:
    return read_record(folder / "runs" / "trace-several")


def test_every_digit_is_torchrun_s(said: tuple[list[str], list[str]]) -> None:
    here, there = said
    assert len(here) == len(SCRIPTS_OF_TWO) + 3  # two of them say two lines
    assert here == there


def calls_of(rank: RankRecord, script: str) -> list[Started]:
    site = str(SCRIPTS / script)
    return [event for event in rank.events if isinstance(event, Started) and event.site.startswith(site)]


def test_a_call_is_waited_for_and_the_same_on_all_ranks(ranks: list[RankRecord]) -> None:
    for rank in ranks:
        waited = {event.call for event in rank.events if isinstance(event, Waited)}
        assert {event.call for event in rank.events if isinstance(event, Started)} <= waited
    one, other = (
        [event.key for event in rank.events if isinstance(event, Started) and len(event.ranks) == 2] for rank in ranks
    )
    assert one == other


def test_an_optimizer_that_steps_others_makes_one_step(ranks: list[RankRecord]) -> None:
    trained = len({"ddp", "fsdp2", "zero1", "pipeline", "post_local_sgd", "power_sgd", "largest", "trigger", "cuda"})
    assert [rank.steps for rank in ranks] == [trained * STEPS + 4] * 2  # one, every second of five batches


def test_kinds_of_calls(ranks: list[RankRecord]) -> None:
    for rank in ranks:
        kinds = Counter(event.kind for event in rank.events if isinstance(event, Started))
        assert kinds["reduce_scatter"] == 3 * STEPS  # of FSDP2's three layers: its root has nothing of its own
        largest = Counter(event.kind for event in calls_of(rank, "largest.py"))
        assert largest == {"all_gather": 2 * 6 * STEPS}  # of places and of values, of six parameters


def test_lines_are_the_script_s(ranks: list[RankRecord]) -> None:
    calls = (Started, MessageSent)
    sites = {event.site.rpartition(":")[0] for rank in ranks for event in rank.events if isinstance(event, calls)}
    assert {Path(site).parent for site in sites} == {SCRIPTS}


@pytest.mark.slow
def test_two_meshes_at_once(tmp_path: Path) -> None:
    here, there = told_by_both(4, ["fsdp2_tp.py"], ["fsdp2_tp.py"], tmp_path)
    assert len(here) == 1 and here == there
