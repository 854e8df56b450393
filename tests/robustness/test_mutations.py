"""What people type ends in a result or in one line: no traceback, hang or memory blow-up, no NaN that is not told."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager

import pytest
import yaml

from syncline.cli.application import app
from tests.robustness.command_table import COMMANDS, ROWS, table_case
from tests.robustness.command_table import FIRST as FIRST_OF_TABLE
from tests.robustness.more_mutations import FIRST as FIRST_OF_MORE
from tests.robustness.more_mutations import SMALL, more
from tests.robustness.mutations import case, write

CPU_S = 60
"""Of one case, on any machine: everything that is accepted here is tiny."""

MORE_BYTES = 4 << 30
"""That the process may ask for beside what it has; a case that needs it is a blow-up."""

BLOCKS = 10


def blocks(environment: Mapping[str, str], *sample: range) -> list[list[int]]:
    """Return the numbers of cases of a slow test, in blocks: this sample of all, or those that the environment names.

    A case is a function of its number, and ``results/robustness.md`` tells of runs of all.
    """
    if "SYNCLINE_CASES" in environment:
        first = int(environment.get("SYNCLINE_FIRST_CASE", "0"))
        return [list(range(first, first + int(environment["SYNCLINE_CASES"])))]
    numbers = [number for part in sample for number in part]
    random.Random(0).shuffle(numbers)  # else one block has all trainings
    return [numbers[block::BLOCKS] for block in range(BLOCKS)]


ENOUGH = 2000
"""Cases from which on half of them are accepted; of a few, chance decides."""

BEGINNINGS = (
    "syncline.runs.folders.folder.RunFolder.__init__",
    "syncline.runs.sweep.folder.SweepFolder.__init__",
    "syncline.measure.calibration.cluster_file.ClusterFile.__init__",
    "syncline.planner.explore.server.serve_page",
)
"""What is called when everything was checked, before anything is trained or started."""

STARTS = (
    "syncline.measure.processes.watchdog.run_watched",
    "syncline.measure.launching.launch.run_watched",
    "syncline.measure.calibration.calibrate.run_watched",
    "syncline.measure.processes.hosts.run_together",
)
"""What starts real processes."""


class Accepted(BaseException):
    """A run that would begin now: everything was checked."""


class Hang(BaseException):
    """More CPU time than a case may take."""


@contextmanager
def bounded():
    """Within ``CPU_S`` and ``MORE_BYTES``."""

    def hang(*_):
        raise Hang

    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, hang)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    resource.setrlimit(resource.RLIMIT_AS, (now + MORE_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def begins(*_, **__):
    raise Accepted


def starts(*_, **__):
    raise AssertionError("real processes were to be started")


def small(one):
    """Whether it trains a landscape, and not for long; or plays a pipeline."""
    if one.arguments[0] not in ("run", "compare", "sweep"):
        return one.arguments[0] in COMMANDS and COMMANDS[one.arguments[0]].is_run
    if one.text is None:
        bowl = f"problem={json.dumps(SMALL['problem'])}"
        return any("problem=rosenbrock" in part or part == bowl for part in one.arguments)
    try:
        fields = yaml.safe_load(one.text)
        if fields["kind"] not in ("run", "compare"):
            return False  # a study: minutes, in processes of its own
        landscape = any(name in str(fields["problem"]) for name in ("rosenbrock", "quadratic"))
        return landscape and max(fields["steps"], fields["workers"]) <= 32 and len(str(fields["seeds"])) < 20
    except (yaml.YAMLError, KeyError, TypeError, RecursionError, ValueError):
        return True  # which is refused


def files(folder):
    """Return the sizes and times of the files in a folder."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {path: (about.st_size, about.st_mtime_ns) for path, about in found}


