"""A traced script prints what torchrun makes it print, to the last digit, and its record is what it did."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from syncline.backend.tracing.record import MessageSent, Started, Waited
from syncline.experiments.tracing.kept import read_record

SCRIPT = Path(__file__).with_name("scripts.py")
SYNCLINE = ("-c", "from syncline.cli import main; main()")
ALL = ("ddp", "fsdp2", "zero1", "by_hand")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    here = tmp_path_factory.mktemp("trace")
    words = (*SYNCLINE, "trace", "--workers", "2", "--network", "10gbe", "--json", "--", str(SCRIPT), *ALL)
    return run(*words, cwd=here), here / "runs" / "trace-scripts"


def printed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith((*ALL, "by hand", "threads"))]


def test_every_digit_is_torchrun_s(traced: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path) -> None:
    done, _ = traced
    assert done.returncode == 0, done.stderr[-2000:]
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT), *ALL)
    theirs = run(*words, cwd=tmp_path)
    assert theirs.returncode == 0, theirs.stderr[-2000:]
    assert len(printed(done.stderr)) == 5
    assert printed(done.stderr) == printed(theirs.stdout)


def test_the_record_is_what_the_script_did(traced: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    ranks = read_record(traced[1])
    assert [rank.steps for rank in ranks] == [18, 18]  # an optimizer in an optimizer makes one step
    assert len(ranks[0].losses) == 18
    for rank in ranks:
        calls = [event for event in rank.events if isinstance(event, Started)]
        waited = [event.call for event in rank.events if isinstance(event, Waited)]
        assert {event.call for event in calls} <= set(waited)
        kinds = Counter(event.kind for event in calls)
        assert kinds["reduce_scatter"] == 4 * 6 * 1 - 6  # three layers of six steps, the root has nothing of its own
    assert sum(isinstance(event, MessageSent) for event in ranks[0].events) == 1
    one, other = ([event.key for event in rank.events if isinstance(event, Started)] for rank in ranks)
    assert one == other
    sites = {event.site for rank in ranks for event in rank.events if isinstance(event, Started)}
    assert all(site.rpartition(":")[0] == str(SCRIPT) for site in sites)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"), [("fails", "this rank has had enough"), ("asks_when", "is_completed() asks when")]
)
def test_a_rank_that_fails_ends_all_with_its_own_words(name: str, said: str, tmp_path: Path) -> None:
    done = run(*SYNCLINE, "trace", "--workers", "2", "--", str(SCRIPT), name, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr and "error: rank " in done.stderr
    assert not (tmp_path / "runs" / "trace-scripts").exists()
