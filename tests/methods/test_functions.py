"""Functions that make methods have the knobs and defaults of their specs, and make what specs make."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import syncline as sl
from syncline.errors import SpecError
from syncline.methods import METHOD_KINDS, MethodBase, functions, method_of
from syncline.methods.constructor import kinds
from syncline.specs import CompareSpec, validate
from tests.methods import stub
from tests.methods.own import Lamb
from tests.methods.table import METHODS

KINDS = {kind.replace("-", "_"): kind for kind in METHOD_KINDS.names()}


def test_there_is_one_of_every_kind_also_in_the_package() -> None:
    assert sorted(kinds()) == sorted(KINDS)
    assert set(KINDS) <= set(sl.__all__) and set(KINDS) <= set(dir(functions))
    with pytest.raises(AttributeError, match="no attribute 'mt_doa'"):
        functions.mt_doa  # noqa: B018


@pytest.mark.parametrize("name", KINDS)
def test_a_function_is_its_spec(name: str) -> None:
    make, spec = getattr(functions, name), METHOD_KINDS.get(KINDS[name])
    assert getattr(sl, name) is make is pickle.loads(pickle.dumps(make)) and make.__name__ == name
    knobs = {key: one for key, one in inspect.signature(make).parameters.items() if key != "options"}
    assert set(knobs) == set(spec.model_fields) - {"kind"}
    defaults = {key: one.default for key, one in knobs.items() if one.default is not one.empty}
    assert make(lr=0.1) == make(lr=0.1, **defaults) == method_of({"kind": KINDS[name], "lr": 0.1})
    assert make.__doc__.startswith((spec.__doc__ or "").split("\n")[0])
    arguments = make.__doc__.partition("Args:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^    (\w+): ", arguments, re.MULTILINE) == list(knobs), "described where it is declared"


def test_what_type_checkers_are_told_is_what_the_functions_take() -> None:
    """As text: the two differ in line breaks alone. Run ``python -m tests.methods.stub`` after a change of fields."""
    told, made = (ast.unparse(ast.parse(text)) for text in (stub.FILE.read_text(encoding="utf-8"), stub.stub()))
    assert told == made
    assert "period: int=32" in told and "base: Literal['adam', 'adopt', 'sgdm', 'muon']='adam'" in told


def test_the_rows_of_the_table_can_be_made() -> None:
    for name, row in METHODS.items():
        kind, fields = row.fields["kind"], {key: value for key, value in row.fields.items() if key != "kind"}
        assert getattr(functions, kind.replace("-", "_"))(**fields) == row.spec, name


ADAMW: Any = torch.optim.AdamW


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (sl.local(ADAMW, lr=0.1), {}),
        (sl.local(ADAMW, lr=0.1, weight_decay=0.2, label="mine"), {"weight_decay": 0.2}),
        (sl.diloco("torch.optim:AdamW", lr=0.1, average_states=["exp_avg"]), {"average_states": ("exp_avg",)}),
        (sl.ddp(partial(ADAMW, eps=0.1, amsgrad=True), lr=0.1, eps=0.2), {"eps": 0.2, "amsgrad": True}),
        (sl.ddp({"kind": "torch", "target": ADAMW, "eps": 0.2}, lr=0.1, amsgrad=True), {"eps": 0.2, "amsgrad": True}),
    ],
)  # fmt: skip
def test_further_arguments_are_the_optimizers(made: MethodBase, rule: dict[str, Any]) -> None:
    given = made.rule.model_dump(exclude={"kind", "target"})  # type: ignore[attr-defined]
    assert {"average_states": (), **rule} == given and made.weight_decay == 0 and made.lr == 0.1
    assert made.name.endswith("AdamW") or made.label == "mine"


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: sl.local("adam", lr=0.1, peroid=4), "peroid: got 4; expected no such field here, but one of"),
        (lambda: sl.local(Lamb, lr=0.1, peroid=4), "peroid: got 4; expected no such argument or option of the"),
        (lambda: sl.mt_dao(lr=-1), "lr: got -1; expected greater than 0"),
        (sl.mt_dao, "lr: got None; expected a value"),
        (lambda: sl.local("adam", lr=0.1, average_states=["m"]), "average_states: got ['m']; expected no such field"),
        (lambda: sl.local("torch.optim:AdamV", lr=0.1), "rule.target: got 'torch.optim:AdamV'; expected a name of"),
        (lambda: sl.local({"kind": "torch"}, lr=0.1), "rule.target: got None; expected a value"),
        (lambda: sl.local({"kind": "torch", "target": 3}, lr=0.1), "rule.target: got 'int'; expected a class"),
        (lambda: sl.ddp(Lamb, lr=0.1, average_states=["m"]), "rule.average_states: got ('m',); expected none: this"),
        (lambda: sl.ddp(torch.optim.Adam([torch.ones(1)]), lr=0.1), "rule.target: got 'Adam'; expected a class"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(call: Any, line: str) -> None:
    with pytest.raises(SpecError) as caught:
        call()
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


def test_arguments_by_place_are_counted_as_python_does() -> None:
    assert sl.local("sgdm", 8, lr=0.1) == sl.local(rule="sgdm", period=8, lr=0.1)
    with pytest.raises(TypeError, match=r"local\(\) got multiple values for argument 'period'"):
        sl.local("sgdm", 8, lr=0.1, period=4)
    with pytest.raises(TypeError, match="too many positional arguments"):
        sl.local("sgdm", 8, 9, lr=0.1)


def test_the_example_of_the_page_is_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "sl.compare" in block]
    given: dict[str, Any] = {}
    monkeypatch.setattr(sl, "compare", lambda **fields: given.update(fields))
    exec(example, {})
    spec = validate(CompareSpec, {"kind": "compare", "name": "page", **given})
    assert [method.name for method in spec.methods] == ["ddp-adam", "local-AdamW", "diloco-SGD"]


MADE = """
from typing import Literal

