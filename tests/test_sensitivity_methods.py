"""Every field of a method's spec moves something: the bytes it sends, the numbers it keeps, or where a training ends.

Fields are read off the specs: a new one without an entry here fails, and so does one whose entry is not true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
from syncline.methods.parts import compressors, outer, rules
from syncline.methods.parts.stream import StreamSpec
from syncline.specs import validate

WORKERS, STEPS = 4, 24
MODEL = [TensorShape("w", (64, 48), is_matrix=True), TensorShape("b", (48,)), TensorShape("v", (48, 16))]

SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "local": {"period": 4},
    "diloco": {"period": 4},
    "mt-dao": {"period": 4},
    "des-loc": {"period": 4, "momentum_period": 6, "second_moment_period": 8, "eps": 1e-3},
    "streaming-mt-dao": {"period": 8, "stream": {"fragments": 2}},
    "streaming-diloco": {"period": 8, "stream": {"fragments": 2}},
    "dion": {"lr": 0.02},
    "curvadion": {"lr": 0.02, "threshold": 0.001},
    "powersgd": {"rank": 1},
    "one-bit-adam": {"freeze_step": 4, "eps": 1e-3},
    "zero-one-adam": {"freeze_step": 4, "eps": 1e-3, "kappa": 2, "double_every": 4, "max_interval": 4},
    "demo": {"k": 4, "chunk": 16},
    "lion-cub": {},
    "sign-sgd": {},
    "basis-rotation": {"frequency": 4},
    "soap": {"frequency": 4},
    "galore": {"frequency": 4},
}
"""Each kind where its knobs matter within a few steps."""


@dataclass(frozen=True)
class Moves:
    """What happens when a field takes another value.

    Args:
        to: the value.
        bytes: ``<``: fewer bytes per step, ``>``: more, ``=``: as many.
        kept: likewise, the numbers that a worker keeps.
        training: whether a training ends elsewhere.
        beside: what else the setting has, before and after.
        reason: why nothing moves, where nothing does.
        refused: whether the spec has no other value.
    """

    to: Any
    bytes: str = "="
    kept: str = "="
    training: bool = True
    beside: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    refused: bool = False

    @property
    def inert(self) -> bool:
        return self.bytes == self.kept == "=" and not self.training


def inert(to: Any, reason: str, **options: Any) -> Moves:
    return Moves(to, training=False, reason=reason, **options)


def refused(to: Any, reason: str) -> Moves:
    return Moves(to, training=False, reason=reason, refused=True)


ONE_RATE = "for parameters that a rule for matrices leaves to another rule; this one takes all"

FIELDS: dict[str, Moves] = {
    # All methods
    "lr": Moves(0.0123),
    "other_lr": inert(0.0321, ONE_RATE),
    "weight_decay": Moves(0.1),
    "clip_norm": Moves(0.01),
    "wire": Moves("bf16", bytes="<"),
    "label": inert("other", "a name, for people"),
    "rule": Moves("sgdm", kept="<"),
    # Bytes
    "period": Moves(8, bytes="<"),
    "compressor": Moves("top-k", bytes="<", kept=">"),
    "momentum_periods": Moves((8,), bytes="<"),
    "second_moment_period": Moves(16, bytes="<"),
    "momentum_period": Moves(12, bytes="<"),
    "rank": Moves(2, bytes=">", kept=">"),
    "k": Moves(8, bytes=">"),
    "bits": Moves(4, bytes="<"),
    "index_bits": Moves(16, bytes="<", training=False),
    "value": Moves("bf16", bytes="<"),
    "fraction": Moves(0.1, bytes=">"),
    "freeze_step": Moves(8, bytes=">"),
    # Of the average and the local rule
    "base": Moves("adopt"),
    "betas": Moves((0.9,)),
    "omegas": Moves((0.5,)),
    "beta": Moves(0.5),
    "beta1": Moves(0.5),
    "beta2": Moves(0.5),
    "eps": Moves(0.1),
    "mu": Moves(0.5),
    "momentum": Moves(0.5),
    "bias_correction": Moves(False),
    "phase": Moves("paper"),
    "outer": Moves("nesterov", kept=">"),
    "outer_lr": Moves(0.2),
    "outer_momentum": Moves(0.2),
    "switch_step": Moves(6),
    "warmup_beta": Moves(0.5, beside={"switch_step": 6}),
    "stream": Moves({"fragments": 3}),
    "fragments": Moves(4),
    "tau": Moves(2),
    "alpha": Moves(0.25),
    "form": Moves("ema"),
    "nesterov": Moves(False),
    "other": Moves("lion", kept="<"),
    "exchange": Moves("compressed", bytes="<"),
    "threshold": Moves(1.0),
    "expected_sync_rate": Moves(0.5, bytes=">", training=False),
    "warm_start": Moves(False),
    "error_feedback": Moves(False, kept="<"),
    "scale": Moves("mean"),
    "basis": Moves("random"),
    "average": Moves("all"),
    "p": Moves(2.0),
    "stochastic": Moves(True, beside={"p": "inf"}),
    "ties": Moves("plus"),
    "momentum_layers": Moves("all", bytes=">"),
    # Of bases
    "frequency": Moves(6),
    "allocation": Moves("stage-aware"),
    "estimate": Moves("exact"),
    "layers": Moves(("v",), kept="<"),
    "basis_source": Moves("1st", kept="<"),
    "geometry": Moves("unilateral", kept="<"),
    "refresh": Moves("after"),
    "covariance_beta": Moves(0.5),
}
"""By the field's name."""

