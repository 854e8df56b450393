"""Methods as specs: their knobs, what they send in closed form, and the optimizer they build."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag, TypeAdapter

from syncline.errors import one_of
from syncline.fields import refusal
from syncline.methods.averaging import DDPSpec, DESLOCSpec, DiLoCoSpec, LocalSpec, MTDAOSpec
from syncline.methods.base import MethodBase, Tensors, tag, tensors_of
from syncline.methods.compressors import LpCompressor, QSGDCompressor, TopKCompressor
from syncline.methods.lion import LionCubSpec, SignSGDSpec
from syncline.methods.low_rank import CurvaDionSpec, DionSpec, PowerSGDSpec
from syncline.methods.one_bit import OneBitAdamSpec, ZeroOneAdamSpec
from syncline.methods.outer import FedAdamOuter, NesterovOuter
from syncline.methods.rotation import BasisRotationSpec, GaLoreSpec, SOAPSpec
from syncline.methods.rules import AdamRule, AdoptRule, LionRule, MuonRule, ScionRule, SGDMRule
from syncline.methods.sparse import DeMoSpec
from syncline.methods.streaming import StreamingDiLoCoSpec, StreamingMTDAOSpec, StreamSpec

METHODS: dict[str, dict[str, Any]] = {
    "ddp-sgdm": {"kind": "ddp", "rule": "sgdm", "lr": 0.05},
    "ddp-adam": {"kind": "ddp", "rule": "adam", "lr": 0.003},
    "ddp-nadam": {"kind": "ddp", "rule": "nadam", "lr": 0.003},
    "ddp-ada-sgd": {"kind": "ddp", "rule": "ada-sgd", "lr": 0.003},
    "ddp-adopt": {"kind": "ddp", "rule": "adopt", "lr": 0.003},
    "ddp-muon": {"kind": "ddp", "rule": "muon", "lr": 0.02, "other_lr": 0.003},
    "ddp-scion": {"kind": "ddp", "rule": "scion", "lr": 0.00025, "weight_decay": 1.0},
    "ddp-uscion": {"kind": "ddp", "label": "ddp-uscion", "rule": "scion", "lr": 0.00025},
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
    "top-k": {"kind": "ddp", "label": "top-k", "rule": "sgdm", "compressor": "top-k", "lr": 0.05},
    "qsgd": {"kind": "ddp", "label": "qsgd", "rule": "sgdm", "compressor": "qsgd", "lr": 0.05},
    "mt-dao-l1": {"kind": "mt-dao", "compressor": "lp", "lr": 0.003},
    "mt-dao-top-k": {"kind": "mt-dao", "compressor": "top-k", "lr": 0.003},
    "diloco-l1": {"kind": "diloco", "compressor": "lp", "lr": 0.003},
    "diloco-top-k": {"kind": "diloco", "compressor": "top-k", "lr": 0.003},
    "dion-8bit": {
        "kind": "dion",
        "label": "dion-8bit",
        "exchange": "compressed",
        "compressor": {"kind": "lp", "p": "inf"},
        "lr": 0.02,
        "other_lr": 0.003,
    },
    "demo-periodic": {"kind": "demo", "label": "demo-periodic", "period": 4, "lr": 0.001},
    "one-bit-adam": {"kind": "one-bit-adam", "lr": 0.003, "eps": 0.001},
    "zero-one-adam": {"kind": "zero-one-adam", "lr": 0.003, "eps": 0.001},
    "ddp-lion": {"kind": "ddp", "rule": "lion", "lr": 0.0005},
    "ddp-lion-16bit": {"kind": "ddp", "label": "ddp-lion-16bit", "rule": "lion", "wire": "bf16", "lr": 0.0005},
    "distributed-lion": {"kind": "lion-cub", "vote": "server-efficient", "lr": 0.0005},
    "distributed-lion-naive": {"kind": "lion-cub", "vote": "server-naive", "lr": 0.0005},
    "lion-cub": {"kind": "lion-cub", "lr": 0.0005},
    "lion-cub-linf": {"kind": "lion-cub", "p": "inf", "lr": 0.0005},
    "lion-cub-4bit": {"kind": "lion-cub", "label": "lion-cub-4bit", "vote": "direct", "bits": 4, "lr": 0.0005},
    "lion-cub-1bit": {"kind": "lion-cub", "vote": "one-bit", "lr": 0.0005},
    "sign-sgd": {"kind": "sign-sgd", "lr": 0.0005},
    "basis-rotation": {"kind": "basis-rotation", "lr": 0.003},
    "basis-rotation-2nd-uni": {"kind": "basis-rotation", "geometry": "unilateral", "lr": 0.003},
    "basis-rotation-1st-bi": {"kind": "basis-rotation", "basis_source": "1st", "lr": 0.003},
    "basis-rotation-1st-uni": {
        "kind": "basis-rotation",
        "basis_source": "1st",
        "geometry": "unilateral",
        "lr": 0.003,
    },
    "soap": {"kind": "soap", "lr": 0.003},
    "galore": {"kind": "galore", "lr": 0.003},
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
    | Annotated[OneBitAdamSpec, Tag("kind:one-bit-adam")]
    | Annotated[ZeroOneAdamSpec, Tag("kind:zero-one-adam")]
    | Annotated[DeMoSpec, Tag("kind:demo")]
    | Annotated[LionCubSpec, Tag("kind:lion-cub")]
    | Annotated[SignSGDSpec, Tag("kind:sign-sgd")]
    | Annotated[BasisRotationSpec, Tag("kind:basis-rotation")]
    | Annotated[SOAPSpec, Tag("kind:soap")]
    | Annotated[GaLoreSpec, Tag("kind:galore")],
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
    "BasisRotationSpec",
    "CurvaDionSpec",
    "DDPSpec",
    "DESLOCSpec",
    "DeMoSpec",
    "DiLoCoSpec",
    "DionSpec",
    "FedAdamOuter",
    "GaLoreSpec",
    "LionCubSpec",
    "LionRule",
    "LocalSpec",
    "LpCompressor",
    "MTDAOSpec",
    "MethodBase",
    "MethodSpec",
    "MuonRule",
    "NesterovOuter",
    "OneBitAdamSpec",
    "PowerSGDSpec",
    "QSGDCompressor",
    "SGDMRule",
    "SOAPSpec",
    "ScionRule",
    "SignSGDSpec",
    "StreamSpec",
    "StreamingDiLoCoSpec",
    "StreamingMTDAOSpec",
    "Tensors",
    "TopKCompressor",
    "ZeroOneAdamSpec",
    "expand_method",
    "method_of",
    "tensors_of",
]
