"""Wrong calls of the API end in a result or in one line of ours."""

from __future__ import annotations

import inspect
import os
import time
import traceback
import warnings
from collections import Counter

import pytest

from syncline.errors import SynclineError
from tests.robustness.api_calls import CALLS, case
from tests.robustness.hostile import LARGE
from tests.robustness.test_mutations import BEGINNINGS, CPU_S, Accepted, Hang, begins, blocks, bounded

STARTS = (
    "syncline.measure.launching.launch.run_local_processes",
    "syncline.measure.calibration.calibrate.run_watched",
    "syncline.measure.recording.ranks.trace_in_child",
    "syncline.measure.processes.hosts.run_together",
    "replication.replications.replicate.prepare_folder",
)
"""What starts real processes, or hours of trainings."""


def fits(function, arguments):
    """Whether Python takes these names of arguments."""
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError:
        return False
    return True


def outcome(one, folder, fully):
    """Return ``accepted``, ``ran`` or ``refused``; anything else fails with the case."""
    os.chdir(folder)
    function, arguments = CALLS[one.name].make(), one.arguments()
    begun_s = time.process_time()
    try:
        with bounded(), pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr("sys.unraisablehook", lambda _: None)  # a value whose repr pydantic cannot take
            for name in (*STARTS, *(() if fully else BEGINNINGS)):
                patch.setattr(name, begins)
            function(**arguments)
    except Accepted:
        return "accepted"
    except SynclineError as error:
        check_line(error, one)
        return "refused"
    except Hang as error:
        raise AssertionError(f"{one}: more than {CPU_S} s of a CPU") from error
    except BaseException as error:
        if isinstance(error, TypeError) and not fits(function, arguments):
            return "refused"
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{f.filename.partition('syncline/')[2] or f.filename}:{f.lineno}" for f in frames][-4:]
        raise AssertionError(f"{one}: {type(error).__name__}: {text(error)[:300]} at {' '.join(ours)}") from None
    assert time.process_time() - begun_s < CPU_S
    return "ran"


def text(error):
    """Return what an error says, if it can."""
    try:
        return str(error)
    except Exception:
        return "(which cannot be shown)"


def check_line(error, one):
    """A refusal is one line that can be shown, and names an argument as Python does."""
    try:
        line = str(error)
    except Exception as unreadable:
        raise AssertionError(f"{one}: a refusal that cannot be shown: {type(unreadable).__name__}") from None
    assert "\n" not in line and not line.startswith("-") and len(line) < 3400, f"{one}: {line[:500]}"


def tried(numbers, folder, fully):
    """Return the outcomes of these cases, counted, and a text of each that failed."""
    counts, failed = Counter(), []
    before = os.getcwd()
    try:
        for number in numbers:
            here = folder / str(number)
            here.mkdir()
            try:
                counts[outcome(case(number), here, fully(number))] += 1
            except AssertionError as error:
                failed.append(str(error))
                if os.environ.get("SYNCLINE_FAILURES"):
                    with open(os.environ["SYNCLINE_FAILURES"], "a", errors="backslashreplace") as file:
                        file.write(f"{error}\n")
    finally:
        os.chdir(before)
    return counts, failed


def test_wrong_calls_end_in_a_result_or_in_one_line(tmp_path, unchecked):
    counts, failed = tried(range(60), tmp_path, lambda _: False)
    assert not failed, "\n\n".join(failed)
    assert counts.total() == 60 and counts["refused"] >= 15


@pytest.mark.slow
@pytest.mark.parametrize("numbers", blocks(os.environ, range(60, 4000, 11)), ids=lambda numbers: f"from {numbers[0]}")
def test_many_wrong_calls(numbers, tmp_path, unchecked):
    def fully(number):
        return number % 5 == 0 and not set(case(number).changes.values()) & {*LARGE, "10,000 numbers"}

    counts, failed = tried(numbers, tmp_path, fully)
    print(counts)
    assert not failed, f"{len(failed)} of {len(numbers)}:\n" + "\n".join(failed[:20])