OWN: dict[str, Moves] = {
    "dion.other_lr": Moves(0.0321),
    "curvadion.other_lr": Moves(0.0321),
    "local.rule": Moves("sgdm", bytes="<", kept="<"),
    "powersgd.rule": Moves("adam", kept=">"),
    # A period of 8 in the setting.
    "streaming-mt-dao.period": Moves(16, bytes="<"),
    "streaming-diloco.period": Moves(16, bytes="<"),
    "streaming-mt-dao.momentum_periods": Moves((16,), bytes="<"),
    "streaming-mt-dao.compressor": refused("top-k", "a reference that has moved on"),
    "streaming-mt-dao.phase": refused("paper", "streams are aligned"),
    "streaming-mt-dao.switch_step": refused(6, "streams from the first step"),
    "streaming-mt-dao.warmup_beta": inert(0.5, "of the steps before switch_step, of which there are none"),
    # The gradient itself travels unless the exchange is compressed.
    "dion.rank_fraction": Moves(0.5, bytes=">", kept=">", beside={"exchange": "compressed"}),
    "curvadion.rank_fraction": Moves(0.5, bytes=">", kept=">", beside={"exchange": "compressed"}),
    "dion.local_step": Moves("hold", kept=">", beside={"period": 4}),
    "curvadion.local_step": Moves("hold", kept=">", beside={"threshold": 1e9}),
    "curvadion.form": Moves("code", beside={"threshold": 0.5}),
    "powersgd.warmup_steps": Moves(6, bytes=">"),
    "powersgd.error_feedback": Moves(False),
    "powersgd.always": Moves(True, bytes=">", kept=">", beside={"rank": 40}),
    "zero-one-adam.kappa": Moves(4, bytes=">"),
    "zero-one-adam.double_every": Moves(8, bytes=">"),
    "zero-one-adam.max_interval": Moves(2, bytes=">"),
    "zero-one-adam.form": Moves("paper", bytes=">"),
    # Signs have no size.
    "demo.clip_norm": Moves(0.01, beside={"base": "sgd"}),
    "demo.wire": inert("bf16", "value is the format of what it sends"),
    "demo.base": Moves("sgd"),
    "demo.chunk": Moves(4, bytes=">"),
    "lion-cub.wire": Moves("bf16", bytes="<", beside={"momentum_layers": "all"}),
    "lion-cub.vote": Moves("one-bit", bytes="<"),
    "lion-cub.ties": Moves("plus", beside={"vote": "one-bit"}),
    "lion-cub.momentum_period": Moves(12, bytes="<", beside={"momentum_layers": "all"}),
    "sign-sgd.clip_norm": Moves(0.01, beside={"momentum": 0.9}),
    "sign-sgd.wire": refused("bf16", "votes have formats of their own"),
    "sign-sgd.vote": Moves("quantised", bytes=">"),
    "sign-sgd.bits": Moves(4, bytes="<", beside={"vote": "quantised"}),
    "sign-sgd.p": Moves(0.5, beside={"vote": "quantised"}),
    "sign-sgd.stochastic": Moves(True, beside={"vote": "quantised", "p": "inf"}),
    "sign-sgd.momentum": Moves(0.5, kept=">"),
    "nadam.momentum_decay": Moves(0.5),
    "basis-rotation.other_lr": Moves(0.0321),
    "soap.other_lr": Moves(0.0321),
    "galore.other_lr": Moves(0.0321),
    "basis-rotation.momentum": Moves("rotated"),
    "galore.estimate": Moves("power"),
    "muon.adjust": Moves("match_rms_adamw"),
    "scion.radius": Moves(7.0),
    "scion.table_radius": Moves(7.0),
    "scion.tables": Moves("rows"),
    "qsgd.error_feedback": refused(True, "its noise can be larger than what it rounds"),
    "qsgd.bits": Moves(8, bytes=">"),
}
"""Where a field of one kind is another thing than the same name elsewhere, as ``kind.field``."""


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
    "muon": ("ddp", "rule"),
    "scion": ("ddp", "rule"),
    "lion": ("ddp", "rule"),
    "top-k": ("ddp", "compressor"),
    "lp": ("ddp", "compressor"),
    "qsgd": ("ddp", "compressor"),
    "nesterov": ("mt-dao", "outer"),
    "fedadam": ("mt-dao", "outer"),
    "stream": ("streaming-mt-dao", "stream"),
}
"""Parts of methods: in which kind, as which field."""

PARTS = {
    **{one.model_fields["kind"].default: one for one in leaves(rules.RuleSpec)},
    **{one.model_fields["kind"].default: one for one in leaves(compressors.CompressorSpec)},
    **{one.model_fields["kind"].default: one for one in leaves(outer.OuterSpec)},
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
