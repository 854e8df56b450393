"""Constructors have the knobs, defaults and checks of their specs, and build what the specs build."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import syncline.methods
from syncline.comm import BF16, DENSE
from syncline.errors import SpecError
from syncline.methods import DDP, METHOD_KINDS, MTDAO, Local
from syncline.methods.parts import compressors, diloco, rules
from syncline.methods.parts.method_spec import ObjectPart, elements
from syncline.optim import Method, Nesterov, TopK, UpdateRule, adam, sgdm
from tests.methods.table import METHODS

TENSORS = [syncline.costmodel.TensorShape("w", (6, 4), is_matrix=True), syncline.costmodel.TensorShape("b", (5,))]
RULES = [
    rules.SGDMRule(), rules.SGDMRule(momentum=0.0), rules.AdamRule(), rules.AdaSGDRule(), rules.NesterovAdamRule(),
    rules.AdoptRule(), rules.LionRuleSpec(), rules.MuonRule(), rules.MuonRule(other_rule="lion"), rules.ScionRule(),
    rules.QHMRule(), rules.QHAdamRule(), rules.QHAdoptRule(), rules.AggMoRule(), rules.AggMoRule(betas=(0.0,)),
    rules.AdEMAMixRule(), rules.MultiMomentumRule(), rules.MultiMomentumRule(base="muon"),
    rules.MultiMomentumRule(base="sgdm", betas=(0.0, 0.9), omegas=(0.1, 0.9)),
]  # fmt: skip


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))]


SPECS = {METHOD_KINDS.get(kind).__name__ for kind in METHOD_KINDS.names()}


@pytest.mark.parametrize("name", [one for one in dir(syncline.methods) if f"{one}Spec" in SPECS])
def test_a_constructor_is_its_spec(name: str) -> None:
    make = getattr(syncline.methods, name)
    (spec,) = (one for one in map(METHOD_KINDS.get, METHOD_KINDS.names()) if one.__name__ == f"{name}Spec")
    signature = inspect.signature(make)
    assert list(signature.parameters)[:2] == ["params", "lr"]
    knobs = {key: one.default for key, one in signature.parameters.items() if key in spec.model_fields and key != "lr"}
    assert knobs == {key: one.default for key, one in spec.model_fields.items() if key not in ("kind", "label", "lr")}
    assert make.__name__ == name and make.__doc__.split("\n")[0] == spec.__doc__.split("\n")[0]
    described = re.findall(r"^    (\w+): ", make.__doc__, re.MULTILINE)
    assert described == list(signature.parameters), "a field is described by the class that declares it"
    assert isinstance(make(parameters(), 0.1), Method)
    with pytest.raises(SpecError, match=r"^lr: got -1"):
        make(parameters(), -1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'knob'"):
        make(parameters(), 0.1, knob=1)


def test_parts_are_given_by_name_by_fields_or_as_objects() -> None:
    ways = [DDP(parameters(), 0.1, rule) for rule in ("adam", {"kind": "adam"}, rules.AdamRule(), adam())]
    assert all(method.rule == adam() for method in ways)
    method = MTDAO(parameters(), 0.1, outer_optimizer=Nesterov(0.5, 0.1), compressor=TopK(0.5))
    assert method.outer_optimizer == Nesterov(0.5, 0.1)
    assert DDP(parameters(), 0.1, wire=BF16).wire is BF16 and DDP(parameters(), 0.1).wire is DENSE
    with pytest.raises(SpecError, match=r"^rule"):
        Local(parameters(), 0.1, object())


def test_parts_have_the_defaults_of_what_they_build() -> None:
    from syncline import optim

    built = {
        rules.AdamRule: adam(), rules.AdaSGDRule: optim.ada_sgd(), rules.AdoptRule: optim.adopt(),
        rules.LionRuleSpec: optim.lion(), rules.NesterovAdamRule: optim.NesterovAdam(), rules.MuonRule: optim.muon(),
        rules.QHMRule: optim.qhm(), rules.QHAdamRule: optim.qhadam(), rules.QHAdoptRule: optim.qhadopt(),
        rules.AggMoRule: optim.aggmo(), rules.AdEMAMixRule: optim.AdEMAMix(),
        rules.ScionRule: optim.scion(), diloco.NesterovOuter: Nesterov(), diloco.FedAdamOuter: optim.FedAdam(),
        compressors.TopKCompressor: TopK(), compressors.LpCompressor: optim.LpMean(),
        compressors.QSGDCompressor: optim.QSGD(), compressors.BlockTopKCompressor: optim.BlockTopK(),
        compressors.OneBitCompressor: optim.OneBit(),
    }  # fmt: skip
    assert {part: part().build() for part in built} == built


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_that_is_an_object_keeps_what_its_fields_would(rule: rules.AdamRule) -> None:
    made: UpdateRule = rule.build()
    assert ObjectPart(made).state_elements(TENSORS) == rule.state_elements(TENSORS)
    assert ObjectPart(sgdm()).state_elements(TENSORS) == 0 < elements(TENSORS)


def test_the_head_of_the_parts_shows_every_kind_and_nothing_else() -> None:
    """The table in ``optim.base``, whose first column are kinds."""
    lines = (syncline.optim.base.__doc__ or "").splitlines()
    rows = [line.split()[0] for line in lines if line.startswith("    ") and "|" in line]
    assert sorted(rows[1:]) == sorted(METHOD_KINDS.names())


def test_every_kind_is_in_the_shared_table() -> None:
    assert {row.spec.kind for row in METHODS.values()} >= set(METHOD_KINDS.names())
