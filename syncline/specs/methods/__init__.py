"""Methods as specs: their knobs, what they send in closed form, and the optimizer they build."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag, TypeAdapter

from syncline.errors import one_of
from syncline.specs.base import refusal
from syncline.specs.methods.averaging import DDPSpec, DESLOCSpec, DiLoCoSpec, LocalSpec, MTDAOSpec
from syncline.specs.methods.base import MethodBase, Tensors, tag, tensors_of
from syncline.specs.methods.low_rank import CurvaDionSpec, DionSpec, PowerSGDSpec
from syncline.specs.methods.outer import FedAdamOuter, NesterovOuter
from syncline.specs.methods.rules import AdamRule, AdoptRule, MuonRule, SGDMRule
from syncline.specs.methods.sparse import DeMoSpec
from syncline.specs.methods.streaming import StreamingDiLoCoSpec, StreamingMTDAOSpec, StreamSpec

METHODS: dict[str, dict[str, Any]] = {
    "ddp-sgdm": {"kind": "ddp", "rule": "sgdm", "lr": 0.05},
    "ddp-adam": {"kind": "ddp", "rule": "adam", "lr": 0.003},
    "ddp-adopt": {"kind": "ddp", "rule": "adopt", "lr": 0.003},
    "ddp-muon": {"kind": "ddp", "rule": "muon", "lr": 0.02, "other_lr": 0.003},
    "local-sgdm": {"kind": "local", "rule": "sgdm", "lr": 0.05},
    "local-adam": {"kind": "local", "rule": "adam", "lr": 0.003},
    "local-adopt": {"kind": "local", "rule": "adopt", "lr": 0.003},
    "diloco": {"kind": "diloco", "lr": 0.003},
    "mt-dao": {"kind": "mt-dao", "lr": 0.003},
    "mt-dao-adopt": {"kind": "mt-dao", "base": "adopt", "lr": 0.003},
    "mt-dao-sgdm": {"kind": "mt-dao", "base": "sgdm", "lr": 0.5},
    "mt-dao-muon": {"kind": "mt-dao", "base": "muon", "lr": 0.02, "other_lr": 0.003},
    "des-loc": {"kind": "des-loc", "lr": 0.003},
    "des-loc-adopt": {"kind": "des-loc", "base": "adopt", "lr": 0.003},
    "streaming-mt-dao": {"kind": "streaming-mt-dao", "lr": 0.003},
    "streaming-local-adam": {
        "kind": "streaming-mt-dao",
        "label": "streaming-local-adam",
        "betas": [0.9],
        "omegas": [1.0],
        "lr": 0.003,
    },
    "streaming-diloco": {"kind": "streaming-diloco", "lr": 0.003},
    "dion": {"kind": "dion", "lr": 0.02, "other_lr": 0.003},
    "dion-compressed": {"kind": "dion", "exchange": "compressed", "lr": 0.02, "other_lr": 0.003},
    "dion-scheduled": {"kind": "dion", "label": "dion-scheduled", "period": 32, "lr": 0.02, "other_lr": 0.003},
    "curvadion": {"kind": "curvadion", "lr": 0.02, "other_lr": 0.003},
    "demo": {"kind": "demo", "lr": 0.001},
    "demo-sgd": {"kind": "demo", "base": "sgd", "lr": 0.05},
    "demo-muon": {"kind": "demo", "base": "muon", "lr": 0.02},
    "powersgd": {"kind": "powersgd", "lr": 0.05},
}
"""Named starting points: a spec may say ``method: mt-dao`` and change fields from there."""


def expand_method(value: Any) -> Any:
    """A method's name as the fields that it stands for; anything else as it is."""
    if isinstance(value, str):
        if value not in METHODS:
            raise refusal("", value, one_of(METHODS, value))
        return dict(METHODS[value])
    return value


MethodSpec = Annotated[
    Annotated[DDPSpec, Tag("kind:ddp")]
    | Annotated[LocalSpec, Tag("kind:local")]
    | Annotated[DiLoCoSpec, Tag("kind:diloco")]
    | Annotated[MTDAOSpec, Tag("kind:mt-dao")]
    | Annotated[DESLOCSpec, Tag("kind:des-loc")]
    | Annotated[StreamingMTDAOSpec, Tag("kind:streaming-mt-dao")]
    | Annotated[StreamingDiLoCoSpec, Tag("kind:streaming-diloco")]
    | Annotated[DionSpec, Tag("kind:dion")]
    | Annotated[CurvaDionSpec, Tag("kind:curvadion")]
    | Annotated[PowerSGDSpec, Tag("kind:powersgd")]
    | Annotated[DeMoSpec, Tag("kind:demo")],
    Discriminator(tag),
    BeforeValidator(expand_method),
]


def method_of(value: Any) -> MethodBase:
    """The method that a user means: a name in ``METHODS``, or a mapping of fields.

    Raises:
        pydantic.ValidationError: for anything else.
    """
    method: MethodBase = TypeAdapter(MethodSpec).validate_python(value)
    return method


__all__ = [
    "METHODS",
    "AdamRule",
    "AdoptRule",
    "CurvaDionSpec",
    "DDPSpec",
    "DESLOCSpec",
    "DeMoSpec",
    "DiLoCoSpec",
    "DionSpec",
    "FedAdamOuter",
    "LocalSpec",
    "MTDAOSpec",
    "MethodBase",
    "MethodSpec",
    "MuonRule",
    "NesterovOuter",
    "PowerSGDSpec",
    "SGDMRule",
    "StreamSpec",
    "StreamingDiLoCoSpec",
    "StreamingMTDAOSpec",
    "Tensors",
    "expand_method",
    "method_of",
    "tensors_of",
]
