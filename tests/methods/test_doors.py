"""Methods from outside the package: by ``module:Class``, by entry point, by Python; and what goes wrong there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from syncline.errors import SpecError
from syncline.methods import METHOD_KINDS, METHODS, MethodBase, method_of, preset_of, register
from syncline.methods.local import LocalSpec
from syncline.methods.mt_dao import MTDAOSpec
from tests.forked import run_forked

OWN = '''
from typing import Literal
from syncline.costmodel import Exchange
from syncline.fields import Period
from syncline.methods import MethodBase, tensors_of
from syncline.methods.parts.method_spec import elements


class Seldom(MethodBase):
    """Local SGD."""

    family = "mine"
    source = "nobody"
    period: Period = 4

    def exchanges(self, model, workers):
        return [Exchange(4 * elements(tensors_of(model)), self.period, "params")]

    def kept_elements(self, model, workers):
        return 0

    def optimizer(self, params, **options):
        from syncline.optim import Method, Periodic, sgdm

        sync = Periodic({"params": self.period})
        return Method(params, self.lr, sgdm(), sync, **options)


class Offered(Seldom):
    """The same, by a name."""

    kind: Literal["seldom"] = "seldom"
    presets = {"seldom-8": {"label": "seldom-8", "lr": 0.1, "period": 8}}
'''
SPEC = """
kind: compare
name: own
problem: {kind: quadratic, spectrum: [1, 10]}
workers: 2
seeds: [0]
steps: 8
networks: [10gbe]
compute: {seconds: 0.001}
methods: [%s]
"""


def offer(folder: Path, entry: str) -> None:
    """An installed package, as far as ``importlib.metadata`` looks."""
    (folder / "my_package.py").write_text(OWN)
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[syncline.methods]\nseldom = {entry}\n")


def test_a_method_of_another_package_is_compared(tmp_path: Path) -> None:
    """By its class, and by the name that it is offered under."""
    offer(tmp_path, "my_package:Offered")
    methods = "{kind: ddp, rule: sgdm, lr: 0.01}, {kind: 'my_package:Seldom', lr: 0.01}, {kind: seldom, lr: 0.01}"
    (tmp_path / "own.yaml").write_text(SPEC % methods)
    out = run_forked(tmp_path, "compare", "own.yaml", "--jobs", "1", "--json", "--out", "out")
    assert out.returncode == 0, out.stderr
    ddp, by_class, by_name = json.loads(out.stdout)["rows"]
    assert (by_class["method"], by_name["method"]) == ("Seldom", "seldom")
    for own in (by_class, by_name):
        assert own["bytes_per_worker"] == ddp["bytes_per_worker"] / 4


def test_what_a_package_offers_is_listed_with_its_presets(tmp_path: Path) -> None:
    offer(tmp_path, "my_package:Offered")
    out = run_forked(tmp_path, "list", "methods", "--json")
    assert "seldom-8" in {row["name"] for row in json.loads(out.stdout)["rows"]}, out.stderr


def test_an_entry_point_that_is_broken_ends_in_one_line_that_names_it(tmp_path: Path) -> None:
    offer(tmp_path, "my_package:Nothing")
    out = run_forked(tmp_path, "project", "--method", "seldom")
    assert out.returncode == 2
    (line,) = out.stderr.strip().splitlines()
    assert "my_package" in line and "Nothing" in line


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"kind": "mt-doa", "lr": 1}, "kind", "'mt-dao'"),
        ({"kind": None}, "kind", "'ddp', 'demo'"),
        ("mt-doa", "", "did you mean 'mt-dao'?"),
        ({"kind": "no_such_module:Spec"}, "kind", "No module named 'no_such_module'"),
        ({"kind": "math:pi"}, "kind", "a class derived from syncline.methods.MethodBase"),
        ({"kind": "mt-dao", "lr": 1, "peroid": 3}, "peroid", "did you mean 'period'?"),
        (3, "", "a method's name"),
    ],
)
def test_what_is_no_method_is_refused_in_one_line(value: object, path: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        method_of(value)
    assert caught.value.path == path and expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_kind_and_a_preset_are_registered_once() -> None:
    with pytest.raises(SpecError, match="mt-dao"):

        @register
        class Taken(MTDAOSpec):
            kind: Literal["mt-dao"] = "mt-dao"

    with pytest.raises(SpecError, match="a class with its own kind"):

        @register
        class Nameless(MethodBase):
            pass

    assert METHOD_KINDS.get("mt-dao") is MTDAOSpec


def test_every_preset_is_a_method_of_the_class_that_has_it() -> None:
    for kind in METHOD_KINDS.names():
        for name in METHOD_KINDS.get(kind).presets:
            assert type(method_of(name)) is METHOD_KINDS.get(kind), name
    assert set(METHODS) == {name for kind in METHOD_KINDS.names() for name in METHOD_KINDS.get(kind).presets}
    assert preset_of("local-adam")["kind"] == LocalSpec.model_fields["kind"].default
