"""What a field of a method, or of one of its parts, moves when it takes another value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
    "value_format": Moves("bf16", bytes="<"),
    "fraction": Moves(0.1, bytes=">"),
    "freeze_step": Moves(8, bytes=">"),
    "asynchronous": inert(
        {"buffer_size": 2}, "events move it, in trainings that play them: tests/runs/training/elastic"
    ),
    "remedy": inert({"kind": "discount", "anneal_steps": 4}, "late gradients: tests/runs/training/delayed_gradients"),
    # Of the average and the local rule
    "base": Moves("adopt"),
    "betas": Moves((0.9,)),
    "omegas": Moves((0.5,)),
    "beta": Moves(0.5),
    "beta1": Moves(0.5),
    "beta2": Moves(0.5),
    "beta3": Moves(0.5),
    "nu": Moves(0.5),
    "nu1": Moves(0.5),
    "nu2": Moves(0.5),
    "eps": Moves(0.1),
    "mu": Moves(0.5),
    "rho": Moves(0.5),
    "momentum": Moves(0.5),
    "bias_correction": Moves(False),
    "phase": Moves("paper"),
    "outer_optimizer": Moves("nesterov", kept=">"),
    "outer_lr": Moves(0.2),
    "outer_momentum": Moves(0.2),
    "in_backward": inert(True, "when it travels, and not what"),
    "switch_step": Moves(6),
    "warmup_beta": Moves(0.5, beside={"switch_step": 6}),
    "stream": Moves({"fragments": 3}),
    "fragments": Moves(4),
    "strides": Moves(2),
    "tau": Moves(2),
    "alpha": Moves(0.25),
    "form": Moves("ema"),
    "nesterov": Moves(False),
    "other_rule": Moves("lion", kept="<"),
    "exchange": Moves("compressed", bytes="<"),
    "threshold": Moves(1.0),
    "placement": Moves("early"),
    "placement_seed": Moves(1, beside={"placement": "random"}),
    "expected_sync_rate": Moves(0.5, bytes=">", training=False),
    "smoothing": Moves(0.01),
    "aggregation": Moves("gradients"),
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
    "tolerance": Moves(0.9),
}
"""What a field moves, by its name, where a row says nothing else of it."""

OF_PARTS: dict[str, Moves] = {
    "nadam.momentum_decay": Moves(0.5),
    "aggmo.betas": Moves((0.0, 0.9), kept="<"),
    "ademamix.alpha_warmup_steps": Moves(30),
    "ademamix.beta3_warmup_steps": Moves(30),
    "muon.adjust_lr": Moves("match_rms_adamw"),
    "scion.radius": Moves(7.0),
    "scion.table_radius": Moves(7.0),
    "scion.tables": Moves("rows"),
    "torch.target": Moves("torch.optim:SGD", kept="<", beside={"target": "torch.optim:AdamW"}),
    "torch.average_states": Moves(("exp_avg",), bytes=">", beside={"target": "torch.optim:AdamW"}),
    "qsgd.error_feedback": refused(True, "its noise can be larger than what it rounds"),
    "qsgd.bits": Moves(8, bytes=">"),
    "block-top-k.k": Moves(8, bytes="<"),
    "block-top-k.chunk": Moves(4, bytes=">", beside={"k": 4}),
}
"""Of the parts of methods, as ``kind.field``."""