def outcome(one, command, folder, fully):
    """``accepted``, ``ran`` or ``refused``; anything else fails with the case."""
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    write(one, folder)
    there = files(folder)
    begun_s = time.process_time()
    try:
        with bounded(), pytest.MonkeyPatch.context() as patch:
            for name in () if fully and small(one) else BEGINNINGS:
                patch.setattr(name, begins)
            for name in STARTS:
                patch.setattr(name, starts)
            patch.setattr("syncline.runs.run.run_figures", lambda *_, **__: None)
            patch.setattr("syncline.runs.compare.compare_figures", lambda *_, **__: None)
            done = command(*one.arguments)
    except Accepted:
        return "accepted"
    except Hang as error:
        raise AssertionError(f"more than {CPU_S} s of a CPU: {one}") from error
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {error}: {one}") from error
    says_no = {"sweep": "runs failed", "verify": " differ", "same": ""}.get(one.arguments[0])
    assert done.code in (0, 2) or (done.code == 1 and says_no is not None and says_no in done.err), (
        f"exit code {done.code}: {done.err}: {one}"
    )
    assert "Traceback" not in done.err, f"{done.err}: {one}"
    assert time.process_time() - begun_s < CPU_S
    if done.code == 2:
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 or "Usage:" in done.err, f"{done.err}: {one}"
        assert files(folder) == there, f"files: {one}"
        return "refused"
    row = COMMANDS.get(one.arguments[0])
    if row is not None and row.is_reader:
        assert there.items() <= files(folder).items(), f"files: {one}"
    told = re.search(r"diverged|warning: ", done.err)
    assert told or not re.search(r"\bnan\b", done.err), f"nan: {done.err}: {one}"
    if "--json" in one.arguments:
        json.loads(done.out)
    return "ran"


def case_of(number):
    """Return the case of a number, of whichever corpus."""
    return (case if number < FIRST_OF_MORE else more if number < FIRST_OF_TABLE else table_case)(number)


def tried(numbers, command, folder, fully):
    """Outcomes of these cases, counted; what failed, a text each."""
    counts, failed = Counter(), []
    for number in numbers:
        one = case_of(number)
        try:
            counts[outcome(one, command, folder, fully(number))] += 1
        except AssertionError as error:
            failed.append(str(error))
            if os.environ.get("SYNCLINE_FAILURES"):
                with open(os.environ["SYNCLINE_FAILURES"], "a", errors="backslashreplace") as file:
                    file.write(f"{error}\n{'=' * 80}\n")
    return counts, failed


def test_what_people_type_ends_in_a_result_or_in_one_line(command, tmp_path):
    numbers = [*range(50), *range(FIRST_OF_MORE, FIRST_OF_MORE + 20)]
    counts, failed = tried(numbers, command, tmp_path, lambda _: False)
    assert not failed, "\n\n".join(failed)
    assert counts.total() == 70 and counts["refused"] <= 35


def test_every_command_has_a_row():
    assert {one.name for one in app.registered_commands} <= set(ROWS)


SAMPLE = range(50, FIRST_OF_MORE, 31), range(FIRST_OF_MORE + 20, 12_000, 23), range(FIRST_OF_TABLE, 26_000, 31)
"""Of each corpus, with cases that are run to their end."""


@pytest.mark.slow
@pytest.mark.parametrize("numbers", blocks(os.environ, *SAMPLE), ids=lambda numbers: f"from {numbers[0]}")
def test_many_command_lines(numbers, command, tmp_path):
    def fully(number):
        return number % 20 == 0 or number >= FIRST_OF_MORE

    begun_s = time.monotonic()
    counts, failed = tried(numbers, command, tmp_path, fully)
    print(numbers[0], numbers[-1], dict(counts), f"{len(failed)} failed", f"{time.monotonic() - begun_s:.0f} s")
    assert not failed, f"{len(failed)} of {len(numbers)}:\n" + "\n\n".join(failed[:20])
    assert len(numbers) < ENOUGH or counts["refused"] <= len(numbers) / 2
