"""The record of a traced script is what it did; that it prints what torchrun makes it print is in ``tests/trace``."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from syncline.costmodel import HARDWARE, Link
from syncline.measure.recording.record import MessageSent, RankRecord, Started, Stepped, Waited
from syncline.measure.recording.record_files import read_record
from syncline.measure.replaying.replay import replay
from tests.measure.replaying.schedules import end_s

pytestmark = pytest.mark.slow  # the script does whatever is recorded, in processes: a dozen CPU seconds

SCRIPT = Path(__file__).with_name("scripts.py")
SYNCLINE = ("-c", "from syncline.cli.application import main; main()")
ALL = ("ddp", "fsdp2", "zero1", "by_hand")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    here = tmp_path_factory.mktemp("trace")
    words = (*SYNCLINE, "trace", "--workers", "2", "--network", "10gbe", "--json", "--", str(SCRIPT), *ALL)
    return run(*words, cwd=here), here / "runs" / "trace-scripts"


def test_the_record_is_what_the_script_did(traced: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    ranks = read_record(traced[1])
    assert [rank.steps for rank in ranks] == [18, 18]  # an optimizer in an optimizer makes one step
    assert len(ranks[0].losses) == 18
    for rank in ranks:
        calls = [event for event in rank.events if isinstance(event, Started)]
        waited = [event.call for event in rank.events if isinstance(event, Waited)]
        assert {event.call for event in calls} <= set(waited)
        kinds = Counter(event.kind for event in calls)
        assert kinds["reduce"] == 1
        assert kinds["reduce_scatter"] == 4 * 6 * 1 - 6  # three layers of six steps, the root has nothing of its own
    assert sum(isinstance(event, MessageSent) for event in ranks[0].events) == 1
    one, other = ([event.key for event in rank.events if isinstance(event, Started)] for rank in ranks)
    assert one == other
    sites = {event.site for rank in ranks for event in rank.events if isinstance(event, Started)}
    assert all(site.rpartition(":")[0] == str(SCRIPT) for site in sites)


@pytest.mark.parametrize("host", ["ahead", "waits"])
def test_its_replay_is_a_schedule_of_streams(traced: tuple[subprocess.CompletedProcess[str], Path], host: str) -> None:
    """DDP, FSDP2 and ZeRO-1: against a recurrence that knows nothing of events.

    Without broadcasts and reduces, in which ranks do not do the same: a root is done at another time than the others.
    """
    (_, of), link = read_record(traced[1]), Link(1e-5, 1e8, "link")
    until = max(at for at, event in enumerate(of.events) if isinstance(event, Stepped))
    roots = {event.call for event in of.events if isinstance(event, Started) and event.kind in ("broadcast", "reduce")}
    alike = [event for event in of.events[: until + 1] if getattr(event, "call", None) not in roots]
    rank = RankRecord(alike, of.segments)
    assert {event.stream for event in rank.events if isinstance(event, Started)} == {0, 2, 3}
    told = replay([rank] * 2, link, HARDWARE["cpu-core"], "ring", host).timeline.makespan_s
    assert told == pytest.approx(end_s(rank, 2, link, HARDWARE["cpu-core"], host == "ahead"))


def test_copies_of_gloo_are_not_operations_of_the_script(tmp_path: Path) -> None:
    """They run in a thread of gloo, here while the script sleeps and no call of the script's is in progress."""
    script = tmp_path / "gathers.py"
    script.write_text(
        "import time, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x, parts = torch.ones(1000), [torch.zeros(1000) for _ in range(2)]\n"
        "work = dist.all_gather(parts, x, async_op=True)\n"
        "time.sleep(0.5)\n"
        "y = x * 2\n"
        "work.wait()\n"
    )
    words = (*SYNCLINE, "trace", "--workers", "2", "--network", "10gbe", "--json", "--", str(script))
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for rank in read_record(tmp_path / "runs" / "trace-gathers"):
        assert [operation.nbytes for operation in rank.segments[-1]] == [8000.0]  # of the product
