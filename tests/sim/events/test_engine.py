"""The compiled core: made once, loaded without Numba, never met by other sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from syncline import acceleration
from syncline.sim.events import engine

LOADS = "import sys; from syncline.sim.events import simulation; print('numba' in sys.modules)"


def test_simulations_load_the_engine_without_numba() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert not done.stderr


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of the compiled sources, which a test may change."""
    copies = [Path(shutil.copy(source, tmp_path / f"{source.parent.name}_{source.name}")) for source in engine.SOURCES]
    monkeypatch.setattr(engine, "SOURCES", copies)
    return tmp_path


def change(source: Path, before: str, after: str) -> None:
    text = source.read_text(encoding="utf-8")
    assert text.count(before) >= 1
    source.write_text(text.replace(before, after), encoding="utf-8")
    engine.object_name.cache_clear()


def test_a_changed_source_never_meets_an_old_object(sources: Path) -> None:
    engine.object_name.cache_clear()
    names = {engine.object_name()}
    for name, before, after in (
        ("core_messages.py", "rank.queued -= 1", "rank.queued -= 2"),
        ("events_codes.py", "KIND_BITS = 58, 4", "KIND_BITS = 58, 5"),
        ("events_state.py", "previous:i4 next:i4", "next:i4 previous:i4"),
    ):
        change(sources / name, before, after)
        names.add(engine.object_name())
    engine.object_name.cache_clear()
    assert len(names) == 4


ALONE = """
from syncline.sim.events import engine
import tempfile
engine.object_folders = lambda: iter([engine.Path({folder!r})])
functions = engine.load_object(engine.make_object())
"""


@pytest.mark.slow
def test_what_is_compiled_is_kept_and_said_in_one_line(tmp_path: Path) -> None:
    """Compile all twice, the second time after the loss of the object."""
    folder = tmp_path / "made"
    objects = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", ALONE.format(folder=str(folder))], capture_output=True, text=True, check=True
        )
        assert done.stderr == f"compiling the event engine, once on this machine: about {acceleration.COMPILE_S} s\n"
        assert not done.stdout
        (made,) = folder.glob("*.o")
        objects.append(made.read_bytes())
        made.unlink()
    assert objects[0] == objects[1]
    name = engine.object_name()
    assert any((kept / name).is_file() for kept in engine.object_folders())
