"""An error names the innermost line of the user's files, whatever a framework does below it."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.measure.recording.ranks import failing_line
from syncline.measure.recording.recorder import Refusal, is_library, user_line
from syncline.measure.recording.watch import line_in

SCRIPT, PACKAGE = "/home/someone/train.py", "/home/someone/.venv/lib/python3.11/site-packages/framework/trainer.py"


def through_a_framework(last: Any) -> Any:
    """Return what a function returns that a framework calls, which a script calls on its second line."""
    names: dict[str, Any] = {"last": last}
    exec(compile("def train():\n\n\n    return last()\n", PACKAGE, "exec"), names)
    exec(compile("\nresult = train()\n", SCRIPT, "exec"), names)
    return names["result"]


def test_the_line_of_a_refusal() -> None:
    def refuse() -> None:
        raise Refusal("no")

    names: dict[str, Any] = {"Refusal": Refusal}
    exec(compile("def inner():\n    raise Refusal('no')\n", PACKAGE, "exec"), names)
    with pytest.raises(Refusal) as refused:
        through_a_framework(names["inner"])
    assert str(refused.value) == f"{SCRIPT}:2: no"


def test_the_line_of_a_failure() -> None:
    names: dict[str, Any] = {}
    exec(compile("def inner():\n    raise KeyError('no')\n", PACKAGE, "exec"), names)
    with pytest.raises(KeyError) as failed:
        through_a_framework(names["inner"])
    assert failing_line(failed.value) == f"{SCRIPT}:2"


def test_the_line_of_a_rank_that_waits(tmp_path: Any) -> None:
    stack = [(PACKAGE, 4), (SCRIPT, 2), (SCRIPT, 9)]
    (tmp_path / "where").write_text("".join(f'  File "{file}", line {line} in f\n' for file, line in stack))
    assert line_in(tmp_path / "where") == f"{SCRIPT}:2"


def test_files_of_libraries() -> None:
    assert is_library(PACKAGE) and is_library("/usr/lib/python3/dist-packages/x.py") and not is_library(SCRIPT)
    assert user_line().startswith(f"{__file__}:")
