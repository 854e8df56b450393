"""Calls in forked processes: what they return, in which order they begin, where they are at home."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import pytest

from syncline.runs.processes.forked import call_results


def square(x):
    return x * x


def what_is_here(name):
    import torch

    return os.environ.get(name), os.getcwd(), torch.get_num_threads(), "torch" in sys.modules


def refuse(x):
    raise ValueError(f"not {x}")


def stamped(x):
    time.sleep(0.05)
    return x, os.getpid()


def test_what_calls_return():
    assert sorted(call_results([partial(square, x) for x in range(20)], 3)) == [x * x for x in range(20)]
    assert list(call_results([partial(square, 3)], 2)) == [9]


def test_few_processes_take_many_calls_in_their_order():
    found = list(call_results([partial(stamped, x) for x in range(8)], 2))
    assert len({process for _, process in found}) <= 2
    assert {x for x, _ in found[:4]} <= set(range(6))


def test_a_process_finds_what_one_of_its_own_would_find(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNCLINE_TEST", "here")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ((told, folder, threads, loaded),) = call_results([partial(what_is_here, "SYNCLINE_TEST")], 2)
    assert (told, folder, loaded) == ("here", str(tmp_path), True)
    assert threads == max(1, (os.cpu_count() or 1) // 2)


def test_a_mistake_is_the_callers_with_where_it_was_made():
    with pytest.raises(ValueError, match="not 1") as refused:
        list(call_results([partial(refuse, 1)], 2))
    assert "in refuse" in str(refused.value.__cause__)


def test_a_process_that_ends_breaks_the_others_off():
    """Also the one that was started last, of which a pool may not know: this waited ten minutes, one time of eight."""
    for _ in range(10):
        with pytest.raises(BrokenProcessPool):
            list(call_results([partial(os._exit, 1), partial(time.sleep, 600)], 2))


SCRIPT = """
from functools import partial
from syncline.runs.processes.forked import call_results

print("main")

class Own:
    def __init__(self, x): self.x = x

def made(x): return Own(x)

calls = [partial(made, x) for x in (1, 2)]
print(sorted(one.x for one in call_results(calls, 2)), {type(one) is Own for one in call_results(calls, 2)})
"""


def test_a_script_is_not_run_again_by_its_processes(tmp_path):
    """Without the usual guard of the main module."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "main" and done.stdout.splitlines()[1].startswith("[1, 2]")
    assert done.stdout.count("main") == 1