from syncline.methods.local import LocalSpec
import syncline as sl

def often(width=1, period=4):
    return sl.local("sgdm", lr=0.01 * width, period=period)

def never(width=1):
    return width

class Mine(LocalSpec):
    pass
"""


@pytest.fixture
def makers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "makers_of_methods.py").write_text(MADE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "makers_of_methods"


def test_a_spec_names_a_function_that_makes_its_method(makers: str) -> None:
    fields = {"kind": "python", "target": f"{makers}:often", "period": 2}
    method = method_of(fields)
    assert method.model_dump() == method.model_dump(mode="json") == fields
    assert dict(method) == dict(sl.local("sgdm", lr=0.01, period=2)) and method.name == "local-sgdm"
    assert method_of(method.model_dump()) == method
    assert method_of({**fields, "label": "mine"}).name == "mine"
    changed = method.model_copy(update={"lr": 0.5})  # as a rate that is tuned: then it is written as what it is
    assert method_of(changed.model_dump()).lr == 0.5
    own = method_of({"kind": "python", "target": f"{makers}:Mine", "lr": 0.1})
    assert own == method_of(own.model_dump()) and own.model_dump()["kind"] == "python"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "target: got None; expected module:name or file.py:name"),
        ({"target": "often"}, "target: got 'often'; expected module:name or file.py:name"),
        ({"target": "makers_of_methods:oftn"}, "target: got 'makers_of_methods:oftn'; expected a name of makers_of"),
        ({"target": "makers_of_methods:often", "peroid": 3}, "peroid: got 3; expected no such argument of makers_of_m"),
        ({"target": "makers_of_methods:often", "width": -1}, "target: got 'makers_of_methods:often'; expected a call"),
        ({"target": "makers_of_methods:never"}, "target: got 'makers_of_methods:never'; expected a function that"),
        ({"target": "makers_of_methods:Mine", "lr": 0.1, "peroid": 3}, "peroid: got 3; expected no such field here"),
        ({"target": "makers_of_methods:often", "label": 3}, "label: got 3; expected text"),
    ],
)  # fmt: skip
def test_what_makes_no_method_is_refused_in_one_line(makers: str, fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        method_of({"kind": "python", **fields})
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)
