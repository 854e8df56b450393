"""What can be named: built in, registered, offered by installed packages, or any object of Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

from syncline.errors import SpecError
from syncline.registry import Registry, call_reference, import_reference, is_reference


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that offers two things by entry points: one that is there, one that is not."""
    (tmp_path / "offering.py").write_text("DEEP = {'answer': 42}\nclass Inner:\n    value = 7\n")
    info = tmp_path / "offering-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offering\nVersion: 1.0\n")
    points = "[tests.things]\ndeep = offering:DEEP\ninner = offering:Inner.value\nbroken = offering:GONE\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("offering", None)


def test_installed_packages_add_to_a_registry(installed):
    things = Registry("things", "tests.things", {"own": 1})
    assert things.names() == ("own", "deep", "inner", "broken")
    assert (things.get("deep"), things.get("inner")) == ({"answer": 42}, 7) and "deep" in things
    with pytest.raises(
        SpecError,
        match=r"^spec.thing: got 'broken'; expected a name of offering: one of 'DEEP'.*: offering:GONE\)$",
    ):
        things.get("broken", "spec.thing")


def test_what_is_built_in_comes_before_what_is_offered(installed):
    assert Registry("things", "tests.things", {"deep": 1}).get("deep") == 1


def test_names_are_taken_once():
    things = Registry("things", "tests.nothing", {"own": 1})
    with pytest.raises(SpecError, match="a name that none of the things has"):
        things.register("own", 2)
    with pytest.raises(SpecError, match="without a colon"):
        things.register("module:own", 2)


def test_a_module_of_the_current_folder_and_a_file_elsewhere(tmp_path, monkeypatch):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder, value in ((here, 1), (elsewhere, 2)):
        folder.mkdir()
        (folder / f"module_of_{folder.name}.py").write_text(f"VALUE = {value}\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert import_reference("module_of_here:VALUE") == 1
    assert import_reference(f"{elsewhere}/module_of_elsewhere.py:VALUE") == 2
    assert import_reference("../elsewhere/module_of_elsewhere.py:VALUE") == 2


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        ("no_such_module:x", "a module that imports; it says: ModuleNotFoundError: No module named 'no_such_module'"),
        ("nowhere/mine.py:x", "a file that exists: there is no mine.py in "),
        ("math:tou", "a name of math: one of "),
    ],
)
def test_refusals_are_one_line(reference, line):
    assert is_reference(reference)
    with pytest.raises(SpecError) as error:
        import_reference(reference, "problem.kind")
    assert str(error.value).startswith(f"problem.kind: got {reference!r}; expected {line}")
    assert "\n" not in str(error.value)


def test_what_a_module_raises_is_told(tmp_path, monkeypatch):
    (tmp_path / "raising_module.py").write_text("raise RuntimeError('first\\nsecond')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SpecError, match=r"it says: RuntimeError: first second$"):
        import_reference("raising_module:x")


CALLED = """
VALUE = 3

def make(size, *, scale=1.0):
    if size < 0:
        raise ValueError("sizes are\\nnot negative")
    return size * scale

def anything(**fields):
    return fields

class Thing:
    def __init__(self, size):
        self.size = size

class Deep(dict):
    def __init__(self, size):
        super().__init__(sise=size, **{"size": len(None)})
"""


@pytest.fixture
def makers(tmp_path, monkeypatch):
    (tmp_path / "makers_of_here.py").write_text(CALLED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "makers_of_here"
    sys.modules.pop("makers_of_here", None)


def test_a_target_is_called_with_the_other_keys(makers):
    assert call_reference(f"{makers}:make", {"size": 4, "scale": 0.5}) == 2.0
    assert call_reference(f"{makers}:anything", {"a": [1, 2]}) == {"a": [1, 2]}
    assert call_reference(f"{makers}:Thing", {"size": 4}).size == 4


@pytest.mark.parametrize(
    ("target", "arguments", "line"),
    [
        (
            "make",
            {"sise": 4},
            "net.sise: got 4; expected no such argument of makers_of_here:make, but one of 'scale', 's",
        ),
        ("make", {}, "net.size: got None; expected a value, as this argument of makers_of_here:make has no default"),
        ("Thing", {"size": 4, "x": 1}, "net.x: got 1; expected no such argument of makers_of_here:Thing, but one of"),
        ("make", {"size": -1}, "net.target: got 'makers_of_here:make'; expected a call that returns; it says: ValueE"),
        ("Deep", {"size": -1}, "net.target: got 'makers_of_here:Deep'; expected a call that returns; it says: TypeEr"),
        ("anything", {3: 4}, "net.3: got 4; expected no such argument of makers_of_here:anything"),
        ("VALUE", {}, "net.target: got 'makers_of_here:VALUE'; expected a function or a class, and this is int"),
        ("make_", {}, "net.target: got 'makers_of_here:make_'; expected a name of makers_of_here: one of"),
    ],
)
def test_a_call_that_fails_is_told_in_one_line(makers, target, arguments, line):
    with pytest.raises(SpecError) as error:
        call_reference(f"{makers}:{target}", arguments, "net")
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


@pytest.mark.parametrize("target", ["make", None, 3, ["a:b"]])
def test_a_target_is_a_reference(target):
    with pytest.raises(SpecError, match=r"^target: got .*; expected module:name or file.py:name of a function"):
        call_reference(target, {})


def test_built_in_references_are_imported_when_they_are_asked_for():
    code = (
        "import sys; from syncline.registry import Registry; "
        "things = Registry('things', 'tests.none', {'fractions': 'fractions:Fraction'}); "
        "before = 'fractions' in sys.modules; things.names(); "
        "print(before, 'fractions' in sys.modules, things.get('fractions').__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "Fraction"]
