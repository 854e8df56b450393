"""A declaration becomes a function's signature and docstring, and a command's options; both have the same errors."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from syncline.api.arguments import function_of
from syncline.cli.commands import COMMANDS, callback_of
from syncline.errors import SpecError
from syncline.questions import question_of
from syncline.questions.declare import PYTHON, RAISES, REQUIRED, SHELL, Question, appearance_of, flag_of, listed, option
from tests.questions import reference


class Bake(Question):
    """Bake cakes.

    In an oven.

    Returns:
        The cakes.
    """

    flour: str = option("Kind of flour.", REQUIRED, in_order=True, metavar="KIND", positional=True)
    eggs: int | None = option("Number of eggs.", in_order=True, metavar="N", minimum=1)
    minutes: str | float = option("Time in the oven.", "30 min", flag="--for", metavar="TIME")
    layers: Any = option("Layers.", flag="--layer", repeatable=True)
    sizes: Any = option("Sizes.", (1, 2), shell_default="1,2", reader="values")
    warm: bool = option("Serve it warm.", False)
    on_done: Any = option("Function to call.", place=PYTHON)
    plate: Path | None = option("Plate.", place=SHELL)
    fields: Mapping[str, Any] | None = option("Other ingredients.", flag="--set", repeatable=True)


def bake(**answers: Any) -> Any:
    """The function, and what it has asked."""
    return function_of(Bake, lambda question: answers.setdefault("question", question))


def command(*arguments: str, refuse: str = "") -> Any:
    """The question of a command line; or the answer refuses a field."""
    asked: list[Any] = []

    def answer(question: Any) -> None:
        asked.append(question)
        if refuse:
            raise SpecError(refuse, 1, "another")

    app = typer.Typer()
    app.command()(callback_of(Bake, answer))
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return asked[0]


def test_the_signature_is_that_of_the_fields() -> None:
    text = str(inspect.signature(bake())).replace("'", "")
    assert text == (
        "(flour: str, eggs: int | None = None, *, minutes: str | float = 30 min, layers: Any = None, "
        "sizes: Any = (1, 2), warm: bool = False, on_done: Any = None, **fields: Any) -> Result"
    )


def test_the_docstring_has_every_argument_before_what_is_returned() -> None:
    lines = bake().__doc__.splitlines()
    assert lines[:4] == ["Bake cakes.", "", "In an oven.", ""]
    assert lines[4:7] == ["Args:", "    flour: Kind of flour.", "    eggs: Number of eggs."]
    assert "    **fields: Other ingredients." in lines and lines[-5:-3] == ["Returns:", "    The cakes."]
    assert "\n".join(lines[-2:]) == RAISES


def test_values_of_python_and_texts_of_the_shell_make_the_same_question() -> None:
    called = bake()("rye", 3, minutes="1 h", layers="cream", sizes=[3], warm=True)
    typed = command("rye", "--eggs", "3", "--for", "1 h", "--layer", "cream", "--sizes", "3", "--warm")
    assert vars(called) == vars(typed) and typed.layers == ["cream"] and typed.sizes == [3]
    assert command("rye").sizes == [1, 2] and command("rye", "--plate", "p").plate == Path("p")
    assert bake()("rye", sugar=2).fields == {"sugar": 2} and command("rye", "--set", "sugar=2").fields == ["sugar=2"]


def test_a_question_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Bake(flour="rye").eggs = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("refused", "arguments", "said"),
    [
        ("minutes", ["--for", "1 h"], "--for"),
        ("minutes.low", ["--for", "1 h"], "--for.low"),
        ("--for", ["--for", "1 h"], "--for"),
        ("layer", ["--layer", "cream"], "--layer"),
        ("layers.0", ["--layer", "cream"], "--layer.0"),
        ("flour", [], "flour"),
        ("minutes", [], "minutes"),  # not the option: a field of a spec has that name
        ("oven", [], "oven"),
    ],
)
def test_an_error_names_the_option(refused: str, arguments: list[str], said: str) -> None:
    with pytest.raises(SpecError) as error:
        command("rye", *arguments, refuse=refused)
    assert error.value.path == said


@pytest.mark.parametrize(("refused", "said"), [("--for", "minutes"), ("--eggs", "eggs"), ("--layer", "layers")])
def test_an_error_names_the_argument(refused: str, said: str) -> None:
    def answer(question: Any) -> None:
        raise SpecError(refused, 1, "another")

    with pytest.raises(SpecError) as error:
        function_of(Bake, answer)("rye")
    assert error.value.path == said


def test_arguments_that_python_refuses_are_type_errors() -> None:
    for values, said in (
        ([], "missing a required argument: 'flour'"),
        (["rye", 1, 2], "too many positional arguments"),
    ):
        with pytest.raises(TypeError, match=rf"^bake\(\) {said}"):
            bake()(*values)
    with pytest.raises(SpecError, match=r"^eggs: got 'x'; expected a whole number"):
        bake()("rye", "x")


def test_one_value_is_a_list_of_one() -> None:
    assert listed(None) == [] and listed("a") == ["a"] and listed((1, 2)) == [1, 2] and listed({"a": 1}) == [{"a": 1}]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_field_has_a_sentence_and_a_name_of_its_own(name: str) -> None:
    for place in (SHELL, PYTHON):
        fields = question_of(name).declared(place)
        assert all(appearance_of(field).help.endswith(".") for field in fields)
    flags = [flag_of(field) for field in question_of(name).declared(SHELL)]
    assert len(flags) == len(set(flags)) and question_of(name).command == name


def test_the_reference_page_is_that_of_the_declarations() -> None:
    """Run ``python -m tests.questions.reference`` after a change of a question."""
    assert reference.FILE.read_text(encoding="utf-8") == reference.page()


def test_declarations_load_nothing_heavy() -> None:
    code = "import sys\nfrom syncline.questions import question_of\n"
    code += f"for name in {[*COMMANDS]}: question_of(name)"
    heavy = ("typer", "rich", "pydantic", "numpy", "torch", "pandas", "yaml", "syncline.specs", "syncline.errors")
    code += f"\nprint(sorted({set(heavy)} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
