"""Every field of a method's spec moves something: the bytes it sends, the numbers it keeps, or where a training ends.

Fields are read off the specs: a new one without an entry here fails, and so does one whose entry is not true.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import pytest
import torch
import yaml
from pydantic import BaseModel

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import TensorShape
from syncline.costmodel.traffic.exchanges import bytes_per_step
from syncline.errors import SpecError
from syncline.methods import METHOD_KINDS, method_of
from syncline.methods.parts import compressors, diloco, rules
from syncline.methods.parts.diloco import StreamSpec
from syncline.specs import validate
from tests.methods.moves import FIELDS, OF_PARTS, Moves
from tests.methods.table import METHODS

WORKERS, STEPS = 4, 24
MODEL = [TensorShape("w", (64, 48), is_matrix=True), TensorShape("b", (48,)), TensorShape("v", (48, 16))]


SETTINGS = {row.spec.kind: row.setting for row in METHODS.values() if row.setting is not None}
OWN = OF_PARTS | {f"{row.spec.kind}.{name}": moves for row in METHODS.values() for name, moves in row.moves.items()}


def leaves(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from leaves(inner)


KINDS = {kind: METHOD_KINDS.get(kind) for kind in METHOD_KINDS.names()}
INSIDE: dict[str, tuple[str, str]] = {
    "adam": ("ddp", "rule"),
    "nadam": ("ddp", "rule"),
    "ada-sgd": ("ddp", "rule"),
    "adopt": ("ddp", "rule"),
    "sgdm": ("ddp", "rule"),
    "qhm": ("ddp", "rule"),
    "qhadam": ("ddp", "rule"),
    "qhadopt": ("ddp", "rule"),
    "aggmo": ("ddp", "rule"),
    "ademamix": ("ddp", "rule"),
    "multi-momentum": ("ddp", "rule"),
    "muon": ("ddp", "rule"),
    "scion": ("ddp", "rule"),
    "lion": ("ddp", "rule"),
    "torch": ("local", "rule"),
    "top-k": ("ddp", "compressor"),
    "lp": ("ddp", "compressor"),
    "qsgd": ("ddp", "compressor"),
    "block-top-k": ("ddp", "compressor"),
    "one-bit": ("ddp", "compressor"),
    "nesterov": ("mt-dao", "outer_optimizer"),
    "fedadam": ("mt-dao", "outer_optimizer"),
    "stream": ("streaming-mt-dao", "stream"),
}
"""Parts of methods: in which kind, as which field."""

PARTS = {
    **{one.model_fields["kind"].default: one for one in leaves(rules.RuleSpec)},
    **{one.model_fields["kind"].default: one for one in leaves(compressors.CompressorSpec)},
    **{one.model_fields["kind"].default: one for one in leaves(diloco.OuterSpec)},
    "stream": StreamSpec,
}

ALL = [(kind, name) for kind, spec in {**KINDS, **PARTS}.items() for name in spec.model_fields if name != "kind"]


def entry(kind: str, name: str) -> Moves:
    return OWN.get(f"{kind}.{name}") or FIELDS[name]


def fields_of(kind: str, name: str, value: Any, beside: dict[str, Any]) -> dict[str, Any]:
    """A method's fields in its setting, with a value in it or in a part of it; none leaves the value as it is."""
    changed = dict(beside) if value is None else {**beside, name: value}
    if kind in KINDS:
        return {"kind": kind, "lr": 0.01, **SETTINGS[kind], **changed}
    host, where = INSIDE[kind]
    inside = changed if kind == "stream" else {"kind": kind, **changed}
    return {"kind": host, "lr": 0.01, **SETTINGS[host], where: {**SETTINGS[host].get(where, {}), **inside}}


@cache
def outcome(text: str) -> tuple[float, int, tuple[torch.Tensor, ...]]:
    """Bytes per step and numbers kept on a model's shapes, and where workers end on quadratics of their own."""
    method = method_of(yaml.safe_load(text))
    sent = bytes_per_step(method.exchanges(MODEL, WORKERS), 960)
    comm, draw = SimulatedCommunicator(WORKERS), torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.zeros(WORKERS, *shape)) for shape in ((8, 8), (8,), (2, 8))]
    optima = [torch.randn(p.shape, generator=draw) for p in params]
    groups = [
        {"params": [("w", params[0])], "matrix": True, "delay": 1},
        {"params": [("b", params[1]), ("v", params[2])], "matrix": False, "delay": 0},
    ]
    optimizer = method.build(groups, comm)
    for _ in range(STEPS):
        for p, optimum in zip(params, optima, strict=True):
            p.grad = p.detach() - optimum + 0.1 * torch.randn(p.shape, generator=draw)
        optimizer.step()
    return sent, method.kept_elements(MODEL, WORKERS), tuple(p.detach() for p in params)


def test_every_kind_has_a_setting_and_every_field_an_entry() -> None:
    assert set(KINDS) == set(SETTINGS) and set(PARTS) == set(INSIDE)
    assert not [f"{kind}.{name}" for kind, name in ALL if f"{kind}.{name}" not in OWN and name not in FIELDS]
    assert set(OWN) <= {f"{kind}.{name}" for kind, name in ALL}
    assert set(FIELDS) <= {name for kind, name in ALL if f"{kind}.{name}" not in OWN}
    assert all(one.reason for one in (*FIELDS.values(), *OWN.values()) if one.inert)


def sign(before: float, after: float) -> str:
    return "=" if before == after else "<" if after < before else ">"


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_each_field_moves_what_it_should(kind: str, name: str) -> None:
    what = entry(kind, name)
    if what.refused:
        with pytest.raises(SpecError, match=rf"{name}: got "):
            fields = fields_of(kind, name, what.to, what.beside)
            validate(KINDS[fields["kind"]], fields)
        return
    before, after = (
        outcome(yaml.safe_dump(fields_of(kind, name, value, what.beside))) for value in (None, _plain(what.to))
    )
    moved = any(not torch.equal(x, y) for x, y in zip(before[2], after[2], strict=True))
    assert (sign(before[0], after[0]), sign(before[1], after[1]), moved) == (what.bytes, what.kept, what.training)


def _plain(value: Any) -> Any:
    """As YAML has it."""
    return list(value) if isinstance(value, tuple) else value
