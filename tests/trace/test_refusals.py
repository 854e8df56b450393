"""What a record cannot know is refused with the line that asks; a rank that fails ends all, and nothing hangs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from syncline.errors import SpecError, SynclineError
from syncline.measure.recording import rank_processes
from syncline.measure.recording.ranks import ForeignScript, TraceOptions, trace_program
from syncline.measure.recording.record import Started
from tests.reference import ROOT
from tests.trace.launched import SCRIPTS

ASKS = SCRIPTS / "asks.py"

REFUSED = {
    "is_completed": ("is_completed() asks when; a record cannot know that. Use wait()", "work.is_completed()"),
    "monitored_barrier": ("monitored_barrier() asks who is late", "dist.monitored_barrier()"),
    "event_query": ("query() asks when", "event.query()"),
    "clock_decides": ("decides by the clock", "- begun < 3600"),
    "cuda_graph": ("run the script without CUDA graphs", "torch.cuda.CUDAGraph()"),
    "mpi": ("may ask for 'gloo' or 'nccl'", 'dist.new_group(backend="mpi")'),
}
"""What is asked for, with the sentence that refuses it and the line that it names."""


FOR_ONE, FOR_ALL = "        dist.recv(torch.ones(1), 0)", "    dist.all_reduce(torch.ones(2))"
"""Lines at which ranks wait for each other."""


def ended(name: str, capfd: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The error, and what the ranks have said."""
    with pytest.raises(SynclineError) as told:
        trace_program(ForeignScript(str(ASKS), (name,)), 2)
    return str(told.value), capfd.readouterr().err


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    error, said = ended(name, capfd)
    sentence, line = REFUSED[name]
    number = next(at for at, text in enumerate(ASKS.read_text().splitlines(), 1) if line in text)
    assert error.startswith(f"{ASKS}:{number}: ") and sentence in error
    assert "Traceback" not in said


def test_the_first_that_fails_tells_why_once(capfd: pytest.CaptureFixture[str]) -> None:
    error, said = ended("fails", capfd)
    number = 1 + ASKS.read_text().splitlines().index('        raise RuntimeError("this rank has had enough")')
    assert error == f"rank 1 of 2 exited with code 1 at {ASKS}:{number}; its own error is above"
    assert said.count("Traceback") == 1 and said.count("RuntimeError: this rank has had enough") == 1
    assert said.splitlines()[1].strip().startswith(f'File "{ASKS}"')  # no frame of ours before the script's


def test_a_code_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    error, said = ended("exits", capfd)
    assert error in {f"rank {rank} of 2 exited with code 7" for rank in range(2)}
    assert "Traceback" not in said and ASKS.name not in said  # torch may log that the other rank's store is gone


def test_a_record_is_kept_where_a_script_ends_at_once() -> None:
    ranks = trace_program(ForeignScript(str(ASKS), ("exits_at_once",)), 2)
    assert all(sum(isinstance(event, Started) for event in rank.events) == 1 for rank in ranks)


def test_a_process_that_becomes_another_has_no_record(capfd: pytest.CaptureFixture[str]) -> None:
    error, said = ended("becomes_another", capfd)
    assert error.startswith("rank 0 of 2 left no record: ") and "Traceback" not in said


STARTED = {"process": 'dist.init_process_group("gloo")', "elastic_launch": "launcher.elastic_launch(config, joins)()"}
"""How a script starts its ranks, and the line that is named."""


@pytest.mark.parametrize(
    ("name", "line"),
    [*STARTED.items(), pytest.param("process_anew", STARTED["process"], marks=pytest.mark.slow)],  # imports torch again
)
def test_ranks_that_a_script_starts_end_in_a_sentence(name: str, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    error, said = ended(name, capfd)
    number = next(at for at, text in enumerate(ASKS.read_text().splitlines(), 1) if line in text)
    assert error.startswith(f"{ASKS}:{number}: ") and "--workers" in error and "Traceback" not in said


def test_a_script_may_decide_by_the_clock(capfd: pytest.CaptureFixture[str]) -> None:
    ranks = trace_program(ForeignScript(str(ASKS), ("clock_decides",)), 2, TraceOptions(clock="allow"))
    line = REFUSED["clock_decides"][1]
    number = next(at for at, text in enumerate(ASKS.read_text().splitlines(), 1) if line in text)
    assert all(rank.notes[0].startswith(f"{ASKS}:{number}: decides by the clock") for rank in ranks)


def test_a_script_sees_no_gpu(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SynclineError, match="got 'nccl'; expected 'gloo' or none, as the script sees no GPU"):
        trace_program(ForeignScript(str(ASKS), ("sees_no_gpu",)), 2, TraceOptions(gpu="none"))


@pytest.mark.parametrize(("options", "path"), [({"gpu": "two"}, "--gpu"), ({"clock": "maybe"}, "--clock")])
def test_other_words_are_refused(options: dict[str, str], path: str) -> None:
    with pytest.raises(SpecError) as refused:
        TraceOptions(**options)
    assert refused.value.path == path


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nobody tells what processes compute")
def test_ranks_that_wait_for_each_other_are_named_with_their_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_processes, "DEADLOCK_LIMIT_S", 2.0)
    error, said = ended("waits_for_ever", capfd)
    lines = ASKS.read_text().splitlines()
    first, second = (1 + lines.index(text) for text in (FOR_ALL, FOR_ONE))
    assert error.startswith("no rank has computed anything for 2 s: ")
    assert f"rank 0 waits at {ASKS}:{first}, rank 1 waits at {ASKS}:{second}" in error
    stacks = said.split("rank 1 of 2 waits:")
    for line, stack in zip((first, second), stacks, strict=True):
        assert f'File "{ASKS}", line {line}' in stack.rpartition("Current thread")[2]


def of_another(name: str) -> bool:
    """Whether a file in shared memory is of another process that lives, as its name tells by joblib and torch."""
    named = re.match(r"(?:sem\.loky-|torch_)(\d+)", name)
    return named is not None and int(named[1]) != os.getpid() and Path("/proc", named[1]).exists()


def is_mine(path: Path) -> bool:
    """Whether a file that others may remove at any time is there, and of who owns its folder."""
    with suppress(FileNotFoundError):
        return path.owner() == path.parent.owner()
    return False


def state() -> tuple[object, ...]:
    """What a launch could change of this process and this machine."""
    handlers = [
        signal.getsignal(number) for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)
    ]
    shared = Path("/dev/shm")
    there = [path for path in shared.iterdir() if not of_another(path.name)] if shared.exists() else []
    mine = [path for path in there if is_mine(path)]
    children = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return dict(os.environ), os.getcwd(), handlers, len(mine), sorted(children)


def check_that_nothing_is_changed() -> None:
    before = state()
    trace_program(ForeignScript(str(SCRIPTS / "several.py"), ("ddp.py", "workers.py")), 2)
    with pytest.raises(SynclineError, match="rank 1 of 2 exited with code 1"):
        trace_program(ForeignScript(str(ASKS), ("fails",)), 2)
    assert state() == before


def test_nothing_outside_is_changed(tmp_path: Path) -> None:
    """Of a process of its own: once, in one that had run half of all tests, both ranks waited in a layer for ever."""
    words = "from tests.trace.test_refusals import check_that_nothing_is_changed as check; check()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-20_000:]
